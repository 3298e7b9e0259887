"""The queue of halves behaves as a plain list would, at a price that does not grow with it."""

import random
from datetime import UTC, datetime

from specops.core.outcome import Arm, Finish, Kind, Outcome
from specops.core.pairing import WAITING, Halves

SIDES = ((Arm.BASELINE, Kind.LIVE), (Arm.BASELINE, Kind.LIVE), (Arm.CANDIDATE, Kind.SHADOW))


def _half(number, arm, kind):
    return Outcome(
        request_id=f"r{number}", arm=arm, kind=kind, release_id="x", at=datetime(2026, 1, 1, tzinfo=UTC), finish=Finish.STOP,
        e2e_s=1.0,
    )  # fmt: skip


def _joined_plainly(waiting, half):
    """Apply the rule by itself to a dictionary in order of age."""
    other = waiting.pop(half.request_id, None)
    if other is not None and other.arm is not half.arm:
        return other, None
    if other is None and len(waiting) >= WAITING:
        other = waiting.pop(next(iter(waiting)))
    waiting[half.request_id] = half
    return None, other if other is not None and other.arm is Arm.CANDIDATE else None


def test_the_queue_is_a_list_with_a_limit():
    """Same twin, same half given up, same length and order, through ids sent twice, pairs far apart and a full queue."""
    rng, halves, waiting = random.Random(1), Halves(), {}
    for step in range(6_000):
        half = _half(step if rng.random() < 0.7 else max(0, step - rng.randrange(1_500)), *rng.choice(SIDES))

        halves, *found = halves.join(half)

        assert tuple(found) == _joined_plainly(waiting, half)
        assert len(halves) == len(waiting)
        if step % 97 == 0:
            assert halves.outcomes == tuple(waiting.values())
            assert hash(Halves.from_record(halves.to_record())) == hash(halves)


def test_an_earlier_queue_stays_as_it_was():
    """A fold that is repeated from a stored window joins the same pairs again."""
    halves = Halves()
    for number in range(200):
        halves = halves.join(_half(number, *SIDES[0]))[0]
    before = halves.outcomes

    once, again = (halves.join(_half(7, *SIDES[2])) for _ in range(2))

    assert once == again
    assert once[1].request_id == "r7"
    assert halves.outcomes == before
