"""Everything the store knows about one rollout, gathered into the report's data.

Used by `specops report build` and the quickstart. It measures nothing and judges nothing; what was
not recorded stays None and the report says "not measured".
"""

import importlib.metadata
import platform
from datetime import datetime
from typing import Any

import yaml

from specops.core.outcome import Arm, Kind, Outcome
from specops.core.policy import Metric, Policy, parse_policy
from specops.core.release import Artifact, Edge, Release
from specops.core.rollout import ActionKind, Rollout, StepKind
from specops.core.verdict import Result
from specops.core.window import Window, fold
from specops.errors import InvalidInput
from specops.report import model as m
from specops.wiring import House, newest_rollout, now

_ACTIONS = {
    "rollout:step:advanced": ActionKind.ADVANCE,
    "rollout:release:promoted": ActionKind.PROMOTE,
    "rollout:release:rolled_back": ActionKind.ROLL_BACK,
    "rollout:state:paused": ActionKind.PAUSE,
    "rollout:release:fallen_back": ActionKind.FALL_BACK,
    "rollout:step:extended": ActionKind.ASK_MORE,
    "rollout:person:called": ActionKind.ESCALATE,
    "rollout:release:stopped": ActionKind.STOP,
    "rollout:recovery:retried": ActionKind.PROBE,
    "rollout:release:recovered": ActionKind.RECOVER,
}
_ENDED = {  # audit tag -> alert, and its key in the outbox behind the rollout's id
    "rollout:release:rolled_back": ("SpecopsRolledBack", "rolled_back"),
    "rollout:release:stopped": ("SpecopsStopped", "{version}:stop"),
}
_UNITS = {"ttft_s": ("s", "lower"), "tpot_s": ("s", "lower"), "e2e_s": ("s", "lower"), "tokens_per_s": ("tokens/s", "higher")}
LIMITS = (
    "Greedy equality was compared on the offline prompts only; sampling above temperature 0 was not tested here.",
    "One machine, one pair, one tokenizer: the gain need not hold for other models, hardware, languages or load.",
    "The audit log shows changes made after a saved checkpoint, not a lie told at write time.",
)


def compile_report(house: House, rollout_id: str | None = None, *, title: str = "Speculative decoding rollout") -> m.ReportData:
    """Gather a rollout's report.

    Raises:
        InvalidInput: there is no rollout.
    """
    chosen = rollout_id or newest_rollout(house)
    if chosen is None:
        raise InvalidInput("there is no rollout to report on; start one with: specops rollout start --help")
    with house.store.read() as unit:
        rollout = unit.rollouts.get(chosen)
        releases = {"baseline": unit.releases.get(rollout.baseline), "candidate": unit.releases.get(rollout.candidate)}
        artifacts, edges = unit.artifacts.all(), unit.edges.all()
        outcomes = unit.outcomes.read(rollout.id)
        verdicts = unit.verdicts.of(rollout.id)
        text = unit.policies.get(rollout.policy_digest)
        entries = unit.audit.of(rollout.id)
        delivered = {e.subject for e in unit.audit.read(tag="outbox:alert:delivered")}
        evidence = [*unit.evidence.of(rollout.candidate), *unit.evidence.of(rollout.id)]
    house.checkpoint()
    policy = parse_policy(yaml.safe_load(text))
    offline = next((e["payload"] for e in reversed(evidence) if e["kind"] == "offline"), None)
    drill: dict[str, Any] = next((e["payload"] for e in reversed(evidence) if e["kind"] == "drill"), {})
    began = entries[0].at if entries else now()
    points, detection = _acceptance(outcomes, policy, entries, drill)
    nodes, drawn = _graph(artifacts, edges, releases)
    return m.ReportData(
        title=title,
        created_at=now(),
        goal="fewer seconds per output token at unchanged output (TPOT at temperature 0)",
        releases=tuple(_release(role, release, artifacts) for role, release in releases.items()),
        nodes=nodes,
        edges=drawn,
        evaluation=_evaluation(offline),
        equality=_equality(offline),
        positions=_positions(outcomes),
        acceptance=points,
        acceptance_limit=next((c.limit for c in policy.checks if c.metric is Metric.ACCEPTANCE_RATE), None),
        shift_index=drill.get("shift_index"),
        detection_index=detection,
        reaction_s=drill.get("reaction_s"),
        latencies=tuple(
            m.LatencySample(arm=o.arm, ttft_s=o.ttft_s, tpot_s=o.tpot_s, e2e_s=o.e2e_s) for o in outcomes if o.error is None
        ),
        weights=_weights(rollout, entries, began),
        decisions=_decisions(entries, verdicts),
        policy=m.PolicyText(
            name=policy.name,
            digest=policy.digest,
            text=text,
            checks=tuple(
                m.CheckLine(name=c.name, metric=c.metric, rule=f"{c.limit:g} {c.unit}", owner=c.owner, source=c.source)
                for c in policy.checks
            ),
        ),
        alerts=_alerts(entries, verdicts, delivered, rollout),
        audit=_seal(house),
        environment=_environment(releases["candidate"]),
        limits=LIMITS,
    )


def _release(role: str, release: Release, artifacts: list[Artifact]) -> m.ReleaseLine:
    known = {a.digest: a.name for a in artifacts}
    return m.ReleaseLine(
        role=role,
        name=release.name,
        id=release.id,
        digest=release.digest,
        method=release.method,
        num_speculative_tokens=release.num_speculative_tokens,
        target=f"{known.get(release.target, '')} {release.target}".strip(),
        draft=release.draft,
        tokenizer=release.tokenizer,
    )


def _graph(
    artifacts: list[Artifact], edges: list[Edge], releases: dict[str, Release]
) -> tuple[tuple[m.LineageNode, ...], tuple[m.LineageEdge, ...]]:
    nodes = [m.LineageNode(id=a.digest, label=a.name, kind=a.kind) for a in artifacts]
    nodes += [m.LineageNode(id=r.digest, label=r.name, kind="release") for r in releases.values()]
    ids = {n.id for n in nodes}
    drawn = [m.LineageEdge(source=e.source, kind=e.kind, target=e.target) for e in edges if e.source in ids and e.target in ids]
    for release in releases.values():
        drawn += [
            m.LineageEdge(source=release.digest, kind="uses", target=d)
            for d in (release.target, release.draft)
            if d in ids and d
        ]
    return tuple(nodes), tuple(drawn)


def _evaluation(offline: dict[str, Any] | None) -> tuple[m.EvaluationLine, ...]:
    lines = []
    for metric, ratio in (offline or {}).get("ratios", {}).items():
        unit, better = _UNITS[metric]
        means = offline["means"][metric] if offline else {}
        lines.append(
            m.EvaluationLine(
                metric=metric,
                unit=unit,
                baseline=means.get("baseline"),
                candidate=means.get("candidate"),
                n=ratio["n"],
                ratio=1 / ratio["ratio"],
                low=1 / ratio["high"],
                high=1 / ratio["low"],
                better="lower" if better == "lower" else "higher",
            )
        )
    return tuple(lines)


def _equality(offline: dict[str, Any] | None) -> m.Equality | None:
    if offline is None:
        return None
    differing = offline["differences"]
    note = (
        f"first difference: prompt {differing[0]['prompt']}, token {differing[0]['token']}"
        if differing
        else "token by token, temperature 0"
    )
    return m.Equality(equal=offline["prompts"] - len(differing), compared=offline["prompts"], note=note)


def _positions(outcomes: list[Outcome]) -> tuple[m.PositionLine, ...]:
    histograms = [
        o.acceptance.histogram for o in outcomes if o.arm is Arm.CANDIDATE and o.acceptance and o.acceptance.histogram
    ]
    width = max((len(h) for h in histograms), default=1)
    total = [sum(h[i] for h in histograms if i < len(h)) for i in range(width)]
    return tuple(m.PositionLine(position=p, drafted=sum(total), accepted=sum(total[p:])) for p in range(1, width))


def _acceptance(
    outcomes: list[Outcome], policy: Policy, entries: list[Any], drill: dict[str, Any]
) -> tuple[tuple[m.AcceptancePoint, ...], int | None]:
    """Fold again what was folded live, so that the band shown is the band that decided."""
    from specops.core.judge import judge  # noqa: PLC0415

    promotion = next((e.payload["outcomes"] for e in entries if e.tag == "rollout:release:promoted"), None)
    deciding = next((e.payload.get("deciding_request") for e in entries if e.tag in _ENDED), None)
    shifted = datetime.fromisoformat(drill["shift_at"]) if "shift_at" in drill else None
    window, detection = Window.empty(policy), None
    points: list[m.AcceptancePoint] = []
    for outcome in outcomes:
        promoted = promotion is not None and window.outcomes >= promotion
        window = fold(window, outcome, policy, promoted=promoted)
        if outcome.arm is not Arm.CANDIDATE or outcome.acceptance is None or outcome.acceptance.rate is None:
            continue
        finding = next(
            (
                f
                for f in judge(policy, window, promoted=promoted, now=outcome.at).findings
                if f.metric == Metric.ACCEPTANCE_RATE
            ),
            None,
        )
        phase = (
            "after shift"
            if shifted and outcome.at > shifted
            else "shadow"
            if outcome.kind is Kind.SHADOW
            else "watch"
            if promoted
            else "canary"
        )
        points.append(
            m.AcceptancePoint(
                index=len(points),
                rate=outcome.acceptance.rate,
                phase=phase,
                low=finding.low if finding else None,
                high=finding.high if finding else None,
            )
        )
        if outcome.request_id == deciding:
            detection = len(points) - 1
    return tuple(points), detection


def _weights(rollout: Rollout, entries: list[Any], began: datetime) -> tuple[m.WeightPoint, ...]:
    first = rollout.steps[0]
    points = [m.WeightPoint(t_s=0.0, weight=first.weight, mirror=first.mirror, label=first.kind)]
    points += [
        m.WeightPoint(
            t_s=(entry.at - began).total_seconds(),
            weight=float(entry.payload["weight"]),
            mirror=float(entry.payload["mirror"]),
            label=_ACTIONS[entry.tag],
        )
        for entry in entries
        if entry.tag in _ACTIONS
    ]
    return tuple(points)


def _deciding(verdict: dict[str, Any]) -> dict[str, Any]:
    same = [f for f in verdict["findings"] if f["result"] == verdict["result"]]
    named = [f for f in same if f["metric"] == Metric.ACCEPTANCE_RATE]
    return dict((named or same or verdict["findings"])[0])


def _decisions(entries: list[Any], verdicts: list[dict[str, Any]]) -> tuple[m.DecisionLine, ...]:
    acted = {(e.at.isoformat(), e.payload.get("outcomes")): e for e in entries if e.tag in _ACTIONS}
    lines = []
    for verdict in verdicts:
        entry = acted.get((verdict["at"], verdict["outcomes"]))  # one poll can hold several decisions
        finding = _deciding(verdict)
        lines.append(
            m.DecisionLine(
                at=datetime.fromisoformat(verdict["at"]),
                step=_step_at(verdict["outcomes"], entries),
                action=_ACTIONS[entry.tag] if entry else ActionKind.HOLD,
                result=Result(verdict["result"]),
                reason=entry.payload["reason"] if entry else finding["reason"],
                n=finding["n"],
                estimate=finding["estimate"],
                low=finding["low"],
                high=finding["high"],
                e_value=finding["e_value"],
                threshold=finding["e_threshold"],
            )
        )
    return tuple(lines)


def _step_at(outcomes: int, entries: list[Any]) -> StepKind:
    """Return the step that was judged when so many outcomes were known."""
    started = next((e for e in entries if e.tag == "rollout:plan:started"), None)
    kinds = [StepKind(s.split()[0]) for s in started.payload["steps"]] if started else [StepKind.WATCH]
    moves = [e.payload["step"] for e in entries if e.tag in _ACTIONS and e.payload.get("outcomes", outcomes) < outcomes]
    return kinds[max(moves, default=0)]


def _alerts(
    entries: list[Any], verdicts: list[dict[str, Any]], delivered: set[str], rollout: Rollout
) -> tuple[m.AlertLine, ...]:
    owner = _deciding(verdicts[-1])["owner"] if verdicts else rollout.requested_by
    return tuple(
        m.AlertLine(
            at=e.at,
            name=_ENDED[e.tag][0],
            severity="critical",
            summary=e.payload["reason"],
            owner=owner,
            delivered=f"{rollout.id}:{_ENDED[e.tag][1].format(version=e.payload['version'])}" in delivered,
        )
        for e in entries
        if e.tag in _ENDED
    )


def _seal(house: House) -> m.AuditSeal:
    proof = house.verify()
    with house.store.read() as unit:
        note = unit.audit.notes()[-1]
    return m.AuditSeal(checkpoint=note, size=proof.size, root=proof.root, public_key=house.signer.public_key.to_line())


def _environment(release: Release) -> tuple[tuple[str, str], ...]:
    rows = [
        ("specops", importlib.metadata.version("specops")),
        ("python", platform.python_version()),
        ("machine", f"{platform.machine()}, {platform.system()}"),
    ]
    return (*rows, *((f"engine {k}", str(v)) for k, v in release.engine.items()))
