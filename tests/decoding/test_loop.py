"""The loop: greedy equality, endings, limits, caches and counts."""

import random
from itertools import chain

import pytest
import torch

from specops.decoding.draft import ModelDraft
from specops.decoding.lookup import NgramDraft
from specops.decoding.loop import Request, Speculation, generate
from specops.decoding.sampling import Seeded
from specops.errors import InvalidInput


@pytest.fixture
def pair(make_model):
    """Return a target, and a draft that agrees with it about half the time: its weights with noise."""
    target, draft = make_model("target"), make_model("draft")
    rng = torch.Generator().manual_seed(1)
    for layer in draft._layers:
        for weight in (layer.qkv, layer.down):
            weight.add_(torch.randn(weight.shape, generator=rng) * weight.std() * 0.25)
    return target, draft


def drafts(draft, k=4):
    """Return one draft of each kind."""
    return {"model": ModelDraft(draft, k), "one-hot": ModelDraft(draft, k, greedy=True), "lookup": NgramDraft(k, 3, 1)}


def text_of(steps):
    """Return all tokens of the steps."""
    return tuple(chain(*(s.tokens for s in steps)))


def prompts(count, seed=0):
    """Return random prompts; the lengths differ."""
    rng = random.Random(seed)
    return [tuple(rng.choices(range(48), k=rng.randint(1, 12))) for _ in range(count)]


@pytest.mark.parametrize("kind", ["model", "one-hot", "lookup"])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_greedy_speculation_equals_plain_greedy(pair, kind, k):
    """At temperature 0 the draft changes the speed and not one token."""
    target, draft = pair
    accepted = rejected = 0
    for prompt in prompts(12, seed=k):
        request = Request(prompt_ids=prompt, max_tokens=24)

        steps = list(generate(target, drafts(draft, k)[kind], request))

        assert text_of(steps) == text_of(generate(target, None, request))
        accepted += sum(s.accepted for s in steps)
        rejected += sum(s.accepted < s.drafted for s in steps)
    assert accepted > 0  # otherwise nothing was tried
    assert rejected > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["model", "one-hot", "lookup"])
def test_caches_agree_with_what_is_committed(pair, kind, temperature):
    """After every step the target's cache lacks the last token only, and what both caches hold is what fresh forwards write."""
    target, draft = pair
    request = Request(prompt_ids=(3, 4, 5, 3, 4), max_tokens=30, temperature=temperature, seed=2)
    spec = Speculation(target, drafts(draft)[kind], request, Seeded(2))

    for step in spec.steps():
        fresh = target.new_cache()
        target.forward(spec.committed[:-1], fresh)
        assert spec.cache.length == len(spec.committed) - 1
        assert torch.allclose(spec.cache.kv[..., : spec.cache.length, :], fresh.kv[..., : fresh.length, :], atol=1e-5)
        own = getattr(spec.drafting, "cache", None)
        if own and own.length:
            fresh = draft.new_cache()
            draft.forward(spec.committed[: own.length], fresh)
            assert own.length < len(spec.committed)
            assert torch.allclose(own.kv[..., : own.length, :], fresh.kv[..., : own.length, :], atol=1e-5)
        assert len(step.tokens) == step.accepted + 1 or step.finish


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_tokens_are_accepted_plus_rounds_plus_one(pair, temperature):
    """The one is the prefill's token; without a stop token nothing is cut, because no round drafts beyond the limit."""
    target, draft = pair
    for prompt in prompts(6):
        steps = list(generate(target, ModelDraft(draft, 4), Request(prompt_ids=prompt, max_tokens=23, temperature=temperature)))

        rounds = len(steps) - 1
        assert len(text_of(steps)) == sum(s.accepted for s in steps) + rounds + 1 == 23


@pytest.mark.parametrize("max_tokens", range(1, 9))
def test_max_tokens_is_met_exactly(pair, max_tokens):
    """Every remainder, so that some rounds have less room than k."""
    target, draft = pair
    steps = list(generate(target, ModelDraft(draft, 4), Request(prompt_ids=(1, 2), max_tokens=max_tokens)))

    assert len(text_of(steps)) == max_tokens
    assert [s.finish for s in steps] == [None] * (len(steps) - 1) + ["length"]


def test_a_stop_token_inside_a_block_cuts_the_rest(make_model):
    """Every token of an answer in turn as stop token: the answer ends at its first place, wherever in a block that is."""
    target, inside = make_model(), 0
    whole = text_of(generate(target, None, Request(prompt_ids=(9, 8, 7), max_tokens=20)))
    for stop in set(whole):
        steps = list(generate(target, ModelDraft(target, 4), Request(prompt_ids=(9, 8, 7), max_tokens=20, stop_ids=(stop,))))

        assert text_of(steps) == whole[: whole.index(stop) + 1]
        assert steps[-1].finish == "stop"
        inside += len(steps[-1].tokens) < steps[-1].accepted + 1
    assert inside > 0  # otherwise no block was cut


@pytest.mark.parametrize("draft", [None, NgramDraft(3, 2, 1)])
def test_the_targets_eos_ends_an_answer_unless_ignored(make_model, draft):
    """EOS comes from the config; a load test may ask to go on."""
    whole = text_of(generate(make_model("plain"), None, Request(prompt_ids=(9, 8, 7), max_tokens=12)))
    target = make_model("eos", eos=whole[4])

    ended = text_of(generate(target, draft, Request(prompt_ids=(9, 8, 7), max_tokens=12)))
    ignored = text_of(generate(target, draft, Request(prompt_ids=(9, 8, 7), max_tokens=12, ignore_eos=True)))

    assert ended == whole[: whole.index(whole[4]) + 1]
    assert ignored == whole


@pytest.mark.parametrize("kind", ["model", "lookup"])
def test_the_context_is_filled_and_not_overrun(make_model, kind):
    """Prompt plus answer end at the target's context, and a draft with a shorter one falls silent before."""
    target, draft = make_model("target", context=20), make_model("draft", context=12)
    request = Request(prompt_ids=(1, 2, 3), max_tokens=99)

    steps = list(generate(target, drafts(draft)[kind], request))

    assert len(text_of(steps)) == 17
    assert text_of(steps) == text_of(generate(target, None, request))
    assert steps[-1].finish == "length"


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_interleaved_requests_do_not_touch_each_other(pair, temperature):
    """Two generators advanced in turn give what each gives alone: no state in models or drafts."""
    target, draft = pair
    shared = ModelDraft(draft, 3)
    requests = [Request(prompt_ids=p, max_tokens=16, temperature=temperature, seed=i) for i, p in enumerate(prompts(4))]
    alone = [text_of(generate(target, shared, r)) for r in requests]

    running, together = {i: generate(target, shared, r) for i, r in enumerate(requests)}, [()] * 4
    while running:
        for i in list(running):
            step = next(running[i])
            together[i] += step.tokens
            if step.finish:
                del running[i]

    assert together == alone
    assert not torch.is_inference_mode_enabled()


def test_the_request_may_change_k(pair):
    """The draft's own k is the default only."""
    target, draft = pair
    steps = list(generate(target, ModelDraft(draft, 4), Request(prompt_ids=(1, 2), max_tokens=20, k=2)))

    assert max(s.drafted for s in steps) == 2


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ((48,), "vocabulary has 48"),
        ((-1, 3), "from -1 to 3"),
        (tuple([1] * 64), "prompt has 64 tokens, the target's context is 64"),
    ],
)
def test_a_prompt_the_target_cannot_read_is_refused_at_once(make_model, prompt, message):
    """Before the first step, and with the way out."""
    with pytest.raises(InvalidInput, match=message):
        generate(make_model(), None, Request(prompt_ids=prompt, max_tokens=1))


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_log_probabilities_of_prompt_and_answer_are_those_of_fresh_forwards(make_model, k, temperature):
    """One entry per emitted token, one per prompt token after the first, on the first step alone; the same with a draft."""
    target, prompt = make_model(), (1, 2, 3, 4)
    request = Request(
        prompt_ids=prompt, max_tokens=12, k=k, temperature=temperature, seed=5, logprobs=2, prompt_logprobs=1, top_k=9
    )
    steps = list(generate(target, ModelDraft(target, 3), request))
    text = [*prompt, *(t for s in steps for t in s.tokens)]
    rows = target.forward(text, target.new_cache()).double().log_softmax(-1)

    said = [entry for step in steps for entry in step.logprobs]
    assert [e.token for e in (*steps[0].prompt_logprobs, *said)] == text[1:]
    for entry, row in zip((*steps[0].prompt_logprobs, *said), rows, strict=False):
        assert entry.logprob == pytest.approx(float(row[entry.token]), abs=1e-4)
        assert entry.top[0][1] == pytest.approx(float(row.max()), abs=1e-4)
    assert [len(step.logprobs) for step in steps] == [len(step.tokens) for step in steps]
    assert all(step.prompt_logprobs is None for step in steps[1:])
