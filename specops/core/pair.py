"""A pair: target, draft or a method without weights, and the proof that they belong together.

Made by `core.pair_proof`, stored by registration, named by releases. The pair's digest binds the proof, so a release that names
it cannot be served with another draft, tokenizer or padding. What would make proposals wrong never becomes a pair; what only
costs speed, or surprises somebody, is kept on it as a remark.

Source: vLLM 0.32 `vllm/config/speculative.py` for the methods.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

from specops.core.canonical import digest_of
from specops.core.imports import Description, describe_config
from specops.core.tokenizer import Tokenizer, shown
from specops.core.vocabulary import Relation, VocabularyMap, VocabularyRelation
from specops.errors import IncompatibleRelease, InvalidRecord

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length")
SPECIAL_KEYS = ("bos_token", "eos_token", "pad_token", "unk_token", "additional_special_tokens")
_HEAD_KEYS = frozenset({"draft_vocab_size", "target_hidden_size", "num_nextn_predict_layers", "n_predict", "medusa_num_heads"})
_ALIASES = {"nextn": "mtp", "standalone": "draft_model"}  # SGLang's names


class Need(StrEnum):
    """What a method needs besides the target: a model of its own, a head on the target's hidden states, or nothing."""

    MODEL = "model"
    HEAD = "head"
    NOTHING = "nothing"


_METHODS = {
    "draft_model": Need.MODEL, "custom_class": Need.MODEL, "eagle": Need.HEAD, "eagle3": Need.HEAD, "mtp": Need.HEAD,
    "medusa": Need.HEAD, "mlp_speculator": Need.HEAD, "dflash": Need.HEAD, "dspark": Need.HEAD, "ngram": Need.NOTHING,
    "ngram_gpu": Need.NOTHING, "suffix": Need.NOTHING,
}  # fmt: skip  # vLLM 0.32


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one folder says, parsed: the part of it that a pair has to agree on.

    `digest` is that of the registered weights. `chat_template` and `generation_config` are digests; None where there is none.
    `holds_head`: its weights have tensors that only a head has, whatever config.json calls it.
    """

    digest: str
    config: Mapping[str, Any]
    tokenizer: Tokenizer | None = None
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    chat_template: str | None = None
    generation_config: str | None = None
    mapping: VocabularyMap | None = None
    holds_head: bool = False
    where: str = "config.json"

    @property
    def about(self) -> Description:
        """What config.json says.

        Raises:
            InvalidRecord: it is not a configuration.
        """
        return describe_config(self.config, self.where)

    @property
    def special_tokens(self) -> dict[str, Any]:
        """Contents of the tokens that tokenizer_config.json names, whichever way it writes them."""
        return {key: _content(self.tokenizer_config.get(key)) for key in SPECIAL_KEYS}

    @property
    def is_head(self) -> bool:
        """It is a head, by its config.json, its weights or a vocabulary of its own; many published configs name none."""
        about = self.about
        named = about.role.is_head or not about.properties.keys().isdisjoint(_HEAD_KEYS)
        return named or self.holds_head or self.mapping is not None

    @property
    def context(self) -> int | None:
        """Tokens that the model was made for; None where config.json is silent."""
        nested = (self.config.get(key) for key in ("text_config", "transformer_layer_config"))
        for part in (self.config, *(n for n in nested if isinstance(n, Mapping))):
            for key in _CONTEXT_KEYS:
                if type(part.get(key)) is int and part[key] > 0:
                    return int(part[key])
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something that does not make the pair wrong: what differs, and what people would see."""

    what: str
    target: str
    draft: str
    consequence: str

    @property
    def message(self) -> str:
        """One line for a person."""
        return f"{self.what}: target {self.target}, draft {self.draft}; {self.consequence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A proven pair. Digests name artifacts (`target`, `draft`, `teacher`) and content (tokenizers, chat templates).

    `draft` is None for a method without weights, and for `mtp` with layers that are part of the target. `teacher` is the model
    that the draft was distilled from, where somebody vouched for it. Sizes are those of config.json; None where it is silent.
    """

    target: str
    method: str
    target_tokenizer: str
    vocabulary: VocabularyRelation
    vocabulary_sha256: str
    draft: str | None = None
    draft_tokenizer: str | None = None
    special_tokens_equal: bool | None = None
    target_chat_template: str | None = None
    draft_chat_template: str | None = None
    target_hidden_size: int | None = None
    draft_hidden_size: int | None = None
    aux_layers: tuple[int, ...] = ()
    target_context: int | None = None
    draft_context: int | None = None
    teacher: str | None = None
    remarks: tuple[Remark, ...] = ()

    def __post_init__(self) -> None:
        """Check that nothing mismatched calls itself a pair."""
        if self.vocabulary.kind is Relation.MISMATCHED:
            raise InvalidRecord(f"a pair with mismatched vocabularies is none: {self.vocabulary.message}")

    @property
    def is_stale(self) -> bool:
        """The draft was distilled from another target than the one it serves."""
        return self.teacher is not None and self.teacher != self.target

    @property
    def chat_templates_equal(self) -> bool | None:
        """Both have the same chat template; None where a side has none."""
        if self.target_chat_template is None or self.draft_chat_template is None:
            return None
        return self.target_chat_template == self.draft_chat_template

    @property
    def digest(self) -> str:
        """SHA-256 over everything but the remarks, whose words may be put better one day."""
        return digest_of({key: value for key, value in self.to_record().items() if key != "remarks"})

    @property
    def components(self) -> tuple[str, ...]:
        """Digests of what the pair is made of, each once."""
        parts = (self.target, self.draft, self.target_tokenizer, self.draft_tokenizer)
        return tuple(dict.fromkeys(d for d in (*parts, self.target_chat_template, self.draft_chat_template) if d))

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse."""
        lists = {"aux_layers": list(self.aux_layers), "remarks": [asdict(r) for r in self.remarks]}
        return asdict(self) | lists | {"relation": self.vocabulary.kind.value}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build a pair from `to_record` values."""
        if stray := record.keys() - {f.name for f in fields(cls)} - {"relation"}:
            raise InvalidRecord(f"a pair has no {min(stray)!r}; it was written by a newer specops, upgrade")
        typed = {
            "vocabulary": VocabularyRelation.from_record(record["vocabulary"]),
            "aux_layers": tuple(record["aux_layers"]),
            "remarks": tuple(Remark(**r) for r in record["remarks"]),
        }
        return cls(**({key: value for key, value in record.items() if key != "relation"} | typed))


def need_of(method: str) -> tuple[str, Need]:
    """Return vLLM's name of a method and what it needs; its old `..._mtp` names and SGLang's names are understood.

    Raises:
        IncompatibleRelease: the method is not known, so nothing can be proved about it.
    """
    name = method.lower()
    name = "mtp" if name.endswith("_mtp") else _ALIASES.get(name, name)
    if name not in _METHODS:
        raise IncompatibleRelease(f"method {method[:60]!r} is not known; expected one of {', '.join(_METHODS)}")
    return name, _METHODS[name]


def _content(token: object) -> object:
    """Return a special token's text, written plainly or as an object; a list of them as a tuple."""
    if isinstance(token, list):
        return tuple(_content(t) for t in token if not isinstance(t, list))
    found = token.get("content") if isinstance(token, Mapping) else token
    return found if found is None or isinstance(found, str) else shown(found)
