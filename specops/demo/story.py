"""The quickstart's story, told on this machine with nothing faked: nine scenes, each with an expectation.

Scenes are plain functions in the order of the tutorial (docs/tutorials/quickstart.md). Whatever happens, the processes are ended.
"""

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from specops.adapters.alerts import Receiver
from specops.adapters.mlflow_tracking import MlflowTracking
from specops.control.evaluate import Evaluation, evaluate
from specops.control.register import register
from specops.control.rollouts import Plan, start
from specops.core.outcome import Arm
from specops.core.rollout import Rollout, State, StepKind
from specops.demo.lineup import K, Lineup, build_lineup
from specops.demo.pair import Pair, load_pair
from specops.demo.stage import Stage
from specops.demo.traffic import Traffic
from specops.dossier import compile_report
from specops.engines.client import Completion, EngineClient
from specops.engines.preflight import Expected, Severity, check_endpoint, check_folders, refuse
from specops.engines.process import free_port
from specops.errors import SpecopsError
from specops.report.page import build as build_page
from specops.settings import Settings
from specops.wiring import MODEL, House, load_pipeline, load_policy, now, opened

RATE_PER_S = 6.0
OFFLINE_PROMPTS = 40
OFFLINE_TOKENS = 48
WATCH_REQUESTS = 30
AFTER_REQUESTS = 20
MAX_REACTION_S = 0.25
MAX_DETECTION = 100
MIN_SPEEDUP = 1.2


@dataclass(slots=True)
class Scenes:
    """Printing and expectations of the running story."""

    console: Console
    expectations: list[tuple[str, str, bool]] = field(default_factory=list)

    def scene(self, number: int, title: str, words: str) -> None:
        """Open a scene."""
        self.console.print(f"\n[bold cyan]{number}. {title}[/]  {words}")

    def say(self, words: str) -> None:
        """Print a line inside a scene."""
        self.console.print(f"   {words}", highlight=False)

    def expect(self, what: str, found: str, *, held: bool) -> None:
        """Record an expectation and show whether it held."""
        self.expectations.append((what, found, held))
        self.say(f"{'[green]held[/]' if held else '[bold red]FAILED[/]'}  {what}: {found}")

    @property
    def all_held(self) -> bool:
        """Whether every expectation held."""
        return all(held for _, _, held in self.expectations)

    def progress(self) -> Progress:
        """Return a progress bar."""
        return Progress(
            TextColumn("   {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )


def play(data_dir: Path, *, seed: int) -> bool:
    """Play the story and return whether every expectation held.

    Raises:
        SpecopsError: a piece could not be started; everything started is ended first.
    """
    scenes = Scenes(Console())
    began = time.monotonic()
    pair = load_pair()
    if data_dir.exists():
        aside = data_dir.with_name(f"{data_dir.name}.{datetime.fromtimestamp(data_dir.stat().st_mtime):%Y%m%d-%H%M%S}")  # noqa: DTZ006  # a name for people
        data_dir.rename(aside)
        scenes.say(f"an earlier {data_dir} was moved to {aside}")
    (data_dir / "logs").mkdir(parents=True)
    with Receiver(data_dir / "alerts.jsonl") as receiver:
        settings = Settings(data_dir=data_dir.resolve(), gateway_port=free_port(), alertmanager_url=receiver.url)
        with opened(settings) as house, Stage(settings=settings, pair=pair) as stage:
            _tell(scenes, house, stage, pair, receiver, seed)
    _closing_table(scenes, settings, time.monotonic() - began)
    return scenes.all_held


def _tell(scenes: Scenes, house: House, stage: Stage, pair: Pair, receiver: Receiver, seed: int) -> None:
    scenes.scene(1, "Set up", f"{house.settings.data_dir}: database migrated, signing key made, audit log started")
    stage.start_engines()  # they load while we register
    scenes.scene(2, "Register", "a trained pair: target, small draft, tokenizer, and a stale draft")
    lineup = build_lineup(pair)
    plain_id, speculative_id = register(
        house.store,
        artifacts=lineup.artifacts,
        edges=lineup.edges,
        releases=(lineup.plain, lineup.speculative),
        actor=house.settings.who,
        now=now(),
    )
    scenes.say(
        f"{len(lineup.artifacts)} artifacts, {len(lineup.edges)} edges; releases plain {plain_id}, speculative {speculative_id} (draft_model, k={K})"
    )
    scenes.scene(3, "Serve", "two engine servers and a gateway, each its own process")
    _wait_engines(scenes, stage)
    stage.start_gateway()
    scenes.say(
        f"plain {stage.plain.base_url}, speculative {stage.speculative.base_url}, gateway {house.settings.gateway_url}; logs in {stage.logs}"
    )
    scenes.scene(4, "Preflight", "is the pair one pair, and do the engines run what the releases say?")
    _preflight(scenes, stage, pair, lineup)
    scenes.scene(5, "Offline", f"{OFFLINE_PROMPTS} held-out prompts on both arms, in turn")
    _offline(scenes, house, stage, pair, lineup, seed)
    scenes.scene(6, "Shadow, then canary", "the policy judges after every request")
    stage.start("control", "control", "serve")
    stage.start("project", "control", "project")
    rollout_id = _start(house, stage)
    traffic = Traffic(
        url=house.settings.gateway_url,
        code=pair.prompts["code"][OFFLINE_PROMPTS:],
        prose=pair.prompts["prose"],
        rate_per_s=RATE_PER_S,
        seed=seed,
    )
    _wait_route(house)
    traffic.start()
    try:
        promoted = _climb(scenes, house, rollout_id, traffic)
        if promoted:
            scenes.scene(7, "Incident", "the traffic turns from code to prose")
            _collapse(scenes, house, rollout_id, traffic)
    finally:
        report = traffic.stop()
    scenes.expect(
        "client requests that failed in the whole story",
        f"{report.errors} of {report.asked}",
        held=report.errors == 0 and report.asked > 0,
    )
    if promoted:
        _aftermath(scenes, house, stage, rollout_id, traffic, receiver)
    scenes.scene(8, "Report", "everything above, from the store")
    data = compile_report(house, rollout_id, title="Quickstart: a draft that fits its traffic, until the traffic changes")
    path = house.settings.data_dir / "report.html"
    build_page(data, path)
    scenes.say(f"{path} ({path.stat().st_size // 1024} KiB, self-contained)")
    proof = house.verify()
    scenes.expect(
        "audit log verifies against its signed checkpoints",
        f"{proof.size} entries, {proof.checkpoints} checkpoints",
        held=proof.proven > 0,
    )


def _wait_engines(scenes: Scenes, stage: Stage) -> None:
    with scenes.progress() as progress:
        task = progress.add_task("engines ready", total=2)
        for engine in (stage.plain, stage.speculative):
            engine.wait_ready(timeout_s=120.0)
            progress.advance(task)


def _preflight(scenes: Scenes, stage: Stage, pair: Pair, lineup: Lineup) -> None:
    weights = {a.digest: a.facts.get("weights_sha256") for a in lineup.artifacts}
    findings = list(check_folders(pair.target, pair.draft))
    for engine, release in ((stage.plain, lineup.plain), (stage.speculative, lineup.speculative)):
        findings += check_endpoint(
            engine.base_url,
            Expected(
                target_weights=weights[release.target],
                draft_weights=weights[release.draft] if release.draft else None,
                tokenizer=release.tokenizer,
                method=release.method,
                num_speculative_tokens=release.num_speculative_tokens,
                served_model_name=release.name,
            ),
        )
    refuse(findings)
    bad = [f for f in findings if f.severity is not Severity.OK]
    for finding in bad:
        scenes.say(f"{finding.severity}: {finding.message}")
    scenes.expect(
        "preflight",
        f"{len(findings)} checks, {len(bad)} remarks",
        held=not any(f.severity is Severity.REFUSE for f in findings),
    )


def _offline(scenes: Scenes, house: House, stage: Stage, pair: Pair, lineup: Lineup, seed: int) -> None:
    clients = {Arm.BASELINE: EngineClient(stage.plain.base_url), Arm.CANDIDATE: EngineClient(stage.speculative.base_url)}
    releases = {Arm.BASELINE: lineup.plain.id, Arm.CANDIDATE: lineup.speculative.id}
    arms = {arm: _completer(client) for arm, client in clients.items()}
    prompts = pair.prompts["code"][:OFFLINE_PROMPTS]
    for arm in arms.values():
        arm(prompts[0])  # first calls allocate; they are not the steady state
    with scenes.progress() as progress:
        task = progress.add_task("prompts on both arms", total=len(prompts))
        found = evaluate(prompts, arms, releases, clock=now, on_prompt=lambda n: progress.update(task, completed=n))
        task = progress.add_task("prose, speculative", total=len(prompts))
        prose = evaluate(
            pair.prompts["prose"][:OFFLINE_PROMPTS],
            arms,
            releases,
            clock=now,
            on_prompt=lambda n: progress.update(task, completed=n),
        )
    _record(house, lineup, found, prose, seed)
    _show_offline(scenes, found, prose)


def _completer(client: EngineClient) -> Callable[[str], Completion]:
    return lambda prompt: client.complete(prompt, max_tokens=OFFLINE_TOKENS)


def _record(house: House, lineup: Lineup, found: Evaluation, prose: Evaluation, seed: int) -> None:
    at, record = now(), found.to_record() | {"means": _means(found)}
    metrics = {f"{name}_{arm}": value for name, by_arm in record["means"].items() for arm, value in by_arm.items()}
    metrics |= {
        "acceptance_rate": record["acceptance_rate"],
        "acceptance_length": record["acceptance_length"],
        "acceptance_rate_prose": prose.acceptance.rate,
        "tpot_speedup": found.ratios["tpot_s"].ratio,
        "greedy_differences": float(len(found.differences)),
    }
    with house.store.begin() as unit:
        unit.evidence.add(lineup.speculative.id, "offline", record, at)
        unit.outcomes.append(f"offline-{lineup.speculative.id}", found.outcomes)
        unit.audit.append(
            tag="release:evidence:offline",
            actor=house.settings.who,
            subject=lineup.speculative.id,
            at=at,
            payload={
                "prompts": found.prompts,
                "differences": len(found.differences),
                "speedup": str(round(found.ratios["tpot_s"].ratio, 4)),
            },
        )
        unit.outbox.add(
            "mlflow_evaluation",
            f"offline:{lineup.speculative.id}:{at.isoformat()}",
            {
                "name": "offline paired evaluation",
                "at": at.isoformat(),
                "metrics": metrics,
                "tags": {"specops.release": lineup.speculative.id},
                "params": {
                    "prompts": found.prompts,
                    "max_tokens": OFFLINE_TOKENS,
                    "k": K,
                    "seed": seed,
                    "release_digest": lineup.speculative.digest,
                },
            },
            at,
        )


def _means(found: Evaluation) -> dict[str, dict[str, float]]:
    means: dict[str, dict[str, float]] = {}
    for name in found.ratios:
        for arm in Arm:
            values = [
                o.completion_tokens / o.e2e_s if name == "tokens_per_s" else getattr(o, name)
                for o in found.outcomes
                if o.arm is arm
            ]
            known = [v for v in values if v is not None]
            means.setdefault(name, {})[arm.value] = sum(known) / len(known)
    return means


def _show_offline(scenes: Scenes, found: Evaluation, prose: Evaluation) -> None:
    table = Table(show_edge=False, pad_edge=False)
    for column in ("metric", "plain", "speculative", "speculative is faster by", "95% interval"):
        table.add_column(column)
    for name, ratio in found.ratios.items():
        mean = _means(found)[name]
        factor = (
            (1 / ratio.ratio, 1 / ratio.high, 1 / ratio.low) if name == "tokens_per_s" else (ratio.ratio, ratio.low, ratio.high)
        )
        shown = (
            f"{mean[a] * (1 if name == 'tokens_per_s' else 1e3):.1f}{'' if name == 'tokens_per_s' else ' ms'}" for a in Arm
        )
        table.add_row(name, *shown, f"{factor[0]:.2f}x", f"[{factor[1]:.2f}, {factor[2]:.2f}]")
    scenes.console.print(table)
    code, other = found.acceptance, prose.acceptance
    rounds = sum(code.histogram)
    positions = ", ".join(f"{sum(code.histogram[p:]) / rounds:.2f}" for p in range(1, len(code.histogram)))
    shifted = ", ".join(
        f"{sum(other.histogram[p:]) / max(1, sum(other.histogram)):.2f}" for p in range(1, len(other.histogram))
    )
    scenes.say(f"acceptance rate on code {code.rate:.3f} (length {code.length:.2f}, by position {positions})")
    scenes.say(f"acceptance rate on prose {other.rate:.3f} (length {other.length:.2f}, by position {shifted})")
    speed = found.ratios["tpot_s"]
    scenes.expect(
        f"speculative TPOT is at least {MIN_SPEEDUP}x better on code",
        f"{speed.ratio:.2f}x [{speed.low:.2f}, {speed.high:.2f}]",
        held=speed.ratio >= MIN_SPEEDUP and speed.low > 1.0,
    )
    scenes.expect(
        "acceptance on code and prose are at least 0.25 apart",
        f"{(code.rate or 0) - (other.rate or 0):.3f}",
        held=(code.rate or 0) - (other.rate or 0) >= 0.25,
    )  # noqa: PLR2004
    scenes.expect(
        "greedy text is identical on both arms",
        f"{found.prompts - len(found.differences)} of {found.prompts} prompts",
        held=not found.differences,
    )


def _start(house: House, stage: Stage) -> str:
    pipeline = load_pipeline("quickstart")
    policy, text = load_policy(pipeline.policy)
    plan = Plan(
        rollout_id="ro-quickstart",
        baseline="plain",
        candidate="speculative",
        pipeline=pipeline.name,
        steps=pipeline.steps,
        policy=policy,
        policy_text=text,
        baseline_url=stage.plain.base_url,
        candidate_url=stage.speculative.base_url,
    )
    return start(house.store, plan, actor=house.settings.who, now=now()).id


def _wait_route(house: House) -> None:
    from specops.wiring import gateway_status  # noqa: PLC0415

    _until(
        lambda: bool((gateway_status(house.settings) or {}).get("route")), timeout_s=60.0, what="control to put the first route"
    )


def _until(holds: Callable[[], bool], *, timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise SpecopsError(f"waited {timeout_s:.0f} s for {what}; see the logs")
        time.sleep(0.1)


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
    return f"{verdicts[-1]['result']}: {finding['check']} {estimate}, n={finding['n']}, e-value for failing {finding['e_value']:.3g} (at {finding['e_threshold']:.3g}){side}"


def _climb(scenes: Scenes, house: House, rollout_id: str, traffic: Traffic) -> bool:
    """Wait until the release is promoted and was watched for a while; say each step's verdict on the way."""
    shown, deadline = -1, time.monotonic() + 240.0
    while time.monotonic() < deadline:
        rollout = _rollout(house, rollout_id)
        if rollout.step != shown:
            if shown >= 0:
                scenes.say(_verdict_line(house, rollout_id))
            scenes.say(
                f"[bold]{rollout.current.kind}[/] weight {rollout.weight:.0%}, mirror {rollout.mirror:.0%}, after {len(traffic.sent)} requests"
            )
            shown = rollout.step
        if rollout.is_terminal:
            scenes.expect("no alarm before the shift", f"{rollout.state}: {rollout.reason}", held=False)
            return False
        if rollout.current.kind is StepKind.WATCH:
            goal = len(traffic.sent) + WATCH_REQUESTS
            _until(
                lambda: len(traffic.sent) >= goal or _rollout(house, rollout_id).is_terminal,
                timeout_s=60.0,
                what="requests in the watch step",
            )
            quiet = not _rollout(house, rollout_id).is_terminal
            scenes.expect("promoted, and no alarm before the shift", f"after {len(traffic.sent)} requests", held=quiet)
            return quiet
        time.sleep(0.1)
    scenes.expect(
        "the candidate is promoted", f"still at step {shown + 1} after 240 s: {_verdict_line(house, rollout_id)}", held=False
    )
    return False


def _collapse(scenes: Scenes, house: House, rollout_id: str, traffic: Traffic) -> None:
    traffic.shift()
    try:
        _until(lambda: _rollout(house, rollout_id).is_terminal, timeout_s=90.0, what="the monitor to fire")
    except SpecopsError as error:
        scenes.expect("the collapse is noticed", str(error), held=False)
        return
    goal = len(traffic.sent) + AFTER_REQUESTS
    _until(lambda: len(traffic.sent) >= goal, timeout_s=60.0, what="requests after the roll-back")


def _aftermath(scenes: Scenes, house: House, stage: Stage, rollout_id: str, traffic: Traffic, receiver: Receiver) -> None:
    with house.store.read() as unit:
        entry = next((e for e in unit.audit.of(rollout_id) if e.tag == "rollout:release:rolled_back"), None)
        alias = unit.aliases.get("production")
        plain = unit.releases.get("plain")
    if entry is None or traffic.shifted_at is None:
        return
    scenes.say(entry.payload["reason"])
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
                "shift_index": _shift_point(house, unit, rollout_id, traffic.shifted_at),
                "shift_at": traffic.shifted_at.isoformat(),
                "reaction_s": reaction_s,
            },
            now(),
        )
    _until(lambda: bool(receiver.received()), timeout_s=30.0, what="the alert to arrive")
    scenes.expect("alert delivered (Alertmanager v2 POST)", receiver.received()[0].annotations["summary"], held=True)
    _drain(house, stage)
    version = MlflowTracking(house.settings.mlflow_uri, house.settings.data_dir / "mlflow-artifacts").alias(MODEL, "production")
    scenes.expect(
        "production alias is back on plain, here and in MLflow",
        f"{alias}, MLflow version {version}",
        held=alias == plain.id and version is not None,
    )


def _shift_point(_house: House, unit: Any, rollout_id: str, shifted_at: datetime) -> int:  # noqa: ANN401  # a store unit
    return sum(
        1
        for o in unit.outcomes.read(rollout_id)
        if o.arm is Arm.CANDIDATE and o.acceptance and o.acceptance.drafted and o.at <= shifted_at
    )


def _drain(house: House, stage: Stage) -> None:
    def is_empty() -> bool:
        with house.store.read() as unit:
            return not unit.outbox.due(now().replace(year=now().year + 1))

    _until(lambda: is_empty() or not stage.is_alive("project"), timeout_s=90.0, what="MLflow to take what it is owed")
    stage.end("project")


def _closing_table(scenes: Scenes, settings: Settings, seconds: float) -> None:
    table = Table(title="What was expected, and what happened", title_justify="left")
    for column in ("", "expectation", "found"):
        table.add_column(column, overflow="fold")
    for what, found, held in scenes.expectations:
        table.add_row("[green]held[/]" if held else "[red]FAILED[/]", what, found)
    scenes.console.print()
    scenes.console.print(table)
    _places(
        scenes,
        settings,
        (
            f"report   {settings.data_dir / 'report.html'}",
            f"logs     {settings.data_dir / 'logs'}",
            f"mlflow   mlflow ui --backend-store-uri {settings.mlflow_uri}",
            f"store    SPECOPS_DATA_DIR={settings.data_dir} specops rollout status",
        ),
        seconds,
    )


def _places(scenes: Scenes, _settings: Settings, lines: Iterable[str], seconds: float) -> None:
    for line in lines:
        scenes.console.print(line, soft_wrap=True, highlight=False)
    scenes.console.print(f"{'every expectation held' if scenes.all_held else 'NOT every expectation held'}, {seconds:.0f} s")
    sys.stdout.flush()
