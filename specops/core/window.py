"""The window: all evidence of a rollout so far, as one value that grows by one outcome at a time.

`fold` is called by `control` for each outcome in order; the record is stored with the cursor in one transaction, so a killed
control process resumes with exactly the same evidence, however the outcomes were cut into batches. What the evidence means is
for `core.judge`. Only the candidate's live and shadow outcomes count; one request is one sample.

- A request that the arm rejected (HTTP 4xx) or that the client broke off counts neither as an error nor as a success.
- A request without drafted tokens has no acceptance rate: it is no data, never 0.
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from specops.core.outcome import Arm, Finish, Kind, Outcome
from specops.core.policy import Check, Metric, Policy
from specops.errors import InvalidRecord
from specops.stats import bernoulli, betting
from specops.stats.confidence import Moments
from specops.stats.ratio import RatioSums
from specops.stats.wealth import Bets, Mode, Null, Wealth

RECENT = 20  # values kept for the reader of an alarm; no decision uses them
COMPLETED = frozenset({Finish.STOP, Finish.LENGTH})
_FAMILIES = {betting.FAMILY: betting.bets, bernoulli.FAMILY: bernoulli.bets}


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """Evidence of one check.

    `gate` bets against "fine", `non_inferior` against "worse than pass_at", `monitor` watches since promotion. `gap` counts
    completed requests without a value since the last one that had it. `recent` holds the newest samples, oldest first.
    """

    check: str
    gate: Wealth
    non_inferior: Wealth
    monitor: Wealth
    moments: Moments = field(default_factory=Moments)
    promoted: Moments = field(default_factory=Moments)
    gap: int = 0
    recent: tuple[float, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse."""
        wealths = {side: getattr(self, side).to_record() for side in ("gate", "non_inferior", "monitor")}
        moments = {"moments": asdict(self.moments), "promoted": asdict(self.promoted)}
        return {"check": self.check} | wealths | moments | {"gap": self.gap, "recent": list(self.recent)}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build a track from `to_record` values."""
        return cls(
            check=record["check"], gate=_wealth(record["gate"]), non_inferior=_wealth(record["non_inferior"]),
            monitor=_wealth(record["monitor"]), moments=Moments(**record["moments"]), promoted=Moments(**record["promoted"]),
            gap=record["gap"], recent=tuple(record["recent"]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Evidence under one policy. Counts by class are sorted pairs; `histogram[a]` sums rounds with `a` accepted tokens."""

    policy_digest: str
    tracks: tuple[Track, ...]
    outcomes: int = 0
    candidate_outcomes: int = 0
    promoted_outcomes: int = 0
    finishes: tuple[tuple[str, int], ...] = ()
    errors: tuple[tuple[str, int], ...] = ()
    histogram: tuple[int, ...] = ()
    with_acceptance: int = 0
    acceptance: RatioSums = field(default_factory=RatioSums)

    @classmethod
    def empty(cls, policy: Policy) -> Self:
        """Return the window before the first outcome."""
        return cls(policy_digest=policy.digest, tracks=tuple(_fresh(check) for check in policy.checks))

    @property
    def positions(self) -> tuple[float, ...]:
        """Share of rounds in which at least 1, 2, ... k drafted tokens were accepted."""
        rounds = sum(self.histogram)
        return tuple(sum(self.histogram[j:]) / rounds for j in range(1, len(self.histogram))) if rounds else ()

    @property
    def coverage(self) -> float | None:
        """Share of the candidate's outcomes that carried acceptance counts; None without outcomes."""
        return self.with_acceptance / self.candidate_outcomes if self.candidate_outcomes else None

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse, to the last bit."""
        counts = {"finishes": dict(self.finishes), "errors": dict(self.errors), "histogram": list(self.histogram)}
        parts = {"tracks": [t.to_record() for t in self.tracks], "acceptance": asdict(self.acceptance)}
        plain = ("policy_digest", "outcomes", "candidate_outcomes", "promoted_outcomes", "with_acceptance")
        return {name: getattr(self, name) for name in plain} | counts | parts

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build a window from `to_record` values.

        Raises:
            InvalidRecord: a field is missing, unknown or of another shape.
        """
        try:
            counts = {name: tuple(sorted(record[name].items())) for name in ("finishes", "errors")}
            tracks = tuple(Track.from_record(t) for t in record["tracks"])
            sums = {"histogram": tuple(record["histogram"]), "acceptance": RatioSums(**record["acceptance"])}
            return cls(**(record | counts | sums | {"tracks": tracks}))
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise InvalidRecord(f"not an evidence record: {exc!r}; replay the stored outcomes to rebuild it") from exc


def fold(window: Window, outcome: Outcome, policy: Policy, *, promoted: bool) -> Window:
    """Return the window with one more outcome. Folding is deterministic and depends on the order of outcomes only.

    Args:
        window: the evidence so far, begun under the same policy.
        outcome: the next outcome, of either arm.
        policy: the policy the window was begun with.
        promoted: feed the monitors (after promotion) instead of the gates.

    Raises:
        InvalidRecord: the window was begun under another policy.
    """
    require_same_policy(window, policy)
    if outcome.arm is not Arm.CANDIDATE or outcome.kind is Kind.OFFLINE:
        return replace(window, outcomes=window.outcomes + 1)
    errors = _add(window.errors, outcome.error or "unknown") if outcome.finish is Finish.ERROR else window.errors
    counted = replace(
        window,
        outcomes=window.outcomes + 1,
        candidate_outcomes=window.candidate_outcomes + 1,
        promoted_outcomes=window.promoted_outcomes + promoted,
        finishes=_add(window.finishes, outcome.finish.value),
        errors=errors,
        tracks=tuple(
            _follow(track, check, outcome, promoted=promoted) for track, check in zip(window.tracks, policy.checks, strict=True)
        ),
    )
    return _with_acceptance(counted, outcome)


def require_same_policy(window: Window, policy: Policy) -> None:
    """Refuse to mix evidence and rules.

    Raises:
        InvalidRecord: the window was begun under another policy.
    """
    if window.policy_digest != policy.digest:
        got, expected = window.policy_digest[:12], policy.digest[:12]
        raise InvalidRecord(
            f"evidence was gathered under policy {got}, not under {expected}; replay the outcomes under the new one"
        )


def sample_of(check: Check, outcome: Outcome) -> float | None:
    """Return the check's sample in [0, 1] from one outcome of the candidate, or None where it has none."""
    if outcome.finish is Finish.REJECTED:
        return None
    if check.metric is Metric.ERROR:
        return None if outcome.finish is Finish.ABORT else float(outcome.finish is Finish.ERROR)
    if outcome.finish not in COMPLETED:
        return None
    if check.metric is Metric.ACCEPTANCE_RATE:
        return outcome.acceptance.rate if outcome.acceptance else None
    times = {Metric.TTFT_S: outcome.ttft_s, Metric.E2E_S: outcome.e2e_s, Metric.TPOT_S: outcome.tpot_s}
    seconds = times[check.metric]
    return None if seconds is None or check.limit_s is None else float(seconds > check.limit_s)


def _follow(track: Track, check: Check, outcome: Outcome, *, promoted: bool) -> Track:
    """Return the track with the outcome's sample, or with a longer gap where a completed request lacks one."""
    x = sample_of(check, outcome)
    if x is None:
        return replace(track, gap=track.gap + 1) if outcome.finish in COMPLETED else track
    return replace(
        track,
        gate=track.gate if promoted else track.gate.update(x),
        monitor=track.monitor.update(x) if promoted else track.monitor,
        non_inferior=track.non_inferior.update(x),
        moments=track.moments.update(x),
        promoted=track.promoted.update(x) if promoted else track.promoted,
        gap=0,
        recent=(*track.recent[-RECENT + 1 :], x),
    )


def _with_acceptance(window: Window, outcome: Outcome) -> Window:
    counts = outcome.acceptance  # retried and broken answers carry no complete counts
    if counts is None or counts.drafted == 0 or outcome.finish not in COMPLETED:
        return window
    longer, shorter = sorted((window.histogram, counts.histogram), key=len, reverse=True)
    padded = shorter + (0,) * (len(longer) - len(shorter))
    return replace(
        window,
        with_acceptance=window.with_acceptance + 1,
        acceptance=window.acceptance.update(counts.accepted, counts.drafted),
        histogram=tuple(a + b for a, b in zip(longer, padded, strict=True)),
    )


def _fresh(check: Check) -> Track:
    family = betting.bets if check.metric is Metric.ACCEPTANCE_RATE else bernoulli.bets
    opposite = Null.AT_MOST if check.null is Null.AT_LEAST else Null.AT_LEAST
    fine, worse = family(check.null, check.limit), family(opposite, check.pass_at)
    return Track(
        check=check.name,
        gate=Wealth.start(fine, Mode.CHANGE),
        non_inferior=Wealth.start(worse, Mode.STEADY),
        monitor=Wealth.start(fine, Mode.MONITOR),
    )


def _wealth(record: dict[str, Any]) -> Wealth:
    bets: Bets = _FAMILIES[record["family"]](Null(record["null"]), record["limit"])
    return Wealth.from_record(record, bets)


def _add(counts: tuple[tuple[str, int], ...], name: str) -> tuple[tuple[str, int], ...]:
    table = dict(counts)
    table[name] = table.get(name, 0) + 1
    return tuple(sorted(table.items()))
