"""Why an answer differs from plain decoding of the same request: the first token at which they part, who chose it, how near.

A near-tie is a gap that rounding explains: the two passes computed the same law in another order of operations. The tolerance
per dtype is `fidelity.GREEDY_TAU`. Called by `core.trace_why`.
"""

import math
from dataclasses import dataclass

from specops.core.fidelity import GREEDY_TAU
from specops.core.trace import Alternative, Round, Rule, Trace
from specops.core.trace_compare import first_difference
from specops.core.trace_finding import Finding, Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a token of the answer comes from.

    Attributes:
        round_number: from 1; 0 is the prefill.
        position: in the round's block, from 0.
        decided_by: prefill, accept, or the round's `decided`.
        alternatives: the target's most likely tokens there.
    """

    round_number: int
    position: int
    decided_by: str
    alternatives: tuple[Alternative, ...]


def place_of(trace: Trace, at: int) -> Place | None:
    """Return where token `at` of the answer comes from; None if the answer is shorter."""
    if at < len(trace.first):
        return Place(round_number=0, position=at, decided_by="prefill", alternatives=trace.first_alternatives)
    start = len(trace.first)
    for number, line in enumerate(trace.rounds, 1):
        if at < start + len(line.emitted):
            position = at - start
            decided_by = "accept" if position < line.accepted else line.decided.value
            return Place(round_number=number, position=position, decided_by=decided_by, alternatives=_at(line, position))
        start += len(line.emitted)
    return None


def gap_nats(alternatives: tuple[Alternative, ...], first: int | None, second: int | None) -> float | None:
    """Return the distance of two tokens' log probabilities; None unless both are listed with a probability above 0."""
    probs = {each.token: each.target_prob for each in alternatives}
    one, other = (0.0 if token is None else probs.get(token, 0.0) for token in (first, second))
    return abs(math.log(one) - math.log(other)) if one > 0 and other > 0 else None


def parting(trace: Trace, plain: Trace) -> Finding | None:
    """Return where the answer parts from plain decoding; None if the answers are equal."""
    if trace.prompt_ids != plain.prompt_ids:
        at = first_difference(trace.prompt_ids, plain.prompt_ids)
        return Finding(
            topic=Topic.PLAIN,
            sentence=f"{plain.request_id} is another request: the prompts part at token {at.at if at else 0}",
            evidence={"plain": plain.request_id},
            rounds=None,
            next_step="compare with plain decoding of the same prompt",
        )
    found = first_difference(trace.emitted, plain.emitted)
    if found is None:
        return None
    place, theirs = place_of(trace, found.at), place_of(plain, found.at)
    gaps = [gap_nats(each.alternatives, found.first, found.second) for each in (place, theirs) if each]
    gap = next((value for value in gaps if value is not None), None)
    tau = GREEDY_TAU.get(str(trace.engine.get("dtype")), min(GREEDY_TAU.values()))
    number = place.round_number if place else len(trace.rounds)
    words, next_step = _judged(trace, plain, gap, tau, is_end=found.first is None or found.second is None)
    return Finding(
        topic=Topic.PLAIN,
        sentence=f"differs from plain: first at token {found.at} ({_shown(found.first)}, plain {_shown(found.second)}),"
        f" {words}; {_whose(place)}",
        evidence={
            "token": found.at, "here": found.first, "plain": found.second, "gap_nats": gap, "tau_nats": tau,
            "decided_by": place.decided_by if place else None,
        },
        rounds=(number, number),
        next_step=next_step,
    )  # fmt: skip


def _judged(trace: Trace, plain: Trace, gap: float | None, tau: float, *, is_end: bool) -> tuple[str, str]:
    """Return what the parting means and the next step."""
    if is_end:
        return "where one of them ended", "compare the limits and stop rules of the two requests"
    if any(line.rule is not Rule.GREEDY for line in (*trace.rounds, *plain.rounds)):
        return (
            "both sampled, so they may differ" + ("" if gap is None else f" (gap {gap:.3g} nats)"),
            "one sampled answer proves nothing; specops verify compares the laws",
        )
    if gap is None:
        return (
            "the trace does not list both tokens there, so nearness is unknown",
            "score both tokens with the target: a gap beyond rounding is a defect",
        )
    if gap <= tau:
        return f"near-tie, gap {gap:.3g} nats", "none: rounding explains it (two orders of operations, one law)"
    return (
        f"no near-tie: gap {gap:.3g} nats, rounding explains {tau:g}",
        "treat the engine as not lossless until specops verify says otherwise; specops trace check on this trace first",
    )


def _whose(place: Place | None) -> str:
    if place is None:
        return "this answer had ended"
    if place.round_number == 0:
        return "chosen by the prefill"
    after = "the prefill" if place.round_number == 1 else f"round {place.round_number - 1}"
    return f"chosen by {place.decided_by} at position {place.position} of round {place.round_number}, after {after}"


def _shown(token: int | None) -> str:
    return "ended" if token is None else str(token)


def _at(line: Round, position: int) -> tuple[Alternative, ...]:
    return line.alternatives[position] if position < len(line.alternatives) else ()
