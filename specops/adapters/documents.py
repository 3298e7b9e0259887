"""JSON and YAML that somebody else wrote: read with limits, or refused with a clear line.

Called by the importers. A document may be huge, nested without end,
hold a key twice, or (YAML) stand for gigabytes in ten lines.
"""

import json
from pathlib import Path
from typing import Any

from specops.errors import InvalidInput

MAX_JSON_BYTES = 64 << 20  # the largest tokenizer.json in the field is about 30 MB


def read_json(path: Path, limit: int = MAX_JSON_BYTES) -> Any:  # noqa: ANN401  # any JSON value
    """Read a JSON file of bounded size in which no key stands twice.

    Raises:
        InvalidInput: absent, too large, not UTF-8, not JSON, nested beyond reason, or with a key twice.
    """
    try:
        if path.stat().st_size > limit:
            raise InvalidInput(f"{path} has {path.stat().st_size} bytes, at most {limit} are read; this is no configuration")
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique)
    except OSError as exc:
        raise InvalidInput(f"cannot read {path}: {exc.strerror or exc}; point to the folder that holds it") from exc
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"{path} is not usable JSON: {exc}; download it again") from exc


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key stands there twice, and readers disagree on which one counts")
    return out


def load_yaml(text: str, where: str) -> Any:  # noqa: ANN401  # any YAML value
    """Load YAML that has no aliases.

    Raises:
        InvalidInput: not YAML, nested beyond reason, or with an alias.
    """
    import yaml  # noqa: PLC0415

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise InvalidInput(f"{where} has YAML aliases, which can stand for gigabytes; write the values out")
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        raise InvalidInput(f"{where} is not usable YAML: {' '.join(str(exc).split())[:200]}") from exc
