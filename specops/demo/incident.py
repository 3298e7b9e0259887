"""Scenes 6 and 7: the climb to full traffic, the collapse, and what became of it."""

import time
from datetime import datetime
from typing import Any

from specops.adapters.alerts import Receiver
from specops.adapters.mlflow_tracking import MlflowTracking
from specops.core.outcome import Arm
from specops.core.rollout import Rollout, StepKind
from specops.demo.scenes import Scenes, wait_until
from specops.demo.stage import Stage
from specops.demo.traffic import Traffic
from specops.errors import Unavailable
from specops.wiring import MODEL, House, now

WATCH_REQUESTS = 30
AFTER_REQUESTS = 20
MAX_REACTION_S = 0.25
MAX_DETECTION = 100
CLIMB_S = 240.0
_ENDED = ("rollout:release:rolled_back", "rollout:release:stopped")  # audit tags


def _rollout(house: House, rollout_id: str) -> Rollout:
    with house.store.read() as unit:
        return unit.rollouts.get(rollout_id)


def _verdict_line(house: House, rollout_id: str) -> str:
    with house.store.read() as unit:
        verdicts = unit.verdicts.of(rollout_id)
    if not verdicts:
        return "no verdict yet"
    finding = next((f for f in verdicts[-1]["findings"] if f["metric"] == "acceptance_rate"), verdicts[-1]["findings"][0])
    estimate = (
        "-" if finding["estimate"] is None else f"{finding['estimate']:.3f} [{finding['low']:.3f}, {finding['high']:.3f}]"
    )
    side = (
        ""
        if finding["pass_e_value"] is None
        else f", e-value for passing {finding['pass_e_value']:.3g} (needs {finding['pass_threshold']:.3g})"
    )
    failing = f"e-value for failing {finding['e_value']:.3g} (at {finding['e_threshold']:.3g})"
    return f"{verdicts[-1]['result']}: {finding['check']} {estimate}, n={finding['n']}, {failing}{side}"


def climb(scenes: Scenes, house: House, rollout_id: str, traffic: Traffic) -> bool:
    """Wait until the release is promoted and was watched for a while; say each step's verdict on the way."""
    shown, deadline = -1, time.monotonic() + CLIMB_S
    while time.monotonic() < deadline:
        rollout = _rollout(house, rollout_id)
        if rollout.step != shown:
            if shown >= 0:
                scenes.say(_verdict_line(house, rollout_id))
            scenes.say(
                f"[bold]{rollout.current.kind}[/] weight {rollout.weight:.0%}, mirror {rollout.mirror:.0%}, "
                f"after {len(traffic.sent)} requests"
            )
            shown = rollout.step
        if rollout.is_terminal:
            scenes.expect("no alarm before the shift", f"{rollout.state}: {rollout.reason}", held=False)
            return False
        if rollout.current.kind is StepKind.WATCH:
            return _watch(scenes, house, rollout_id, traffic)
        time.sleep(0.1)
    scenes.expect(
        "the candidate is promoted", f"still at step {shown + 1} after 240 s: {_verdict_line(house, rollout_id)}", held=False
    )
    return False


def _watch(scenes: Scenes, house: House, rollout_id: str, traffic: Traffic) -> bool:
    goal = len(traffic.sent) + WATCH_REQUESTS
    wait_until(
        lambda: len(traffic.sent) >= goal or _rollout(house, rollout_id).is_terminal,
        timeout_s=60.0,
        what="requests in the watch step",
    )
    quiet = not _rollout(house, rollout_id).is_terminal
    scenes.expect("promoted, and no alarm before the shift", f"after {len(traffic.sent)} requests", held=quiet)
    return quiet


def collapse(scenes: Scenes, house: House, rollout_id: str, traffic: Traffic) -> None:
    """Turn the traffic to prose and wait for the roll-back and some requests after it."""
    traffic.shift()
    try:
        wait_until(lambda: _rollout(house, rollout_id).is_terminal, timeout_s=90.0, what="the monitor to fire")
    except Unavailable as error:
        scenes.expect("the collapse is noticed", str(error), held=False)
        return
    goal = len(traffic.sent) + AFTER_REQUESTS
    wait_until(lambda: len(traffic.sent) >= goal, timeout_s=60.0, what="requests after the roll-back")


def aftermath(scenes: Scenes, house: House, stage: Stage, rollout_id: str, traffic: Traffic, receiver: Receiver) -> None:
    """Measure detection and reaction from the clients' records, and check alert, alias and MLflow."""
    with house.store.read() as unit:
        entry = next((e for e in unit.audit.of(rollout_id) if e.tag in _ENDED), None)
        alias = unit.aliases.get("production")
        plain = unit.releases.get("plain")
    if entry is None or traffic.shifted_at is None:
        return
    scenes.say(entry.payload["reason"])
    if "deciding_at" not in entry.payload:
        scenes.expect("the policy decides on a request", "rolled back without one, see above", held=False)
        return
    decided_at = datetime.fromisoformat(entry.payload["deciding_at"])
    by_time = sorted(traffic.sent, key=lambda s: s.ended_at)
    seen = [s for s in by_time if s.sent_at >= traffic.shifted_at and s.arm == Arm.CANDIDATE and s.ended_at <= decided_at]
    later = [s for s in sorted(traffic.sent, key=lambda s: s.sent_at) if s.sent_at > decided_at and s.arm == Arm.BASELINE]
    reaction_s = (later[0].sent_at - decided_at).total_seconds() if later else None
    back_on_candidate = [s for s in traffic.sent if later and s.sent_at > later[0].sent_at and s.arm == Arm.CANDIDATE]
    scenes.expect(
        f"collapse detected within {MAX_DETECTION} requests of the shift",
        f"{len(seen)} requests",
        held=0 < len(seen) <= MAX_DETECTION,
    )
    scenes.expect(
        f"deciding request -> first request on plain within {MAX_REACTION_S * 1e3:.0f} ms",
        "never" if reaction_s is None else f"{reaction_s * 1e3:.0f} ms",
        held=reaction_s is not None and reaction_s <= MAX_REACTION_S and not back_on_candidate,
    )
    with house.store.begin() as unit:
        unit.evidence.add(
            rollout_id,
            "drill",
            {
                "shift_index": _shift_point(unit, rollout_id, traffic.shifted_at),
                "shift_at": traffic.shifted_at.isoformat(),
                "reaction_s": reaction_s,
            },
            now(),
        )
    wait_until(lambda: bool(receiver.received()), timeout_s=30.0, what="the alert to arrive")
    scenes.expect("alert delivered (Alertmanager v2 POST)", receiver.received()[0].annotations["summary"], held=True)
    _drain(house, stage)
    version = MlflowTracking(house.settings.mlflow_uri, house.settings.data_dir / "mlflow-artifacts").alias(MODEL, "production")
    scenes.expect(
        "production alias is back on plain, here and in MLflow",
        f"{alias}, MLflow version {version}",
        held=alias == plain.id and version is not None,
    )


def _shift_point(unit: Any, rollout_id: str, shifted_at: datetime) -> int:  # noqa: ANN401  # a store unit
    return sum(
        1
        for o in unit.outcomes.read(rollout_id)
        if o.arm is Arm.CANDIDATE and o.acceptance and o.acceptance.drafted and o.at <= shifted_at
    )


def _drain(house: House, stage: Stage) -> None:
    def is_empty() -> bool:
        with house.store.read() as unit:
            return not unit.outbox.due(now().replace(year=now().year + 1))

    wait_until(lambda: is_empty() or not stage.is_alive("project"), timeout_s=90.0, what="MLflow to take what it is owed")
    stage.end("project")
