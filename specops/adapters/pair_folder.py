"""What two model folders say about each other, read from their files: no model is loaded, nothing is run.

Called by `specops release` with folders that `adapters.hf_folder` hashed. It reads config.json, tokenizer.json,
tokenizer_config.json, generation_config.json, the chat template and a head's t2d and d2t tensors; whether two sides fit is for
`core.pair_proof`.
"""

import re
from array import array
from pathlib import Path
from typing import Any

from specops.adapters.documents import read_json
from specops.core.canonical import digest_of, sha256_hex
from specops.core.imports import describe_config
from specops.core.pair import Side
from specops.core.safetensors import Tensor, parse_safetensors
from specops.core.tokenizer import MAX_ID, Tokenizer
from specops.core.tokenizer_file import parse_tokenizer
from specops.core.vocabulary import VocabularyMap
from specops.errors import InvalidInput, InvalidWeights

MAX_TEMPLATE_BYTES = 1 << 20  # the longest template in the field is about 20 kB
_PLAIN = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I8"})  # one value per entry, so rows are rows
_EMBEDDINGS = frozenset({
    "model.embed_tokens.weight", "embed_tokens.weight", "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
})  # fmt: skip  # not any *embed_tokens.weight: speech models have further ones with vocabularies of their own
_OUTPUTS = frozenset({"lm_head.weight", "model.lm_head.weight", "language_model.lm_head.weight"})
_HEAD_TENSOR = re.compile(r"^((model|layers\.0)\.)?(fc\.weight|midlayer\.|medusa_heads?\.|mtp\.|eh_proj\.|hidden_norm\.)")
_INTEGERS = {"I64": "q", "I32": "i", "U8": "B", "BOOL": "B"}


def read_side(folder: Path, digest: str) -> Side:
    """Read what a folder says.

    Args:
        folder: holds config.json, and what else a model has.
        digest: of the registered weights that lie there.

    Raises:
        InvalidInput: a file is absent that must be there, is no JSON, too large, or not what its name says.
        InvalidWeights: a weight file, or a vocabulary map in it, is broken, or config.json states other sizes than it has.
    """
    config = read_json(folder / "config.json")
    settings = _optional(folder / "tokenizer_config.json")
    defaults = _optional(folder / "generation_config.json")
    tensors = _all_tensors(folder)
    mapping = _map(tensors)
    _check_rows(folder, describe_config(config, str(folder / "config.json")).properties, tensors, mapping)
    return Side(
        digest=digest,
        config=config,
        tokenizer=_tokenizer(folder / "tokenizer.json"),
        tokenizer_config=settings or {},
        chat_template=_template(folder, settings or {}),
        generation_config=_digest(defaults, folder / "generation_config.json") if defaults is not None else None,
        mapping=mapping,
        holds_head=any(_HEAD_TENSOR.search(t.name) for _, t in tensors),
        where=str(folder / "config.json"),
    )


def read_map(folder: Path) -> VocabularyMap | None:
    """Return a head's vocabulary map; None where its weights hold no d2t.

    Raises:
        InvalidWeights: a weight file is broken, or t2d and d2t are not lists of whole numbers and of true or false.
    """
    return _map(_all_tensors(folder))


def _all_tensors(folder: Path) -> list[tuple[Path, Tensor]]:
    return [(path, tensor) for path in sorted(folder.glob("*.safetensors")) for tensor in _tensors(path)]


def _map(tensors: list[tuple[Path, Tensor]]) -> VocabularyMap | None:
    found: dict[str, array[int]] = {}
    for path, tensor in tensors:
        name = tensor.name.rpartition(".")[2]
        if name in ("d2t", "t2d"):
            found[name] = _values(path, tensor)
    if "d2t" not in found:
        return None
    t2d = found.get("t2d")
    return VocabularyMap(d2t=tuple(found["d2t"]), t2d=tuple(map(bool, t2d)) if t2d is not None else None)


def _check_rows(
    folder: Path, properties: dict[str, Any], tensors: list[tuple[Path, Tensor]], mapping: VocabularyMap | None
) -> None:
    """Check that config.json states the sizes that the weights have; packed (quantised) tensors have other shapes.

    A head with a vocabulary of its own has as many rows in lm_head as that vocabulary has entries.
    """
    stated = properties.get("vocab_size")
    own = properties.get("draft_vocab_size") or (len(mapping.d2t) if mapping is not None else stated)
    for path, tensor in tensors:
        if tensor.dtype not in _PLAIN or len(tensor.shape) != 2:  # noqa: PLR2004  # rows and columns
            continue
        key, want = ("vocab_size", stated) if tensor.name in _EMBEDDINGS else ("draft_vocab_size", own)
        if tensor.name not in _EMBEDDINGS | _OUTPUTS or want is None or tensor.shape[0] == want:
            continue
        key = "vocab_size" if want == stated else key
        raise InvalidWeights(
            f"{folder / 'config.json'} states {key} {want}, {tensor.name} in {path.name} has {tensor.shape[0]} rows; "
            "one of them is from another model, get both again"
        )


def _tensors(path: Path) -> tuple[Tensor, ...]:
    try:
        with path.open("rb") as file:
            return parse_safetensors(file.read, size=path.stat().st_size, where=str(path)).tensors
    except OSError as exc:
        raise InvalidWeights(f"cannot read {path}: {exc.strerror or exc}; check its permissions") from exc


def _values(path: Path, tensor: Tensor) -> "array[int]":
    """Return the numbers of a one-dimensional tensor of whole numbers."""
    code = _INTEGERS.get(tensor.dtype)
    if code is None or len(tensor.shape) != 1 or not 0 < tensor.shape[0] <= MAX_ID:
        raise InvalidWeights(
            f"{path}: tensor {tensor.name} is {tensor.dtype} {list(tensor.shape)}, expected one row of whole numbers "
            f"({', '.join(_INTEGERS)}); export the head again"
        )
    values = array(code)
    with path.open("rb") as file:
        file.seek(tensor.begin)
        values.frombytes(file.read(tensor.end - tensor.begin))
    return values


def _tokenizer(path: Path) -> Tokenizer | None:
    return parse_tokenizer(read_json(path), str(path)) if path.exists() else None


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    """Return the chat template's digest: over the text alone, so that it does not matter which file holds it."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return sha256_hex(_text(path).encode())
    beside = _optional(folder / "chat_template.json") or {}
    template = beside.get("chat_template", settings.get("chat_template"))
    if template is None:
        return None
    return sha256_hex(template.encode(errors="surrogatepass")) if isinstance(template, str) else _digest(template, folder)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_TEMPLATE_BYTES + 1)
        if len(raw) > MAX_TEMPLATE_BYTES:
            raise InvalidInput(f"{path} has more than {MAX_TEMPLATE_BYTES} bytes; this is no chat template")
        return raw.decode()
    except (OSError, ValueError) as exc:
        raise InvalidInput(f"cannot read {path}: {exc}; save it as UTF-8 text") from exc


def _optional(path: Path) -> dict[str, Any] | None:
    """Return a JSON object; None where there is no such file."""
    if not path.exists():
        return None
    found = read_json(path)
    if not isinstance(found, dict):
        raise InvalidInput(f"{path} must hold an object, got {type(found).__name__}; download it again")
    return found


def _digest(value: object, where: Path) -> str:
    try:
        return digest_of(value)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"{where} holds what canonical JSON cannot: {str(exc)[:200]}; download it again") from exc
