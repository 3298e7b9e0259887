"""The Ed25519 key that signs audit checkpoints, and the signed-note format that they travel in.

Called by the CLI and the control loop through `core.audit.Signer` and `NoteOpener`. The key lives in a file of mode 0600, its
public half in `<file>.pub`; the public halves of earlier keys stay beside it as `audit-<id>.pub`. Those are all that
`specops audit verify` needs. Where notes are kept is `store.checkpoints`' job.

Source: C2SP signed-note and Go's golang.org/x/mod/sumdb/note, whose key lines are used as they are.
"""

import base64
import binascii
import hashlib
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from specops.adapters.key_files import check_private, read_text, replace_whole, write_once
from specops.core.audit import size_in
from specops.errors import ChainBroken, InvalidInput, Unavailable

KEY_FILE = "audit.key"
_ED25519 = b"\x01"
_KEY_BYTES = 32
_ID_BYTES = 4
_NAME = re.compile(r"[^\s+]+")
_DASH = "\u2014"  # a signature line starts with an em dash


def _key_id(name: str, public: bytes) -> bytes:
    """Return the first four bytes of SHA-256(name || newline || 0x01 || public key)."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public).digest()[:_ID_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """Checks notes signed by one named key."""

    name: str
    raw: bytes

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a `.pub` file.

        Raises:
            InvalidInput: it is missing or not a key line.
        """
        return cls.from_line(read_text(path))

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read `name+id+base64` with the id as eight hex digits.

        Raises:
            InvalidInput: the line is not a key, or its id does not fit.
        """
        name, raw = _parse(line.strip().split("+", 2), "public key")
        return cls(name=name, raw=raw)

    def to_line(self) -> str:
        """Return `name+id+base64`; `from_line` is the inverse."""
        return f"{self.name}+{_key_id(self.name, self.raw).hex()}+{base64.b64encode(_ED25519 + self.raw).decode()}"

    def open(self, note: str) -> str:
        """Return the text of a note that this key has signed; lines of unknown keys are ignored.

        Raises:
            ChainBroken: not a note, no line of this key, or a signature that does not hold.
        """
        return KeyRing(keys=(self,)).open(note)

    @property
    def id(self) -> bytes:
        """Four bytes that tell this key from others of its name."""
        return _key_id(self.name, self.raw)

    @property
    def full_name(self) -> str:
        """Return `name+id`, as key lines begin."""
        return f"{self.name}+{self.id.hex()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """The present public key and those before it: a note that any of them has signed opens."""

    keys: tuple[PublicKey, ...]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read `audit.key.pub` and every `audit-*.pub` of a folder.

        Raises:
            InvalidInput: there is none, or one is not a key line.
        """
        paths = (folder / f"{KEY_FILE}.pub", *sorted(folder.glob("audit-*.pub")))
        return cls(keys=tuple(dict.fromkeys(map(PublicKey.load, paths))))

    def open(self, note: str) -> str:
        """Return the text of a note that one of these keys has signed; lines of unknown keys are ignored.

        Raises:
            ChainBroken: not a note, no line of a known key, or a signature of one that does not hold.
        """
        text, gap, lines = note.rpartition("\n\n")
        if not gap:
            raise ChainBroken("not a signed note: no empty line between text and signatures; it was cut or edited")
        known = {(key.name, key.id): key for key in self.keys}
        signed = [(known.get((name, sig[:_ID_BYTES])), sig) for name, sig in map(_signature, lines.splitlines())]
        mine = [(key, sig[_ID_BYTES:]) for key, sig in signed if key is not None]
        if not mine:
            names = " or ".join(key.full_name for key in self.keys)
            raise ChainBroken(f"the {_about(note)} is not signed by {names or 'a known key'}; was the signing key replaced?")
        for key, signature in mine:
            try:
                Ed25519PublicKey.from_public_bytes(key.raw).verify(signature, f"{text}\n".encode())
            except (InvalidSignature, ValueError) as exc:
                raise ChainBroken(
                    f"the signature of {key.name} does not fit the {_about(note)}; it was edited"
                ) from exc
        return f"{text}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """A named private key; `sign` makes a note."""

    name: str
    seed: bytes = field(repr=False)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a key file.

        Raises:
            RuleViolation: others can read the file.
            InvalidInput: it is missing, or not a key.
        """
        if not path.is_file():
            raise InvalidInput(f"no signing key at {path}; it is made at first use, so restore it from a backup")
        check_private(path, "signing key")
        head, _, rest = read_text(path).strip().partition("+KEY+")
        if head != "PRIVATE":
            raise InvalidInput(f"{path} is not a signing key; restore it from a backup")
        name, seed = _parse(rest.split("+", 2), f"signing key {path}", private=True)
        return cls(name=name, seed=seed)

    def to_line(self) -> str:
        """Return the secret line that the key file holds."""
        secret = base64.b64encode(_ED25519 + self.seed).decode()
        return f"PRIVATE+KEY+{self.name}+{_key_id(self.name, self.public_key.raw).hex()}+{secret}"

    @property
    def public_key(self) -> PublicKey:
        """The public half."""
        return PublicKey(name=self.name, raw=Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw())

    def sign(self, text: str) -> str:
        """Return text, an empty line, and the signature line.

        Raises:
            InvalidInput: the text does not end with a newline.
        """
        if not text.endswith("\n"):
            raise InvalidInput("a note's text must end with a newline")
        signature = Ed25519PrivateKey.from_private_bytes(self.seed).sign(text.encode())
        encoded = base64.b64encode(_key_id(self.name, self.public_key.raw) + signature).decode()
        return f"{text}\n{_DASH} {self.name} {encoded}\n"


def load_or_create(folder: Path, name: str = "specops/audit") -> Signer:
    """Read the key `audit.key` of a folder, or make it at first use (file mode 0600, public half in `audit.key.pub`).

    Two processes that make it at once end with the same key. `name` counts only when the key is made.

    Raises:
        RuleViolation: others can read the file.
        InvalidInput: the file is not a key, or the name has a space or a plus sign.
        Unavailable: the folder cannot be written.
    """
    path = folder / KEY_FILE
    try:
        if not path.exists():
            _create(path, Signer(name=name, seed=secrets.token_bytes(_KEY_BYTES)))
        signer, public = Signer.load(path), path.with_name(f"{KEY_FILE}.pub")
        line = f"{signer.public_key.to_line()}\n"
        if not public.exists() or read_text(public).strip() != line.strip():  # a rotation was killed in between
            replace_whole(public, line, mode=0o644)
    except OSError as exc:
        raise Unavailable(f"cannot keep the signing key in {folder}: {exc}; make the folder writable") from exc
    return signer


def next_key(folder: Path) -> Signer:
    """Return the key that is to follow the present one, made at the first call and kept as `audit.key.next`.

    Raises:
        RuleViolation: others can read the file.
        InvalidInput: there is no present key, or a file is not a key.
        Unavailable: the folder cannot be written.
    """
    path = folder / f"{KEY_FILE}.next"
    try:
        if not path.exists():
            _create(path, Signer(name=Signer.load(folder / KEY_FILE).name, seed=secrets.token_bytes(_KEY_BYTES)))
        return Signer.load(path)
    except OSError as exc:
        raise Unavailable(f"cannot keep the next signing key in {folder}: {exc}; make the folder writable") from exc


def rotate(folder: Path) -> PublicKey:
    """Put `audit.key.next` in the place of `audit.key`, keep the old public half for old notes, and return the new one.

    The old private half is gone afterwards. Each step leaves the folder usable: killed in between, call it again.

    Raises:
        InvalidInput: there is no next key.
        Unavailable: the folder cannot be written.
    """
    old, new = Signer.load(folder / KEY_FILE).public_key, Signer.load(folder / f"{KEY_FILE}.next").public_key
    try:
        replace_whole(folder / f"audit-{old.id.hex()}.pub", f"{old.to_line()}\n", mode=0o644)
        replace_whole(folder / f"audit-{new.id.hex()}.pub", f"{new.to_line()}\n", mode=0o644)
        (folder / f"{KEY_FILE}.next").replace(folder / KEY_FILE)
        replace_whole(folder / f"{KEY_FILE}.pub", f"{new.to_line()}\n", mode=0o644)
    except OSError as exc:
        raise Unavailable(f"cannot change the signing key in {folder}: {exc}; make the folder writable") from exc
    return new


def _about(note: str) -> str:
    """Name a note by the size that it speaks of."""
    size = size_in(note)
    return f"note over {size} entries" if size >= 0 else f"note {note.splitlines()[0]!r:.80}"


def _signature(line: str) -> tuple[str, bytes]:
    """Split a signature line into name and id + signature; a malformed line belongs to nobody."""
    parts = line.split(" ")
    if len(parts) != 3 or parts[0] != _DASH:  # noqa: PLR2004
        return "", b""
    try:
        return parts[1], base64.b64decode(parts[2], validate=True)
    except binascii.Error:
        return "", b""


def _parse(parts: list[str], what: str, *, private: bool = False) -> tuple[str, bytes]:
    """Check name, id and key bytes of a key line."""
    try:
        name, key_id, raw = parts[0], bytes.fromhex(parts[1]), base64.b64decode(parts[2], validate=True)
    except (IndexError, ValueError) as exc:
        raise InvalidInput(f"{what} is not a key line name+id+base64; restore it from a backup") from exc
    if raw[:1] != _ED25519 or len(raw) != 1 + _KEY_BYTES or not _NAME.fullmatch(name):
        raise InvalidInput(f"{what} is not an Ed25519 key with a name without spaces; restore it from a backup")
    public = Ed25519PrivateKey.from_private_bytes(raw[1:]).public_key().public_bytes_raw() if private else raw[1:]
    if key_id != _key_id(name, public):
        raise InvalidInput(f"{what} has the id {key_id.hex()}, its content gives {_key_id(name, public).hex()}; restore it")
    return name, raw[1:]


def _create(path: Path, key: Signer) -> None:
    """Write a new private key, unless another process was first."""
    if not _NAME.fullmatch(key.name):
        raise InvalidInput(f"key name {key.name!r} must have no space and no plus sign")
    write_once(path, f"{key.to_line()}\n", mode=0o600)
