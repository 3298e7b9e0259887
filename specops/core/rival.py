"""Which arm did this come from? The fail side of checks that compare two arms at the same time instead of with a fixed limit.

Kept by `core.window` inside a track, read by `core.ruling`; decides which outcomes are events and for whom. The arm of a
live request is drawn with a known share, so if slow answers, or errors, are as frequent on both arms, the next one is the
candidate's with a known probability, whatever the load does to both: a burst that slows everybody speaks against nobody. The
statistics are `stats.attribution`; with the share known it needs no blocks and no rates, so it serves latency and errors alike.

Assumes that requests are assigned one by one: under sticky keys a heavy user moves many requests at once, and a check of the
split must not be used.
"""

from typing import Any

from specops.core.check import Check, Metric
from specops.core.outcome import Arm, Kind, Outcome
from specops.core.sample import sample_of
from specops.stats.attribution import SPLIT_FAMILY, Attribution, Split
from specops.stats.wealth import Mode, Null

Rival = Attribution | Split
NEAREST_SHARE = 1e-6  # from 0 and 1; nearer than that one arm has no traffic to compare with
_ARMS = (Arm.CANDIDATE.value, Arm.BASELINE.value)


def start_rival(check: Check) -> Rival:
    """Return the evidence before any event."""
    if check.metric is Metric.SPLIT:
        return Split.start(_ARMS)
    return Attribution.start(Null.AT_MOST, check.limit, Mode.CHANGE)


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
