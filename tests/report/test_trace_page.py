"""The page of a trace: every token of every round, escaped, with and without its text."""

import re
from dataclasses import replace

from specops.core.trace import Cut
from specops.report.trace_page import build, render
from tests.core.test_trace_check import recorded


def chips(page, kind):
    """Return the texts of one kind of token in the rounds, the legend left out."""
    return re.findall(rf'<span class="t {kind}"[^>]*>([^<]*)</span>', page.partition("<table>")[2])


def test_every_token_of_every_round_is_there():
    """Kept, rejected, not looked at, and the target's own."""
    trace = recorded(seed=3)

    page = render(trace)

    assert chips(page, "kept") == [str(t) for r in trace.rounds for t in r.drafted[: r.accepted]]
    assert chips(page, "lost") == [str(r.drafted[r.accepted]) for r in trace.rounds if r.accepted < len(r.drafted)]
    assert chips(page, "unread") == [str(t) for r in trace.rounds for t in r.drafted[r.accepted + 1 :]]
    assert chips(page, "own") == [str(t) for t in (*trace.first, *(r.emitted[-1] for r in trace.rounds))]
    assert f"{trace.accepted} of {trace.drafted} proposals accepted" in page
    assert "looked" in page
    assert "http" not in page


def test_texts_and_ids_that_are_markup_stay_text(tmp_path):
    """A client chooses the id, the model chooses the text."""
    trace = replace(recorded(seed=3), request_id="<script>x</script>")

    build(trace, tmp_path / "deep" / "trace.html", text=lambda token: f"<b>{token}\n")

    page = (tmp_path / "deep" / "trace.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "<b>0" not in page
    assert "&lt;b&gt;0\u23ce" in page


def test_a_trace_without_rounds_has_a_page():
    """An answer of one token, and one that failed before it."""
    trace = recorded(max_tokens=1)

    assert "0 rounds" in render(trace)
    assert 'class="t own" title' not in render(replace(trace, first=(), ended=Cut.ERROR))
