"""The outcome ring: numbering, loss, epochs, long poll."""

import asyncio
from datetime import UTC, datetime

from specops.core.outcome import Arm, Finish, Kind, Outcome
from specops.gateway.ring import Ring


def outcome(number):
    """Return the n-th outcome."""
    return Outcome(
        request_id=f"r{number}", arm=Arm.BASELINE, kind=Kind.LIVE, release_id="x", at=datetime(2026, 1, 1, tzinfo=UTC),
        finish=Finish.STOP, e2e_s=1.0,
    )  # fmt: skip


def filled(count, capacity=3):
    """Return a ring that took `count` outcomes."""
    ring = Ring("e1", capacity)
    for number in range(1, count + 1):
        ring.add(outcome(number))
    return ring


def ids(page):
    """Return the request ids of a page."""
    return [o.request_id for o in page.outcomes]


def test_pages_follow_one_another():
    """`next` of one page is `after` of the following one; nothing comes twice."""
    ring = filled(3)

    first = ring.read(after=0, epoch="e1", limit=2)
    second = ring.read(after=first.next, epoch="e1", limit=2)

    assert (ids(first), ids(second), second.next, second.dropped) == (["r1", "r2"], ["r3"], 3, 0)
    assert ring.read(after=3, epoch="e1", limit=2).next == 3


def test_what_was_forgotten_is_counted():
    """A reader behind the oldest outcome learns how many it missed."""
    page = filled(7).read(after=2, epoch="e1", limit=10)

    assert (ids(page), page.dropped, page.next) == (["r5", "r6", "r7"], 2, 7)


def test_another_epoch_starts_from_the_oldest():
    """A reader of another process run, or without one, gets all there is."""
    for epoch in ("e0", None):
        page = filled(4).read(after=900, epoch=epoch, limit=10)
        assert (page.epoch, ids(page), page.dropped, page.next) == ("e1", ["r2", "r3", "r4"], 1, 4)


async def test_long_poll_returns_with_the_first_outcome():
    """A waiting reader is woken by an outcome, not by its timeout."""
    ring = filled(0)
    waiting = asyncio.create_task(ring.poll(after=0, epoch="e1", limit=10, wait_s=30))
    await asyncio.sleep(0)

    ring.add(outcome(1))

    async with asyncio.timeout(5):
        assert ids(await waiting) == ["r1"]


async def test_long_poll_returns_empty_after_its_wait():
    """Nothing came: an empty page that asks for the same place again."""
    page = await filled(2).poll(after=2, epoch="e1", limit=10, wait_s=0.01)

    assert (page.outcomes, page.next, page.dropped) == ((), 2, 0)
