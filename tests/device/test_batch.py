"""Requests on the device and on the host side by side: each gets what it gets alone."""

from collections import Counter
from itertools import chain, product

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from specops.decoding.draft import ModelDraft
from specops.decoding.loop import generate
from specops.decoding.request import Request
from specops.device.batch import DeviceBatch
from specops.errors import EngineUnavailable
from specops.transformer.model import load_model

SLOTS, K = 3, 3


def alone(target, request):
    """Return the tokens and the ending of a request that runs by itself without a draft."""
    steps = list(generate(target, None, request))
    return tuple(chain(*(s.tokens for s in steps))), steps[-1].finish


class Run:
    """A batch driven to its end, with what each row got."""

    def __init__(self, pair, slots=SLOTS):
        target, draft = pair
        self.batch, self.got = DeviceBatch(target, ModelDraft(draft, K), slots), {}

    def join(self, request):
        """Let a request join."""
        row = self.batch.join(request)
        self.got[row] = ([], None)
        return row

    def round(self):
        """Advance everybody once."""
        for row, step in self.batch.round():
            assert not isinstance(step, Exception), step
            self.got[row] = (self.got[row][0] + list(step.tokens), step.finish)
        slots = [row.speculation.cache.slot for row in self.batch.rows]
        assert len(set(slots)) == len(slots)

    def to_end(self):
        """Run until nobody is left."""
        while self.batch.rows:
            self.round()


requests = st.builds(
    Request,
    prompt_ids=st.lists(st.integers(0, 47), min_size=1, max_size=12).map(tuple),
    max_tokens=st.integers(1, 24),
    stop_ids=st.sampled_from([(), (7, 9, 11)]),
    k=st.sampled_from([None, None, K, 1]),
    presence_penalty=st.sampled_from([0.0, 0.0, 1.0]),
    logprobs=st.sampled_from([None, None, 2]),
    ignore_eos=st.booleans(),
)
histories = st.lists(st.one_of(requests, st.just("round"), st.tuples(st.just("leave"), st.integers(0, 2))), max_size=14)


@given(history=histories)
@settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=(HealthCheck.function_scoped_fixture, HealthCheck.too_slow),
)  # fmt: skip
def test_any_history_equals_requests_alone(pair, history):
    """Join, cancel, stop inside a block, the length limit, and rows that need the host: nobody sees a neighbour."""
    run, asked, cancelled = Run(pair), {}, set()
    for event in history:
        if isinstance(event, Request):
            while not run.batch.free:
                run.round()
            asked[run.join(event)] = event
        elif event == "round":
            run.round()
        elif event[1] < len(run.batch.rows):
            row = run.batch.rows[event[1]]
            cancelled.add(row)
            run.batch.leave(row)
    run.to_end()

    for row, request in asked.items():
        tokens, finish = run.got[row]
        expected, ending = alone(pair[0], request)
        assert tuple(tokens) == expected[: len(tokens)]
        assert row in cancelled or (len(tokens), finish) == (len(expected), ending)
    assert run.batch.free == SLOTS


def test_sampled_text_follows_the_targets_law(make_model):
    """Three tokens of 4,000 seeds against every text's probability; a draft far from its target, so most rounds resample."""
    target, draft = make_model("target", vocab=5, scale=0.5), make_model("draft", vocab=5, scale=0.5, seed=1)
    batch, texts = DeviceBatch(target, ModelDraft(draft, 2), 8), Counter()
    said, seeds = {}, iter(range(4_000))
    while True:
        while batch.free and (seed := next(seeds, None)) is not None:
            said[batch.join(Request(prompt_ids=(1, 2), max_tokens=3, temperature=1.0, seed=seed))] = []
        if not batch.rows:
            break
        for row, step in batch.round():
            said[row] += step.tokens
    texts.update(tuple(tokens) for tokens in said.values())

    law = dict.fromkeys(product(range(5), repeat=3), 1.0)
    for text in law:
        logits = target.forward((1, 2, *text), target.new_cache()).double().softmax(-1)
        law[text] = float(logits[1, text[0]] * logits[2, text[1]] * logits[3, text[2]])
    common = [text for text in law if law[text] * 4_000 >= 5]
    rest = 1 - sum(law[text] for text in common)
    counts = [*(texts[text] for text in common), 4_000 - sum(texts[text] for text in common)]
    assert chisquare(counts, [4_000 * p for p in (*(law[text] for text in common), rest)]).pvalue > 1e-4


HOST = [
    {"trace": True}, {"logprobs": 1}, {"logit_bias": ((1, 2.0),)}, {"min_tokens": 2}, {"frequency_penalty": 1.0}, {"k": 1},
]  # fmt: skip


@pytest.mark.parametrize("options", HOST)
def test_what_needs_the_host_runs_on_the_host(pair, options):
    """It is served all the same, with what it asked for."""
    run = Run(pair)
    request = Request(prompt_ids=(3, 1), max_tokens=8, **options)

    assert not run.batch.suits(request)
    row = run.join(request)
    run.to_end()
    assert tuple(run.got[row][0]) == alone(pair[0], request)[0]


def test_a_full_batch_refuses(pair):
    """Rows of both kinds take slots of one pool."""
    run = Run(pair)
    for i in range(SLOTS):
        run.join(Request(prompt_ids=(i,), max_tokens=4, trace=i == 1))

    with pytest.raises(EngineUnavailable, match="all 3 slots are taken"):
        run.join(Request(prompt_ids=(1,), max_tokens=1))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_captured_round_says_what_the_program_says(write_llama):
    """The graph of a round against the same round on the CPU, in float32."""
    folders = write_llama("target"), write_llama("draft", seed=1)
    said = []
    for device in ("cpu", "cuda"):
        run = Run(tuple(load_model(folder, device=device) for folder in folders))
        row = run.join(Request(prompt_ids=(3, 1, 4), max_tokens=30))
        run.to_end()
        said.append(run.got[row])
    assert said[0] == said[1]
