"""The share in force, read from outcomes whose clocks may say anything."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from specops.core.rival import is_settled, share_next

ENDS = (
    datetime.min.replace(tzinfo=UTC),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    datetime.max.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=timezone(-timedelta(hours=14))),
)


@pytest.mark.parametrize("at", ENDS)
@pytest.mark.parametrize("e2e_s", [0.0, 1e12, float("inf")])
def test_times_at_the_ends_of_the_calendar_are_read(make_outcome, at, e2e_s):
    """An answer that began before year 1, or ended in 9999, changes the share as any other does."""
    outcome = make_outcome(at=at, e2e_s=e2e_s, share=0.3)

    share, since = share_next(None, None, outcome)

    assert share == 0.3
    assert is_settled(share, since, outcome, 30.0) == (outcome.at - since >= timedelta(seconds=30))
