"""Differences between releases, and what came from what."""

import pytest

from specops.core.lineage import Effect, ancestors, check_acyclic, descendants, diff
from specops.core.release import Edge, EdgeKind, Release
from specops.errors import InvalidRecord

RULE, LENGTH = "rejection_sample_method", "synthetic_acceptance_length"
SPECULATIVE = {
    "name": "fast", "target": "t1", "tokenizer": "k1", "method": "draft_model", "draft": "d1", "num_speculative_tokens": 4,
    "engine": {"name": "torch", "version": "1", "args": {"dtype": "float32", "port": 1}},
}  # fmt: skip


def change(**changes):
    """Return the differences that the changes make."""
    return {d.component: d.can_change for d in diff(Release(**SPECULATIVE), Release(**(SPECULATIVE | changes)))}


def edge(source, target):
    """Return an edge."""
    return Edge(source=source, kind=EdgeKind.USES, target=target)


def test_equal_releases_do_not_differ():
    """No difference, no line."""
    assert change() == {}


@pytest.mark.parametrize(("changes", "component", "effect"), [
    ({"name": "faster"}, "name", Effect.NEITHER),
    ({"target": "t2"}, "target", Effect.OUTPUT_AND_SPEED),
    ({"tokenizer": "k2"}, "tokenizer", Effect.OUTPUT_AND_SPEED),
    ({"draft": "d2"}, "draft", Effect.SPEED),
    ({"num_speculative_tokens": 2}, "num_speculative_tokens", Effect.SPEED),
    ({"draft_tokenizer": "k1"}, "draft_tokenizer", Effect.SPEED),
    ({"draft_tokenizer": "k2"}, "draft_tokenizer", Effect.OUTPUT_AND_SPEED),
    ({"speculative_config": {"prompt_lookup_max": 4}}, "speculative_config.prompt_lookup_max", Effect.SPEED),
    ({"speculative_config": {RULE: "block"}}, f"speculative_config.{RULE}", Effect.SPEED),
    ({"speculative_config": {RULE: "synthetic"}}, f"speculative_config.{RULE}", Effect.OUTPUT_AND_SPEED),
    ({"speculative_config": {LENGTH: 3}}, f"speculative_config.{LENGTH}", Effect.OUTPUT_AND_SPEED),
])  # fmt: skip
def test_each_component_says_what_it_can_change(changes, component, effect):
    """Speculation is exact, so only what breaks exactness or changes the target can change output."""
    assert change(**changes) == {component: effect}


def test_engine_settings_are_compared_key_by_key():
    """An address changes nothing; anything not known to be harmless may change both."""
    engine = {"name": "torch", "version": "2", "args": {"dtype": "bfloat16", "port": 2}}
    assert change(engine=engine) == {
        "engine.version": Effect.OUTPUT_AND_SPEED, "engine.args.dtype": Effect.OUTPUT_AND_SPEED,
        "engine.args.port": Effect.NEITHER,
    }  # fmt: skip


def test_turning_speculation_off_changes_speed_only():
    """Plain decoding of the same target has the same law: that is what makes it the fallback."""
    plain = Release(**(SPECULATIVE | {"method": None, "draft": None, "num_speculative_tokens": 0}))
    found = diff(Release(**SPECULATIVE), plain)
    assert [(d.component, d.left, d.right) for d in found] == [  # as in `specops lineage diff`
        ("method", "draft_model", None),
        ("draft", "d1", None),
        ("num_speculative_tokens", 4, 0),
    ]
    assert all(d.can_change_speed and not d.can_change_output for d in found)


def test_ancestors_and_descendants_follow_edges_nearest_first():
    """Upward is what it came from, downward what to look at again when it changes; a diamond is walked once."""
    edges = [edge("release", "draft"), edge("release", "target"), edge("draft", "target"), edge("target", "corpus")]
    assert ancestors(edges, "release") == ("draft", "target", "corpus")
    assert descendants(edges, "target") == ("release", "draft")
    assert ancestors(edges, "corpus") == ()


def test_a_cycle_is_refused_by_name():
    """A thing cannot come from itself, however long the way."""
    chain = [edge("a", "b"), edge("b", "c"), edge("x", "a")]
    check_acyclic(chain)
    with pytest.raises(InvalidRecord, match="cycle among a, b, c, x"):
        check_acyclic([*chain, edge("c", "a")])
