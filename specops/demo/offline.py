"""Scene 5: the paired offline evaluation, its record, and its table."""

from collections.abc import Callable, Mapping, Sequence

from rich.table import Table

from specops.control.evaluate import Evaluation, evaluate
from specops.core.outcome import Acceptance, Arm
from specops.demo.lineup import K, Lineup
from specops.demo.pair import Pair
from specops.demo.scenes import Scenes
from specops.demo.stage import Stage
from specops.engines.client import Completion, EngineClient
from specops.wiring import House, now

OFFLINE_PROMPTS = 40
OFFLINE_TOKENS = 64
MIN_SPEEDUP = 1.2
MIN_APART = 0.25


def evaluate_offline(scenes: Scenes, house: House, stage: Stage, pair: Pair, lineup: Lineup, seed: int) -> None:
    """Compare both arms on held-out code, look at prose on the side, and record what was found."""
    clients = {Arm.BASELINE: EngineClient(stage.plain.base_url), Arm.CANDIDATE: EngineClient(stage.speculative.base_url)}
    releases = {Arm.BASELINE: lineup.plain.id, Arm.CANDIDATE: lineup.speculative.id}
    texts: dict[str, str] = {}  # what the candidate answered, by prompt
    arms = {arm: _completer(client, texts if arm is Arm.CANDIDATE else {}) for arm, client in clients.items()}
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
    keep_samples(house, found, prompts, texts)
    _show_offline(scenes, found, prose)


def _completer(client: EngineClient, texts: dict[str, str]) -> Callable[[str], Completion]:
    def complete(prompt: str) -> Completion:
        done = client.complete(prompt, max_tokens=OFFLINE_TOKENS)
        texts[prompt] = done.text
        return done

    return complete


def keep_samples(house: House, found: Evaluation, prompts: Sequence[str], texts: Mapping[str, str]) -> None:
    """Keep each prompt with the candidate's answer under its outcome's request id, where the setting `keep_samples` allows it.

    One answer per request, so that erasing a request erases all of it; where the arms differ, the evidence holds both.

    Args:
        house: its settings decide.
        found: the evaluation of these prompts.
        prompts: in the order in which they were sent.
        texts: the candidate's answer by prompt.
    """
    if not house.settings.keep_samples:
        return
    keeper, at = house.samples(), now()
    asked = [o.request_id for o in found.outcomes if o.arm is Arm.CANDIDATE]
    with house.store.begin() as unit:
        for request_id, prompt in zip(asked, prompts, strict=True):
            keeper.keep(unit, request_id, prompt, texts[prompt], at)


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
    means = _means(found)
    for name, ratio in found.ratios.items():
        mean = means[name]
        factor = (
            (1 / ratio.ratio, 1 / ratio.high, 1 / ratio.low) if name == "tokens_per_s" else (ratio.ratio, ratio.low, ratio.high)
        )
        shown = (
            f"{mean[a] * (1 if name == 'tokens_per_s' else 1e3):.1f}{'' if name == 'tokens_per_s' else ' ms'}" for a in Arm
        )
        table.add_row(name, *shown, f"{factor[0]:.2f}x", f"[{factor[1]:.2f}, {factor[2]:.2f}]")
    scenes.console.print(table)
    code, other = found.acceptance, prose.acceptance
    scenes.say(f"acceptance rate on code {_shown(code)}")
    scenes.say(f"acceptance rate on prose {_shown(other)}")
    speed = found.ratios["tpot_s"]
    scenes.expect(
        f"speculative TPOT is at least {MIN_SPEEDUP}x better on code",
        f"{speed.ratio:.2f}x [{speed.low:.2f}, {speed.high:.2f}]",
        held=speed.ratio >= MIN_SPEEDUP and speed.low > 1.0,
    )
    scenes.expect(
        f"acceptance rates on code and prose are at least {MIN_APART} apart",
        f"{(code.rate or 0) - (other.rate or 0):.3f}",
        held=(code.rate or 0) - (other.rate or 0) >= MIN_APART,
    )
    scenes.expect(
        "greedy text is identical on both arms",
        f"{found.prompts - len(found.differences)} of {found.prompts} prompts",
        held=not found.differences,
    )


def _shown(pooled: Acceptance) -> str:
    """Say rate, length and the share of rounds that kept at least 1, 2, ... k proposals."""
    if pooled.rate is None or pooled.length is None:
        return "no data"
    kept = (sum(pooled.histogram[p:]) / sum(pooled.histogram) for p in range(1, len(pooled.histogram)))
    return f"{pooled.rate:.3f} (length {pooled.length:.2f}, by position {', '.join(f'{share:.2f}' for share in kept)})"
