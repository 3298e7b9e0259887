"""The trace of a round holds what the round did, and can be checked from itself."""

import json

import pytest
import torch

from specops.decoding.draft import ModelDraft
from specops.decoding.lookup import NgramDraft
from specops.decoding.loop import Request, generate
from specops.decoding.trace import Decided


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
        assert trace.ratios == tuple(min(1.0, p / q) for p, q in zip(trace.target_probs, trace.draft_probs, strict=True))
        for i, coin in enumerate(trace.coins):
            assert (trace.ratios[i] >= 1 if coin is None else coin < trace.ratios[i]) == (i < trace.accepted)
        assert (trace.residual_mass is None) == (trace.accepted == len(trace.drafted))
        assert trace.residual_mass is None or 0 < trace.residual_mass <= 1
        assert trace.emitted == step.tokens
        assert trace.emitted[:-1] == trace.drafted[: trace.accepted]
        assert len(trace.entropies_nats) == len(trace.drafted) + 1
        assert len(trace.stage_s) == 4


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


def test_a_trace_is_json(make_model):
    """Stored as it is."""
    (first, *_), _ = traces(make_model(), NgramDraft(2, 2, 1), temperature=1.0)

    assert json.loads(json.dumps(first.to_record()))["decided"] == first.decided


def test_tracing_changes_no_token(make_model):
    """It reads and never draws."""
    target, draft = make_model("target"), ModelDraft(make_model("draft", seed=1), 3)
    settings = {"prompt_ids": (1, 2), "max_tokens": 20, "temperature": 1.0, "seed": 3}

    with_trace, without = ([s.tokens for s in generate(target, draft, Request(**settings, trace=t))] for t in (True, False))

    assert with_trace == without
    assert not torch.is_inference_mode_enabled()
