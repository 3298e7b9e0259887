"""One request's rounds as lines of text: a line per round, that a person reads from top to bottom.

Token ids, no text: an engine's tokenizer is not at hand where a trace is read. Called by `specops trace show`.
Test: tests/report/test_trace_text.py.
"""

from collections.abc import Iterator

from specops.core.trace import STAGES, Alternative, Cap, Decided, Round, Trace

NEAR = 0.9
"""The second likeliest token is nearly as likely as the first from this share on: rounding may then decide between engines."""
_LAST = {Decided.RECOVERED: "instead", Decided.BONUS: "bonus", Decided.TARGET: "plain"}


def lines_of(trace: Trace) -> Iterator[str]:
    """Yield the lines of one trace."""
    engine = trace.engine
    method = f"{engine.get('method') or 'plain'}, k {engine.get('num_speculative_tokens', 0)}"
    yield f"request  {trace.request_id}, {trace.at:%Y-%m-%d %H:%M:%S} UTC, {method}, {engine.get('dtype', 'no dtype')}"
    yield f"settings {_settings(trace)}"
    ended = "still running" if trace.ended is None else trace.ended.value
    yield f"answer   {len(trace.emitted)} tokens, {trace.text_tokens} to the client, ended by {ended}"
    rate = f"{trace.accepted} of {trace.drafted} accepted" if trace.drafted else "nothing drafted"
    yield f"speed    {rate}, {len(trace.emitted) / (len(trace.rounds) + 1):.2f} tokens per target pass"
    yield f"time     {_time(trace)}"
    yield "round    kept [first rejected, its chance] (not looked at) -> the target's own token; H: its entropy in nats"
    yield f"{0:>7}  {' '.join(map(str, trace.first))} {_near(trace.first_alternatives)}".rstrip()
    for number, each in enumerate(trace.rounds, 1):
        yield f"{number:>7}  {_round(each)}"
    for control in trace.controls:
        yield f"control  behind round {control.after_round}, by {control.hand.value}: {control.what}"


def _settings(trace: Trace) -> str:
    neutral: tuple[object, ...] = (None, 0, 0.0, 1.0, [], "token", False)
    shown = {name: value for name, value in trace.settings.items() if name == "temperature" or value not in neutral}
    return ", ".join(f"{name} {value}" for name, value in shown.items()) or "not recorded"


def _time(trace: Trace) -> str:
    stages = {name: sum(each.stage_s[i] for each in trace.rounds) for i, name in enumerate(STAGES)}
    parts = {"queue": trace.queue_s, "prefill": trace.prefill_s} | stages
    whole = sum(parts.values()) or 1.0
    return ", ".join(f"{name} {s * 1e3:.1f} ms ({s / whole:.0%})" for name, s in parts.items())


def _round(each: Round) -> str:
    at, lost = each.accepted, list(map(str, each.drafted[each.accepted :]))
    block = [*map(str, each.drafted[:at])]
    if lost:
        block.append(f"[{lost[0]} {each.accept_probs[at]:.2f}]")
    if lost[1:]:
        block.append(f"({' '.join(lost[1:])})")
    last = f"{_LAST[each.decided]} {each.emitted[-1]}" if len(each.emitted) > at else "cut"
    notes = [f"{' '.join(block)} -> {last}" if block else last]
    notes += [f"{each.total_s * 1e3:.2f} ms", f"H {each.target_entropies_nats[at]:.2f}"]
    notes += [near] if (near := _near(each.alternatives[at])) else []
    notes += [f"k by {each.cap.value}"] if each.cap is not Cap.NONE else []
    notes += [f"cut by {each.cut.value}"] if each.cut else []
    return "; ".join(notes)


def _near(row: tuple[Alternative, ...]) -> str:
    if len(row) > 1 and row[1].target_prob >= NEAR * row[0].target_prob:
        return f"near-tie {row[0].token} {row[0].target_prob:.3f}, {row[1].token} {row[1].target_prob:.3f}"
    return ""
