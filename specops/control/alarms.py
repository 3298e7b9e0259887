"""Alarms: alerts that begin, and end when their cause does. A person hears once of each, and once that it is over.

Called inside the transaction of what causes them: by `control.record` for actions, by `control.act` with each verdict, by
`control.rollouts` after a change by hand. An alarm is a row of evidence about its rollout (opened, closed) and a message in the
outbox. Labels hold identity only, never a reading: a value in a label would open an incident with every request, and only the
same labels close one (Alertmanager `api/v2/openapi.yaml`). A roll-back has no end, so it is told and never closed.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from specops.control.ports import Unit
from specops.core.ladder import PlainHealth
from specops.core.rollout import Action, ActionKind, Rollout, State
from specops.core.verdict import Finding, Result, Verdict

KIND = "alarm"  # of evidence
RUNBOOK = "docs/how-to/answer-an-alert.md"
ALERTS = {  # alert name, severity, what the summary says
    ActionKind.PAUSE: ("SpecopsInconclusive", "warning", "is paused: nothing was concluded"),
    ActionKind.FALL_BACK: ("SpecopsFallenBack", "critical", "fell back, live traffic on the baseline"),
    ActionKind.SHED: ("SpecopsShed", "warning", "speculates at low load only"),
    ActionKind.ESCALATE: ("SpecopsNeedsPerson", "critical", "waits for a person; traffic was left as it is"),
    ActionKind.ROLL_BACK: ("SpecopsRolledBack", "critical", "rolled back, all traffic on the baseline"),
    ActionKind.STOP: ("SpecopsStopped", "critical", "was stopped, all traffic on the baseline"),
}
_UNUSABLE = ("SpecopsEvidenceUnusable", "warning", "holds: its evidence can't be used")
_PRECURSOR = ("SpecopsPrecursor", "info", "has an early warning; nothing was done")
_SICK = ("SpecopsBaselineUnhealthy", "critical", "fell back, and the baseline fails too")
_LATE = ("SpecopsRouteNotInForce", "critical", "was decided, and the gateway has not taken the route: traffic flows as before")
_ROUTE = "route"
_ERROR, _PLAIN, _PRECURSORS, _CALLED = "error", "fallback:plain", "precursor:", "called:"
_STATES = {
    ActionKind.PAUSE: "paused", ActionKind.FALL_BACK: "fallen_back", ActionKind.STOP: "stopped", ActionKind.SHED: "shed",
}  # fmt: skip
Rows = Iterable[Mapping[str, Any]]
_Said = tuple[tuple[str, str, str], str, Finding | None, str]  # alert words, check, its finding, description


def alert_of(action: Action, verdict: Verdict | None, at: datetime) -> dict[str, Any]:
    """Return the Alertmanager v2 alert of an action, about what it names or the first finding that decided."""
    findings = (f for f in verdict.findings if f.check == action.about) if verdict and action.about else iter(())
    finding = next(findings, None) if action.about else next(iter(verdict.deciding), None) if verdict else None
    check = action.about or (finding.check if finding else "by_hand")
    return _alert(ALERTS[action.kind], action.rollout, check, finding, action.reason, at)


def open_alarms(rows: Rows) -> dict[str, Mapping[str, Any]]:
    """Return the alarms that have not ended, by name, from the evidence about a rollout."""
    found: dict[str, Mapping[str, Any]] = {}
    for payload in _payloads(rows):
        if payload["is_open"]:
            found[payload["name"]] = payload
        else:
            found.pop(payload["name"], None)
    return found


def raise_for_action(unit: Unit, action: Action, verdict: Verdict | None, at: datetime) -> None:
    """Owe the alert of an action, if it has one; a hold never comes here, so it is one per change of the rollout."""
    rollout = action.rollout
    if action.kind not in ALERTS:
        return
    word = "rolled_back" if action.kind is ActionKind.ROLL_BACK else f"{rollout.version}:{action.kind.lower()}"
    alert, key = alert_of(action, verdict, at), f"{rollout.id}:{word}"
    if action.kind is ActionKind.ROLL_BACK:
        unit.outbox.add("alert", key, alert, at)
    else:
        _open(unit, rollout, _STATES.get(action.kind, f"{_CALLED}{action.about}"), key, alert, at)


def settle(
    unit: Unit,
    rollout: Rollout,
    at: datetime,
    *,
    rows: Rows | None = None,
    verdict: Verdict | None = None,
    plain: PlainHealth | None = None,
) -> None:
    """Close what has ended, and open what a verdict newly says: unusable evidence, a precursor that fired, a sick fallback.

    Args:
        unit: the transaction.
        rollout: the rollout as it is now.
        at: now, UTC.
        rows: the evidence about the rollout, if it was read already.
        verdict: the newest verdict; without it, alarms about evidence stay as they are, unless the rollout has ended.
        plain: how the baseline does, beside a verdict.
    """
    rows = list(unit.evidence.of(rollout.id) if rows is None else rows)
    said = {} if verdict is None or rollout.is_terminal else _said(verdict, plain if _is_down(rollout) else None)
    known = open_alarms(rows)
    for name, alarm in known.items():
        if not _holds(name, rollout, None if verdict is None else said):
            _close(unit, rollout, alarm, at)
    for name, one in said.items():
        if name not in known:
            _begin(unit, rollout, name, one, rows, at)


def owe_route(unit: Unit, rollout: Rollout, reason: str, at: datetime) -> None:
    """Call somebody, once, because the route that was decided is not in force."""
    rows = unit.evidence.of(rollout.id)
    if _ROUTE not in open_alarms(rows):
        _begin(unit, rollout, _ROUTE, (_LATE, _ROUTE, None, reason), rows, at)


def route_in_force(unit: Unit, rollout: Rollout, at: datetime) -> None:
    """End that call, if there was one."""
    alarm = open_alarms(unit.evidence.of(rollout.id)).get(_ROUTE)
    if alarm is not None:
        _close(unit, rollout, alarm, at)


def _begin(unit: Unit, rollout: Rollout, name: str, said: _Said, rows: Rows, at: datetime) -> None:
    words, check, finding, description = said
    episode = 1 + sum(p["is_open"] and p["name"] == name for p in _payloads(rows))
    alert = _alert(words, rollout, check, finding, description, at)
    _open(unit, rollout, name, f"{rollout.id}:{name}:{episode}", alert, at)


def _said(verdict: Verdict, plain: PlainHealth | None) -> dict[str, _Said]:
    found: dict[str, _Said] = {f"{_PRECURSORS}{f.check}": (_PRECURSOR, f.check, f, f.reason) for f in verdict.precursors}
    broken = next((f for f in verdict.findings if f.result is Result.ERROR and not f.precursor), None)
    if broken is not None:  # also beside a check that fails: the data is no better for it
        found[_ERROR] = (_UNUSABLE, broken.check, broken, broken.reason)
    if plain is not None and plain.is_unhealthy:
        found[_PLAIN] = (_SICK, _PLAIN, None, f"the fallback does not help: {plain.text}")
    return found


def _is_down(rollout: Rollout) -> bool:
    return rollout.state is State.FALLEN_BACK


def _holds(name: str, rollout: Rollout, said: Mapping[str, object] | None) -> bool:
    """Tell whether the cause of an open alarm is still there."""
    if name == _ROUTE:
        return True  # also when the rollout has ended: that is when it matters most
    if name == _STATES[ActionKind.STOP]:
        return not rollout.is_cleared
    if rollout.is_terminal:
        return False
    if name == _STATES[ActionKind.SHED]:
        return rollout.shed_below is not None
    if name == _STATES[ActionKind.PAUSE]:
        return rollout.state is State.PAUSED
    if name == _STATES[ActionKind.FALL_BACK] or (name == _PLAIN and not _is_down(rollout)):
        return _is_down(rollout)
    if name.startswith(_CALLED):
        return name.removeprefix(_CALLED) in rollout.escalated
    return said is None or name in said


def _payloads(rows: Rows) -> list[Mapping[str, Any]]:
    return [row["payload"] for row in rows if row["kind"] == KIND]


def _open(unit: Unit, rollout: Rollout, name: str, key: str, alert: dict[str, Any], at: datetime) -> None:
    unit.evidence.add(rollout.id, KIND, {"name": name, "key": key, "is_open": True, "alert": alert}, at)
    unit.outbox.add("alert", key, alert, at)


def _close(unit: Unit, rollout: Rollout, alarm: Mapping[str, Any], at: datetime) -> None:
    began = datetime.fromisoformat(alarm["alert"]["startsAt"])
    ended = alarm["alert"] | {"endsAt": max(at, began).isoformat()}  # a clock set back must not make an alert that is refused
    unit.evidence.add(rollout.id, KIND, {"name": alarm["name"], "key": alarm["key"], "is_open": False}, at)
    unit.outbox.add("alert", f"{alarm['key']}:resolved", ended, at)


def _alert(
    words: tuple[str, str, str], rollout: Rollout, check: str, finding: Finding | None, description: str, at: datetime
) -> dict[str, Any]:
    name, severity, says = words
    return {
        "labels": {
            "alertname": name,
            "service": "specops",
            "severity": severity,
            "rollout": rollout.id,
            "candidate": rollout.candidate,
            "baseline": rollout.baseline,
            "check": check,
        },
        "annotations": {
            "summary": f"rollout {rollout.id} {says}",
            "description": description,
            "owner": (finding.owner if finding else "") or rollout.requested_by,
            "policy": rollout.policy_digest,
            "runbook_url": RUNBOOK,
        },
        "startsAt": at.isoformat(),
    }
