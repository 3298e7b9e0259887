"""DSSE envelopes: any bytes with their type, signed by the house's Ed25519 key, without canonicalising anything again.

Called by the in-toto and bundle exporters, and by whoever checks what they wrote. A verifier believes nothing of an envelope
before its signature holds.

Source: secure-systems-lab/dsse, protocol.md (PAE) and envelope.md.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specops.errors import ChainBroken, InvalidInput

if TYPE_CHECKING:
    from specops.adapters.signing import PublicKey, Signer

IN_TOTO = "application/vnd.in-toto+json"
MAX_BYTES = 64 << 20


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that are signed: version, then type and payload with their lengths."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def seal(payload: bytes, signer: "Signer", *, payload_type: str = IN_TOTO) -> dict[str, Any]:
    """Return a signed envelope around `payload`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    signature = Ed25519PrivateKey.from_private_bytes(signer.seed).sign(pae(payload_type, payload))
    return {
        "payloadType": payload_type,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": signer.public_key.to_line(), "sig": base64.b64encode(signature).decode()}],
    }


def unseal(envelope: object, key: "PublicKey", *, payload_type: str = IN_TOTO) -> bytes:
    """Return the payload of an envelope that `key` has signed.

    Args:
        envelope: parsed JSON.
        key: whom to believe; signatures of others are ignored.
        payload_type: the type that is expected; another one is refused before the signature is looked at.

    Raises:
        InvalidInput: not an envelope, or of another type.
        ChainBroken: no signature of this key holds.
    """
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    kind, payload, signatures = _parsed(envelope)
    if kind != payload_type:
        raise InvalidInput(f"the envelope holds {kind[:80]!r}, expected {payload_type!r}; it is another kind of statement")
    public = Ed25519PublicKey.from_public_bytes(key.raw)
    for signature in signatures:
        try:
            public.verify(signature, pae(kind, payload))
        except InvalidSignature:
            continue
        return payload
    raise ChainBroken(f"no signature of {key.name} on the envelope holds: it was altered, or signed by somebody else")


def statement(envelope: object, key: "PublicKey") -> dict[str, Any]:
    """Return the in-toto statement of an envelope that `key` has signed.

    Raises:
        InvalidInput: not an envelope, or its payload is no in-toto statement v1.
        ChainBroken: no signature of this key holds.
    """
    try:
        found = json.loads(unseal(envelope, key))
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"the envelope's payload is not JSON: {exc}") from exc
    if not isinstance(found, dict) or found.get("_type") != "https://in-toto.io/Statement/v1":
        raise InvalidInput("the envelope's payload is no in-toto statement v1; ask its sender for the format")
    return found


def _parsed(envelope: object) -> tuple[str, bytes, list[bytes]]:
    """Take an envelope apart without believing it."""
    fields = envelope if isinstance(envelope, Mapping) else {}
    kind, raw, listed = (fields.get(name) for name in ("payloadType", "payload", "signatures"))
    if not isinstance(kind, str) or not isinstance(raw, str) or not isinstance(listed, list) or len(raw) > MAX_BYTES:
        raise InvalidInput(f"not a DSSE envelope: {str(envelope)[:80]}; expected payloadType, payload and signatures")
    try:
        return kind, base64.b64decode(raw, validate=True), [base64.b64decode(s["sig"], validate=True) for s in listed]
    except (KeyError, TypeError, ValueError, binascii.Error) as exc:
        raise InvalidInput(f"not a DSSE envelope: {exc!r} in its payload or signatures; it was cut or edited") from exc
