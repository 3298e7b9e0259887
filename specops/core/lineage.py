"""What differs between two releases and what that can do; what came from what.

Called by the CLI, the report and preflight. It decides nothing about traffic. Exact speculative decoding keeps the target's
output law whatever the draft is (Leviathan et al. 2023, arXiv 2211.17192), so draft, method and k change speed only, up to
near-ties that rounding decides. Two things break that: another vocabulary in the draft, and a lossy acceptance rule.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from specops.core.lossy import LOSSY_KEYS, is_lossy
from specops.core.release import Edge, Release
from specops.errors import InvalidRecord


class Effect(StrEnum):
    """What a difference can change."""

    OUTPUT_AND_SPEED = "output and speed"
    OUTPUT = "output"
    SPEED = "speed"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One component that differs, its two values, what the difference can change, and why."""

    component: str
    left: Any
    right: Any
    can_change: Effect
    why: str

    @property
    def can_change_output(self) -> bool:
        """The evidence that outputs are equal has to be renewed."""
        return self.can_change in (Effect.OUTPUT, Effect.OUTPUT_AND_SPEED)

    @property
    def can_change_speed(self) -> bool:
        """The evidence about speed has to be renewed."""
        return self.can_change in (Effect.SPEED, Effect.OUTPUT_AND_SPEED)


_EXACT = "exact acceptance keeps the target's output law; only near-ties may round differently"
_PLAIN: dict[str, tuple[Effect, str]] = {
    "name": (Effect.NEITHER, "a name is no part of what is served"),
    "target": (Effect.OUTPUT_AND_SPEED, "the target's distribution is the output; a draft made for the old one is stale"),
    "tokenizer": (Effect.OUTPUT_AND_SPEED, "the same text becomes other tokens"),
    "method": (Effect.SPEED, _EXACT),
    "draft": (Effect.SPEED, _EXACT),
    "num_speculative_tokens": (Effect.SPEED, _EXACT),
    "pair": (Effect.NEITHER, "the proof that its parts fit; the parts are compared for themselves"),
    "chat_template": (Effect.OUTPUT_AND_SPEED, "the model reads another prompt"),
    "generation_config": (Effect.OUTPUT_AND_SPEED, "requests that set nothing get other sampling defaults"),
    "prompts": (Effect.OUTPUT_AND_SPEED, "the model reads another prompt"),
    "sampling": (Effect.OUTPUT_AND_SPEED, "requests that set nothing are sampled in another way"),
    "lossy": (Effect.NEITHER, "what was allowed by name; the setting is compared for itself"),
}
_ADDRESS = frozenset({"host", "port", "url", "base_url", "served_model_name", "api_key", "log_level", "log_file"})


def diff(left: Release, right: Release) -> tuple[Difference, ...]:
    """Compare two releases component by component.

    Returns:
        One difference per component, mappings compared key by key (`engine.dtype`); in the order of the release's fields.
        Empty when the two are the same but for nothing. A component that nothing is known about counts as able to change both.
    """
    a, b = _flat(asdict(left)), _flat(asdict(right))
    found = []
    for component in dict.fromkeys([*a, *b]):
        if a.get(component) != b.get(component):
            effect, why = _effect(component, (a.get(component), b.get(component)), right)
            found.append(
                Difference(component=component, left=a.get(component), right=b.get(component), can_change=effect, why=why)
            )
    return tuple(found)


def _flat(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested mappings into dotted keys; a list stays one value."""
    out: dict[str, Any] = {}
    for key, value in record.items():
        out |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return out


def _effect(component: str, values: tuple[Any, Any], right: Release) -> tuple[Effect, str]:
    """Say what a difference in one component can change."""
    section, _, key = component.partition(".")
    if section in _PLAIN:
        return _PLAIN[section]
    if section == "draft_tokenizer":
        if right.draft_tokenizer in (None, right.tokenizer):
            return Effect.SPEED, "the draft speaks the target's vocabulary; " + _EXACT
        return Effect.OUTPUT_AND_SPEED, "the draft's vocabulary is not the target's: its proposals may mean other text"
    if section == "speculative_config":
        lossy_rule = key == "rejection_sample_method" and any(is_lossy(key, value) for value in values)
        if key.split(".")[0] in LOSSY_KEYS or lossy_rule:
            return Effect.OUTPUT_AND_SPEED, "a lossy acceptance rule changes the output law"
        return Effect.SPEED, _EXACT
    if section == "engine" and key.split(".")[-1] in _ADDRESS:
        return Effect.NEITHER, "where it listens, not what it computes"
    return Effect.OUTPUT_AND_SPEED, "another engine, version or argument may compute and round differently"


def ancestors(edges: Iterable[Edge], start: str) -> tuple[str, ...]:
    """Return the digests that `start` came from, directly or not; nearest first, `start` left out."""
    return _reach(edges, start, lambda e: (e.source, e.target))


def descendants(edges: Iterable[Edge], start: str) -> tuple[str, ...]:
    """Return the digests that came from `start`, directly or not: what to look at again when `start` changes."""
    return _reach(edges, start, lambda e: (e.target, e.source))


def _reach(edges: Iterable[Edge], start: str, ends: Callable[[Edge], tuple[str, str]]) -> tuple[str, ...]:
    """Walk breadth first along `ends` (from, to)."""
    after: dict[str, list[str]] = {}
    for origin, goal in map(ends, edges):
        after.setdefault(origin, []).append(goal)
    seen, queue = {start: None}, [start]
    for node in queue:  # grows while it is walked
        fresh = [n for n in dict.fromkeys(after.get(node, ())) if n not in seen]
        seen |= dict.fromkeys(fresh)
        queue += fresh
    return tuple(queue[1:])


def check_acyclic(edges: Iterable[Edge]) -> None:
    """Check that nothing came from itself.

    Raises:
        InvalidRecord: names the things on a cycle or behind one.
    """
    waiting: dict[str, set[str]] = {}
    for edge in edges:
        waiting.setdefault(edge.source, set()).add(edge.target)
        waiting.setdefault(edge.target, set())
    while ready := {node for node, goals in waiting.items() if not goals}:
        waiting = {node: goals - ready for node, goals in waiting.items() if node not in ready}
    if waiting:
        names = ", ".join(sorted(n[:19] for n in waiting))
        raise InvalidRecord(f"lineage has a cycle among {names}; a thing cannot come from itself, remove the last edge")
