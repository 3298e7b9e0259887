"""The shipped pair under the quickstart's policy: speed, acceptance apart, detection of the shift, equality of greedy text.

Both engines run once as real processes, at concurrency 1, plain and speculative in turn. Detection is measured on real requests
of the speculative engine, replayed in 10 seeded orders through the same `fold`, `judge` and `advance` as the control loop, with
the story's own steps, policy and share of traffic. The reaction time needs live traffic: `specops quickstart` measures it.
"""

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from specops.control.evaluate import Difference, Evaluation, evaluate
from specops.core.arms import assign
from specops.core.judge import judge
from specops.core.ladder import Terms
from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.policy import Policy
from specops.core.rollout import Rollout, State, Step, StepKind, advance
from specops.core.window import Window, fold
from specops.demo.incident import MAX_DETECTION, WATCH_REQUESTS
from specops.demo.offline import MIN_APART, MIN_SPEEDUP, OFFLINE_PROMPTS, OFFLINE_TOKENS
from specops.demo.pair import Pair, load_pair
from specops.demo.stage import Stage
from specops.demo.story import RATE_PER_S
from specops.demo.traffic import MAX_TOKENS
from specops.engines.client import Completion, EngineClient
from specops.settings import Settings
from specops.wiring import load_pipeline, load_policy, now
from tests.benchmarks.row import Row

if TYPE_CHECKING:
    from specops.transformer.model import Model

EQUALITY_PROMPTS = 100  # per domain
TRAFFIC_PROMPTS = 150  # per domain, drawn with new orders by each seed
SEEDS = 10
MAX_CODE_REQUESTS = 600  # by then a healthy candidate is promoted; the story needs about 150
# Two float32 forward passes over other block shapes add in another order; on logits of size 10 that moves them by about 1e-5.
NEAR_TIE = 1e-3  # logits
RELEASES = {Arm.BASELINE: "plain", Arm.CANDIDATE: "speculative"}
T0 = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What the engines answered: paired evaluations per domain, and the traffic's outcomes per domain."""

    paired: dict[str, Evaluation]
    traffic: dict[str, tuple[Outcome, ...]]
    prompt_ids: dict[str, tuple[tuple[int, ...], ...]]


def measure() -> Iterator[Row]:
    """Run both engines once and yield every row."""
    pair = load_pair()
    with tempfile.TemporaryDirectory(prefix="specops-bench-") as folder:
        found = _gather(pair, Path(folder))
    yield from speed(found.paired["code"])
    yield from apart(found.paired)
    yield from detection(found.traffic)
    yield from equality(pair, found)


def _gather(pair: Pair, folder: Path) -> Gathered:
    with Stage(settings=Settings(data_dir=folder), pair=pair) as stage:
        stage.start_engines()
        for engine in (stage.plain, stage.speculative):
            engine.wait_ready(timeout_s=120.0)
        clients = {Arm.BASELINE: EngineClient(stage.plain.base_url), Arm.CANDIDATE: EngineClient(stage.speculative.base_url)}
        arms = {arm: _completer(client) for arm, client in clients.items()}
        for arm in arms.values():
            arm(pair.prompts["code"][0])  # first calls allocate; they are not the steady state
        paired, traffic, ids = {}, {}, {}
        for domain, prompts in pair.prompts.items():
            chosen = prompts[:EQUALITY_PROMPTS]
            paired[domain] = evaluate(chosen, arms, RELEASES, clock=now, on_prompt=_say(f"{domain}, both arms"))
            ids[domain] = tuple(tuple(clients[Arm.BASELINE].tokenize(prompt)) for prompt in chosen)
            later = prompts[OFFLINE_PROMPTS : OFFLINE_PROMPTS + TRAFFIC_PROMPTS]
            traffic[domain] = _outcomes(clients[Arm.CANDIDATE], later, _say(f"{domain}, traffic"))
    return Gathered(paired=paired, traffic=traffic, prompt_ids=ids)


def _completer(client: EngineClient) -> Callable[[str], Completion]:
    return lambda prompt: client.complete(prompt, max_tokens=OFFLINE_TOKENS)


def _say(what: str) -> Callable[[int], None]:
    def tell(done: int) -> None:
        if done % 50 == 0:
            print(f"  {what}: {done}", file=sys.stderr, flush=True)  # noqa: T201  # the only sign of life for a minute

    return tell


def _outcomes(client: EngineClient, prompts: Sequence[str], tell: Callable[[int], None]) -> tuple[Outcome, ...]:
    found = []
    for index, prompt in enumerate(prompts):
        answer = client.complete(prompt, max_tokens=MAX_TOKENS)
        found.append(
            Outcome(
                request_id=f"r{index}", arm=Arm.CANDIDATE, kind=Kind.LIVE, release_id="speculative", at=now(),
                finish=Finish(answer.finish), e2e_s=answer.e2e_s, ttft_s=answer.ttft_s, prompt_tokens=answer.prompt_tokens,
                completion_tokens=answer.completion_tokens, acceptance=answer.acceptance,
            )
        )  # fmt: skip
        tell(index + 1)
    return tuple(found)


def speed(code: Evaluation) -> Iterator[Row]:
    """Compare the time per output token of both arms on the same held-out code."""
    ratio = code.ratios["tpot_s"]
    yield Row(
        check="TPOT plain / speculative on code, concurrency 1, geometric mean of pairs", figure=ratio.ratio, unit="x",
        goal=f">= {MIN_SPEEDUP}, lower bound > 1", holds=ratio.ratio >= MIN_SPEEDUP and ratio.low > 1.0,
        against=f"plain decoding on the same engine, in turn; 95% [{ratio.low:.3f}, {ratio.high:.3f}]", runs=ratio.n,
    )  # fmt: skip


def apart(paired: dict[str, Evaluation]) -> Iterator[Row]:
    """Compare the acceptance of code and prose, pooled and by position."""
    code, prose = paired["code"].acceptance, paired["prose"].acceptance
    gap = (code.rate or 0.0) - (prose.rate or 0.0)
    yield Row(
        check="acceptance rate on code minus prose, temperature 0", figure=gap, unit="", goal=f">= {MIN_APART}",
        holds=gap >= MIN_APART, against=f"prose {prose.rate:.3f}; code {code.rate:.3f}", runs=code.rounds + prose.rounds,
    )  # fmt: skip
    for index, (here, there) in enumerate(zip(_positions(code), _positions(prose), strict=True), start=1):
        yield Row(
            check=f"rounds with at least {index} accepted, code minus prose", figure=here - there, unit="",
            goal="> 0", holds=here > there, against=f"prose {there:.3f}; code {here:.3f}", runs=code.rounds + prose.rounds,
        )  # fmt: skip


def _positions(counts: Acceptance) -> tuple[float, ...]:
    """Return the share of rounds in which at least 1, 2, ... k drafted tokens were accepted."""
    return tuple(sum(counts.histogram[j:]) / counts.rounds for j in range(1, len(counts.histogram)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One seeded order; `promoted_after` and `delay` count requests of code and prose, None: never."""

    promoted_after: int | None
    is_false_alarm: bool
    delay: int | None


def detection(traffic: dict[str, tuple[Outcome, ...]]) -> Iterator[Row]:
    """Replay 10 orders of the same real requests through the quickstart's rules."""
    pipeline = load_pipeline("quickstart")
    policy, _ = load_policy(pipeline.policy)
    replays = [replay(traffic, policy, pipeline.steps, seed) for seed in range(SEEDS)]
    delays = [r.delay for r in replays if r.delay is not None and r.delay <= MAX_DETECTION]
    climbs = [r.promoted_after for r in replays if r.promoted_after is not None]
    alarms = sum(r.is_false_alarm for r in replays)
    spread = f"delays {sorted(delays)}, median {statistics.median(delays)}" if delays else "no order detected it"
    yield Row(
        check=f"orders in which the shift is detected within {MAX_DETECTION} requests", figure=len(delays), unit=f"of {SEEDS}",
        goal=f"{SEEDS} of {SEEDS}", holds=len(delays) == SEEDS, against=spread, runs=SEEDS,
    )  # fmt: skip
    yield Row(
        check="orders with an alarm before the shift", figure=alarms, unit=f"of {SEEDS}", goal="0", holds=alarms == 0,
        against=f"the same requests on code; promoted in {len(climbs)} orders after {sorted(climbs)} requests", runs=SEEDS,
    )  # fmt: skip


def replay(traffic: dict[str, tuple[Outcome, ...]], policy: Policy, steps: tuple[Step, ...], seed: int) -> Replay:
    """Walk one rollout: code until it is promoted and was watched as long as in the story, then prose until the alarm."""
    rng = np.random.default_rng(seed)
    walk = Walk(policy=policy, rollout=_rollout(policy, steps, seed), window=Window.empty(policy))
    promoted_after = None
    for count, outcome in enumerate(_endless(traffic["code"], rng), start=1):
        walk.take(outcome, f"{seed}-{count}")
        if walk.rollout.is_terminal or count >= MAX_CODE_REQUESTS:
            return Replay(promoted_after=promoted_after, is_false_alarm=walk.rollout.is_terminal, delay=None)
        if walk.rollout.state is State.PROMOTED and promoted_after is None:
            promoted_after = count
        if promoted_after is not None and count >= promoted_after + WATCH_REQUESTS:
            break
    for delay, outcome in enumerate(_endless(traffic["prose"], rng), start=1):
        walk.take(outcome, f"{seed}-p{delay}")
        if walk.rollout.is_terminal or delay > MAX_DETECTION:
            return Replay(
                promoted_after=promoted_after, is_false_alarm=False, delay=delay if walk.rollout.is_terminal else None
            )
    raise AssertionError("the traffic is endless")


@dataclass(slots=True, kw_only=True)
class Walk:
    """The control loop without processes: what `control.act` does with one request of the story."""

    policy: Policy
    rollout: Rollout
    window: Window

    def take(self, outcome: Outcome, request_id: str) -> None:
        """Let one client request reach the candidate by the step's share or mirror, and act on the verdict."""
        step = self.rollout.current
        if step.kind is StepKind.SHADOW:
            seen = replace(outcome, request_id=request_id, kind=Kind.SHADOW)
        elif assign(request_id, self.rollout.weight, salt=self.rollout.id) is Arm.CANDIDATE:
            seen = replace(outcome, request_id=request_id)
        else:
            seen = replace(outcome, request_id=request_id, arm=Arm.BASELINE, acceptance=None)
        promoted = self.rollout.state is State.PROMOTED
        seen = replace(seen, at=T0 + timedelta(seconds=self.window.outcomes / RATE_PER_S))
        self.window = fold(self.window, seen, self.policy, promoted=promoted)
        verdict = judge(self.policy, self.window, terms=Terms(promoted=promoted), now=T0)
        self.rollout = advance(self.rollout, verdict, candidate_outcomes=self.window.candidate_outcomes).rollout


def _rollout(policy: Policy, steps: tuple[Step, ...], seed: int) -> Rollout:
    return Rollout(
        id=f"ro-{seed}", baseline="plain", candidate="speculative", policy_digest=policy.digest, pipeline="quickstart",
        steps=steps,
    )  # fmt: skip


def _endless(outcomes: tuple[Outcome, ...], rng: np.random.Generator) -> Iterator[Outcome]:
    while True:
        for index in rng.permutation(len(outcomes)):
            yield outcomes[index]


def equality(pair: Pair, found: Gathered) -> Iterator[Row]:
    """Compare greedy tokens of both arms; each difference gets its logit gap from the target itself."""
    from specops.transformer.model import load_model  # noqa: PLC0415

    target = load_model(pair.target, threads=1)
    gaps = []
    for domain, evaluation in found.paired.items():
        for difference in evaluation.differences:
            gap = logit_gap(target, found.prompt_ids[domain][difference.prompt], difference)
            print(f"  {domain} prompt {difference.prompt} differs at token {difference.token}: gap {gap:.2e}", file=sys.stderr)  # noqa: T201
            gaps.append(gap)
    prompts = sum(evaluation.prompts for evaluation in found.paired.values())
    largest = f"; largest gap between the two tokens {max(gaps):.2e} logits" if gaps else ""
    yield Row(
        check=f"held-out prompts whose greedy text differs, {OFFLINE_TOKENS} tokens", figure=len(gaps), unit=f"of {prompts}",
        goal=f"0, or near-ties of at most {NEAR_TIE} logits", holds=all(gap <= NEAR_TIE for gap in gaps),
        against=f"plain decoding{largest}", runs=prompts,
    )  # fmt: skip


def logit_gap(target: "Model", prompt_ids: tuple[int, ...], difference: Difference) -> float:
    """Return how far apart the target's logits of the two arms' tokens are at the first difference; inf when one text ended."""
    if difference.token >= min(len(difference.baseline), len(difference.candidate)):
        return float("inf")
    prefix = (*prompt_ids, *difference.baseline[: difference.token])
    logits = target.forward(prefix, target.new_cache(len(prefix)), last_only=True)[0]
    return abs(float(logits[difference.baseline[difference.token]] - logits[difference.candidate[difference.token]]))
