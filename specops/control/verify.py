"""Verify an endpoint: gate, sample, score on the trusted path, fold, judge; with both self-controls in the same job.

Batches go out at mixed concurrency, so that bugs of batching can show. After each one the progress is reported and can be
saved; a saved job resumes with the same prompts, seeds and evidence. What is concluded is left to `core.fidelity`.
Controls: the trusted endpoint, sampled plainly, must stay quiet, over no fewer tokens than a rejection took; the same endpoint
asked at a lower temperature and judged as if it had not been (a real mutant, through the whole path) must be rejected.
Called by `specops verify`.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from specops.control.verify_ports import Endpoint
from specops.core.canonical import digest_of
from specops.core.fidelity import Controls, Evidence, GreedyFinding, Plan, Verdict, Watch, judge, judge_greedy
from specops.core.fidelity_atoms import ROUNDING, Sampling, Scored, build_rows
from specops.core.fidelity_gate import NOT_MODELLED, Gate, inspect
from specops.core.fidelity_laws import Rows, laws_for, replay
from specops.core.fidelity_report import Agreement, Calibration, Verification, laws_of, scope_of
from specops.core.fidelity_sample import Ask, Sample
from specops.core.ngram import follow
from specops.errors import InvalidInput
from specops.stats.mixture import Array, Whole

BATCHES = ((4, 1), (16, 8), (32, 32))
"""Requests and concurrency of consecutive batches, in turn."""
MUTANT_TEMPERATURE = 0.7  # of the declared one; rejected within about 100 tokens of open text
PLAIN_SHARE = 4  # one plain answer per so many speculative ones
REPLAYED = (
    "always accept", "resample from p", "leak 0.1", "leak 0.02", "temperature 0.9", "previous row 0.1", "filters on bonus only",
)  # fmt: skip
_REPLAY_TOKENS = 6_000
_POINTS = 12  # of the path per batch
_OTHER_SEED = 2**31  # added for answers of the trusted path, which must not repeat the endpoint's
_ZERO = np.zeros(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to verify and how.

    Attributes:
        prompts: texts, diverse; used in order, again from the start when they run out.
        plan: level, tolerance and strata.
        sampling: production's settings.
        budget: most tokens to sample from the endpoint.
        max_tokens: of one answer.
        seed: of the first request; each following one adds 1.
        top: most likely tokens that servers report per place; they become the atoms.
        dtype: the coarser one of both paths.
        greedy_tokens: how many tokens at temperature 0; 0 leaves that part out.
        draft: "draft", "surrogate" or "n-gram": whose law a leak is bounded towards; None without one.
        is_draft_greedy: it proposes its most likely token at any temperature.
        configuration: the endpoint's speculative configuration, if a person gives it.
        is_gated: stop at a lossy setting.
        run_length: continuous mode, tokens to a false alarm on average; None is the ordinary test.
    """

    prompts: tuple[str, ...]
    plan: Plan = field(default_factory=Plan)
    sampling: Sampling = field(default_factory=Sampling)
    budget: int = 6_000
    max_tokens: int = 128
    seed: int = 0
    top: int = 20
    dtype: str = "bfloat16"
    greedy_tokens: int = 512
    draft: str | None = None
    is_draft_greedy: bool = False
    configuration: Mapping[str, Any] | None = None
    is_gated: bool = True
    run_length: float | None = None

    def __post_init__(self) -> None:
        if not self.prompts or not all(self.prompts):
            raise InvalidInput("no prompts, or an empty one; give a file with one prompt per line, or leave out --prompts")
        if min(self.budget, self.max_tokens) < 1 or self.greedy_tokens < 0 or self.top < 2:  # noqa: PLR2004  # atom and rest
            raise InvalidInput(
                f"budget {self.budget}, max tokens {self.max_tokens}, greedy tokens {self.greedy_tokens}, top {self.top};"
                " budget and max tokens are at least 1, top at least 2, greedy tokens 0 or more"
            )
        if self.dtype not in ROUNDING:
            raise InvalidInput(f"dtype {self.dtype!r} is not known; use one of {', '.join(ROUNDING)}")

    @property
    def atoms(self) -> int:
        """How many tokens to ask for: a filter's edge must lie inside them."""
        return max(self.top, self.sampling.top_k + 2 if self.sampling.top_k else 0)

    @property
    def digest(self) -> str:
        """Identity of the job, without the budget: a job may be resumed with a larger one."""
        said = {key: value for key, value in asdict(self).items() if key != "budget"}
        return digest_of(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Cost up front: tokens to sample, tokens to score (prompts included), and seconds, from one timed request."""

    sampled: int
    scored: int
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """All that was learnt so far; what a saved job holds."""

    task: str
    evidence: Evidence
    plain: Evidence
    mutant: Evidence
    watch: Watch | None = None
    asked: int = 0
    batches: int = 0
    tokens: int = 0
    fired_at: int | None = None
    whole: int = 0
    path: tuple[tuple[int, float], ...] = ()
    calibration: Calibration = field(default_factory=Calibration)
    agreement: Agreement = field(default_factory=Agreement)
    retokenised: int = 0
    greedy: GreedyFinding | None = None
    greedy_plain: GreedyFinding | None = None
    sensitivity: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def controls(self) -> Controls:
        """Return the controls as far as they got."""
        return Controls(plain=self.plain, mutant=self.mutant)

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        evidence: dict[str, Any] = {name: getattr(self, name).to_record() for name in ("evidence", "plain", "mutant")}
        evidence["watch"] = self.watch.to_record() if self.watch else None
        return {**{k: v for k, v in asdict(self).items() if k not in evidence}, **evidence}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], task: Task) -> "Progress":
        """Read what `to_record` wrote.

        Raises:
            InvalidInput: it is not of that form, or of another job.
        """
        if record.get("task") != task.digest:
            raise InvalidInput("the saved job has other settings or prompts; remove its file, or repeat its command")
        try:
            parts = {name: Evidence.from_record(record[name]) for name in ("evidence", "plain", "mutant")}
            values: dict[str, Any] = dict(record) | parts
            values["watch"] = Watch.from_record(record["watch"]) if record["watch"] else None
            values |= {name: _greedy(record[name]) for name in ("greedy", "greedy_plain")}
            values["calibration"] = Calibration(**{k: tuple(v) for k, v in record["calibration"].items()})
            values["agreement"] = Agreement(**record["agreement"])
            values["path"] = tuple((int(at), float(log_e)) for at, log_e in record["path"])
            return cls(**values)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise InvalidInput(f"this is no saved job ({exc!r}); remove its file and start anew") from exc


def estimate(task: Task, target: Endpoint, clock: Callable[[], float]) -> Estimate:
    """Return what the job will cost at most; times one short request to the trusted path."""
    prompts = [target.encode(text) for text in task.prompts]
    began = clock()
    ask = Ask(prompt_ids=prompts[0], max_tokens=min(task.max_tokens, 16), seed=task.seed, sampling=task.sampling)
    found = target.sample([ask], 1)[0]
    target.score([found.prompt_ids + found.token_ids], task.atoms, 1)
    a_token_s = (clock() - began) / max(len(found.token_ids), 1)
    sampled = math.ceil(task.budget * (1 + 1 / PLAIN_SHARE)) + 2 * task.greedy_tokens
    mean_prompt = sum(map(len, prompts)) / len(prompts)
    scored = math.ceil(sampled * (1 + mean_prompt / task.max_tokens))
    return Estimate(sampled=sampled, scored=scored, wall_s=sampled * a_token_s)


def verify(  # three servers, a clock, and two wires out
    task: Task,
    endpoint: Endpoint,
    target: Endpoint,
    draft: Endpoint | None = None,
    *,
    clock: Callable[[], float],
    report: Callable[[Progress], None] = lambda _: None,
    save: Callable[[dict[str, Any]], None] = lambda _: None,
    saved: Mapping[str, Any] | None = None,
) -> Verification:
    """Run the job until it is decided or the budget is spent.

    Args:
        task: what to do.
        endpoint: under test.
        target: the trusted path: the same model without speculation.
        draft: scores the draft's or the surrogate's law, for these values of `task.draft`.
        clock: seconds.
        report: called after each batch.
        save: called after each batch with what `saved` takes.
        saved: a job to resume.

    Raises:
        InvalidInput: the saved job is another, or a server does not offer what is needed.
        IncompatibleRelease: the trusted path speculates, or serves other weights.
        EngineUnavailable: a server failed; what was saved is kept.
    """
    began, facts, trusted = clock(), endpoint.facts(), target.facts()
    gate = inspect(facts, trusted, task.configuration)
    if (task.draft in ("draft", "surrogate")) != (draft is not None):
        raise InvalidInput(f"draft is {task.draft!r} and its endpoint {'given' if draft else 'missing'}; give both or neither")
    new = Evidence(plan=task.plan)
    watch = Watch(run_length=task.run_length, positions=task.plan.positions) if task.run_length else None
    now = Progress(task=task.digest, evidence=new, plain=new, mutant=new, watch=watch)
    now = now if saved is None else Progress.from_record(saved, task)
    if not (gate.lossy and task.is_gated):
        job = Job(task, endpoint, target, draft)
        if task.greedy_tokens and now.greedy is None:
            now = job.greedy(now)
        while not _is_over(task, now):
            now = job.catch_up(now) if _is_behind(now) else job.batch(now)
            save(now.to_record())
            report(now)
    return _result(task, now, gate, urls=(endpoint.url, target.url), facts=(facts, trusted), wall_s=clock() - began)


class Job:
    """The servers and the prompts of one job; all that is known of the tokens is in `Progress`."""

    def __init__(self, task: Task, endpoint: Endpoint, target: Endpoint, draft: Endpoint | None) -> None:
        """Encode the prompts; the arguments are those of `verify`."""
        self._task, self._endpoint, self._target, self._draft = task, endpoint, target, draft
        self._replays: dict[str, Evidence] = {}
        self._prompts = [target.encode(text) for text in task.prompts]
        if short := next((text for text, ids in zip(task.prompts, self._prompts, strict=True) if not ids), None):
            raise InvalidInput(f"the prompt {short!r} has no tokens; drop it")

    def greedy(self, now: Progress) -> Progress:
        """Feed greedy tokens of both endpoints to the trusted path."""
        count = math.ceil(self._task.greedy_tokens / self._task.max_tokens)
        found = []
        for server in (self._endpoint, self._target):
            samples = [one for one in server.sample(self.asks(0, count, None), min(count, 8)) if one.token_ids]
            scored = self._score(self._target, samples)
            answers = [s.cut(len(one.prompt_ids) - 1) for s, one in zip(scored, samples, strict=True)]
            chosen = np.concatenate([_ZERO, *(one.chosen for one in answers)])
            best = np.concatenate([_ZERO, *(np.maximum(one.logs[:, 0], one.chosen) for one in answers)])
            found.append(judge_greedy(chosen, best, self._task.dtype))
        return replace(now, greedy=found[0], greedy_plain=found[1])

    def batch(self, now: Progress) -> Progress:
        """Sample, score and fold one batch of each kind."""
        task, (count, concurrency) = self._task, BATCHES[now.batches % len(BATCHES)]
        count = max(min(count, math.ceil((task.budget - now.tokens) / task.max_tokens)), 1)
        asks = self.asks(now.asked, count, task.sampling)
        plain = asks[: math.ceil(count / PLAIN_SHARE)]
        colder = replace(task.sampling, temperature=task.sampling.temperature * MUTANT_TEMPERATURE)
        mutant = [] if now.mutant.is_fired else [replace(ask, sampling=colder) for ask in asks[:4]]
        samples = self._endpoint.sample(asks, concurrency)
        controls = self._target.sample([replace(ask, seed=ask.seed + _OTHER_SEED) for ask in (*plain, *mutant)], concurrency)
        rows, scored = self.rows(samples, concurrency)
        evidence, path = now.evidence.fold(rows)
        plain_rows, _ = self.rows(controls[: len(plain)], concurrency)
        folded, _ = now.plain.fold(plain_rows)
        fired = now.mutant.fold(self.rows(controls[len(plain) :], concurrency)[0])[0] if mutant else now.mutant
        return replace(
            now,
            evidence=evidence,
            plain=folded,
            mutant=fired,
            watch=now.watch.fold(rows)[0] if now.watch else None,
            asked=now.asked + count,
            batches=now.batches + 1,
            tokens=now.tokens + len(rows.token),
            fired_at=now.fired_at or _first(now.tokens, path, math.log(2 / task.plan.alpha)),
            whole=now.whole + int(rows.is_whole.sum()),
            path=now.path + tuple(_points(now.tokens, path)),
            calibration=now.calibration.fold(rows),
            agreement=_compare(now.agreement, samples, scored),
            retokenised=now.retokenised + sum(one.is_retokenised for one in samples),
            sensitivity=self._replayed(now.sensitivity, rows),
        )

    def catch_up(self, now: Progress) -> Progress:
        """Fold plain answers only: before an endpoint is blamed, the plain one must have had as many tokens to be rejected."""
        count, concurrency = BATCHES[1]
        asks = self.asks(now.asked, count, self._task.sampling)
        found = self._target.sample([replace(ask, seed=ask.seed + _OTHER_SEED) for ask in asks], concurrency)
        return replace(now, plain=now.plain.fold(self.rows(found, concurrency)[0])[0], asked=now.asked + count)

    def asks(self, start: int, count: int, sampling: Sampling | None) -> list[Ask]:
        """Return requests from the place `start` on: the prompts in turn, a seed each."""
        return [
            Ask(
                prompt_ids=self._prompts[i % len(self._prompts)],
                max_tokens=self._task.max_tokens,
                seed=self._task.seed + i,
                sampling=sampling,
            )
            for i in range(start, start + count)
        ]

    def _score(self, server: Endpoint, samples: Sequence[Sample], concurrency: int = 8) -> list[Scored]:
        return server.score([one.prompt_ids + one.token_ids for one in samples], self._task.atoms, concurrency)

    def rows(self, samples: Sequence[Sample], concurrency: int) -> tuple[Rows, list[Scored]]:
        """Return rows of all tokens of the samples, and the trusted path's scores of each sample's answer."""
        task, samples = self._task, [one for one in samples if one.token_ids]
        if not samples:
            raise InvalidInput("an endpoint answered every prompt of a batch with no token; use prompts that it continues")
        scored = self._score(self._target, samples, concurrency)
        # a prompt of one token has no row before its answer; the first row then stands for it, which is no bet
        befores = [
            s.cut(len(one.prompt_ids) - 2, len(s.chosen) - 1) if len(one.prompt_ids) > 1 else _late(s)
            for s, one in zip(scored, samples, strict=True)
        ]
        answers = [s.cut(len(one.prompt_ids) - 1) for s, one in zip(scored, samples, strict=True)]
        drafted = None
        if self._draft is not None:
            by_draft = self._score(self._draft, samples, concurrency)
            drafted = Scored.join([s.cut(len(one.prompt_ids) - 1) for s, one in zip(by_draft, samples, strict=True)])
        elif task.draft == "n-gram":
            drafted = Scored.join([_looked_up(one, answer) for one, answer in zip(samples, answers, strict=True)])
        rows = build_rows(
            np.concatenate([np.array(one.token_ids, np.int64) for one in samples]),
            Scored.join(answers),
            sampling=task.sampling,
            rounding=ROUNDING[task.dtype],
            draft=drafted,
            before=Scored.join(befores),
            is_draft_greedy=task.is_draft_greedy and task.draft != "n-gram",
            position=np.concatenate([_positions(one) for one in samples]),
        )
        return rows, answers

    def _replayed(self, known: Mapping[str, int | None], rows: Rows) -> Mapping[str, int | None]:
        """Replay known bugs on the same rows: what this job could have seen. A resumed job begins those not rejected anew."""
        found, plan = dict(known), replace(self._task.plan, positions=0)
        for at, law in enumerate(name for name in REPLAYED if name in laws_for(rows)):
            before = self._replays.get(law, Evidence(plan=plan))
            seen = _tokens(before)
            if found.get(law) is None and seen < _REPLAY_TOKENS:
                coins = np.random.default_rng((self._task.seed, at, seen)).random(len(rows.token))
                self._replays[law], path = before.fold(replay(rows, law, coins))
                found[law] = _first(seen, path, math.log(2 / plan.alpha))
        return found


def _is_behind(now: Progress) -> bool:
    """Say whether the endpoint was rejected after more tokens than the plain one has been tested with."""
    alarm = now.watch.alarm_at if now.watch else None
    needed = min(now.fired_at or now.tokens, alarm or now.tokens) if now.fired_at or alarm else 0
    return not now.plain.is_fired and _tokens(now.plain) < needed


def _first(start: int, path: Array, bar: float) -> int | None:
    hits = np.flatnonzero(path >= bar)
    return start + int(hits[0]) + 1 if hits.size else None


def _is_over(task: Task, now: Progress) -> bool:
    if _is_behind(now):
        return False
    if now.tokens >= task.budget:
        return True
    if now.watch is not None:
        return now.watch.alarm_at is not None
    if now.controls.problems():
        return bool(now.plain.is_fired)  # no result any more; a mutant that has not fired yet may still
    return judge(now.evidence, now.controls).verdict is not Verdict.INCONCLUSIVE


def _result(
    task: Task,
    now: Progress,
    gate: Gate,
    *,
    urls: tuple[str, str],
    facts: tuple[Mapping[str, Any], Mapping[str, Any]],
    wall_s: float,
) -> Verification:
    found, detector = judge(now.evidence, now.controls), now.watch.detector if now.watch else None
    verdict, diagnosis, position, problems = found.verdict, found.diagnosis, found.position, found.problems
    if gate.lossy and task.is_gated:
        verdict, diagnosis, position, problems = Verdict.NOT_LOSSLESS, f"by configuration ({'; '.join(gate.lossy)})", None, ()
    elif now.greedy and now.greedy_plain and now.greedy_plain.beyond:
        verdict = Verdict.ERROR
        problems = (*problems, "greedy tokens of the plain endpoint are not its argmax: the paths differ")
    elif verdict is not Verdict.ERROR and now.greedy and now.greedy.beyond:
        verdict, position = Verdict.NOT_LOSSLESS, None
        diagnosis = f"{len(now.greedy.beyond)} greedy tokens are not the argmax, the worst by {now.greedy.largest_gap:.3g} nats"
    elif detector is not None and detector.alarm_at is not None and verdict is not Verdict.ERROR:
        verdict, (diagnosis, position) = Verdict.NOT_LOSSLESS, detector.winner
    sampling = task.sampling.to_record()
    asked = {"dtype": task.dtype, "configuration": task.configuration, "greedy": task.greedy_tokens > 0}
    findings = [f"lossy setting: {one}" for one in gate.lossy] + ([one] if (one := now.agreement.finding) else [])
    return Verification(
        endpoint=urls[0], target=urls[1], verdict=verdict, diagnosis=diagnosis, position=position, tokens=now.tokens,
        log_e=found.log_e, tv_bound=found.tv_bound, tolerance=task.plan.tolerance, alpha=task.plan.alpha,
        tokens_needed=found.tokens_needed, problems=problems, findings=tuple(findings),
        not_tested=tuple(_not_tested(task, now, gate)), sampling=sampling, draft=task.draft,
        scope=scope_of(facts[0], facts[1], sampling | asked),
        facts={"endpoint": dict(facts[0]), "target": dict(facts[1])},
        path=now.path, laws=laws_of(now.evidence), sensitivity=now.sensitivity, calibration=now.calibration,
        ranks=now.evidence.ranks, agreement=now.agreement, greedy=now.greedy, greedy_plain=now.greedy_plain,
        plain_tokens=_tokens(now.plain), plain_log_e=_peak(now.plain), mutant_tokens=_tokens(now.mutant),
        mutant_log_e=_peak(now.mutant), whole_share=now.whole / now.tokens if now.tokens else 1.0,
        alarm_at=detector.alarm_at if detector else None, wall_s=wall_s,
    )  # fmt: skip


def _not_tested(task: Task, now: Progress, gate: Gate) -> Iterator[str]:
    yield "distortions in a direction that no alternative describes, beyond what the bet on ranks sees"
    yield f"other sampling than {task.sampling.to_record()}; {', '.join(NOT_MODELLED)}; guided decoding; stop strings"
    yield f"prompts unlike the {len(task.prompts)} used, answers above {task.max_tokens} tokens, more than 32 requests at once"
    if not task.greedy_tokens:
        yield "greedy decoding"
    if task.draft is None:
        yield "leaks towards the draft: no draft's law was given, so nothing is bounded"
    elif task.draft == "surrogate":
        yield "leaks towards the real draft: the bound is towards the surrogate's law"
    if now.tokens and now.whole < now.tokens:
        yield (
            f"the tail and the filters' edges of {1 - now.whole / now.tokens:.0%} of tokens: there only the certain tokens are"
            " compared with each other, and the bound does not count them"
        )
    if now.retokenised:
        yield f"the ids really emitted in {now.retokenised} answers: made from text again, they may be others"
    if not task.plan.positions:
        yield "positions in the block apart"
    yield from gate.remarks


def _looked_up(sample: Sample, answer: Scored) -> Scored:
    """Return the n-gram draft's law at each token: its one proposal; without one the target's own law, which is no bet."""
    text, start = sample.prompt_ids + sample.token_ids, len(sample.prompt_ids)
    ids, logs, chosen = answer.ids.copy(), answer.logs.copy(), answer.chosen.copy()
    for at, proposal in enumerate(follow(text, start)):
        if proposal is not None:
            ids[at], logs[at] = -1, -np.inf
            ids[at, 0], logs[at, 0] = proposal, 0.0
            chosen[at] = 0.0 if sample.token_ids[at] == proposal else -np.inf
    return Scored(ids=ids, logs=logs, chosen=chosen)


def _late(scored: Scored) -> Scored:
    return Scored.join([scored.cut(0, 1), scored.cut(0, len(scored.chosen) - 1)])


def _positions(sample: Sample) -> Whole:
    if sum(sample.blocks) != len(sample.token_ids):
        return np.full(len(sample.token_ids), -1, np.int64)
    return np.concatenate([np.arange(size, dtype=np.int64) for size in sample.blocks])


def _compare(agreement: Agreement, samples: Sequence[Sample], answers: Sequence[Scored]) -> Agreement:
    compared, apart = agreement.compared, agreement.apart
    for one, answer in zip((s for s in samples if s.token_ids), answers, strict=True):
        if len(one.logs) == len(one.token_ids):
            compared += len(one.logs)
            apart += int((np.abs(np.array(one.logs) - answer.chosen) > 1.0).sum())
    return Agreement(compared=compared, apart=apart)


def _points(start: int, path: Array) -> Iterator[tuple[int, float]]:
    stride = max(math.ceil(len(path) / _POINTS), 1)
    places = itertools.chain(range(stride - 1, len(path), stride), [len(path) - 1] if len(path) % stride else [])
    return ((start + at + 1, float(path[at])) for at in places)


def _tokens(evidence: Evidence) -> int:
    return evidence.wealth.tokens if evidence.wealth else 0


def _peak(evidence: Evidence) -> float:
    return evidence.wealth.peak if evidence.wealth else 0.0


def _greedy(record: Mapping[str, Any] | None) -> GreedyFinding | None:
    return None if record is None else GreedyFinding(**(dict(record) | {"beyond": tuple(record["beyond"])}))

