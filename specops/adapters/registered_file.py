"""A registered file read again from where it was seen, and only believed when its digest is the registered one.

Called by `specops lineage diff` for tokenizer entries, which no digest can name.
"""

from pathlib import Path

from specops.core.canonical import sha256_hex
from specops.core.release import Artifact

MAX_BYTES = 128 * 1024 * 1024  # the largest tokenizer.json in use is under 40 MB


def read_registered(artifact: Artifact, path: str) -> bytes | None:
    """Return the bytes of one of an artifact's files; None when they are gone, changed, too large, or outside its folder."""
    known = next((f for f in artifact.files if f.path == path), None)
    if known is None or not artifact.location or known.size > MAX_BYTES:
        return None
    try:
        folder = Path(artifact.location).resolve()
        file = (folder if folder.is_dir() else folder.parent).joinpath(path).resolve()
        if not file.is_relative_to(folder if folder.is_dir() else folder.parent) or file.stat().st_size != known.size:
            return None
        raw = file.read_bytes()
    except (OSError, ValueError):
        return None
    return raw if sha256_hex(raw) == known.sha256 else None
