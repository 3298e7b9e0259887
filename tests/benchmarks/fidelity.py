"""The fidelity verifier on a mutated reference engine: tokens to reject, diagnosis, false alarms, peers, throughput.

Power is measured end to end over HTTP: the demo pair decoded by the real loop with one rule replaced (leaks of an exact size
and the row before: sampled token by token from the blended law), a plain server of the same target as the trusted path.
Levels are measured on toy models in memory, as they need hundreds of runs. Peers see the same answers: MMD with a Hamming
kernel (Gao et al., arXiv 2410.20247, reimplemented), a permutation chi-square on first tokens, and equality of texts.
`SPECOPS_BENCH_RUNS` sets the runs of the power rows (default 5), `SPECOPS_BENCH_NULLS` those of the null (default 400; a
quarter for each non-bug, a tenth for the peers). `SPECOPS_BENCH_FIDELITY_URLS` names servers to verify, of a real engine.
"""

import math
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import tokenizers
import torch

from specops.control.verify import Job, Task, verify
from specops.control.verify_prompts import PROMPTS
from specops.core.fidelity import Evidence, Plan
from specops.core.fidelity_atoms import ROUNDING, Sampling, build_rows
from specops.decoding.draft import ModelDraft
from specops.demo.pair import load_pair
from specops.engines.fidelity_endpoint import HttpEndpoint
from specops.transformer.model import load_model
from tests import endpoints as bugs
from tests.benchmarks.row import Row
from tests.dialect_server import served

RUNS = int(os.environ.get("SPECOPS_BENCH_RUNS", "5"))
NULLS = int(os.environ.get("SPECOPS_BENCH_NULLS", "400"))
TOKENS = 64  # of one answer
LEVEL = 1e-3
DIAGNOSES = {
    "leak 2%": ("leak 0.02", "leak 0.1"),
    "1% TV towards the draft": ("leak 0.02", "leak 0.1"),
    "T 0.9 served as 1": ("temperature 0.9", "temperature 0.95"),
    "filters only on bonus": ("filters on bonus only", "filters ignored"),
    "previous row 10%": ("previous row 0.1",),
    "typical acceptance": ("typical acceptance",),
}
GOALS = {
    "always accept": 20, "resample from p": 400, "greedy draft, soft q": 100, "leak 2%": 1_500,
    "1% TV towards the draft": 5_000, "T 0.9 served as 1": 1_200, "filters only on bonus": 3_000, "previous row 10%": 150,
}  # fmt: skip


def measure() -> Iterator[Row]:
    """Measure everything; about ten minutes."""
    torch.set_num_threads(1)
    yield from _power()
    yield _nulls("null, level 0.05, served and scored alike", served_dtype=torch.float64, runs=NULLS)
    yield _nulls("null, level 0.05, served in bfloat16 and scored in float32", served_dtype=torch.bfloat16, runs=NULLS)
    yield from _non_bugs()
    yield from _peers()
    yield _throughput()
    yield _real()


def _real() -> Row:
    """Verify servers that somebody started, 10,000 tokens at temperature 1 and 512 greedy ones."""
    urls = os.environ.get("SPECOPS_BENCH_FIDELITY_URLS", "")
    row = Row(
        check="real vLLM: verdict and cost", figure=None, unit="", goal="recorded", holds=None, against="its plain server",
        runs=0, why="set SPECOPS_BENCH_FIDELITY_URLS to ENDPOINT,TARGET,DRAFT (plain servers of target and draft)",
    )  # fmt: skip
    if not urls:
        return row
    servers = [HttpEndpoint(url) for url in urls.split(",")]
    task = Task(prompts=PROMPTS, budget=10_000, max_tokens=96, dtype="float32", draft="draft")
    found = verify(task, *servers, clock=time.perf_counter)
    greedy = f"{len(found.greedy.beyond)} of {found.greedy.tokens} greedy tokens beyond {found.greedy.tau}"
    return replace(row, figure=found.tokens, unit="tokens", runs=1, why=f"{found.words}; {greedy}; {found.wall_s:.0f} s")


class GreedyAsSoft:
    """The bug: a model draft proposes its most likely token but returns the soft law."""

    def __init__(self, draft):
        self._greedy, self._soft, self.k = replace(draft, greedy=True), draft, draft.k

    def open(self, request, limit):
        """Open both on the same text."""
        drafting, law = self._greedy.open(request, limit), self._soft.model
        return _GreedyAsSoft(drafting, law, request)


class _GreedyAsSoft:
    def __init__(self, drafting, model, request):
        self._drafting, self._model, self._request = drafting, model, request

    @torch.inference_mode()
    def propose(self, committed, k, chance):
        """Propose greedily; compute the soft laws afresh."""
        found = self._drafting.propose(committed, k, chance)
        text = [*committed, *found.tokens]
        if not found.tokens:
            return found
        logits = self._model.forward(text[:-1], self._model.new_cache(len(text)))[-len(found.tokens) :]
        return replace(found, law=bugs.law(logits, self._request))

    def rewind(self, length):
        """Pass on."""
        self._drafting.rewind(length)


def _engines():
    pair = load_pair()
    target, draft = load_model(pair.target), load_model(pair.draft)
    tokenizer = tokenizers.Tokenizer.from_file(str(pair.target / "tokenizer.json"))
    prompts = tuple(text[:120] for texts in pair.prompts.values() for text in texts[:16])

    def encode(text):
        return tuple(tokenizer.encode(text).ids)

    return target, draft, ModelDraft(draft, 3), prompts, encode


def _power() -> Iterator[Row]:
    target, small, draft, prompts, encode = _engines()
    nucleus = Sampling(top_p=0.9)
    cases = {
        "always accept": (bugs.Memory(target, draft, rules={"accept": bugs.always}), Sampling()),
        "resample from p": (bugs.Memory(target, draft, rules={"resample": bugs.from_target}), Sampling()),
        "greedy draft, soft q": (bugs.Memory(target, GreedyAsSoft(draft)), Sampling()),
        "leak 2%": (bugs.Blended(target, small, bugs.leak_of(0.02)), Sampling()),
        "1% TV towards the draft": (bugs.Blended(target, small, bugs.one_percent), Sampling()),
        "T 0.9 served as 1": (
            bugs.Memory(target, draft, ask=lambda request: replace(request, temperature=0.9)),
            Sampling(),
        ),
        "filters only on bonus": (
            bugs.Memory(
                target, draft, rules={"resample": bugs.bonus_filtered(0.9)}, ask=lambda request: replace(request, top_p=1.0)
            ),
            nucleus,
        ),
        "previous row 10%": (bugs.Blended(target, small, bugs.old_row), Sampling()),
        "typical acceptance": (
            bugs.Memory(target, draft, rules={"accept": bugs.typical_rule, "resample": bugs.best_of_target}),
            Sampling(),
        ),
        "block acceptance, token residual": (bugs.Memory(target, draft, rules={"accept": bugs.block_rule}), Sampling()),
    }
    right = []
    with ExitStack() as stack:
        trusted = HttpEndpoint(stack.enter_context(served(bugs.Memory(target, encode=encode))))
        scorer = HttpEndpoint(stack.enter_context(served(bugs.Memory(small, encode=encode))))
        for name, (endpoint, sampling) in cases.items():
            suspect = HttpEndpoint(stack.enter_context(served(endpoint)))
            cap = 3 * GOALS.get(name, 2_000)
            found = [_delay(suspect, trusted, scorer, prompts, sampling, seed=run * 10_000, cap=cap) for run in range(RUNS)]
            median = statistics.median(tokens for tokens, _ in found)
            named = [law in DIAGNOSES.get(name, (name,)) for tokens, law in found if tokens < math.inf]
            right += named if name in GOALS or name in DIAGNOSES else []
            goal = f"<= {GOALS[name]}" if name in GOALS else "reported"
            laws = ", ".join(sorted({law for _, law in found if law}))
            yield Row(
                check=f"median tokens to reject at 1e-3: {name}", figure=median, unit=f"tokens ({laws or 'never'})", goal=goal,
                holds=median <= GOALS[name] if name in GOALS else None, against=f"cap of {cap} tokens, over HTTP", runs=RUNS,
                why="" if name in GOALS else f"{median:.4g} tokens ({laws or 'never'}); no goal is set",
            )  # fmt: skip
    share = statistics.mean(right)
    yield Row(
        check="right diagnosis among the catalogue", figure=share, unit="", goal=">= 0.85", holds=share >= 0.85,
        against="the bug that was put in", runs=len(right),
    )  # fmt: skip


def _job(prompts, sampling, seed, endpoint, trusted, scorer, *, top=20):
    task = Task(
        prompts=prompts, plan=Plan(alpha=LEVEL), sampling=sampling, max_tokens=TOKENS, seed=seed, top=top, dtype="float32",
        draft="draft",
    )  # fmt: skip
    return Job(task, endpoint, trusted, scorer)


def _delay(endpoint, trusted, scorer, prompts, sampling, *, seed, cap):
    """Return tokens until a rejection (infinity for none by `cap`), and the law that won then."""
    job, evidence, seen, count = _job(prompts, sampling, seed, endpoint, trusted, scorer, top=40), Evidence(plan=Plan()), 0, 2
    bar = math.log(2 / LEVEL)
    start = 0
    while seen < cap:
        rows, _ = job.rows(endpoint.sample(job.asks(start, count, sampling), 4), 4)
        folded, path = evidence.fold(rows)
        hits = np.flatnonzero(path >= bar)
        if hits.size:
            here = evidence.fold(rows.cut(0, int(hits[0]) + 1))[0]
            return seen + int(hits[0]) + 1, here.wealth.winner[0]
        evidence, seen, start, count = folded, seen + len(path), start + count, min(2 * count, 8)
    return math.inf, ""


def _toy_alarms(endpoint, target, draft, runs, *, tokens, dtype, sampling=None, level=0.05):
    """Return how many of so many runs reject a toy endpoint at a level."""
    sampling, alarms = sampling or Sampling(), 0
    trusted, scorer = bugs.Memory(target), bugs.Memory(draft.model)
    for run in range(runs):
        task = Task(prompts=bugs.PROMPTS, max_tokens=TOKENS, seed=run * 1_000, top=12, dtype=dtype, draft="draft")
        job = Job(task, endpoint, trusted, scorer)
        rows, _ = job.rows(endpoint.sample(job.asks(0, math.ceil(tokens / TOKENS), sampling), 8), 8)
        alarms += Evidence(plan=Plan()).fold(rows)[0].wealth.peak >= math.log(1 / level)
    return alarms


def _nulls(check, *, served_dtype, runs) -> Row:
    target, draft = bugs.toys()
    rounded = bugs.Toy(target.config.vocab_size, 1, context=target.config.max_len)
    rounded.table = target.table.to(served_dtype).double()
    dtype = "bfloat16" if served_dtype == torch.bfloat16 else "float32"
    alarms = _toy_alarms(bugs.Memory(rounded, draft), target, draft, runs, tokens=1_024, dtype=dtype)
    most = 0.05 + 2 * math.sqrt(0.05 * 0.95 / runs)
    return Row(
        check=check, figure=alarms / runs, unit="of runs", goal=f"<= {most:.3f}", holds=alarms / runs <= most,
        against="1,024 tokens of the real loop on toy models", runs=runs,
    )  # fmt: skip


def _non_bugs() -> Iterator[Row]:
    target, draft = bugs.toys()
    runs = max(NULLS // 4, 1)
    fine = {
        "sample-and-match": bugs.Memory(target),  # emits the target's own samples
        "one-hot draft": bugs.Memory(target, bugs.ToyDraft(draft.model, 3, bugs.one_hot_draft)),
        "stale draft cache": bugs.Memory(target, bugs.ToyDraft(draft.model, 3, bugs.stale_draft)),
        "kept-token confidence stop": bugs.Memory(target, bugs.ToyDraft(draft.model, 3, bugs.confident_draft)),
    }
    for name, endpoint in fine.items():
        alarms = _toy_alarms(endpoint, target, draft, runs, tokens=512, dtype="float32", level=LEVEL / 2)
        yield Row(
            check=f"quiet: {name}", figure=alarms, unit="rejections at 1e-3", goal="== 0", holds=alarms == 0,
            against="512 tokens of the real loop on toy models", runs=runs,
        )  # fmt: skip


def _peers() -> Iterator[Row]:
    """Give 2,048 tokens of each side to every method at 0.05; only the verifier may also ask for scores."""
    target, draft = bugs.toys()
    runs, prompt = max(NULLS // 10, 1), bugs.PROMPTS[:1]
    cases = {
        "sound": bugs.Memory(target, draft),
        "resample from p": bugs.Memory(target, draft, rules={"resample": bugs.from_target}),
        "leak 10%": bugs.Blended(target, draft.model, bugs.leak_of(0.1)),
        "T 0.9 served as 1": bugs.Memory(target, ask=lambda request: replace(request, temperature=0.9)),
    }
    plain, scorer = bugs.Memory(target), bugs.Memory(draft.model)
    for name, endpoint in cases.items():
        counts = {"verifier": 0, "MMD-Hamming": 0, "chi-square, first token": 0, "texts equal": 0}
        for run in range(runs):
            rng = np.random.default_rng(run)
            task = Task(prompts=prompt, max_tokens=32, seed=run * 10_000, top=12, dtype="float32", draft="draft")
            job = Job(task, endpoint, plain, scorer)
            asks = job.asks(0, 64, Sampling())
            samples = endpoint.sample(asks, 8)
            others = plain.sample([replace(ask, seed=ask.seed + 2**31) for ask in asks], 8)
            texts, baseline = (np.array([one.token_ids for one in side]) for side in (samples, others))
            rows, _ = job.rows(samples, 8)
            counts["verifier"] += Evidence(plan=Plan()).fold(rows)[0].wealth.peak >= math.log(20)
            counts["MMD-Hamming"] += _mmd(rng, texts, baseline) <= 0.05
            counts["chi-square, first token"] += _first_tokens(rng, texts[:, 0], baseline[:, 0]) <= 0.05
            same_seed = plain.sample(asks[:4], 4)
            counts["texts equal"] += any(a.token_ids != b.token_ids for a, b in zip(samples[:4], same_seed, strict=True))
        for method, hits in counts.items():
            kind = "false alarms" if name == "sound" else "power"
            yield Row(
                check=f"{kind} at 0.05, {name}: {method}", figure=hits / runs, unit="of runs", goal="reported", holds=None,
                against="2,048 tokens of each side, one prompt", runs=runs, why=f"{hits / runs:.2f} of runs",
            )  # fmt: skip


def _mmd(rng, ours, theirs, permutations=200):
    """Return the permutation p-value of MMD with a Hamming kernel."""
    every = np.concatenate([ours, theirs])
    kernel = (every[:, None, :] == every[None, :, :]).mean(axis=2)
    n = len(ours)

    def statistic(order):
        k = kernel[np.ix_(order, order)]
        return k[:n, :n].mean() + k[n:, n:].mean() - 2 * k[:n, n:].mean()

    seen = statistic(np.arange(len(every)))
    return (1 + sum(statistic(rng.permutation(len(every))) >= seen for _ in range(permutations))) / (permutations + 1)


def _first_tokens(rng, ours, theirs, permutations=500):
    """Return the permutation p-value of a two-sample chi-square on first tokens."""
    every, n = np.concatenate([ours, theirs]), len(ours)
    size = int(every.max()) + 1

    def statistic(tokens):
        a, b = np.bincount(tokens[:n], minlength=size), np.bincount(tokens[n:], minlength=size)
        return (((a - b) ** 2) / np.maximum(a + b, 1)).sum()

    seen = statistic(every)
    return (1 + sum(statistic(rng.permutation(every)) >= seen for _ in range(permutations))) / (permutations + 1)


def _throughput() -> Row:
    """Fold tokens with all that is known of them, 20 atoms, after they were scored."""
    rng, tokens, vocab = np.random.default_rng(0), 20_000, 1_000
    ids = np.stack([rng.permutation(vocab)[:20] for _ in range(tokens)])
    logs = np.sort(np.log(rng.dirichlet(np.full(21, 0.4), tokens)[:, :20] + 1e-9), axis=1)[:, ::-1]
    chosen = ids[np.arange(tokens), rng.integers(0, 20, tokens)]
    scored = bugs.Scored(ids=ids, logs=logs, chosen=logs[:, 3].copy())
    rates = []
    for _ in range(3):
        began, evidence = time.perf_counter(), Evidence(plan=Plan(positions=4))
        for start in range(0, tokens, 2_000):
            part = scored.cut(start, start + 2_000)
            rows = build_rows(
                chosen[start : start + 2_000], part, sampling=Sampling(), rounding=ROUNDING["bfloat16"], draft=part, before=part
            )
            evidence, _ = evidence.fold(rows)
        rates.append(tokens / (time.perf_counter() - began))
    rate = statistics.median(rates)
    return Row(
        check="evidence beyond scoring, draft known, 4 positions", figure=rate, unit="tokens/s", goal=">= 20000",
        holds=rate >= 20_000, against="one core", runs=3,
    )  # fmt: skip
