"""The trace of a round holds what the round did, and can be checked from itself."""

import hashlib

import numpy as np
import pytest
import torch

from specops.core.trace import Cap, Cut, Decided, Rule
from specops.decoding.batch import Batch, DynamicK
from specops.decoding.draft import ModelDraft
from specops.decoding.lookup import NgramDraft
from specops.decoding.loop import Request, generate


def traces(target, draft, **settings):
    """Return the traces of a generation, and its steps."""
    request = Request(prompt_ids=(3, 4, 5, 3, 4), max_tokens=40, trace=True, **settings)
    steps = list(generate(target, draft, request))[1:]
    return [s.trace for s in steps], steps


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["model", "lookup"])
def test_a_trace_is_consistent(make_model, kind, temperature):
    """Drafted tokens had q > 0, ratios and coins explain every decision, and emitted is the accepted prefix plus one."""
    target, draft = make_model("target"), make_model("draft", seed=1)
    proposer = ModelDraft(draft, 3) if kind == "model" else NgramDraft(3, 2, 1)

    for trace, step in zip(*traces(target, proposer, temperature=temperature), strict=True):
        assert all(q > 0 for q in trace.draft_probs)
        assert trace.accept_probs == tuple(min(1.0, p / q) for p, q in zip(trace.target_probs, trace.draft_probs, strict=True))
        for i, coin in enumerate(trace.coins):
            assert (trace.accept_probs[i] >= 1 if coin is None else coin < trace.accept_probs[i]) == (i < trace.accepted)
        assert (trace.residual_mass is None) == (trace.accepted == len(trace.drafted))
        assert trace.residual_mass is None or 0 < trace.residual_mass <= 1
        assert trace.emitted == step.tokens
        assert trace.emitted[:-1] == trace.drafted[: trace.accepted]
        assert len(trace.target_entropies_nats) == len(trace.alternatives) == len(trace.drafted) + 1
        assert len(trace.draft_entropies_nats) == len(trace.drafted)
        assert len(trace.stage_s) == len(trace.stage_bytes) == 4
        assert trace.after.committed == trace.before.committed + len(trace.emitted) == trace.after.target_cached + 1
        assert trace.before.target_cached == trace.before.committed - 1
        assert (trace.after.draft_cached is None) == (kind == "lookup")
        assert trace.rule is (Rule.TOKEN if temperature else Rule.GREEDY)
        assert 0 < trace.last_prob <= 1
        assert (trace.last_coin is None) == (temperature == 0)


def test_the_deciding_stage_is_named(make_model):
    """A draft equal to its target ends rounds with a bonus, another one with recovered tokens too, an idle one with neither."""
    target = make_model("target")

    same, _ = traces(target, ModelDraft(target, 2))
    other, _ = traces(target, ModelDraft(make_model("draft", seed=1), 2), temperature=1.0)
    idle, _ = traces(target, ModelDraft(make_model("short", context=2), 2))

    assert {t.decided for t in same} <= {Decided.BONUS, Decided.TARGET}
    assert Decided.RECOVERED in {t.decided for t in other}
    assert {t.decided for t in idle} == {Decided.TARGET}


def test_probabilities_are_those_of_fresh_forwards(make_model):
    """Each proposal's p is recomputed without a cache, from the text before it."""
    target, text = make_model("target"), [3, 4, 5, 3, 4]
    request = Request(prompt_ids=tuple(text), max_tokens=20, temperature=1.0, trace=True)

    for step in generate(target, NgramDraft(3, 2, 1), request):
        for i, p in enumerate(step.trace.target_probs if step.trace else ()):
            logits = target.forward([*text, *step.trace.drafted[:i]], target.new_cache(), last_only=True)
            assert p == pytest.approx(float(logits.double().softmax(-1)[0, step.trace.drafted[i]]), abs=1e-5)
        text += step.tokens


def test_digests_chain_and_are_those_of_the_text(make_model):
    """SHA-256 over little-endian int32, recomputed from the tokens."""
    text = [3, 4, 5, 3, 4]
    request = Request(prompt_ids=tuple(text), max_tokens=20, trace=True)
    first, *rounds = generate(make_model("target"), NgramDraft(3, 2, 1), request)
    text += first.tokens

    for step in rounds:
        assert step.trace.before.sha256 == hashlib.sha256(np.array(text, dtype="<i4").tobytes()).hexdigest()
        text += step.tokens
        assert step.trace.after.sha256 == hashlib.sha256(np.array(text, dtype="<i4").tobytes()).hexdigest()


def test_what_kept_k_and_what_cut_the_answer_are_named(make_model):
    """The request's own k, the room that is left, a draft that had nothing to say, and the limit at the end."""
    target = make_model("target")

    free, _ = traces(target, ModelDraft(target, 3))
    asked, _ = traces(target, ModelDraft(target, 3), k=2)
    idle, _ = traces(target, ModelDraft(make_model("short", context=2), 3))
    limited = [s.trace for s in generate(target, ModelDraft(target, 3), Request(prompt_ids=(3,), max_tokens=4, trace=True))][1:]

    assert free[0].cap is Cap.NONE
    assert asked[0].cap is Cap.REQUEST
    assert {each.cap for each in idle[:-1]} == {Cap.DRAFT}
    assert [each.cap for each in limited] == [Cap.ROOM]
    assert [each.cut for each in limited] == [Cut.LENGTH]


def test_alternatives_are_the_likeliest_tokens_of_a_fresh_forward(make_model):
    """At the first position of each round, with what the draft thought of them; at temperature 0 under the law at 1."""
    target, draft, text = make_model("target"), ModelDraft(make_model("draft", seed=1), 2), [3, 4, 5]
    for temperature in (0.0, 1.0):
        request = Request(prompt_ids=tuple(text), max_tokens=12, temperature=temperature, trace=True)
        so_far = list(text)
        for step in generate(target, draft, request):
            row = target.forward(so_far, target.new_cache(), last_only=True).double().softmax(-1)[0]
            found = step.trace.alternatives[0] if step.trace else step.first_alternatives
            assert [each.target_prob for each in found] == pytest.approx(row.topk(5).values.tolist(), abs=1e-5)
            has_law = step.trace is not None and bool(step.trace.drafted) and temperature > 0
            assert all((each.draft_prob is not None) == has_law for each in found)
            so_far += step.tokens


def test_a_dynamic_k_is_named_as_the_cap(make_model):
    """The scheduler's table, not the draft, made the block short."""
    target = make_model("target")
    batch = Batch(target=target, draft=ModelDraft(target, 3), slots=2, dynamic=DynamicK(by_batch=((1, 1),)))
    batch.join(Request(prompt_ids=(3, 4), max_tokens=12, trace=True))
    caps = []
    while batch.rows:
        caps += [step.trace.cap for _, step in batch.round() if step.trace]

    assert caps[0] is Cap.BATCH


def test_tracing_changes_no_token(make_model):
    """It reads and never draws."""
    target, draft = make_model("target"), ModelDraft(make_model("draft", seed=1), 3)
    settings = {"prompt_ids": (1, 2), "max_tokens": 20, "temperature": 1.0, "seed": 3}

    with_trace, without = ([s.tokens for s in generate(target, draft, Request(**settings, trace=t))] for t in (True, False))

    assert with_trace == without
    assert not torch.is_inference_mode_enabled()
