"""A tokenizer by content: which id stands for which bytes, and every rule that turns text into ids.

Built by `core.tokenizer_file`, compared by `core.vocabulary`. Two files that differ in white space, key order or the spelling
of merges are one tokenizer; two that differ in one merge are not. Truncation and padding are left out: a server sets its own.

Source: the file format of Hugging Face tokenizers (`tokenizer.json`, version 1.0).
"""

import hashlib
import json
import reprlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from specops.core.canonical import canonical, digest_of, sha256_hex
from specops.errors import InvalidRecord

MAX_ID = 1 << 22  # ids; the largest vocabulary in the field has about 2**18
RULES = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
FLAGS = ("content", "special", "single_word", "lstrip", "rstrip", "normalized")


class Model(StrEnum):
    """How a tokenizer splits words. Only BPE has merges, only Unigram has scores."""

    BPE = "BPE"
    UNIGRAM = "Unigram"
    WORD_PIECE = "WordPiece"
    WORD_LEVEL = "WordLevel"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedToken:
    """A token matched before the model runs. A flag that the file does not state is None."""

    id: int
    content: str
    special: bool | None = None
    single_word: bool | None = None
    lstrip: bool | None = None
    rstrip: bool | None = None
    normalized: bool | None = None

    @property
    def flags(self) -> dict[str, Any]:
        """Content and flags as the file names them."""
        return {name: getattr(self, name) for name in FLAGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """What a tokenizer does to text.

    `tokens` are (id, spelling in the file) in order of id, model and added tokens together; `pieces` the bytes of the same
    entries, so that two spellings of one text are equal. `settings` are the model's own (unknown token, byte fallback), `rules`
    the normaliser, pre-tokenizer, post-processor and decoder as they stand in the file.
    """

    model: Model
    tokens: tuple[tuple[int, str], ...]
    pieces: tuple[bytes, ...]
    merges: tuple[tuple[str, str], ...] = ()
    scores: tuple[float, ...] = ()
    added: tuple[AddedToken, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    rules: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that every token has its bytes."""
        if not self.tokens or len(self.tokens) != len(self.pieces):
            raise InvalidRecord(f"a tokenizer needs tokens, each with its bytes; got {len(self.tokens)} and {len(self.pieces)}")

    @property
    def size(self) -> int:
        """The real size: the highest id plus 1. A model's `vocab_size` may be larger, padded for the hardware."""
        return self.tokens[-1][0] + 1

    @property
    def vocabulary(self) -> dict[int, bytes]:
        """Bytes by id."""
        return {number: piece for (number, _), piece in zip(self.tokens, self.pieces, strict=True)}

    @property
    def vocabulary_sha256(self) -> str:
        """SHA-256 over (id, length, bytes) of every entry in order of id: the same whatever the file's spelling."""
        hasher = hashlib.sha256()
        for (number, _), piece in zip(self.tokens, self.pieces, strict=True):
            hasher.update(number.to_bytes(4, "big") + len(piece).to_bytes(4, "big") + piece)
        return hasher.hexdigest()

    @property
    def digest(self) -> str:
        """SHA-256 over the whole content as RFC 8785 JSON; a release names its tokenizer by it.

        The two long lists go through the JSON writer of the standard library, which gives the same bytes for texts and ids and
        is much faster.
        """
        model = {"model": self.settings, **({"scores": list(self.scores)} if self.model is Model.UNIGRAM else {})}
        parts = (
            ("added", canonical([[token.id, token.flags] for token in self.added])),
            ("merges", _array(self.merges)),
            ("rules", canonical(model | self.rules)),
            ("tokens", _array(self.tokens)),
        )
        return sha256_hex(b"{" + b",".join(b'"%b":%b' % (name.encode(), raw) for name, raw in parts) + b"}")

    @property
    def rule_digests(self) -> dict[str, str]:
        """SHA-256 of each rule by name."""
        return {name: digest_of(self.rules.get(name)) for name in RULES}

    @property
    def special(self) -> tuple[str, ...]:
        """Contents of the special tokens, in order of id."""
        return tuple(token.content for token in self.added if token.special)


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxlist, _SHORT.maxtuple = 4, 8, 8, 8
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 120


def shown(value: object) -> str:
    """Return any value as short text for a message, however long or deep it is; None is absent."""
    return "absent" if value is None else _SHORT.repr(value)


def _array(rows: tuple[tuple[Any, ...], ...]) -> bytes:
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()
