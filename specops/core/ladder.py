"""The recovery ladder: what a failing check asks for, from the mildest rung to the hardest, and the way back up.

A policy names a rung per check (`core.policy`), a finding and a verdict carry it (`core.verdict`), and `core.rollout` takes it.
Nothing here imports those three, so all of them may import this. Whether a check fails is decided elsewhere (`core.judge`).

Way back: after a fallback the candidate answers mirrored requests only. Attempt j = 1, 2, ... to recover has evidence of its
own and succeeds when each check's e-value against "worse than pass_at" reaches RECOVERY_FACTOR * 2**j times its threshold
1/alpha. By Ville's inequality a candidate that is worse in some check does so in attempt j with probability at most
alpha / (10 * 2**j), and by the union bound ever, over all attempts and falls of a rollout, with at most alpha / 10.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from specops.core.outcome import Arm, Finish, Kind, Outcome

RECOVERY_FACTOR = 10.0
COOL_DOWN_S = 300.0  # after the first fall; doubled with each further one, so that flapping gets ever rarer
PLAIN_IN_A_ROW = 5  # a guard, no test: 5 in a row have probability 1e-10 at an error rate of 1%
PLAIN_REQUESTS, PLAIN_SHARE = 20, 0.25  # also: 20 good ones in a row end the alarm, so that it can't flap with every error
MAX_DOUBLINGS = 60  # beyond, the factor stays: nobody gets there, and floats are finite


class Rung(StrEnum):
    """Mildest first; the order is the severity, and of several failing checks the most severe rung is taken.

    ABSTAIN: the step is held, nothing is promoted, nobody is called.
    ASK_MORE: the step needs as many requests again; if the check still fails then, a person is called.
    ESCALATE: the rollout waits as it is, and the check's owner is called.
    SHRINK_K: propose fewer tokens a round. k is fixed when a server starts, so without a sibling release this is FALLBACK.
    SHED: where the check looks only above N requests in flight, the candidate gets no live request above N any more, and the
        evidence begins anew. Without such a check, or if that did not help, this is FALLBACK.
    FALLBACK: the candidate's live share is 0, mirrored requests go on, the trial begins again when they prove it well.
    ROLL_BACK: the rollout ends, all traffic and the alias go to the baseline; the owner is called.
    STOP: as ROLL_BACK, and no new rollout of this candidate starts until a person clears it.
    """

    ABSTAIN = "abstain"
    ASK_MORE = "ask_more"
    ESCALATE = "escalate"
    SHRINK_K = "shrink_k"
    SHED = "shed"
    FALLBACK = "fallback"
    ROLL_BACK = "roll_back"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a rollout's state and history mean for a judgement.

    Attributes:
        promoted: the candidate serves everyone: judge by the monitors.
        waiting_since: from when a wait counts; the first outcome when None.
        pass_factor: how many times its usual bar a check must reach to pass: more with each further trial of a candidate.
        shed_below: nothing speculates at this many requests in flight or more, so checks that look only there say nothing.
    """

    promoted: bool = False
    waiting_since: datetime | None = None
    pass_factor: float = 1.0
    shed_below: int | None = None


RUNG_SEVERITY = {rung: rank for rank, rung in enumerate(Rung)}


def most_severe(rungs: Iterable[Rung]) -> Rung:
    """Return the most severe rung; ROLL_BACK when none is named, which is what a FAIL meant before rungs could be named."""
    return max(rungs, key=RUNG_SEVERITY.__getitem__, default=Rung.ROLL_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainHealth:
    """How the baseline itself does: finished requests, errors, errors in a row, good ones in a row, and what follows.

    Unhealthy after 5 errors in a row, or with over a quarter of at least 20 requests: falling back does not help. Healthy
    again, and counted anew, after 20 good ones in a row.
    """

    requests: int = 0
    errors: int = 0
    in_a_row: int = 0
    good: int = 0
    is_unhealthy: bool = False

    def seen(self, *, is_error: bool) -> "PlainHealth":
        """Return the counts with one more request of the baseline."""
        requests, errors = self.requests + 1, self.errors + is_error
        in_a_row, good = (self.in_a_row + 1, 0) if is_error else (0, self.good + 1)
        if self.is_unhealthy and good >= PLAIN_REQUESTS:
            return PlainHealth()
        is_mostly_bad = requests >= PLAIN_REQUESTS and errors > PLAIN_SHARE * requests
        is_unhealthy = self.is_unhealthy or in_a_row >= PLAIN_IN_A_ROW or is_mostly_bad
        return PlainHealth(requests=requests, errors=errors, in_a_row=in_a_row, good=good, is_unhealthy=is_unhealthy)

    def after(self, outcome: Outcome) -> "PlainHealth":
        """Return the counts after any outcome: only a live request of the baseline counts.

        What the client broke off, or had no right to ask, says nothing about the baseline.
        """
        is_live = outcome.arm is Arm.BASELINE and outcome.kind is Kind.LIVE
        if not is_live or outcome.finish in {Finish.ABORT, Finish.REJECTED}:
            return self
        return self.seen(is_error=outcome.finish is Finish.ERROR)

    @property
    def text(self) -> str:
        """The counts in words."""
        return f"{self.errors} of {self.requests} requests of the baseline failed, the last {self.in_a_row} in a row"


def has_recovered(claims: Iterable[tuple[float | None, float | None]], *, attempt: int) -> bool:
    """Tell whether passing checks pass at the bar of an attempt to recover.

    Args:
        claims: per check the e-value against "worse than pass_at" and the threshold at which it passes a trial; None where a
            check vouches for the data and claims nothing about the candidate.
        attempt: number of this attempt in its rollout, from 1.

    Returns:
        False also when nothing is claimed: no data never passes.
    """
    factor = RECOVERY_FACTOR * 2.0 ** min(attempt, MAX_DOUBLINGS)
    made = [(e, bar) for e, bar in claims if e is not None and bar is not None]
    return bool(made) and all(e >= factor * bar for e, bar in made)


def is_cool(*, since: datetime, falls: int, cool_down_s: float, now: datetime) -> bool:
    """Tell whether the cool-down is over: `cool_down_s` since the attempt began, doubled with each fall but the first."""
    return (now - since).total_seconds() >= cool_down_s * 2.0 ** min(max(falls - 1, 0), MAX_DOUBLINGS)
