"""The Ed25519 key that signs audit checkpoints, and the signed-note format that they travel in.

Called by the CLI and the control loop through `core.audit.Signer` and `NoteOpener`. The key lives in a file of mode 0600, its
public half in `<file>.pub`, which is all that `specops audit verify` needs. Where notes are kept is `store.checkpoints`' job.

Source: C2SP signed-note and Go's golang.org/x/mod/sumdb/note, whose key lines are used as they are.
"""

import base64
import binascii
import hashlib
import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from specops.errors import ChainBroken, InvalidInput, RuleViolation, Unavailable

KEY_FILE = "audit.key"
_ED25519 = b"\x01"
_KEY_BYTES = 32
_ID_BYTES = 4
_LOOSE = stat.S_IRWXG | stat.S_IRWXO
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
        return cls.from_line(_read(path))

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
        text, gap, lines = note.rpartition("\n\n")
        if not gap:
            raise ChainBroken("not a signed note: no empty line between text and signatures; it was cut or edited")
        mine = [sig for name, sig in map(_signature, lines.splitlines()) if name == self.name and sig[:_ID_BYTES] == self._id]
        if not mine:
            raise ChainBroken(
                f"note {text.splitlines()[:2]} is not signed by {self.name}+{self._id.hex()}; was the signing key replaced?"
            )
        try:
            for sig in mine:
                Ed25519PublicKey.from_public_bytes(self.raw).verify(sig[_ID_BYTES:], f"{text}\n".encode())
        except InvalidSignature as exc:
            raise ChainBroken(
                f"the signature of {self.name} does not fit the note {text.splitlines()[:2]}; it was edited"
            ) from exc
        return f"{text}\n"

    @property
    def _id(self) -> bytes:
        return _key_id(self.name, self.raw)


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
        if os.name == "posix" and (mode := stat.S_IMODE(path.stat().st_mode)) & _LOOSE:
            raise RuleViolation(
                f"signing key {path} can be read by others (mode {mode:04o}, expected 0600); run: chmod 600 {path}"
            )
        head, _, rest = _read(path).strip().partition("+KEY+")
        if head != "PRIVATE":
            raise InvalidInput(f"{path} is not a signing key; move it away and a new one is made")
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
        if not public.exists():
            _write_once(public, f"{signer.public_key.to_line()}\n", mode=0o644)
    except OSError as exc:
        raise Unavailable(f"cannot keep the signing key in {folder}: {exc}; make the folder writable") from exc
    return signer


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
    _write_once(path, f"{key.to_line()}\n", mode=0o600)


def _write_once(path: Path, text: str, *, mode: int) -> None:
    """Write a whole file or nothing; an existing file wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _read(path: Path) -> str:
    """Read a small text file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidInput(f"cannot read the key file {path}: {exc}") from exc
