"""The quickstart's story, told on this machine with nothing faked: nine scenes, each with an expectation.

Scenes are plain functions in the order of the tutorial (docs/tutorials/quickstart.md). Whatever happens, the processes
are ended.
"""

import importlib.util
import time
from datetime import datetime
from pathlib import Path

from rich.console import Console

from specops.adapters.alerts import Receiver
from specops.control.register import register
from specops.control.rollouts import Plan, start
from specops.demo.incident import aftermath, climb, collapse
from specops.demo.lineup import K, Lineup, build_lineup
from specops.demo.offline import OFFLINE_PROMPTS, evaluate_offline
from specops.demo.pair import Pair, load_pair
from specops.demo.scenes import Scenes, closing_table, wait_until
from specops.demo.stage import Stage
from specops.demo.traffic import Traffic
from specops.dossier import compile_report
from specops.engines.preflight import Expected, Severity, check_endpoint, check_folders, refuse
from specops.engines.process import free_port
from specops.errors import EXTRA_OF, MissingExtra
from specops.report.page import build as build_page
from specops.settings import Settings, load_settings
from specops.wiring import House, gateway_status, load_pipeline, load_policy, now, opened

RATE_PER_S = 5.0
NEEDED = frozenset({"torch", "mlflow", "expectations"})
"""Extras that the story uses."""


def play(data_dir: Path, *, seed: int) -> bool:
    """Play the story and return whether every expectation held.

    Raises:
        MissingExtra: an optional package is absent; nothing was written.
        SpecopsError: a piece could not be started; everything started is ended first.
    """
    for package, extra in EXTRA_OF.items():  # before anything is written
        if extra in NEEDED and importlib.util.find_spec(package) is None:
            raise MissingExtra(package, extra)
    scenes = Scenes(Console())
    keeps_samples = load_settings().keep_samples  # the one setting that a visitor may want
    began = time.monotonic()
    pair = load_pair()
    if data_dir.exists():
        aside = data_dir.with_name(f"{data_dir.name}.{datetime.fromtimestamp(data_dir.stat().st_mtime):%Y%m%d-%H%M%S}")  # noqa: DTZ006  # a name for people
        data_dir.rename(aside)
        scenes.say(f"an earlier {data_dir} was moved to {aside}")
    (data_dir / "logs").mkdir(parents=True)
    with Receiver(data_dir / "alerts.jsonl") as receiver:
        settings = Settings(
            data_dir=data_dir.resolve(), gateway_port=free_port(), alertmanager_url=receiver.url, keep_samples=keeps_samples
        )
        with opened(settings) as house, Stage(settings=settings, pair=pair) as stage:
            _tell(scenes, house, stage, pair, receiver, seed)
    closing_table(scenes, settings, time.monotonic() - began)
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
        f"{len(lineup.artifacts)} artifacts, {len(lineup.edges)} edges; "
        f"releases plain {plain_id}, speculative {speculative_id} (draft_model, k={K})"
    )
    scenes.scene(3, "Serve", "two engine servers and a gateway, each its own process")
    _wait_engines(scenes, stage)
    stage.start_gateway()
    scenes.say(
        f"plain {stage.plain.base_url}, speculative {stage.speculative.base_url}, "
        f"gateway {house.settings.gateway_url}; logs in {stage.logs}"
    )
    scenes.scene(4, "Preflight", "is the pair one pair, and do the engines run what the releases say?")
    _preflight(scenes, stage, pair, lineup)
    scenes.scene(5, "Offline", f"{OFFLINE_PROMPTS} held-out prompts on both arms, in turn")
    evaluate_offline(scenes, house, stage, pair, lineup, seed)
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
        promoted = climb(scenes, house, rollout_id, traffic)
        if promoted:
            scenes.scene(7, "Incident", "the traffic turns from code to prose")
            collapse(scenes, house, rollout_id, traffic)
    finally:
        report = traffic.stop()
    scenes.expect(
        "client requests that failed in the whole story",
        f"{report.errors} of {report.asked}",
        held=report.errors == 0 and report.asked > 0,
    )
    if promoted:
        aftermath(scenes, house, stage, rollout_id, traffic, receiver)
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
    wait_until(
        lambda: bool((gateway_status(house.settings) or {}).get("route")), timeout_s=60.0, what="control to put the first route"
    )
