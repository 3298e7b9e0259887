"""Run the data suite over a rollout's outcomes and store what it said; a verdict on unusable data is ERROR, never PASS."""

from collections.abc import Callable, Sequence
from datetime import datetime

from specops.control.ports import Store
from specops.core.outcome import Outcome

Suite = Callable[[Sequence[Outcome]], tuple[str, ...]]


def inspect_outcomes(store: Store, suite: Suite, *, actor: str, clock: Callable[[], datetime]) -> tuple[str, ...]:
    """Check every active rollout that has outcomes and new ones since the last look; return a line per rollout looked at."""
    said = []
    with store.read() as unit:
        work = [
            (r.id, unit.outcomes.read(r.id), [e for e in unit.evidence.of(r.id) if e["kind"] == "data_suite"])
            for r in unit.rollouts.active()
        ]
    for rollout_id, outcomes, earlier in work:
        if not outcomes or (earlier and earlier[-1]["payload"]["outcomes"] == len(outcomes)):
            continue
        errors = suite(outcomes)
        now = clock()
        with store.begin() as unit:
            unit.evidence.add(rollout_id, "data_suite", {"outcomes": len(outcomes), "errors": list(errors)}, now)
            if errors and (not earlier or list(errors) != earlier[-1]["payload"]["errors"]):
                unit.audit.append(
                    tag="outcomes:suite:failed", actor=actor, subject=rollout_id, payload={"errors": list(errors)}, at=now
                )
        said.append(f"data suite on {len(outcomes)} outcomes of {rollout_id}: {len(errors)} errors")
    return tuple(said)
