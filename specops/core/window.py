"""The window: all evidence of a rollout so far, as one value that grows by one outcome at a time.

`fold` is called by `control` for each outcome in order; the record is stored with the cursor in one transaction, so a killed
control process resumes with exactly the same evidence, however the outcomes were cut into batches. What the evidence means is
for `core.judge`, how a sample moves it for `core.track`. Against a fixed limit only the candidate's live and shadow outcomes
count; one request is one sample. The baseline's outcomes count where a check compares with them.

- A request that the arm rejected (HTTP 4xx) or that the client broke off counts neither as an error nor as a success.
- A request without drafted tokens has no acceptance rate: it is no data, never 0.
"""

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Self

from specops.core.check import Against, Check, Metric
from specops.core.guards import Pinned
from specops.core.ladder import PlainHealth
from specops.core.outcome import Arm, Finish, Kind, Outcome
from specops.core.pairing import Halves, is_half
from specops.core.policy import Policy
from specops.core.rival import is_settled, rival_next, share_next
from specops.core.sample import COMPLETED, pair_sample_of, sample_of
from specops.core.track import RECENT, Track
from specops.errors import InvalidRecord
from specops.stats.frozen import trusted
from specops.stats.ratio import RatioSums

__all__ = ["COMPLETED", "RECENT", "Track", "Window", "fold", "require_same_policy", "sample_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Evidence under one policy. Counts by class are sorted pairs; `histogram[a]` sums rounds with `a` accepted tokens.

    `began_at` is the end of the first outcome: waits count from it. `halves` wait for the other answer to their request.
    `share` of live requests is in force since `share_since`, as far as outcomes tell (`core.rival`); None without such checks.
    `plain` is how the baseline itself does.
    """

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
    began_at: datetime | None = None
    pinned: Pinned = field(default_factory=Pinned)
    halves: Halves = field(default_factory=Halves)
    share: float | None = None
    share_since: datetime | None = None
    plain: PlainHealth = field(default_factory=PlainHealth)

    @classmethod
    def empty(cls, policy: Policy, *, plain: PlainHealth | None = None) -> Self:
        """Return the window before the first outcome; the baseline's health outlives the evidence about a candidate."""
        tracks = tuple(Track.start(check) for check in policy.checks)
        return cls(policy_digest=policy.digest, tracks=tracks, plain=plain or PlainHealth())

    @property
    def positions(self) -> tuple[float, ...]:
        """Share of rounds in which at least 1, 2, ... k drafted tokens were accepted."""
        rounds = sum(self.histogram)
        return tuple(sum(self.histogram[j:]) / rounds for j in range(1, len(self.histogram))) if rounds else ()

    @property
    def coverage(self) -> float | None:
        """Share of the candidate's outcomes that carried acceptance counts; None without outcomes."""
        return self.with_acceptance / self.candidate_outcomes if self.candidate_outcomes else None

    @property
    def fatal_counts(self) -> dict[str, int]:
        """How often each fatal class was seen, pinned acceptance included."""
        return dict(self.errors) | self.pinned.counts

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse, to the last bit."""
        counts = {"finishes": dict(self.finishes), "errors": dict(self.errors), "histogram": list(self.histogram)}
        parts = {"tracks": [t.to_record() for t in self.tracks], "acceptance": asdict(self.acceptance)}
        later = {
            "began_at": self.began_at.isoformat() if self.began_at else None,
            "pinned": self.pinned.to_record(),
            "halves": self.halves.to_record(),
            "share": self.share,
            "share_since": self.share_since.isoformat() if self.share_since else None,
            "plain": asdict(self.plain),
        }
        as_is = ("policy_digest", "outcomes", "candidate_outcomes", "promoted_outcomes", "with_acceptance")
        return {name: getattr(self, name) for name in as_is} | counts | parts | later

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build a window from `to_record` values; what an older version did not store has its first value.

        Raises:
            InvalidRecord: a field is missing, unknown or of another shape.
        """
        try:
            counts = {name: tuple(sorted(record[name].items())) for name in ("finishes", "errors")}
            tracks = tuple(Track.from_record(t) for t in record["tracks"])
            sums = {"histogram": tuple(record["histogram"]), "acceptance": RatioSums(**record["acceptance"])}
            began, share, since = (record.get(name) for name in ("began_at", "share", "share_since"))
            later = {
                "began_at": datetime.fromisoformat(began) if began else None,
                "pinned": Pinned.from_record(record.get("pinned", (0, 0, 0, 0))),
                "halves": Halves.from_record(record.get("halves", ())),
                "share": None if share is None else float(share),
                "share_since": datetime.fromisoformat(since) if since else None,
                "plain": PlainHealth(**record.get("plain", {})),
            }
            return cls(**(record | counts | sums | later | {"tracks": tracks}))
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise InvalidRecord(f"not an evidence record: {exc!r}; replay the stored outcomes to rebuild it") from exc


@dataclass(frozen=True, slots=True)
class _Step:
    """What one outcome means to every check: whose it is, the pair it completes, the half it pushed out of the queue.

    `is_settled`: it was assigned at a share that has been in force for long enough to compare arms. `is_warm`: the trial is so
    old that slow answers are seen as well.
    """

    outcome: Outcome
    is_ours: bool
    promoted: bool
    pair: tuple[Outcome, Outcome] | None
    given_up: Outcome | None
    is_settled: bool
    is_warm: bool


def fold(window: Window, outcome: Outcome, policy: Policy, *, promoted: bool) -> Window:
    """Return the window with one more outcome. Folding is deterministic and depends on the order of outcomes only.

    Args:
        window: the evidence so far, begun under the same policy.
        outcome: the next outcome, of either arm. Checks of errors and of the split against the baseline need its `share`;
            without it, at 0 or 1, or within the policy's `settle` of a change of it, they learn nothing from it.
        policy: the policy the window was begun with.
        promoted: feed the monitors (after promotion) instead of the gates.

    Raises:
        InvalidRecord: the window was begun under another policy.
    """
    if window.policy_digest != policy.digest:
        require_same_policy(window, policy)
    is_ours = outcome.arm is Arm.CANDIDATE and outcome.kind is not Kind.OFFLINE
    halves, twin, given_up = window.halves, None, None
    if policy.has_pairs and is_half(outcome):
        halves, twin, given_up = halves.join(outcome)
    pair = None if twin is None else (outcome, twin) if is_ours else (twin, outcome)
    tracks, share, since = window.tracks, window.share, window.share_since
    if policy.has_rivals:
        share, since = share_next(share, since, outcome)
    if is_ours or pair or given_up or policy.has_rivals:
        settled = is_settled(share, since, outcome, policy.settle_s)
        warm = (outcome.at - (window.began_at or outcome.at)).total_seconds() >= policy.settle_s
        step = _step(outcome, is_ours, promoted, pair, given_up, settled, warm)
        tracks = tuple([_follow(track, check, step) for track, check in zip(tracks, policy.checks, strict=True)])
    counts = outcome.acceptance if is_ours and outcome.finish in COMPLETED else None  # broken answers carry no complete counts
    has_counts = counts is not None and counts.drafted > 0
    return _window(
        policy_digest=window.policy_digest,
        tracks=tracks,
        outcomes=window.outcomes + 1,
        candidate_outcomes=window.candidate_outcomes + is_ours,
        promoted_outcomes=window.promoted_outcomes + (is_ours and promoted),
        finishes=_add(window.finishes, outcome.finish.value) if is_ours else window.finishes,
        errors=_add(window.errors, outcome.error or "unknown") if is_ours and outcome.finish is Finish.ERROR else window.errors,
        histogram=_merged(window.histogram, counts.histogram) if counts and has_counts else window.histogram,
        with_acceptance=window.with_acceptance + has_counts,
        acceptance=window.acceptance.update(counts.accepted, counts.drafted) if counts and has_counts else window.acceptance,
        began_at=window.began_at or outcome.at,
        pinned=window.pinned.update(counts) if counts else window.pinned,
        halves=halves,
        share=share,
        share_since=since,
        plain=window.plain.after(outcome) if outcome.arm is Arm.BASELINE else window.plain,
    )


_window, _step = trusted(Window), trusted(_Step)


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


def _follow(track: Track, check: Check, step: _Step) -> Track:
    """Return the track after an outcome: with its sample, with a longer gap where one is missing, or as it was."""
    if check.against is Against.PAIRS:
        return _follow_pair(track, check, step)
    outcome = step.outcome
    if check.only is not None and not check.only.holds(outcome.in_flight):
        return track
    if track.rival is not None:
        track = _contend(track, check, step)
    if not step.is_ours or check.metric is Metric.SPLIT:
        return track
    x = sample_of(check, outcome)
    if x is None:
        return track.silent() if outcome.finish in COMPLETED else track
    stratum = 0 if check.strata is None else check.strata.index(outcome)
    return track.take(x, promoted=step.promoted, is_warm=step.is_warm, stratum=stratum)


def _contend(track: Track, check: Check, step: _Step) -> Track:
    """Return the track with its rival test moved on, and with a baseline's sample beside it for the reader."""
    rival = track.rival
    if rival is not None and step.is_settled:
        rival = rival_next(rival, check, step.outcome)
    if rival is not track.rival and rival is not None:
        track = track.contend(rival)
    if step.outcome.arm is not Arm.BASELINE or step.outcome.kind is not Kind.LIVE or check.metric is Metric.SPLIT:
        return track
    x = sample_of(check, step.outcome)
    return track if x is None else track.beside(x)


def _follow_pair(track: Track, check: Check, step: _Step) -> Track:
    if step.given_up is not None and (check.only is None or check.only.holds(step.given_up.in_flight)):
        track = track.silent()
    if step.pair is None:
        return track
    if not step.is_warm:
        return track  # pairs are known when their slower half ends
    ours, theirs = step.pair
    if check.only is not None and not check.only.holds(ours.in_flight):
        return track
    x = pair_sample_of(check, ours, theirs)
    if x is None:
        return track.silent() if ours.finish in COMPLETED else track
    return track.take(x, promoted=step.promoted, stratum=0 if check.strata is None else check.strata.index(ours))


def _merged(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sum of two histograms, the shorter one padded."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return (*[a + b for a, b in zip(longer, shorter, strict=False)], *longer[len(shorter) :])


def _add(counts: tuple[tuple[str, int], ...], name: str) -> tuple[tuple[str, int], ...]:
    table = dict(counts)
    table[name] = table.get(name, 0) + 1
    return tuple(sorted(table.items()))
