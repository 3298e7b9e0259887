"""Which arm did this come from? The fail side of checks that compare two arms at the same time instead of with a fixed limit.

Kept by `core.window` inside a track, read by `core.ruling`; decides which outcomes are events and for whom. The arm of a
live request is drawn with a known share, so if slow answers, or errors, are as frequent on both arms, the next one is the
candidate's with a known probability, whatever the load does to both: a burst that slows everybody speaks against nobody. The
statistics are `stats.attribution`; with the share known it needs no blocks and no rates, so it serves latency and errors alike.

Outcomes come in the order in which answers ended, not in which requests were assigned. Just after the share moved, the arm
that answers sooner is seen alone; so nothing is bet until the share has been the same for longer than an answer takes.

Assumes that requests are assigned one by one: under sticky keys a heavy user moves many requests at once, and a check of the
split must not be used. Assumes that answers end within the policy's `settle`: later ones of the slower arm are missing for a
while.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from specops.core.check import Check, Metric
from specops.core.outcome import Arm, Kind, Outcome
from specops.core.sample import sample_of
from specops.stats.attribution import SPLIT_FAMILY, Attribution, Split
from specops.stats.wealth import Mode, Null

Rival = Attribution | Split
NEAREST_SHARE = 1e-6  # from 0 and 1; nearer than that one arm has no traffic to compare with
_LONGEST_S = 86_400.0  # an answer that claims to have taken longer is taken to have begun a day ago
_EARLIEST = datetime(2, 1, 1, tzinfo=UTC)  # a day before the first one of the calendar would be no time at all
_ARMS = (Arm.CANDIDATE.value, Arm.BASELINE.value)


def start_rival(check: Check) -> Rival:
    """Return the evidence before any event."""
    if check.metric is Metric.SPLIT:
        return Split.start(_ARMS)
    return Attribution.start(Null.AT_MOST, check.limit, Mode.CHANGE)


def share_next(share: float | None, since: datetime | None, outcome: Outcome) -> tuple[float | None, datetime | None]:
    """Return the share in force after an outcome, and since when requests are known to be assigned at it.

    An answer with another share is news only if its request began after those that are known to have the present share; else
    it is a straggler from before.

    Args:
        share: the share in force so far; None before the first.
        since: when the first request known to have it began.
        outcome: the next outcome, of either arm.
    """
    if outcome.share is None or outcome.share == share:
        return share, since
    took_s = min(_LONGEST_S, outcome.e2e_s)  # in this order, so that nan becomes the longest
    began = max(_EARLIEST, outcome.at) - timedelta(seconds=took_s)
    return (outcome.share, began) if since is None or began > since else (share, since)


def is_settled(share: float | None, since: datetime | None, outcome: Outcome, settle_s: float) -> bool:
    """Tell whether an outcome was assigned at the share in force, and ended so late that slow answers are seen as well."""
    return outcome.share == share and since is not None and (outcome.at - since).total_seconds() >= settle_s


def rival_next(rival: Rival, check: Check, outcome: Outcome) -> Rival:
    """Return the evidence after an outcome of either arm; the same value where it says nothing.

    Args:
        rival: the evidence so far.
        check: a check against the baseline.
        outcome: any outcome; only live ones with a share count, and of a check's events only slow answers or errors.
    """
    share = outcome.share
    if share is None or not NEAREST_SHARE <= share <= 1.0 - NEAREST_SHARE or outcome.kind is not Kind.LIVE:
        return rival
    if isinstance(rival, Split):
        if outcome.retried_on_baseline:  # assigned once, served twice
            return rival
        shares = dict(zip(_ARMS, (share, 1.0 - share), strict=True))
        return rival.update((outcome.assigned or outcome.arm).value, shares)
    if sample_of(check, outcome) != 1.0:
        return rival
    return rival.update(candidate=outcome.arm is Arm.CANDIDATE, share=share)


def rival_from_record(record: dict[str, Any]) -> Rival:
    """Build the evidence from its record.

    Raises:
        InvalidRecord: it is none.
    """
    return Split.from_record(record) if record["family"] == SPLIT_FAMILY else Attribution.from_record(record)
