"""A check that cannot fail proves nothing: every known bug that this decoder could have is put in, one by one, and seen.

The numbers are those of the project's table of real bugs. M18 (tensor parallel ranks draw different coins) and M21 (siblings of
a tree) have no place to be put: there are no ranks and no trees here. M15 and M16 concern single draws, M23 lengths; they
have tests of their own at the end. M24 is `test_log_probabilities_of_prompt_and_answer_are_those_of_fresh_forwards`.
"""

import itertools
from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from specops.core.trace import Rule
from specops.decoding import loop, sampling
from specops.decoding.accept import Ruling, accept, accept_block
from specops.decoding.draft import ModelDraft, Proposal
from specops.decoding.loop import Speculation, generate
from specops.decoding.request import Request, cut
from specops.decoding.resample import resample
from specops.decoding.sampling import Seeded, law
from tests.decoding.enumeration import EXACT, VISIBLE, ask, distance, off_target, target_law_of


def put(**parts):
    """Return a function that swaps parts of a speculation."""
    return lambda spec: [setattr(spec, name, part) for name, part in parts.items()]


def ruling(accepted, scale=1.0):
    """Return a ruling of which only the prefix counts."""
    return Ruling(accepted=accepted, target_probs=(), draft_probs=(), accept_probs=(), coins=(), scale=scale)


def always_accept(drafted, draft_law, target_law, chance):
    """M1: keep everything."""
    return ruling(len(drafted))


def no_coin(drafted, draft_law, target_law, chance):
    """M2: keep x if p >= q, without a coin."""
    kept = [bool(target_law[i, x] >= draft_law[i, x]) for i, x in enumerate(drafted)]
    return ruling([*kept, False].index(False))


def from_target(accepted, drafted, draft_law, target_law, chance, scale):
    """M3: after a rejection draw from p instead of the residual."""
    return chance.pick(target_law[accepted])


def row_behind(accepted, drafted, draft_law, target_law, chance, scale):
    """M10: recover from the row behind the rejected token."""
    if accepted == len(drafted):
        return chance.pick(target_law[accepted])
    return resample(0, drafted[:1], draft_law[accepted : accepted + 1], target_law[accepted + 1 : accepted + 2], chance)


def bonus_row_before(accepted, drafted, draft_law, target_law, chance, scale):
    """M11: take the bonus token from the row before the last."""
    if accepted == len(drafted):
        return chance.pick(target_law[accepted - 1])
    return resample(accepted, drafted, draft_law, target_law, chance)


def zeroed_first(drafted, draft_law, target_law, chance):
    """M12: the proposal's place in p is zeroed, for the residual, before the test reads it."""
    spoilt = target_law.clone()
    spoilt[range(len(drafted)), list(drafted)] = 0.0
    return accept(drafted, draft_law, spoilt, chance)


def token_residual(accepted, drafted, draft_law, target_law, chance, scale):
    """M13: block acceptance, and the token rule's residual behind it."""
    return resample(accepted, drafted, draft_law, target_law, chance)


def prefix_product(drafted, draft_law, target_law, chance):
    """M13: block acceptance by the product of the ratios alone, without Z."""
    p = [float(target_law[i, x] / draft_law[i, x]) for i, x in enumerate(drafted)]
    scales = [1.0, *itertools.accumulate(p, lambda reach, ratio: min(1.0, reach * ratio), initial=1.0)][1:]
    accepted = next((n for n in range(len(drafted), 0, -1) if chance.accepts(scales[n])), 0)
    return ruling(accepted, scales[accepted])


class OneCoin:
    """M17: one uniform number for all decisions of a round; `low` and `high` are what is known of it by now."""

    def __init__(self, chance, *, redraws):
        self.chance, self.redraws, self.low, self.high, self.coin = chance, redraws, 0.0, 1.0, None

    def accepts(self, probability):
        """Decide by the same number again."""
        edge = min(max(probability, self.low), self.high)
        is_kept = self.chance.accepts((edge - self.low) / (self.high - self.low))
        self.low, self.high = (self.low, edge) if is_kept else (edge, self.high)
        return is_kept

    def pick(self, row):
        """Draw afresh, or invert the distribution function at the number that decided."""
        if self.redraws:
            return self.chance.pick(row)
        edges = torch.cat([row.new_zeros(1), row.cumsum(0)]).clamp(self.low, self.high)
        return self.chance.pick(edges.diff() / (self.high - self.low))


def shared(*, redraws):
    """M17: the decisions of a round share one coin; with `redraws` the last token has a number of its own."""

    def mutate(spec):
        judged = spec._judge

        def judge(proposal, logits):
            chance = spec.chance
            spec.chance = OneCoin(chance, redraws=redraws)
            try:
                return judged(proposal, logits)
            finally:
                spec.chance = chance

        spec._judge = judge

    return mutate


def judged_under(**settings):
    """M6, M9: the verification reads other settings than the request's; the draft reads the right ones."""

    def mutate(spec):
        judged = spec._judge

        def judge(proposal, logits):
            spec.request, asked = replace(spec.request, **settings), spec.request
            try:
                return judged(proposal, logits)
            finally:
                spec.request = asked

        spec._judge = judge

    return mutate


def blind(spec):
    """M7: bias and penalties at the bonus token only, as if proposals had no text before them."""
    judged = spec._judge

    def judge(proposal, logits):
        plain = replace(spec.request, logit_bias=(), presence_penalty=0.0)
        last = law(logits[-1:], spec.request, [*spec.committed, *proposal.tokens])
        spec.request, asked = plain, spec.request
        spec.resample = lambda a, d, q, p, c, s: resample(a, d, q, torch.cat([p[:-1], last]), c, s)
        try:
            return judged(proposal, logits)
        finally:
            spec.request = asked

    spec._judge = judge


def drawn(row_of_draw, row_of_report=law, keep=lambda prob: True, keep_last=True, start_behind=0):
    """Return how a draft proposes, with what it draws from, what it reports, and when it ends early, given apart."""

    def propose(model, request, text, k, chance):
        rows, tokens = [], []
        for _ in range(k):
            context = [*text, *tokens]
            logits = model.logits_after(context[: len(context) - start_behind])
            row, token = row_of_report(logits, request), chance.pick(row_of_draw(logits, request)[0])
            is_sure = keep(float(row[0, token]))
            if is_sure or keep_last:
                rows.append(row)
                tokens.append(token)
            if not is_sure:
                break
        return Proposal(tokens=tuple(tokens), law=torch.cat(rows) if rows else None)

    return propose


def raw(logits, request):
    """Return the law without temperature and filters."""
    return logits.double().softmax(-1)


def coarse(logits, request):
    """M14: return the law as bfloat16 has it."""
    return logits.bfloat16().softmax(-1).double()


def most_likely(logits, request):
    """Return the one-hot law of the most likely token."""
    return law(logits, replace(request, temperature=0.0))


def out_of_order(model, request, text, k, chance):
    """M19: the rows of the law come back in another order than the tokens."""
    sound = drawn(law)(model, request, text, k, chance)
    return Proposal(tokens=sound.tokens, law=sound.law.flip(0))


COLD, NARROW = {"temperature": 0.5}, {"top_k": 2}
RULES = {
    "M1 always accept": (put(accept=always_accept), {}),
    "M2 no coin": (put(accept=no_coin), {}),
    "M3 resample from p": (put(resample=from_target), {}),
    "M6 temperature ignored": (judged_under(temperature=1.0), COLD),
    "M6 top-k ignored": (judged_under(top_k=0), NARROW),
    "M7 bias at the bonus token only": (blind, {"logit_bias": ((0, 2.0), (3, -4.0))}),
    "M7 penalty at the bonus token only": (blind, {"presence_penalty": 1.5}),
    "M9 silently greedy": (judged_under(temperature=0.0), {}),
    "M10 recovered from the row behind": (put(resample=row_behind), {}),
    "M11 bonus from the row before": (put(resample=bonus_row_before), {}),
    "M12 p zeroed before the test": (put(accept=zeroed_first), {}),
    "M13 block without Z": (put(accept=prefix_product), {"rule": Rule.BLOCK}),
    "M17 one coin for all positions": (shared(redraws=True), {}),
    "M17 the coin again for the residual": (shared(redraws=False), {}),
}  # fmt: skip
DRAFTS = {
    "M4 greedy draft, soft law": (drawn(most_likely, law), {}),
    "M5 drawn with temperature, raw law": (drawn(law, raw), COLD),
    "M5 drawn raw, law with temperature": (drawn(raw, law), {"temperature": 1.5}),
    "M5 drawn with top-k, raw law": (drawn(law, raw), NARROW),
    "M19 rows out of order": (out_of_order, {}),
    "M22 unlikely token dropped": (drawn(law, keep=lambda prob: prob > 0.2, keep_last=False), {}),
}  # fmt: skip
FINE = {  # too small to be seen by eye, and not by enumeration
    "M13 block with the token residual": (put(resample=token_residual), drawn(law), {"rule": Rule.BLOCK}),
    "M14 drawn in bfloat16": (put(), drawn(coarse, law), {}),
}  # fmt: skip
SOUND = {
    "one-hot greedy draft": lambda m, r, t, k, c: replace(drawn(most_likely)(m, r, t, k, c), law=None),
    "stale draft cache": drawn(law, start_behind=1),
    "stop behind an unlikely token, which is kept": drawn(law, keep=lambda prob: prob > 0.2),
    "filters on both sides that differ": drawn(raw, raw),
}


@pytest.mark.parametrize("name", RULES)
def test_a_wrong_rule_moves_the_law(every_path, toy, soft_draft, name):
    """Bugs of the verifying side."""
    mutate, settings = RULES[name]

    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2), ask(**settings), mutate=mutate) > VISIBLE


@pytest.mark.parametrize("name", DRAFTS)
def test_a_draft_that_misreports_its_law_moves_the_targets(every_path, toy, soft_draft, name):
    """Bugs of the proposing side: the law in the ratio must be the law of the draw."""
    propose, settings = DRAFTS[name]

    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2, propose), ask(**settings)) > VISIBLE


@pytest.mark.parametrize("name", FINE)
def test_bugs_that_sampling_would_not_see_are_seen(every_path, toy, soft_draft, name):
    """Far below what any test on text can find, and a million times above rounding."""
    mutate, propose, settings = FINE[name]

    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2, propose), ask(**settings), mutate=mutate) > 1e-5


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
@pytest.mark.parametrize("name", SOUND)
def test_what_looks_like_a_bug_and_is_none_moves_nothing(every_path, toy, soft_draft, name, rule):
    """Habits of drafts that cost acceptance at most."""
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2, SOUND[name]), ask(rule=rule)) <= EXACT


def test_sample_and_match_is_exact(every_path, toy, soft_draft):
    """The target draws for itself and keeps proposals that happen to be equal: slow, and no bug."""

    def mutate(spec):
        mine = []

        def match(drafted, draft_law, target_law, chance):
            mine[:] = [chance.pick(target_law[0])]
            while len(mine) <= len(drafted) and mine[-1] == drafted[len(mine) - 1]:
                mine.append(chance.pick(target_law[len(mine)]))
            return ruling(len(mine) - 1)

        put(accept=match, resample=lambda *_: mine[-1])(spec)

    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2), ask(), mutate=mutate) <= EXACT


@pytest.mark.parametrize("parts", [{"accept": accept}, {"accept": accept_block, "resample": resample}])
def test_mutants_replace_what_they_name(every_path, toy, soft_draft, parts):
    """Putting the right parts back by hand is exact, so the mutants differ by their bug alone."""
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2, drawn(law)), ask(), mutate=put(**parts)) <= EXACT


def test_m8_a_nucleus_that_does_not_know_of_top_k_moves_the_law(every_path, toy, soft_draft, monkeypatch):
    """M8: top-p must see what top-k left, renormalised, in target and draft."""
    settings = {"top_k": 2, "top_p": 0.7}
    request = ask(**settings)
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2), request) <= EXACT

    def jointly(logits, request, *rest):
        narrow, wide = law(logits, replace(request, top_p=1.0), *rest), law(logits, replace(request, top_k=0), *rest)
        both = narrow * (wide > 0)
        return both / both.sum(-1, keepdim=True)

    monkeypatch.setattr(loop, "law", jointly)
    monkeypatch.setattr(sampling, "law", jointly)
    assert off_target(every_path, toy, soft_draft(toy(4, 8), 2), request) > VISIBLE


def test_m15_a_coin_of_zero_that_accepts_the_impossible_is_seen():
    """M15: `<=` instead of `<` accepts a token of probability 0 on a coin of 0."""

    class Loose(Seeded):
        def accepts(self, probability):
            self.coin = self.uniform()
            return self.coin <= probability

    p, q = torch.tensor([[1.0, 0.0]] * 2, dtype=torch.float64), torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    kept = {}
    for kind in (Seeded, Loose):
        chance = kind(0)
        chance.uniform = lambda: 0.0
        kept[kind] = accept((1,), q, p, chance).accepted
    assert kept == {Seeded: 0, Loose: 1}


def test_m16_a_draw_in_float32_does_not_reach_the_tail():
    """M16: the last 2^-30 of a law has tokens too."""

    class Short(Seeded):
        def pick(self, row):
            edges = row.float().cumsum(0)
            return min(int((edges <= float(self.uniform()) * edges[-1]).sum()), len(row) - 1) if edges[-2] < 1 else 0

    row = torch.tensor([1 - 2**-30, 2**-30], dtype=torch.float64)
    picked = {}
    for kind in (Seeded, Short):
        chance = kind(0)
        chance.uniform = lambda: 1 - 2**-31
        picked[kind] = chance.pick(row)
    assert picked == {Seeded: 1, Short: 0}


def whole_law(every_path, target, draft, request, mutate=lambda spec: None):
    """Return {text: probability} of a whole answer."""
    got = defaultdict(float)

    def run(chance):
        spec = Speculation(target, draft, request, chance)
        mutate(spec)
        return tuple(itertools.chain(*(step.tokens for step in spec.steps())))

    for weight, text in every_path(run):
        got[text] += weight
    return got


def test_m20_rejected_tokens_left_in_the_targets_cache_move_the_law(every_path, toy):
    """M20: the next round's rows then follow a text that nobody committed."""
    target, draft = toy(3, 7), ModelDraft(toy(3, 8), 2)
    request = Request(prompt_ids=(1, 2, 0, 1), max_tokens=4, temperature=1.0)

    def forgetful(spec):
        spec.cache.rewind = lambda length: None

    whole = target_law_of(target, request, 4)
    assert distance(whole_law(every_path, target, draft, request), whole) <= EXACT
    assert distance(whole_law(every_path, target, draft, request, forgetful), whole) > VISIBLE


def test_m23_a_stop_token_overlooked_inside_a_block_makes_the_answer_longer(make_model, monkeypatch):
    """M23: only the last token of a block is looked at."""
    target = make_model("target")
    request = Request(prompt_ids=(1, 2, 3), max_tokens=24, ignore_eos=True)
    plain = list(itertools.chain(*(step.tokens for step in generate(target, None, request))))
    stop = next(token for i, token in enumerate(plain) if i >= 3 and token not in plain[:i])
    request = replace(request, stop_ids=(stop,))

    def tokens():
        return list(itertools.chain(*(step.tokens for step in generate(target, ModelDraft(target, 4), request))))

    assert tokens() == plain[: plain.index(stop) + 1]

    def short_sighted(block, stop_ids, room):
        kept = tuple(block[:room])
        return kept, cut(kept[-1:], stop_ids, room - len(kept) + 1)[1]

    monkeypatch.setattr(loop, "cut", short_sighted)
    assert tokens() != plain[: plain.index(stop) + 1]
