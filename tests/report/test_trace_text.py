"""A trace as text: each round in a line, with what was kept, rejected, put in its place, and why."""

from dataclasses import replace

from specops.core.trace import Cut, Decided
from specops.report.trace_text import lines_of
from tests.core.test_trace_check import recorded


def test_every_round_has_a_line_that_names_its_tokens():
    """Kept, rejected in brackets, and the round's own."""
    trace = recorded(seed=3)

    lines = list(lines_of(trace))

    assert lines[0].startswith("request  cmpl-1, 2026-12-07")
    rounds = lines[7 : 7 + len(trace.rounds)]
    for line, each in zip(rounds, trace.rounds, strict=True):
        assert all(str(token) in line for token in (*each.drafted, *each.emitted))
        assert ("[" in line) == (each.accepted < len(each.drafted))
        assert {Decided.RECOVERED: "instead", Decided.BONUS: "bonus", Decided.TARGET: "plain"}[each.decided] in line
    assert "cut by length" in rounds[-1]
    assert lines[-1] == "control  behind round 1, by human: looked"


def test_the_head_says_how_fast_and_why_it_ended():
    """Counts of the whole request."""
    trace = replace(recorded(seed=3), ended=Cut.STOP_TEXT, text_tokens=20)

    text = "\n".join(lines_of(trace))

    assert "24 tokens, 20 to the client, ended by stop_text" in text
    assert f"{trace.accepted} of {trace.drafted} accepted" in text
    assert "nothing drafted" in "\n".join(lines_of(recorded("plain")))
