"""What must hold in any trace, whatever models, drafts and settings made it; a pure function over one trace.

A rule that is broken is a bug of the engine, or a file that somebody changed. Called by `specops trace check`.
Test: tests/core/test_trace_check.py, with one mutation per rule.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specops.core.trace import Cut, Decided, Round, Rule, State, Trace

TOLERANCE = 1e-9
"""For probabilities that are recomputed from recorded ones: float64 rounding, and nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """One rule that does not hold.

    Attributes:
        round: its number, from 1; 0 is the prefill.
        position: in the block, from 0; None if the rule concerns the round.
        rule: its name, as in docs/reference/trace.md.
        got: what the trace says.
        expected: what it should say.
    """

    round: int
    position: int | None
    rule: str
    got: str
    expected: str


def check(trace: Trace) -> tuple[Broken, ...]:
    """Return every rule that the trace breaks, in the order of its rounds; empty if it is sound."""
    found, text = list[Broken](), [*trace.prompt_ids, *trace.first]
    before: State | None = None
    for number, each in enumerate(trace.rounds, 1):
        wrong = list(_lengths(each))
        # the other rules read along the lists, so they need them whole
        rules = () if wrong else (*_numbers(each), *_verdicts(each), *_end(each, is_last=number == len(trace.rounds)))
        states = list(_states(each, before, text))  # now: the text grows below
        text += each.emitted
        after = _text_of("state after", each.after, text)
        found += [
            Broken(round=number, position=position, rule=rule, got=got, expected=expected)
            for position, rule, got, expected in (*wrong, *rules, *states, *after)
        ]
        before = each.after
    return tuple(found)


_Wrong = tuple[int | None, str, str, str]


def _lengths(each: Round) -> Iterator[_Wrong]:
    k = len(each.drafted)
    for name, size in (
        ("draft_probs", k), ("target_probs", k), ("accept_probs", k), ("draft_entropies_nats", k),
        ("target_entropies_nats", k + 1), ("alternatives", k + 1), ("stage_s", 4), ("stage_bytes", 4),
    ):  # fmt: skip
        if len(getattr(each, name)) != size:
            yield None, "numbers", f"{len(getattr(each, name))} {name}", str(size)
    if not 0 <= each.accepted <= k:
        yield None, "numbers", f"{each.accepted} accepted", f"0 to {k}"
    if len(each.coins) > k:
        yield None, "numbers", f"{len(each.coins)} coins", f"at most {k}"


def _numbers(each: Round) -> Iterator[_Wrong]:
    probs = (*each.draft_probs, *each.target_probs, *each.accept_probs, each.last_prob)
    probs += tuple(one.target_prob for row in each.alternatives for one in row)
    for prob in probs:
        if not -TOLERANCE <= prob <= 1 + TOLERANCE:
            yield None, "numbers", f"probability {prob}", "in [0, 1]"
    for row in each.alternatives:
        if [one.target_prob for one in row] != sorted((one.target_prob for one in row), reverse=True):
            yield None, "numbers", "alternatives out of order", "falling probabilities"
    for value in (*each.draft_entropies_nats, *each.target_entropies_nats, *each.stage_s, *each.stage_bytes):
        if not value >= -TOLERANCE:
            yield None, "numbers", str(value), ">= 0"


def _verdicts(each: Round) -> Iterator[_Wrong]:
    """Check each proposal: q, the ratio, and whether its coin explains whether it was kept."""
    for i, (q, p, used) in enumerate(zip(each.draft_probs, each.target_probs, each.accept_probs, strict=True)):
        if q <= 0:
            yield i, "drawn", f"q {q}", "> 0"
        elif each.rule is not Rule.BLOCK and abs(used - min(1.0, p / q)) > TOLERANCE:
            yield i, "ratio", f"acceptance probability {used}", f"min(1, {p} / {q})"
    judged = range(each.accepted + 1) if each.rule is not Rule.BLOCK else range(each.accepted - 1, len(each.drafted))
    for i in (i for i in judged if 0 <= i < len(each.drafted)):
        kept = i < each.accepted
        coin = each.coins[i] if i < len(each.coins) else None
        if coin is None:
            sure = 1.0 if kept else 0.0
            explained = each.accept_probs[i] == sure if each.rule is Rule.GREEDY or kept else False
            if not explained:
                yield i, "coin", f"no coin at probability {each.accept_probs[i]}", "a coin, or a probability of 1"
        elif (coin < each.accept_probs[i]) != kept:
            yield i, "coin", f"{'kept' if kept else 'rejected'} on coin {coin}", f"kept below {each.accept_probs[i]}"


def _end(each: Round, *, is_last: bool) -> Iterator[_Wrong]:
    """Check what the round came to."""
    k = len(each.drafted)
    rejected = each.accepted < k
    if (each.residual_mass is not None) != rejected:
        yield None, "residual", f"mass {each.residual_mass}", "a mass after a rejection, else none"
    elif each.residual_mass is not None and not 0 <= each.residual_mass <= 1 + TOLERANCE:
        yield None, "residual", f"mass {each.residual_mass}", "in (0, 1]"
    decided = Decided.RECOVERED if rejected else Decided.BONUS if k else Decided.TARGET
    if each.decided is not decided:
        yield None, "decided", each.decided.value, decided.value
    whole = each.accepted + 1
    is_cut = each.cut in {Cut.STOP_TOKEN, Cut.LENGTH}
    kept = min(len(each.emitted), each.accepted)
    if each.emitted[:kept] != each.drafted[:kept]:
        yield None, "emitted", str(each.emitted), f"starts with {each.drafted[:kept]}"
    if not (1 <= len(each.emitted) <= whole and (is_cut or len(each.emitted) == whole)):
        yield None, "emitted", f"{len(each.emitted)} tokens", f"{whole}, or fewer where the answer was cut"
    if each.cut is not None and not is_last:
        yield None, "emitted", f"cut by {each.cut.value}, and a round after it", "a cut ends the answer"


def _states(each: Round, before: State | None, text: Sequence[int]) -> Iterator[_Wrong]:
    """Check the state before a round against the text, the round before, and the caches."""
    if before is not None and each.before != before:
        yield None, "chain", f"starts from {each.before}", f"the state that the round before left, {before}"
    yield from _text_of("state before", each.before, text)
    for name, state in (("before", each.before), ("after", each.after)):
        if state.target_cached != state.committed - 1:
            yield None, "cache", f"{state.target_cached} target positions {name}", f"{state.committed - 1}, all but the last"
        if state.draft_cached is not None and not 0 <= state.draft_cached <= state.committed - 1:
            yield None, "cache", f"{state.draft_cached} draft positions {name}", f"at most {state.committed - 1}"


def _text_of(name: str, state: State, text: Sequence[int]) -> Iterator[_Wrong]:
    if state.committed != len(text):
        yield None, "chain", f"{name} has {state.committed} tokens", str(len(text))
    elif state.sha256 != (digest := hashlib.sha256(array("i", text).tobytes()).hexdigest()):
        yield None, "chain", f"{name} has SHA-256 {state.sha256[:12]}", f"{digest[:12]} of the recorded tokens"
