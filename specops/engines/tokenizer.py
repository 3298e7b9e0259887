"""Tokenizers compared by content: which id means which token, not whether two files are equal bytes.

vLLM compares vocabulary sizes only; a draft with another tokenizer of the same size starts and never gets a token accepted.
Reads `tokenizer.json` as JSON, so no tokenizer library is needed. Called by preflight, lineage and the engine server.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.core.canonical import digest_of
from specops.errors import InvalidInput

_FLAGS = ("content", "special", "single_word", "lstrip", "rstrip", "normalized")
_PIPELINE = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerContent:
    """What a tokenizer does to text.

    `tokens` is (id, token) in order of id, model and added tokens together; `added` keeps the flags of the added ones;
    `rules` is everything else that changes text or ids. Truncation and padding are left out: requests do not use them.
    """

    tokens: tuple[tuple[int, str], ...]
    merges: tuple[tuple[str, str], ...]
    added: tuple[tuple[int, tuple[tuple[str, Any], ...]], ...]
    rules: dict[str, Any]

    @property
    def size(self) -> int:
        """Number of ids: the highest one plus 1."""
        return self.tokens[-1][0] + 1 if self.tokens else 0

    @property
    def digest(self) -> str:
        """SHA-256 over the canonical content."""
        return digest_of(
            {
                "tokens": [list(pair) for pair in self.tokens],
                "merges": [list(pair) for pair in self.merges],
                "added": [[number, dict(flags)] for number, flags in self.added],
                "rules": self.rules,
            }
        )


def read_tokenizer(folder: Path) -> TokenizerContent:
    """Read the content of `folder/tokenizer.json`.

    Raises:
        InvalidInput: the file is missing or is not a tokenizer.
    """
    path = folder / "tokenizer.json"
    try:
        return _content(json.loads(path.read_text("utf-8")))
    except OSError as exc:
        raise InvalidInput(f"cannot read {path}: {exc.strerror}; a checkpoint needs its tokenizer.json") from exc
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise InvalidInput(f"{path} is not a tokenizer: {exc!r}; save it again with the tokenizers library") from exc


def tokenizer_digest(folder: Path) -> str:
    """Return the SHA-256 over the canonical content of a folder's tokenizer."""
    return read_tokenizer(folder).digest


def _content(raw: dict[str, Any]) -> TokenizerContent:
    model = dict(raw["model"])
    vocab, merges = model.pop("vocab"), model.pop("merges", None) or []
    pairs = vocab.items() if isinstance(vocab, dict) else ((entry[0], number) for number, entry in enumerate(vocab))
    ids = {int(number): str(token) for token, number in pairs}
    added = raw.get("added_tokens") or []
    ids.update({int(token["id"]): str(token["content"]) for token in added})
    scores = {} if isinstance(vocab, dict) else {"scores": [entry[1] for entry in vocab]}
    return TokenizerContent(
        tokens=tuple(sorted(ids.items())),
        merges=tuple(_merge(pair) for pair in merges),
        added=tuple(sorted((int(token["id"]), tuple((key, token.get(key)) for key in _FLAGS)) for token in added)),
        rules={"model": model, **scores, **{part: raw.get(part) for part in _PIPELINE}},
    )


def _merge(pair: Any) -> tuple[str, str]:  # noqa: ANN401  # "a b" in old files, ["a", "b"] in new ones
    left, right = pair.split(" ") if isinstance(pair, str) else pair
    return str(left), str(right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """First entry in which two tokenizers differ, as words for a person."""

    what: str
    target: str
    draft: str


def first_difference(target: TokenizerContent, draft: TokenizerContent) -> Difference | None:
    """Return the first difference, ids before merges before flags before rules; None when the contents are equal."""
    parts: tuple[tuple[str, dict[Any, Any], dict[Any, Any]], ...] = (
        ("token", dict(target.tokens), dict(draft.tokens)),
        ("merge", dict(enumerate(target.merges)), dict(enumerate(draft.merges))),
        ("added token", dict(target.added), dict(draft.added)),
        ("rule", target.rules, draft.rules),
    )
    for what, mine, yours in parts:
        for key in sorted(mine.keys() | yours.keys()):
            left, right = mine.get(key), yours.get(key)
            if left != right:
                return Difference(what=f"{what} {key}", target=_shown(left), draft=_shown(right))
    return None


def _shown(value: object) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        value = dict(value)
    return "absent" if value is None else repr(value)[:120]
