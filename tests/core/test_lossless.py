"""When a verification speaks for a candidate, and why it does not."""

import pytest

from specops.core.lossless import Lossless, objection

FACTS = {"version": "1", "dtype": "float32", "target": {"weights_sha256": "t", "path": "/a"}, "uptime": 3}
NEWEST = {
    "verdict": "LOSSLESS WITHIN", "words": "LOSSLESS WITHIN 0.01", "tolerance": 0.01,
    "sampling": {"temperature": 0.8, "top_p": 1.0}, "facts": {"endpoint": FACTS},
}  # fmt: skip
NEED = Lossless(temperature=0.8)


def test_the_same_endpoint_and_sampling_are_spoken_for():
    """Where files lie and what changes by itself do not matter."""
    today = FACTS | {"target": {"weights_sha256": "t", "path": "/b"}, "uptime": 9}
    assert objection(NEED, NEWEST, today) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": "2"}, "changed after it was verified: version"),
        ({"dtype": "bfloat16"}, "changed after it was verified: dtype"),
        ({"hardware": "other"}, "changed after it was verified: hardware"),
        ({"target": {"weights_sha256": "u"}}, "changed after it was verified: target"),
    ],
)
def test_a_changed_engine_ends_it(change, why):
    """The message names what changed."""
    assert why in objection(NEED, NEWEST, FACTS | change)


@pytest.mark.parametrize(
    ("need", "newest", "today", "why"),
    [
        (NEED, None, FACTS, "never verified"),
        (NEED, NEWEST | {"verdict": "NOT LOSSLESS", "words": "NOT LOSSLESS: noise"}, FACTS, "NOT LOSSLESS: noise"),
        (Lossless(temperature=0.8, tolerance=0.005), NEWEST, FACTS, "within 0.01, the policy asks for 0.005"),
        (Lossless(), NEWEST, FACTS, "temperature 0.8, not 1"),
        (Lossless(temperature=0.8, top_k=10), NEWEST, FACTS, "top_k 0, not 10"),
        (NEED, NEWEST, {}, "does not describe itself"),
        (NEED, NEWEST | {"facts": {"endpoint": {}}}, FACTS, "did not describe itself"),
    ],
)
def test_anything_else_is_an_objection(need, newest, today, why):
    """No verification, another verdict, tolerance or sampling, or an endpoint that cannot be recognised."""
    assert why in (objection(need, newest, today) or "")
