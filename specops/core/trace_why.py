"""From the outcome of one request backward: why it was slow, short, or other than plain decoding would have been.

`why` reads a trace and nothing else. It reports only what passes a stated threshold, and says what it could not judge; with
nothing found, nothing stands out. Called by `specops trace why` and the page of a trace.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specops.core.trace import STAGES, Cap, Cut, Hand, Round, Trace
from specops.core.trace_compare import Figures, figures
from specops.core.trace_finding import Finding, Topic
from specops.core.trace_parting import parting
from specops.core.trace_script import script_change
from specops.stats.changepoint import Split, split

MIN_ROUNDS = 8  # with proposals: a share from fewer says little (its standard error is above 0.17 at one half)
LEVEL = 0.01  # of the split: the chance that rounds in random order show one
HIGH_SHARE = 0.5  # of rounds rejected at position 0: more than every second block was wasted
LOW_NATS, HIGH_NATS = 0.5, 2.0  # mean entropy of the draft's first law: as if 1.6, or 7.4 tokens were equally likely
STEP_NATS = 0.5  # between two segments
DRAFT_SHARE, REST_SHARE = 0.5, 0.2  # of round time: beyond, the draft costs more than all else; bookkeeping is no bookkeeping
PREFILL_SHARE, QUEUE_SHARE = 0.5, 0.3  # of total time
CAP_SHARE = 0.25  # of rounds
PLAIN_ROUNDS = 3  # rounds without proposals that measure a plain pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The explanation of one trace.

    Attributes:
        request_id: of the trace.
        ended: what ended the answer, in words.
        figures: its numbers.
        speedup: seconds per token of plain decoding over this request's; None if it cannot be estimated.
        speedup_basis: what the cost of plain decoding was taken from; "at most" where it is only bounded.
        findings: what stands out, the outcome's nearest cause first.
        not_judged: what the trace has too little of.
    """

    request_id: str
    ended: str
    figures: Figures
    speedup: float | None
    speedup_basis: str
    findings: tuple[Finding, ...]
    not_judged: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The findings in a line."""
        return "; ".join(each.sentence for each in self.findings) or "nothing stands out"

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "request_id": self.request_id, "summary": self.summary, "ended": self.ended, "speedup": self.speedup,
            "speedup_basis": self.speedup_basis, "findings": [each.to_record() for each in self.findings],
            "not_judged": list(self.not_judged),
        }  # fmt: skip


def why(trace: Trace, plain: Trace | None = None, *, text: Callable[[int], str] | None = None) -> Why:
    """Explain a trace.

    Args:
        trace: the request.
        plain: plain decoding of the same request, if there is one.
        text: the text of a token id; without it scripts are not compared.
    """
    found = figures(trace)
    speedup, basis = _speedup(trace, found, plain)
    spoken = [(i, line) for i, line in enumerate(trace.rounds, 1) if line.drafted]  # numbered rounds with proposals
    change = _change(spoken)
    findings = [
        parting(trace, plain) if plain else None,
        _broken(trace),
        _too_slow(found, speedup, basis),
        _rejected(trace, spoken, change),
        _entropy(spoken, change),
        _script(trace, spoken, change, text),
        *_stages(found),
        *_waits(found),
        _capped(trace.rounds),
        _cut(trace),
        _controls(trace),
    ]
    return Why(
        request_id=trace.request_id, ended=_ended(trace), figures=found, speedup=speedup, speedup_basis=basis,
        findings=tuple(each for each in findings if each), not_judged=_not_judged(spoken, has_text=text is not None),
    )  # fmt: skip


def _not_judged(spoken: Sequence[tuple[int, Round]], *, has_text: bool) -> tuple[str, ...]:
    reasons = (
        (len(spoken) < MIN_ROUNDS, f"rejections: {len(spoken)} rounds with proposals, {MIN_ROUNDS} are needed"),
        (bool(spoken) and all(line.is_one_hot for _, line in spoken), "draft entropy: the draft chose without chance"),
        (not has_text, "scripts: no tokenizer was given"),
    )
    return tuple(words for holds, words in reasons if holds)


def _speedup(trace: Trace, found: Figures, plain: Trace | None) -> tuple[float | None, str]:
    """Return plain seconds per token over ours, and where the former is from."""
    own = [line.total_s for line in trace.rounds if not line.drafted]
    if not found.token_s or not found.drafted:
        return None, "nothing was drafted"
    if plain is not None and not plain.drafted and (measured := figures(plain).token_s):
        return measured / found.token_s, "measured on the plain request"
    if len(own) >= PLAIN_ROUNDS:
        return sum(own) / len(own) / found.token_s, f"from {len(own)} rounds without proposals"
    # One position costs no more than a block of k + 1, so this bounds the gain from above.
    return found.stage_s[1] / found.rounds / found.token_s, "at most: a plain pass costs no more than scoring a block"


def _too_slow(found: Figures, speedup: float | None, basis: str) -> Finding | None:
    if speedup is None or speedup >= 1 or found.rounds < MIN_ROUNDS:
        return None
    return Finding(
        topic=Topic.SPEED,
        sentence=f"slow: {speedup:.2f} times the speed of plain decoding ({basis}),"
        f" {found.tokens_per_pass:.2f} tokens per target pass",
        evidence={"speedup": speedup, "tokens_per_pass": found.tokens_per_pass, "token_s": found.token_s},
        rounds=(1, found.rounds),
        next_step="rerun with fewer proposals or none: specops trace rerun --set k=1, or --set draft=none",
    )


def _change(spoken: Sequence[tuple[int, Round]]) -> Split | None:
    """Return where the share of rounds rejected at position 0 changes; None if it does not, by chance's level."""
    if len(spoken) < MIN_ROUNDS:
        return None
    found = split([line.accepted == 0 for _, line in spoken])
    return found if found.p_value <= LEVEL else None


def _rejected(trace: Trace, spoken: Sequence[tuple[int, Round]], change: Split | None) -> Finding | None:
    if len(spoken) < MIN_ROUNDS:
        return None
    share = sum(line.accepted == 0 for _, line in spoken) / len(spoken)
    first, last = spoken[0][0], spoken[-1][0]
    if change is None:
        if share < HIGH_SHARE:
            return None
        words, evidence = f"{share:.0%} of {len(spoken)} rounds rejected at position 0, throughout", {"share": share}
    else:
        at = spoken[change.at][0]
        token = _first_token(trace, at)
        evidence = {"before": change.before, "after": change.after, "from_token": token, "p_value": change.p_value}
        if change.after > change.before:
            first = at
            words = f"{change.after:.0%} of rounds rejected at position 0 from token {token} on ({change.before:.0%} before)"
        else:
            last = spoken[change.at - 1][0]
            words = f"{change.before:.0%} of rounds rejected at position 0 up to token {token - 1} ({change.after:.0%} after)"
    step = "compare the text there with the draft's training data; a smaller k wastes less while it lasts"
    return Finding(topic=Topic.REJECTION, sentence=words, evidence=evidence, rounds=(first, last), next_step=step)


def _entropy(spoken: Sequence[tuple[int, Round]], change: Split | None) -> Finding | None:
    """Say whether the draft was unsure or surely wrong where it was rejected."""
    drawn = [(i, line) for i, line in spoken if not line.is_one_hot]
    if len(drawn) < MIN_ROUNDS:
        return None
    at = spoken[change.at][0] if change else drawn[0][0]
    worse_is_later = change is None or change.after > change.before
    inside = [(i, line) for i, line in drawn if (i >= at) == worse_is_later]
    outside = [(i, line) for i, line in drawn if (i >= at) != worse_is_later]
    if not inside or sum(line.accepted == 0 for _, line in inside) / len(inside) < HIGH_SHARE:
        return None
    here = sum(line.draft_entropies_nats[0] for _, line in inside) / len(inside)
    there = sum(line.draft_entropies_nats[0] for _, line in outside) / len(outside) if outside else None
    evidence = {"entropy_nats": here, "elsewhere_nats": there}
    rounds = (inside[0][0], inside[-1][0])
    beside = "" if there is None else f", {there:.2f} elsewhere"
    if here >= HIGH_NATS or (there is not None and here - there >= STEP_NATS):
        words = f"draft entropy high there: {here:.2f} nats{beside}"
        step = "the draft does not know such text: train it on some, or draft less there"
    elif here <= LOW_NATS:
        words = f"draft entropy low there, yet rejected: {here:.2f} nats{beside}"
        step = "the draft is sure and wrong: check that it belongs to this target and tokenizer (specops lineage)"
    else:
        return None
    return Finding(topic=Topic.ENTROPY, sentence=words, evidence=evidence, rounds=rounds, next_step=step)


def _script(
    trace: Trace, spoken: Sequence[tuple[int, Round]], change: Split | None, text: Callable[[int], str] | None
) -> Finding | None:
    """Compare scripts before and after the change of rejections; without one, prompt and answer."""
    if text is None:
        return None
    number = spoken[change.at][0] if change else 0
    at = _first_token(trace, number) if change else 0
    before = (*trace.prompt_ids, *trace.emitted[:at])
    found = script_change("".join(map(text, before)), "".join(map(text, trace.emitted[at:])))
    if found is None:
        return None
    where = f"from token {at} on" if change else "between prompt and answer"
    return Finding(
        topic=Topic.SCRIPT,
        sentence=f"script changed {where}: {found.words}",
        evidence={"before": dict(found.before), "after": dict(found.after), "distance": found.distance},
        rounds=(max(number, 1), len(trace.rounds)) if trace.rounds else None,
        next_step="look at acceptance by language: a draft that never saw one is rejected there",
    )


def _stages(found: Figures) -> list[Finding]:
    if found.rounds < MIN_ROUNDS or not found.rounds_s:
        return []
    shares = dict(zip(STAGES, (seconds / found.rounds_s for seconds in found.stage_s), strict=True))
    rest, lines = shares["accept"] + shares["resample"], []
    if shares["draft"] >= DRAFT_SHARE:
        lines.append((f"the draft takes {shares['draft']:.0%} of round time", "use a smaller draft, or a smaller k"))
    if rest >= REST_SHARE:
        lines.append((
            f"accept and resample take {rest:.0%} of round time",
            "profile them: they are bookkeeping beside the target's forward; sampling filters and log probabilities cost most",
        ))  # fmt: skip
    return [
        Finding(topic=Topic.STAGE, sentence=words, evidence=shares, rounds=(1, found.rounds), next_step=step)
        for words, step in lines
    ]


def _waits(found: Figures) -> list[Finding]:
    """Say whether the time went before the first round."""
    total, lines = found.total_s, []
    if total and found.queue_s / total >= QUEUE_SHARE:
        lines.append((Topic.QUEUE, "waited in the queue for", found.queue_s, "add a replica, or raise max_running"))
    if total and found.prefill_s / total >= PREFILL_SHARE:
        lines.append((Topic.PREFILL, "spent in the prefill:", found.prefill_s, "speculation cannot help: shorten the prompt"))
    return [
        Finding(
            topic=topic, sentence=f"{words} {seconds:.3g} s, {seconds / total:.0%} of the request",
            evidence={"seconds": seconds, "share": seconds / total}, rounds=None, next_step=step,
        )
        for topic, words, seconds, step in lines
    ]  # fmt: skip


def _capped(rounds: Sequence[Round]) -> Finding | None:
    """Name the caps that held proposals down in many rounds; the room at the end of an answer is none."""
    counts = {cap: [i for i, line in enumerate(rounds, 1) if line.cap is cap] for cap in (Cap.REQUEST, Cap.BATCH, Cap.DRAFT)}
    numbers = sorted(i for each in counts.values() for i in each)
    if len(rounds) < MIN_ROUNDS or len(numbers) < CAP_SHARE * len(rounds):
        return None
    named = ", ".join(f"{len(each)} by the {cap.value}" for cap, each in counts.items() if each)
    return Finding(
        topic=Topic.CAP,
        sentence=f"proposals held down in {len(numbers)} of {len(rounds)} rounds: {named}",
        evidence={cap.value: len(each) for cap, each in counts.items()},
        rounds=(numbers[0], numbers[-1]),
        next_step="batch: look at load; draft: the lookup found nothing to propose; request: the client asked for it",
    )


_BROKEN = {
    Cut.ABORT: ("aborted", "the client or an operator left; see the controls"),
    Cut.ERROR: ("ended by an error", "read the engine's log at this request id"),
}


def _broken(trace: Trace) -> Finding | None:
    if trace.ended not in _BROKEN:
        return None
    words, step = _BROKEN[trace.ended]
    number = len(trace.rounds)
    return Finding(
        topic=Topic.BROKEN, sentence=f"{words} after {len(trace.emitted)} tokens", evidence={"tokens": len(trace.emitted)},
        rounds=(number, number) if number else None, next_step=step,
    )  # fmt: skip


def _cut(trace: Trace) -> Finding | None:
    """Report an answer that is shorter than what was computed: a stop text, or a block cut in its middle by the limit."""
    number, unread = len(trace.rounds), len(trace.emitted) - trace.text_tokens
    if trace.ended is Cut.LENGTH:
        words = f"cut by the length limit after {len(trace.emitted)} tokens"
        step = "raise max_tokens if the answer is too short"
    elif trace.ended is Cut.STOP_TEXT and unread > 0:
        words = f"cut by a stop text: {unread} of {len(trace.emitted)} tokens never reached the client"
        step = "if the answer is too short, a stop text of the request occurs in it"
    else:
        return None
    return Finding(
        topic=Topic.CUT, sentence=words, evidence={"emitted": len(trace.emitted), "text_tokens": trace.text_tokens},
        rounds=(number, number) if number else None, next_step=step,
    )  # fmt: skip


def _controls(trace: Trace) -> Finding | None:
    outside = [each for each in trace.controls if each.hand is not Hand.ALGORITHM]
    if not outside:
        return None
    named = "; ".join(f"{each.what} ({each.hand.value}, behind round {each.after_round})" for each in outside)
    numbers = [each.after_round for each in outside]
    return Finding(
        topic=Topic.CONTROL,
        sentence=f"controlled from outside: {named}",
        evidence={"controls": len(outside)},
        rounds=(min(numbers), max(numbers)),
        next_step="ask whose control it was before blaming draft or target",
    )


_ENDINGS = {
    Cut.STOP_TOKEN: "a stop token",
    Cut.STOP_TEXT: "a stop text",
    Cut.LENGTH: "the length limit",
    Cut.ABORT: "an abort",
    Cut.ERROR: "an error",
}


def _ended(trace: Trace) -> str:
    if trace.ended is None:
        return f"still running after {len(trace.emitted)} tokens"
    return f"ended by {_ENDINGS[trace.ended]} after {len(trace.emitted)} tokens"


def _first_token(trace: Trace, number: int) -> int:
    """Return the answer's token index at which round `number` begins."""
    return len(trace.first) + sum(len(line.emitted) for line in trace.rounds[: number - 1])
