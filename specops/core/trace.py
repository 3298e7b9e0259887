"""The record of one request's rounds: what each stage was given, what it decided, what it cost, and who else had a say.

Made by the engine when a request is traced and never otherwise; stored by `store.traces`, judged by `core.trace_check`,
explained by `core.trace_why`, shown by `cli` and `report`. It holds token ids and no text; ids are content all the same, so
traces live in a folder of their own that can be erased, never in the audit log.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from specops.errors import InvalidRecord

STAGES = ("draft", "score", "accept", "resample")  # of `Round.stage_s` and `Round.stage_bytes`, in order


class Decided(StrEnum):
    """Which stage chose the round's last token."""

    BONUS = "bonus"
    RECOVERED = "recovered"
    TARGET = "target"  # nothing was drafted: an ordinary token


class Rule(StrEnum):
    """How a prefix is accepted."""

    GREEDY = "greedy"
    TOKEN = "token"  # noqa: S105  # no password
    BLOCK = "block"


class Cap(StrEnum):
    """What kept the number of proposals where it was."""

    NONE = "none"  # the draft's own k
    REQUEST = "request"  # the request's k
    BATCH = "batch"  # dynamic k, by batch size or by acceptance
    ROOM = "room"  # tokens left until the request's or the context's limit
    DRAFT = "draft"  # the draft had nothing more to propose


class Cut(StrEnum):
    """What ended the answer inside or behind a block."""

    STOP_TOKEN = "stop_token"  # noqa: S105
    STOP_TEXT = "stop_text"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class Hand(StrEnum):
    """Whose control was applied at a boundary between stages."""

    ALGORITHM = "algorithm"
    SOFTWARE = "software"  # a policy, a limit, a scheduler
    HUMAN = "human"  # a client or an operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A token that the target would have preferred or nearly chosen at a position; `draft_prob` is None without a full law."""

    token: int
    target_prob: float
    draft_prob: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a round starts from or leaves: the digest is SHA-256 over the committed ids as little-endian int32.

    Attributes:
        committed: tokens, prompt included.
        target_cached: positions in the target's cache.
        draft_cached: positions in the draft's; None for a draft without one.
        sha256: of the committed ids, in hex.
    """

    committed: int
    target_cached: int
    draft_cached: int | None
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Something that was done to the request from outside the five stages, behind round `after_round` (0: the prefill)."""

    after_round: int
    hand: Hand
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of k proposals.

    Attributes:
        drafted: proposed token ids, k of them.
        is_one_hot: they were chosen without chance.
        draft_probs: q of each under the law it was drawn from (1 for a one-hot proposal).
        target_probs: p of each under the request's law (0 or 1 at temperature 0).
        accept_probs: the probability with which each could be accepted: min(1, p / q) under the token rule and at temperature
            0, the h of block verification under the block rule.
        draft_entropies_nats: of each law that was drawn from; 0 for a one-hot proposal.
        target_entropies_nats: of the target's unfiltered law at temperature 1, at each of the k + 1 positions.
        alternatives: the target's most likely tokens under the request's law, at each of the k + 1 positions, in falling order;
            at temperature 0, where that law is one-hot, under the law of temperature 1 without filters.
        coins: uniform numbers spent on the examined proposals; None where no coin was needed.
        last_coin: the uniform number behind the round's last token; None at temperature 0.
        last_prob: probability of the round's last token under the law it was drawn from.
        rule: how the prefix was accepted.
        accepted: length of the accepted prefix, in [0, k]; the proposal behind it, if any, was rejected.
        residual_mass: sum of the excess of the target at the rejected position; None without a rejection.
        decided: the stage that chose the last token.
        emitted: the tokens that became final, after any cut.
        cap: what kept k where it was.
        cut: what ended the answer in this round; None if it goes on.
        stage_s: seconds of draft, score, accept and resample; the score of a request in a batch includes the other rows.
        stage_bytes: bytes that each stage's results take: laws, logits and new cache entries.
        before, after: the state.
    """

    drafted: tuple[int, ...]
    is_one_hot: bool
    draft_probs: tuple[float, ...]
    target_probs: tuple[float, ...]
    accept_probs: tuple[float, ...]
    draft_entropies_nats: tuple[float, ...]
    target_entropies_nats: tuple[float, ...]
    alternatives: tuple[tuple[Alternative, ...], ...]
    coins: tuple[float | None, ...]
    last_coin: float | None
    last_prob: float
    rule: Rule
    accepted: int
    residual_mass: float | None
    decided: Decided
    emitted: tuple[int, ...]
    cap: Cap
    cut: Cut | None
    stage_s: tuple[float, ...]
    stage_bytes: tuple[int, ...]
    before: State
    after: State

    @property
    def total_s(self) -> float:
        """Seconds of all stages."""
        return sum(self.stage_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One request.

    Attributes:
        request_id: the engine's; what the client got as `id`.
        at: when it arrived, UTC.
        engine: what computed it: digests of target, draft and tokenizer, method, k, dtype, device, attention kernel, versions.
        settings: the request's sampling settings and limits.
        prompt_ids: the prompt's tokens.
        first: the tokens of the prefill: one, or none if it failed.
        first_alternatives: the target's most likely tokens there.
        queue_s, prefill_s: seconds before the prefill and of it.
        rounds: in order.
        controls: what was done from outside.
        ended: what ended the answer; None while it runs.
        text_tokens: tokens that reached the client; fewer than emitted when a stop text was found.
    """

    request_id: str
    at: datetime
    engine: Mapping[str, Any]
    settings: Mapping[str, Any]
    prompt_ids: tuple[int, ...]
    first: tuple[int, ...]
    first_alternatives: tuple[Alternative, ...]
    queue_s: float
    prefill_s: float
    rounds: tuple[Round, ...]
    ended: Cut | None
    text_tokens: int
    controls: tuple[Control, ...] = field(default=())

    @property
    def emitted(self) -> tuple[int, ...]:
        """All tokens of the answer."""
        return (*self.first, *(token for line in self.rounds for token in line.emitted))

    @property
    def drafted(self) -> int:
        """Proposals in all rounds."""
        return sum(len(line.drafted) for line in self.rounds)

    @property
    def accepted(self) -> int:
        """Accepted proposals in all rounds, counted before any cut."""
        return sum(line.accepted for line in self.rounds)

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"at": self.at.isoformat(), "engine": dict(self.engine), "settings": dict(self.settings)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_record` wrote.

        Raises:
            InvalidRecord: a field is missing, unknown, or of the wrong kind.
        """
        try:
            values = dict(record)
            return cls(**values | {
                "at": datetime.fromisoformat(values["at"]),
                "prompt_ids": tuple(values["prompt_ids"]),
                "first": tuple(values["first"]),
                "first_alternatives": tuple(Alternative(**each) for each in values["first_alternatives"]),
                "rounds": tuple(_round(line) for line in values["rounds"]),
                "controls": tuple(Control(**each | {"hand": Hand(each["hand"])}) for each in values["controls"]),
                "ended": None if values["ended"] is None else Cut(values["ended"]),
            })  # fmt: skip
        except (KeyError, TypeError, ValueError) as exc:
            raise InvalidRecord(f"this is no trace: {exc!r}; take one that `specops trace show --json` wrote") from exc


def _round(record: Mapping[str, Any]) -> Round:
    sequences = {name: tuple(value) for name, value in record.items() if isinstance(value, list | tuple)}
    return Round(**dict(record) | sequences | {
        "alternatives": tuple(tuple(Alternative(**each) for each in row) for row in record["alternatives"]),
        "rule": Rule(record["rule"]),
        "decided": Decided(record["decided"]),
        "cap": Cap(record["cap"]),
        "cut": None if record["cut"] is None else Cut(record["cut"]),
        "before": State(**record["before"]),
        "after": State(**record["after"]),
    })  # fmt: skip
