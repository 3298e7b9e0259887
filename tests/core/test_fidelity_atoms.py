"""From reported log probabilities to rows: exact where p is known, fair where it is not, whatever the filters and rounding."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core.fidelity import Evidence, Plan
from specops.core.fidelity_atoms import ROUNDING, Sampling, Scored, build_rows, law_under
from specops.errors import InvalidInput
from specops.stats.mixture import FLOOR

VOCAB = 30


def random_laws(rng, rows, *, sharpness=1.5):
    """Return laws over the whole vocabulary."""
    weights = np.exp(sharpness * rng.standard_normal((rows, VOCAB)))
    return weights / weights.sum(axis=1, keepdims=True)


def served(law, sampling):
    """Return what a server makes of raw laws, by the plain recipe: temperature, min_p, top_k, top_p."""
    law = law ** (1 / sampling.temperature)
    law = law / law.sum(axis=1, keepdims=True)
    law = np.where(law >= sampling.min_p * law.max(axis=1, keepdims=True), law, 0.0)
    order = np.argsort(-law, axis=1, kind="stable")
    ranked = np.take_along_axis(law, order, axis=1)
    if sampling.top_k:
        ranked[:, sampling.top_k :] = 0.0
    ranked /= ranked.sum(axis=1, keepdims=True)
    ranked = np.where(ranked.cumsum(axis=1) - ranked < sampling.top_p, ranked, 0.0)
    found = np.zeros_like(law)
    np.put_along_axis(found, order, ranked / ranked.sum(axis=1, keepdims=True), axis=1)
    return found


def reported(law, token, top):
    """Return what a server reports."""
    ids = np.argsort(-law, axis=1, kind="stable")[:, :top]
    logs = np.log(np.maximum(law, 1e-300))
    return Scored(ids=ids, logs=np.take_along_axis(logs, ids, axis=1), chosen=logs[np.arange(len(law)), token])


def draw(rng, law):
    """Return a token per row."""
    return np.minimum((law.cumsum(axis=1) < rng.random((len(law), 1))).sum(axis=1), law.shape[1] - 1)


SETTINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.7, 1.0, 1.3]),
    top_p=st.sampled_from([0.5, 0.9, 0.95, 1.0]),
    top_k=st.sampled_from([0, 3, 10, 20]),
    min_p=st.sampled_from([0.0, 0.05]),
)


@given(st.integers(0, 10_000), SETTINGS)
def test_with_the_whole_vocabulary_reported_the_law_is_the_servers(seed, sampling):
    """All settings, all tokens."""
    rng = np.random.default_rng(seed)
    raw = random_laws(rng, 4)
    truth, token = served(raw, sampling), rng.integers(0, VOCAB, 4)
    found = law_under(reported(raw, token, VOCAB), token, sampling)

    ids = np.argsort(-raw, axis=1, kind="stable")
    assert found.p[:, :-1] == pytest.approx(np.take_along_axis(truth, ids, axis=1), abs=1e-4)
    assert found.p[:, -1] == pytest.approx(0.0, abs=1e-4)
    assert found.chosen == pytest.approx(truth[np.arange(4), token], abs=1e-4)


@given(st.integers(0, 10_000), SETTINGS, st.sampled_from(["float32", "bfloat16"]))
def test_every_bet_is_fair_under_what_the_server_really_does(seed, sampling, dtype):
    """Under the served law, whose logits may be rounded: known atoms are right up to a factor, barred ones rare."""
    rng, rounding = np.random.default_rng(seed), ROUNDING[dtype]
    raw = random_laws(rng, 1)
    rounded = raw * np.exp(rng.uniform(-1, 1, raw.shape) * rounding.nats / 4)
    truth = served(rounded / rounded.sum(), sampling)[0]
    every = np.arange(VOCAB)
    scored = reported(np.repeat(raw, VOCAB, axis=0), every, 12)
    law = law_under(scored, every, sampling, rounding.nats)

    on_atoms = np.concatenate([truth[scored.ids[0]], [1 - truth[scored.ids[0]].sum()]])
    known, barred = law.known[0], law.barred[0]
    assert on_atoms[barred].sum() <= rounding.surprise
    ratio = on_atoms[known & (law.p[0] > FLOOR)] / law.p[0][known & (law.p[0] > FLOOR)]
    assert np.log(ratio).max() - np.log(ratio).min() <= 2.1 * rounding.nats
    assert known[0]
    assert not (known & barred).any()


def test_a_token_outside_the_top_is_the_last_atom():
    """Although its log probability is known: atoms must not depend on the token."""
    raw = random_laws(np.random.default_rng(1), 1)
    token = np.argsort(raw[0])[:1]

    rows = build_rows(token, reported(raw, token, 5), sampling=Sampling(), rounding=ROUNDING["float32"])

    assert rows.token.tolist() == [5]
    assert rows.p.sum() == pytest.approx(1.0)


def test_the_drafts_law_is_exact_for_the_emitted_token_and_a_guess_on_atoms():
    """The ratio is q / p of the token itself; atoms that the draft does not name share its rest, and rows stay laws."""
    rng = np.random.default_rng(2)
    p, q = random_laws(rng, 200), random_laws(rng, 200)
    token = draw(rng, p)

    rows = build_rows(
        token, reported(p, token, 8), draft=reported(q, token, 8), sampling=Sampling(), rounding=ROUNDING["float32"]
    )

    at = np.arange(200)
    assert rows.ratio == pytest.approx(q[at, token] / p[at, token])
    assert rows.q.sum(axis=1) == pytest.approx(np.ones(200))
    assert (rows.apart >= 0.5 * np.abs(p - q).sum(axis=1) - 1e-9).all()


def test_a_greedy_draft_is_one_hot():
    """Whatever the temperature."""
    rng = np.random.default_rng(3)
    p, q = random_laws(rng, 50), random_laws(rng, 50)
    token = draw(rng, p)
    rows = build_rows(
        token, reported(p, token, VOCAB), draft=reported(q, token, VOCAB), is_draft_greedy=True, sampling=Sampling(),
        rounding=ROUNDING["float32"],
    )  # fmt: skip

    assert (rows.q.max(axis=1) == 1).all()
    assert ((rows.ratio > 0) == (token == q.argmax(axis=1))).all()


@pytest.mark.parametrize("sampling", [Sampling(top_k=5), Sampling(top_p=0.8), Sampling(top_p=0.9, temperature=0.7)])
def test_rounding_at_a_filters_edge_raises_no_alarm_and_a_dropped_filter_does(sampling):
    """Served in bfloat16, scored in float32: without the region one token beyond the edge would be proof."""
    rng = np.random.default_rng(4)
    raw = random_laws(rng, 1_500)
    rounded = raw * np.exp(0.04 * rng.standard_normal(raw.shape))
    rounded /= rounded.sum(axis=1, keepdims=True)

    def log_e(law):
        token = draw(rng, law)
        rows = build_rows(token, reported(raw, token, 20), sampling=sampling, rounding=ROUNDING["bfloat16"])
        return Evidence(plan=Plan()).fold(rows)[0].wealth.peak

    assert log_e(served(rounded, sampling)) < math.log(20)
    assert log_e(0.5 * served(rounded, sampling) + 0.5 * served(rounded, Sampling(temperature=sampling.temperature))) > 20


def test_texts_of_different_width_are_joined():
    """What a shorter top does not name has probability 0."""
    one = Scored(ids=np.array([[3]]), logs=np.array([[-0.1]]), chosen=np.array([-0.1]))
    two = Scored(ids=np.array([[1, 2]]), logs=np.array([[-0.5, -1.0]]), chosen=np.array([-1.0]))

    joined = Scored.join([one, two])

    assert joined.ids.tolist() == [[3, -1], [1, 2]]
    assert joined.logs[0, 1] == -math.inf


@pytest.mark.parametrize(
    "wrong", [{"temperature": 0.0}, {"temperature": math.nan}, {"top_p": 0.0}, {"top_k": -1}, {"min_p": 1.0}]
)
def test_settings_out_of_range_are_refused(wrong):
    """Greedy decoding too: it is another test."""
    with pytest.raises(InvalidInput, match="temperature is above 0"):
        Sampling(**wrong)


@pytest.mark.parametrize("log", [0.1, math.nan])
def test_scores_that_are_no_log_probabilities_are_refused(log):
    """A server that reports them is of no use."""
    with pytest.raises(InvalidInput, match="can't be used"):
        Scored(ids=np.array([[1]]), logs=np.array([[log]]), chosen=np.array([-0.1]))
    with pytest.raises(InvalidInput, match="shapes must agree"):
        Scored(ids=np.array([[1]]), logs=np.array([[-0.1, -0.2]]), chosen=np.array([-0.1]))
