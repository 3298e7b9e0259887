"""Counterfactuals: unchanged a rerun reproduces the recording, and each change does what it says."""

from dataclasses import replace

import pytest

from specops.core.outcome import Finish
from specops.core.trace import Cut, Rule
from specops.core.trace_check import check
from specops.core.trace_compare import compare
from specops.decoding.draft import ModelDraft
from specops.decoding.loop import generate
from specops.decoding.request import Request
from specops.engines.rerun import Change, read_change, rerun, rerun_from_folders, token_texts
from specops.engines.tracing import Tracer
from specops.engines.weights import weights_digest
from specops.errors import InvalidInput
from specops.transformer.model import load_model

ENGINE = {"method": "draft_model", "num_speculative_tokens": 3, "dtype": "float32", "speculation": {}}


@pytest.fixture(scope="module")
def models(pair):
    """Load the pair."""
    return load_model(pair[0]), load_model(pair[1])


@pytest.fixture(scope="module")
def recorded(models):
    """Record a request as an engine does."""
    target, draft = models
    request = Request(prompt_ids=tuple(range(1, 13)), max_tokens=30, temperature=0.8, seed=3, ignore_eos=True, trace=True)
    tracer = Tracer(request_id="cmpl-1", request=request, facts=ENGINE)
    for step in generate(target, ModelDraft(draft, 3), request):
        tracer.add(step)
    return tracer.end(Finish.LENGTH, by_text=False, by_engine=False, text_tokens=30, queue_s=0.0, prefill_s=0.1)


def test_unchanged_it_reproduces_the_recording(pair, recorded):
    """Token by token and round by round, times apart; and it is a sound trace."""
    again = rerun_from_folders(recorded, *pair, [])

    assert again.emitted == recorded.emitted
    assert [(r.drafted, r.coins) for r in again.rounds] == [(r.drafted, r.coins) for r in recorded.rounds]
    assert check(again) == ()
    assert compare(recorded, again).difference is None
    assert again.engine["draft_sha256"] == weights_digest(pair[1])
    assert again.request_id == "cmpl-1 with nothing"


def test_each_change_does_what_it_says(models, recorded):
    """k, rule, temperature and seed, no draft, a shorter prompt, fewer rounds."""
    target, draft = models[0], ModelDraft(models[1], 3)

    def run(*words):
        return rerun(target, draft, recorded, read_change(words))

    assert {len(r.drafted) for r in run("k=1").rounds[:-1]} == {1}
    assert {r.rule for r in run("rule=block").rounds} == {Rule.BLOCK}
    assert {r.rule for r in run("temperature=0").rounds} == {Rule.GREEDY}
    assert run("seed=4").emitted != recorded.emitted
    plain = run("draft=none")
    assert plain.drafted == 0
    assert plain.engine["method"] is None
    assert run("drop=0:4").prompt_ids == recorded.prompt_ids[4:]
    short = run("rounds=2")
    assert len(short.rounds) == 2
    assert short.ended is Cut.ABORT
    assert short.emitted == recorded.emitted[: len(short.emitted)]
    assert run("k=1", "seed=4").request_id == "cmpl-1 with k=1, seed=4"


def test_at_temperature_0_no_draft_changes_no_token(models, recorded):
    """The counterfactual that shows what the draft is for: speed."""
    target, draft = models[0], ModelDraft(models[1], 3)

    warm = rerun(target, draft, recorded, read_change(["temperature=0"]))
    plain = rerun(target, draft, recorded, read_change(["temperature=0", "draft=none"]))

    assert warm.emitted == plain.emitted
    assert len(plain.rounds) == len(plain.emitted) - 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model=other"], "cannot change"), (["k=two"], "right kind"), (["drop=9"], "right kind"),
        (["drop=0:99"], "cannot drop"),
        (["drop=0:12"], "at least one"), (["temperature=-1"], "temperature"),
    ],
)  # fmt: skip
def test_a_change_that_makes_no_sense_is_refused(models, recorded, words, message):
    """With what can be changed."""
    with pytest.raises(InvalidInput, match=message):
        rerun(models[0], None, recorded, read_change(words))


def test_what_is_missing_is_named(pair, models, recorded):
    """A draft model's folder, or the settings of a trace that no engine made."""
    with pytest.raises(InvalidInput, match="pass its folder with --draft"):
        rerun_from_folders(recorded, pair[0], None, [])
    with pytest.raises(InvalidInput, match="no settings"):
        rerun(models[0], None, replace(recorded, settings={}), Change(settings={}))


def test_a_lookup_needs_no_folder(pair, recorded):
    """The recorded method and its settings are in the trace."""
    lookup = replace(recorded, engine={**ENGINE, "method": "ngram", "speculation": {"prompt_lookup_min": 1}})

    assert rerun_from_folders(lookup, pair[0], None, ["temperature=0"]).engine["method"] == "ngram"


def test_token_texts_come_from_the_tokenizer(pair, tokenizer):
    """One id at a time."""
    assert token_texts(pair[0])(5) == tokenizer.decode([5], skip_special_tokens=False)
