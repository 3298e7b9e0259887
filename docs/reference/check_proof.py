# ruff: noqa: ANN001, ANN002, ANN201, D103, INP001, PTH123, SIM115, T201  # short enough to be read by whoever must trust it
"""Check, without specops, that an audit entry is in a signed log: python check_proof.py BUNDLE.json KEY.pub.

Needs `cryptography`. The bundle comes from `specops audit prove`; the key, the one line of `audit.key.pub`, must come from
somewhere that the bundle's sender cannot change. Exit code 0 and the entry, or 1 and what does not hold.
Sources: RFC 9162 section 2.1.3.2 (inclusion), C2SP signed-note and tlog-checkpoint.
"""

import base64
import hashlib
import json
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def need(holds, otherwise):
    if not holds:
        sys.exit(f"NOT PROVEN: {otherwise}")


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def signed_head(note, key_line):
    """Return the size and the root that the key has signed."""
    name, key_id, encoded = key_line.strip().split("+", 2)
    key, (text, _, lines) = base64.b64decode(encoded), note.rpartition("\n\n")
    need(key[:1] == b"\x01" and sha256(name.encode(), b"\n", key)[:4].hex() == key_id, "the key line is damaged")
    raws = [base64.b64decode(line.split(" ")[2]) for line in lines.splitlines() if line.startswith(f"\u2014 {name} ")]
    mine = [raw[4:] for raw in raws if raw[:4].hex() == key_id]
    need(mine, f"the checkpoint is not signed by {name}+{key_id}")
    Ed25519PublicKey.from_public_bytes(key[1:]).verify(mine[0], f"{text}\n".encode())
    return int(text.split("\n")[1]), base64.b64decode(text.split("\n")[2])


def root_from(value, at, last, proof):
    """Return the root that a leaf's hash and the hashes beside its path give; None when there are too many or too few."""
    for sibling in proof:
        if last == 0:
            return None
        is_right = at & 1 or at == last
        while is_right and at and not at & 1:
            at, last = at >> 1, last >> 1
        value = sha256(b"\x01", sibling, value) if is_right else sha256(b"\x01", value, sibling)
        at, last = at >> 1, last >> 1
    return value if last == 0 else None


try:
    bundle, key = json.loads(open(sys.argv[1], "rb").read()), open(sys.argv[2], "rb").read().decode()
    entry, index, proof = base64.b64decode(bundle["entry"]), bundle["index"], map(base64.b64decode, bundle["proof"])
    size, root = signed_head(bundle["checkpoint"], key)
    need(type(index) is int and 0 <= index < size and json.loads(entry)["index"] == index, "the entry has another index")
    need(root_from(sha256(b"\x00", entry), index, size - 1, proof) == root, "the log that was signed has no such entry")
except (InvalidSignature, AttributeError, LookupError, TypeError, ValueError, OSError) as wrong:
    sys.exit(f"NOT PROVEN: {wrong!r}")
print(f"proven: entry {index} of {size} signed entries: {entry.decode()}")
