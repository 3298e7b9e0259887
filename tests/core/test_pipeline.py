"""A pipeline that could not be walked, or not watched, is refused with the reason before anything starts."""

import pytest

from specops.core.pipeline import parse_pipeline
from specops.core.rollout import Step, StepKind
from specops.errors import PolicyError

SHADOW = {"kind": "shadow", "mirror": 0.5}
CANARY = {"kind": "canary", "weight": 0.5, "min_requests": 7, "gate": True}
WATCH = {"kind": "watch", "weight": 1.0}


def _parse(*steps, **changes):
    return parse_pipeline({"name": "p", "policy": "default", "steps": list(steps) or [SHADOW, CANARY, WATCH]} | changes)


def test_a_pipeline_is_parsed_whole():
    """Every field of every step arrives."""
    pipeline = _parse(description="why")
    assert (pipeline.name, pipeline.policy, pipeline.description) == ("p", "default", "why")
    assert pipeline.steps[1] == Step(kind=StepKind.CANARY, weight=0.5, min_requests=7, gate=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"polcy": "x"}, "did you mean 'policy'"),
        ({"zzz": 1}, "known: name, description, policy, steps"),
        ({"steps": 5}, "must be a list"),
        ({"steps": "shadow"}, "must be a list"),
        ({"steps": []}, "must end with its only watch step"),
        ({"steps": ["shadow"]}, "a step must be a mapping, got str"),
    ],
)
def test_a_wrong_top_level_is_refused(changes, message):
    """The offending key or shape is named."""
    with pytest.raises(PolicyError, match=message):
        _parse(**changes)


@pytest.mark.parametrize("key", ["name", "policy", "steps"])
def test_a_missing_key_is_named(key):
    """Nothing has a silent default but the description."""
    mapping = {"name": "p", "policy": "default", "steps": [SHADOW, WATCH]}
    del mapping[key]
    with pytest.raises(PolicyError, match=f"lacks the key '{key}'"):
        parse_pipeline(mapping)


def test_only_a_mapping_is_a_pipeline():
    """A list at the top is refused."""
    with pytest.raises(PolicyError, match="got list"):
        parse_pipeline([SHADOW])


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"kind": "canary", "wieght": 1}, WATCH], "did you mean 'weight'"),
        ([{"kind": "canry", "weight": 1}, WATCH], "use one of shadow, canary, watch"),
        ([{"weight": 1}, WATCH], "no known kind"),
        ([CANARY | {"weight": 1.5}, WATCH], "must be in"),
        ([CANARY | {"weight": float("nan")}, WATCH], "must be in"),
        ([CANARY | {"weight": "half"}, WATCH], "not supported"),
        ([SHADOW | {"weight": 0.1}, WATCH], "weight 0"),
        ([{"kind": "shadow"}, WATCH], "mirror > 0"),
        ([CANARY, CANARY | {"weight": 0.1}, WATCH], "falling weights"),
        ([SHADOW, CANARY], "must end with its only watch step"),
        ([WATCH], "must end with its only watch step"),
        ([SHADOW, WATCH, WATCH], "must end with its only watch step"),
        ([SHADOW, {"kind": "watch", "weight": 0.5}], "serves everybody"),
        ([SHADOW, {"kind": "watch"}], "serves everybody"),
        ([CANARY | {"min_requests": 0}, WATCH], "at least 1"),
        ([CANARY | {"min_requests": "5"}, WATCH], "at least 1"),
        ([CANARY | {"gate": "yes"}, WATCH], "true or false"),
    ],
)
def test_a_wrong_step_is_refused(steps, message):
    """Every rule of a step has its sentence."""
    with pytest.raises(PolicyError, match=message):
        _parse(*steps)
