"""Files that hold a secret or its public half: written whole or not at all, read only when nobody else can read them.

`adapters.signing` keeps the key of the audit log here, `wiring` the secret under which samples are filed. What the bytes mean
is theirs.
"""

import os
import secrets
import stat
from pathlib import Path

from specops.errors import InvalidInput, RuleViolation, Unavailable

SAMPLES_FILE = "samples.key"
_SECRET_BYTES = 32
_LOOSE = stat.S_IRWXG | stat.S_IRWXO


def read_text(path: Path) -> str:
    """Read a small text file.

    Raises:
        InvalidInput: it is missing, or no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidInput(f"cannot read the key file {path}: {exc}") from exc


def check_private(path: Path, what: str) -> None:
    """Refuse a secret that others can read.

    Raises:
        RuleViolation: names the mode and the command that repairs it.
    """
    if os.name == "posix" and (mode := stat.S_IMODE(path.stat().st_mode)) & _LOOSE:
        raise RuleViolation(f"{what} {path} can be read by others (mode {mode:04o}, expected 0600); run: chmod 600 {path}")


def write_once(path: Path, text: str, *, mode: int) -> None:
    """Write a whole file or nothing; an existing file wins, so that two processes end with the same one."""
    draft = _draft(path, text, mode)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def replace_whole(path: Path, text: str, *, mode: int) -> None:
    """Replace a file by another at one instant."""
    _draft(path, text, mode).replace(path)


def load_or_create_secret(folder: Path) -> bytes:
    """Read the 32 bytes under which samples are filed, or make them at first use (file mode 0600).

    Raises:
        RuleViolation: others can read the file.
        InvalidInput: the file is not such a secret.
        Unavailable: the folder cannot be written.
    """
    path = folder / SAMPLES_FILE
    try:
        if not path.exists():
            write_once(path, f"{secrets.token_hex(_SECRET_BYTES)}\n", mode=0o600)
        check_private(path, "the secret of the samples")
    except OSError as exc:
        raise Unavailable(f"cannot keep the secret of the samples in {folder}: {exc}; make the folder writable") from exc
    try:
        secret = bytes.fromhex(read_text(path).strip())
    except ValueError:
        secret = b""
    if len(secret) != _SECRET_BYTES:
        raise InvalidInput(f"{path} is not a secret of 32 bytes in hex; restore it, or move it away and lose the kept samples")
    return secret


def _draft(path: Path, text: str, mode: int) -> Path:
    """Write a file beside `path`, down to the disk, and return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return draft
