"""The rules of a trace: real ones keep all of them, and each rule is broken by a mutation made for it."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core.trace import Control, Cut, Decided, Hand, Rule, Trace
from specops.core.trace_check import check
from specops.decoding.draft import ModelDraft
from specops.decoding.lookup import NgramDraft, SuffixDraft
from specops.decoding.loop import generate
from specops.decoding.request import Request
from tests.decoding.conftest import Toy


def recorded(kind="model", **settings):
    """Return the trace of a real generation on toy models."""
    target, small = Toy(6, 7), Toy(6, 8)
    drafts = {
        "model": ModelDraft(small, 3), "one-hot": ModelDraft(small, 3, greedy=True), "lookup": NgramDraft(3, 2, 1),
        "suffix": SuffixDraft(3), "plain": None,
    }  # fmt: skip
    request = Request(**{"prompt_ids": (1, 2, 3, 1, 2), "max_tokens": 24, "temperature": 1.0, "trace": True} | settings)
    first, *rest = generate(target, drafts[kind], request)
    return Trace(
        request_id="cmpl-1", at=datetime(2026, 12, 7, tzinfo=UTC), engine={}, settings={}, prompt_ids=request.prompt_ids,
        first=first.tokens, first_alternatives=first.first_alternatives, queue_s=0.0, prefill_s=0.0,
        rounds=tuple(step.trace for step in rest), ended=Cut.LENGTH, text_tokens=24,
        controls=(Control(after_round=1, hand=Hand.HUMAN, what="looked"),),
    )  # fmt: skip


@given(
    st.sampled_from(["model", "one-hot", "lookup", "suffix", "plain"]), st.integers(0, 10_000), st.sampled_from([0.0, 1.0]),
    st.sampled_from([Rule.TOKEN, Rule.BLOCK]), st.sampled_from([None, 1, 2]), st.sampled_from([(), (2,), (0, 4)]),
    st.sampled_from([{}, {"top_k": 2}, {"repetition_penalty": 1.5}, {"min_tokens": 3}]),
)  # fmt: skip
def test_a_real_trace_keeps_every_rule(kind, seed, temperature, rule, k, stops, more):
    """Whatever draft, rule, seed, temperature, k, stop tokens and settings; and it survives its record."""
    trace = recorded(kind, seed=seed, temperature=temperature, rule=rule, k=k, stop_ids=stops, **more)

    assert check(trace) == ()
    assert check(Trace.from_record(trace.to_record())) == ()


def at(trace, number, **changes):
    """Return a trace with one round changed."""
    rounds = list(trace.rounds)
    rounds[number] = replace(rounds[number], **changes)
    return replace(trace, rounds=tuple(rounds))


def first_that(trace, holds):
    """Return the number of the first round for which something holds."""
    return next(i for i, each in enumerate(trace.rounds) if holds(each))


def swap(values, i, value):
    """Return a tuple with one entry changed."""
    return (*values[:i], value, *values[i + 1 :])


def coin_beyond(trace):
    """Make an accepted token's coin one that rejects."""
    n = first_that(trace, lambda r: r.accepted and r.coins[0] is not None)
    return at(trace, n, coins=swap(trace.rounds[n].coins, 0, 0.999999))


def coin_below(trace):
    """Make a rejected token's coin one that accepts."""
    n = first_that(trace, lambda r: r.accepted < len(r.drafted) and r.accept_probs[r.accepted] > 0)
    return at(trace, n, coins=swap(trace.rounds[n].coins, trace.rounds[n].accepted, 0.0))


def rejected(trace):
    """Return the number of the first round with a rejection."""
    return first_that(trace, lambda each: each.accepted < len(each.drafted))


def kept(trace):
    """Return the number of the first round that kept a proposal."""
    return first_that(trace, lambda each: each.accepted)


def without_coin(trace):
    """Lose the coin of a rejected token."""
    n = rejected(trace)
    return at(trace, n, coins=trace.rounds[n].coins[:-1])


def other_token(trace):
    """Emit another token than the accepted one."""
    n = kept(trace)
    return at(trace, n, emitted=swap(trace.rounds[n].emitted, 0, 5 - trace.rounds[n].emitted[0]))


def other_ratio(trace):
    """Record another p than the one that the probability came from."""
    n = first_that(trace, lambda each: each.drafted and each.accept_probs[0] < 1)
    return at(trace, n, target_probs=swap(trace.rounds[n].target_probs, 0, trace.rounds[n].target_probs[0] * 0.9))


def after(trace, **changes):
    """Change the state that the first round leaves."""
    return at(trace, 0, after=replace(trace.rounds[0].after, **changes))


MUTATIONS = {
    "numbers: a probability above 1": lambda t: at(t, 0, last_prob=1.5),
    "numbers: a list too short": lambda t: at(t, 0, target_entropies_nats=()),
    "numbers: more accepted than drafted": lambda t: at(t, 0, accepted=9),
    "numbers: more coins than proposals": lambda t: at(t, 0, coins=(0.5,) * 9),
    "numbers: a negative time": lambda t: at(t, 0, stage_s=(-1.0, 0.0, 0.0, 0.0)),
    "numbers: alternatives out of order": lambda t: at(t, 0, alternatives=tuple(a[::-1] for a in t.rounds[0].alternatives)),
    "drawn": lambda t: at(t, 0, draft_probs=swap(t.rounds[0].draft_probs, 0, 0.0)),
    "ratio": other_ratio,
    "coin: kept against it": coin_beyond,
    "coin: rejected against it": coin_below,
    "coin: none where one was needed": without_coin,
    "residual: missing": lambda t: at(t, rejected(t), residual_mass=None),
    "residual: too large": lambda t: at(t, rejected(t), residual_mass=1.1),
    "residual: of nothing": lambda t: at(t, first_that(t, lambda r: r.residual_mass is None), residual_mass=0.5),
    "emitted: another token": other_token,
    "emitted: one too many": lambda t: at(t, 0, emitted=(*t.rounds[0].emitted, 1)),
    "emitted: one too few": lambda t: at(t, kept(t), emitted=t.rounds[kept(t)].emitted[:-1]),
    "emitted: goes on after a cut": lambda t: at(t, 0, cut=Cut.STOP_TOKEN),
    "decided": lambda t: at(t, 0, decided=Decided.TARGET),
    "cache: target": lambda t: after(t, target_cached=t.rounds[0].after.target_cached + 1),
    "cache: draft": lambda t: after(t, draft_cached=t.rounds[0].after.committed),
    "chain: a round left out": lambda t: replace(t, rounds=t.rounds[:1] + t.rounds[2:]),
    "chain: a digest": lambda t: after(t, sha256="0" * 64),
    "chain: a prompt": lambda t: replace(t, prompt_ids=(*t.prompt_ids[:-1], 5)),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_rule_is_broken_by_its_mutation(name):
    """And the finding says which rule, where, what was found and what was expected."""
    trace = recorded(seed=3)
    assert check(trace) == ()

    found = check(MUTATIONS[name](trace))

    assert name.partition(":")[0] in {each.rule for each in found}
    assert all(each.got and each.expected and each.round >= 1 for each in found)


def test_an_answer_of_one_token_has_no_rounds():
    """Nothing to check is nothing wrong."""
    assert check(recorded(max_tokens=1)) == ()
