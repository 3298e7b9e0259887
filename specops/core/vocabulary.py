"""What a draft's vocabulary is to its target's, proved entry by entry: identical, padded, mapped or mismatched.

Called by `core.pair` and preflight. Drafts propose ids, so an id that means other bytes to the draft makes its proposals
another language: acceptance falls to chance and, where an engine does not verify as it should, the output law changes (sglang
PR 23838). Equal sizes prove nothing, and unequal ones may only be padding (vllm PR 13849): so entries are compared, never the
sizes alone.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Any, Self

from specops.core.canonical import digest_of
from specops.core.tokenizer import MAX_ID, AddedToken, Tokenizer, shown
from specops.errors import IncompatibleRelease, InvalidRecord


class Relation(StrEnum):
    """How the draft's ids lead to the target's. `none`: the method proposes the target's own tokens and has no vocabulary."""

    IDENTICAL = "identical"
    PADDED = "padded"
    MAPPED = "mapped"
    MISMATCHED = "mismatched"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The first entry in which two tokenizers differ: which one, and what each side has there."""

    what: str
    target: str
    draft: str

    @property
    def message(self) -> str:
        """One line for a person."""
        return f"{self.what} is {self.target} in the target and {self.draft} in the draft"


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyMap:
    """The tables of a head with a vocabulary of its own: draft id i stands for target id `d2t[i] + i`.

    `t2d` marks, per target id, whether the draft knows it; None where the file has no such table.
    """

    d2t: tuple[int, ...]
    t2d: tuple[bool, ...] | None = None

    def __post_init__(self) -> None:
        """Check that the tables are of a believable size."""
        if not 0 < len(self.d2t) <= MAX_ID or len(self.t2d or ()) > MAX_ID:
            raise InvalidRecord(f"d2t must have 1 to {MAX_ID} entries and t2d at most that, got {len(self.d2t)}")

    @property
    def targets(self) -> tuple[int, ...]:
        """Target id of each draft id."""
        return tuple(number + offset for number, offset in enumerate(self.d2t))

    @property
    def digest(self) -> str:
        """SHA-256 over the target ids in order of draft id."""
        return digest_of([str(number) for number in self.targets])  # as text: a hostile offset may exceed 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyRelation:
    """The proof, in figures.

    `real_size` is the number of ids that the target's tokenizer has; `target_size` and `draft_size` the rows of the two models'
    outputs. `entry` says where a mismatch is. `map_sha256` and `beyond_real`, the number of mapped ids that are padding, belong
    to a mapped vocabulary.
    """

    kind: Relation
    real_size: int
    target_size: int
    draft_size: int | None = None
    entry: Entry | None = None
    map_sha256: str | None = None
    beyond_real: int = 0

    def __post_init__(self) -> None:
        """Check that a mismatch, and nothing else, names its entry."""
        if (self.kind is Relation.MISMATCHED) != (self.entry is not None):
            raise InvalidRecord(f"vocabulary relation {self.kind} with entry {self.entry}; a mismatch, and only it, names one")

    @property
    def padded_ids(self) -> int:
        """Ids that a model can emit but no token stands for; they must never be proposed."""
        draft = 0 if self.kind is Relation.MAPPED else self.draft_size or 0
        return max(self.target_size, draft) - self.real_size

    @property
    def message(self) -> str:
        """One line for a person."""
        if self.entry is not None:
            return self.entry.message
        if self.kind is Relation.NONE:
            return f"no draft vocabulary; the target has {self.real_size} tokens in {self.target_size} rows"
        if self.kind is Relation.MAPPED:
            return f"{self.draft_size} draft ids map to as many of the target's {self.real_size} tokens"
        if self.kind is Relation.PADDED:
            return (
                f"{self.real_size} real tokens on both sides; the target has {self.target_size} rows, the draft "
                f"{self.draft_size}; ids from {self.real_size} on are padding and must never be proposed"
            )
        return f"{self.real_size} tokens, each the same on both sides, in {self.target_size} rows"

    def require_match(self) -> None:
        """Refuse a mismatch.

        Raises:
            IncompatibleRelease: shows the first entry that differs.
        """
        if self.entry is not None:
            raise IncompatibleRelease(
                f"the draft speaks another vocabulary: {self.message}; use a draft trained with the target's tokenizer"
            )

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build a relation from `to_record` values."""
        entry = Entry(**record["entry"]) if record.get("entry") else None
        return cls(**(record | {"kind": Relation(record["kind"]), "entry": entry}))


def compare(
    target: Tokenizer,
    draft: Tokenizer | None,
    *,
    target_size: int,
    draft_size: int | None = None,
    mapping: VocabularyMap | None = None,
) -> VocabularyRelation:
    """Prove what a draft's vocabulary is to its target's.

    Args:
        target: the target's tokenizer.
        draft: the draft's own; None for a head, which reads the target's tokens.
        target_size: rows of the target's output (`vocab_size`).
        draft_size: rows of the draft's; None for a method without a model.
        mapping: the draft's tables, when it has any.

    Returns:
        The relation; a mismatch is a value, with the first entry that differs.
    """
    real = target.size
    entry = None if draft is None else first_difference(target, draft)
    if entry is None:
        entry = _too_small(real, target_size, draft_size, mapping)
    if entry is None and mapping is not None:
        entry = _broken_map(mapping, target_size, draft_size)
    beyond = 0
    if entry is not None:
        kind = Relation.MISMATCHED
    elif draft_size is None:
        kind = Relation.NONE
    elif mapping is not None:
        kind, beyond = Relation.MAPPED, sum(number >= real for number in mapping.targets)
    else:
        kind = Relation.IDENTICAL if draft_size == target_size else Relation.PADDED
    return VocabularyRelation(
        kind=kind, real_size=real, target_size=target_size, draft_size=draft_size, entry=entry,
        map_sha256=mapping.digest if mapping is not None and kind is Relation.MAPPED else None, beyond_real=beyond,
    )  # fmt: skip


def first_difference(target: Tokenizer, draft: Tokenizer) -> Entry | None:
    """Return the first entry that turns text into other ids, or ids into other bytes; None when there is none.

    Ids come before merges, merges before added tokens, these before the model's settings and the rules. Post-processor and
    decoder are not compared: a draft neither frames a prompt nor prints text. Where they change an entry's bytes, the ids
    differ.
    """
    return next(_differences(target, draft), None)


def side_differences(target: Tokenizer, draft: Tokenizer) -> tuple[Entry, ...]:
    """Return the rules that differ without changing what a proposal means: post-processor and decoder."""
    return tuple(
        Entry(what=name, target=shown(target.rules.get(name)), draft=shown(draft.rules.get(name)))
        for name in ("post_processor", "decoder")
        if target.rules.get(name) != draft.rules.get(name)
    )


def _differences(target: Tokenizer, draft: Tokenizer) -> Iterator[Entry]:
    mine, yours = target.vocabulary, draft.vocabulary
    for number in sorted(mine.keys() | yours.keys()):
        if mine.get(number) != yours.get(number):
            yield Entry(what=f"token {number}", target=shown(mine.get(number)), draft=shown(yours.get(number)))
    yield from _ranked("merge", target.merges, draft.merges)
    yield from _ranked("score of token", target.scores, draft.scores)
    flags, others = ({token.id: token for token in side.added} for side in (target, draft))
    for number in sorted(flags.keys() | others.keys()):
        left, right = flags.get(number), others.get(number)
        if left != right:
            yield Entry(what=f"added token {number}", target=_flags(left), draft=_flags(right))
    if target.model is not draft.model:
        yield Entry(what="model type", target=target.model, draft=draft.model)
    for name in sorted(target.settings.keys() | draft.settings.keys()):
        if target.settings.get(name) != draft.settings.get(name):
            yield Entry(
                what=f"model setting {name}", target=shown(target.settings.get(name)), draft=shown(draft.settings.get(name))
            )
    for name in ("normalizer", "pre_tokenizer"):
        if target.rules.get(name) != draft.rules.get(name):
            yield Entry(what=name, target=shown(target.rules.get(name)), draft=shown(draft.rules.get(name)))


def _ranked(what: str, mine: tuple[Any, ...], yours: tuple[Any, ...]) -> Iterator[Entry]:
    for rank, (left, right) in enumerate(zip_longest(mine, yours)):
        if left != right:
            yield Entry(what=f"{what} {rank}", target=shown(left), draft=shown(right))


def _too_small(real: int, target_size: int, draft_size: int | None, mapping: VocabularyMap | None) -> Entry | None:
    """Name the side whose output has fewer rows than there are tokens; a mapped draft may have fewer."""
    if target_size < real:
        return Entry(what="vocabulary size", target=f"{target_size} rows for {real} tokens", draft=f"{draft_size} rows")
    if draft_size is not None and draft_size < real and mapping is None:
        return Entry(what="vocabulary size", target=f"{real} tokens", draft=f"{draft_size} rows without t2d and d2t")
    return None


def _broken_map(mapping: VocabularyMap, target_size: int, draft_size: int | None) -> Entry | None:
    """Name the first entry of the tables that is out of range, double, or at odds with the other table."""
    if draft_size != len(mapping.d2t):
        return Entry(what="size of d2t", target=f"{draft_size} draft ids", draft=f"{len(mapping.d2t)} entries")
    seen: dict[int, int] = {}
    for number, goal in enumerate(mapping.targets):
        if not 0 <= goal < target_size:
            return Entry(what=f"d2t of draft id {number}", target=f"ids 0 to {target_size - 1}", draft=f"id {goal}")
        if goal in seen:
            return Entry(what=f"d2t of draft id {number}", target="each id once", draft=f"id {goal}, as draft id {seen[goal]}")
        seen[goal] = number
    if mapping.t2d is None:
        return None
    if len(mapping.t2d) != target_size:
        return Entry(what="size of t2d", target=f"{target_size} rows", draft=f"{len(mapping.t2d)} entries")
    for goal, known in enumerate(mapping.t2d):
        if known != (goal in seen):
            words = ("known", "unknown") if known else ("unknown", "known")
            return Entry(what=f"t2d of target id {goal}", target=f"{words[0]} by t2d", draft=f"{words[1]} by d2t")
    return None


def _flags(token: AddedToken | None) -> str:
    return "absent" if token is None else shown(token.flags)
