"""Assignment is a pure function: stable, monotone in the weight, and of the right size."""

from hypothesis import given
from hypothesis import strategies as st

from specops.core.arms import assign
from specops.core.outcome import Arm

KEYS, SHARES = st.text(max_size=20), st.floats(0, 1)


@given(key=KEYS, weight=SHARES, salt=KEYS)
def test_a_key_never_flips_while_the_weight_stands(key, weight, salt):
    """Same key, weight and rollout: same arm, in every process."""
    assert assign(key, weight, salt=salt) is assign(key, weight, salt=salt)


@given(key=KEYS, weights=st.lists(SHARES, min_size=2, max_size=2))
def test_growing_weight_only_moves_keys_to_the_candidate(key, weights):
    """Who is on the candidate at a small weight stays there at a larger one."""
    small, large = sorted(weights)

    assert assign(key, small) is Arm.BASELINE or assign(key, large) is Arm.CANDIDATE


@given(key=KEYS)
def test_the_ends_are_absolute(key):
    """Weight 0 is nobody, weight 1 is everybody."""
    assert assign(key, 0.0) is Arm.BASELINE
    assert assign(key, 1.0) is Arm.CANDIDATE


def test_the_share_is_the_weight():
    """A tenth of ten thousand keys, within five standard deviations; another rollout tries other keys first."""
    first = {i for i in range(10_000) if assign(str(i), 0.1, salt="one") is Arm.CANDIDATE}
    second = {i for i in range(10_000) if assign(str(i), 0.1, salt="two") is Arm.CANDIDATE}

    assert abs(len(first) - 1000) < 150
    assert len(first & second) < 200


def test_a_known_assignment_stays():
    """The hash is part of the contract: a release of the software must not move users between arms."""
    assert [assign(f"user-{i}", 0.5, salt="ro-1").value for i in range(6)] == [
        "candidate",
        "candidate",
        "baseline",
        "candidate",
        "baseline",
        "candidate",
    ]
