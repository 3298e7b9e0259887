"""A checkpoint's tokenizer, read without a tokenizer library. What it means is `core.tokenizer`' business.

Called by preflight, the demo and the engine server, which reports the digest in /server_info.
"""

import json
from pathlib import Path

from specops.core.tokenizer import Tokenizer
from specops.core.tokenizer_file import parse_tokenizer
from specops.errors import InvalidInput

MAX_BYTES = 64 << 20  # the largest tokenizer.json in the field is about 30 MB


def read_tokenizer(folder: Path) -> Tokenizer:
    """Read `folder/tokenizer.json`.

    Raises:
        InvalidInput: the file is missing, too large, or is not a tokenizer.
    """
    path = folder / "tokenizer.json"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInput(f"{path} has {path.stat().st_size} bytes, at most {MAX_BYTES} are read; this is no tokenizer")
        raw = json.loads(path.read_text("utf-8"))
    except OSError as exc:
        raise InvalidInput(f"cannot read {path}: {exc.strerror}; a checkpoint needs its tokenizer.json") from exc
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"{path} is not JSON: {exc}; save it again with the tokenizers library") from exc
    return parse_tokenizer(raw, str(path))


def tokenizer_digest(folder: Path) -> str:
    """Return the SHA-256 over the canonical content of a folder's tokenizer."""
    return read_tokenizer(folder).digest
