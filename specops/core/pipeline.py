"""A pipeline file's rules: which steps a rollout walks, checked before anything starts."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from specops.core.rollout import Step, StepKind
from specops.errors import InvalidRecord, PolicyError

_TOP = ("name", "description", "policy", "steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A named plan. `policy` names a policy file."""

    name: str
    description: str
    policy: str
    steps: tuple[Step, ...]


def parse_pipeline(mapping: Mapping[str, Any]) -> Pipeline:
    """Parse a pipeline mapping.

    Raises:
        PolicyError: an unknown key, a step out of range, weights that fall, or no watch step at the end.
    """
    _known(mapping, _TOP, "pipeline")
    if not isinstance(mapping.get("steps", []), list):
        raise PolicyError(f"steps must be a list, got {mapping['steps']!r}")
    try:
        steps = tuple(_step(raw) for raw in mapping["steps"])
        pipeline = Pipeline(
            name=mapping["name"], description=mapping.get("description", ""), policy=mapping["policy"], steps=steps
        )
    except KeyError as exc:
        raise PolicyError(f"pipeline lacks the key {exc.args[0]!r}") from exc
    weights = [s.weight for s in steps]
    if weights != sorted(weights):
        raise PolicyError(
            f"pipeline {pipeline.name} has falling weights {weights}; a rollout only grows, rolling back is the policy's work"
        )
    if [i for i, s in enumerate(steps) if s.kind is StepKind.WATCH] != [len(steps) - 1] or len(steps) == 1:
        raise PolicyError(
            f"pipeline {pipeline.name} must end with its only watch step, after a trial, so that what is promoted is monitored"
        )
    if steps[-1].weight != 1.0:
        raise PolicyError(f"the watch step has weight {steps[-1].weight:g}, expected 1: a promoted release serves everybody")
    return pipeline


def _step(raw: Mapping[str, Any]) -> Step:
    _known(raw, tuple(f.name for f in fields(Step)), "step")
    count, gate = raw.get("min_requests", 1), raw.get("gate", False)
    if type(count) is not int or count < 1:
        raise PolicyError(f"min_requests must be a whole number of at least 1, got {count!r}")
    if not isinstance(gate, bool):
        raise PolicyError(f"gate must be true or false, got {gate!r}")
    try:
        return Step(**(dict(raw) | {"kind": StepKind(raw["kind"])}))
    except (KeyError, ValueError) as exc:
        raise PolicyError(f"step {dict(raw)} has no known kind; use one of {', '.join(StepKind)}") from exc
    except (InvalidRecord, TypeError) as exc:
        raise PolicyError(str(exc)) from exc


def _known(mapping: Mapping[str, Any], names: tuple[str, ...], what: str) -> None:
    if not isinstance(mapping, Mapping):
        raise PolicyError(f"a {what} must be a mapping, got {type(mapping).__name__}")
    for key in mapping:
        if key not in names:
            near = difflib.get_close_matches(str(key), names, n=1)
            raise PolicyError(
                f"unknown key {key!r} in {what}; " + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}")
            )
