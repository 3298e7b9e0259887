"""`specops trace`: what was recorded, what a broken file or a broken rule looks like, and how traces go."""

import json
from dataclasses import replace
from datetime import UTC, datetime

from specops.core.trace import Cut, Decided, Trace
from specops.wiring import trace_folder
from tests.core.test_trace_check import recorded

T0 = datetime(2026, 12, 7, 9, 0, tzinfo=UTC)


def write(request_id, at=T0):
    """Write a trace without rounds into the folder in force."""
    trace = Trace(
        request_id=request_id, at=at, engine={}, settings={}, prompt_ids=(1, 2), first=(3,), first_alternatives=(), queue_s=0.0,
        prefill_s=0.1, rounds=(), ended=Cut.LENGTH, text_tokens=1,
    )  # fmt: skip
    return trace_folder().write(trace)


def test_an_empty_folder_is_no_error(run, empty):
    """Nothing was recorded yet, and the folder is named."""
    done = run("trace", "list")

    assert done.code == 0
    assert "no traces in" in done.out
    assert json.loads(run("trace", "list", "--json").out) == []


def test_requests_are_listed_newest_first_and_broken_files_too(run, empty):
    """A file that cannot be read is a line, not an end of the listing."""
    write("cmpl-1")
    write("cmpl-2", at=T0.replace(hour=10)).write_bytes(b"broken")

    bad, good = json.loads(run("trace", "list", "--json").out)

    assert (good["request_id"], good["emitted"], good["ended"], good["wrong"]) == ("cmpl-1", 1, "length", None)
    assert "cannot be read" in bad["wrong"]
    table = run("trace", "list").out
    assert "cmpl-1" in table
    assert table.count("nothing drafted") == 1, "a broken file has no counts"
    (before,) = json.loads(run("trace", "list", "--before", "2026-12-07T09:30:00Z", "--json").out)
    assert before["request_id"] == "cmpl-1"


def recorded_here(request_id):
    """Write a real trace into the folder in force."""
    trace = replace(recorded(seed=3), request_id=request_id)
    trace_folder().write(trace)
    return trace


def test_a_request_is_shown_round_by_round(run, empty):
    """As text for a person, and whole as JSON."""
    trace = recorded_here("cmpl-9")

    assert f"{trace.accepted} of {trace.drafted} accepted" in run("trace", "show", "cmpl-9").out
    assert Trace.from_record(json.loads(run("trace", "show", "cmpl-9", "--json").out)) == trace
    assert run("trace", "show", "cmpl-8").code != 0


def test_a_check_fails_for_a_broken_trace_and_an_unreadable_file(run, empty):
    """Exit 0 while all is sound; then 1, and it says which request breaks which rule."""
    trace = recorded_here("cmpl-1")
    assert run("trace", "check").code == 0
    assert run("trace", "check", "cmpl-1").code == 0

    bad = replace(trace.rounds[0], decided=Decided.TARGET)
    trace_folder().write(replace(trace, request_id="cmpl-2", rounds=(bad, *trace.rounds[1:])))
    done = run("trace", "check", "--json")
    assert done.code == 1
    assert [(line["request_id"], line["rule"]) for line in json.loads(done.out)["broken"]] == [("cmpl-2", "decided")]
    assert run("trace", "check", "cmpl-1").code == 0

    write("cmpl-3").write_bytes(b"broken")
    done = run("trace", "check")
    assert done.code == 1
    assert "2 traces checked, 1 broken, 1 unreadable" in done.out
    assert "decided" in done.out


def test_traces_can_be_erased_by_id_and_by_age(run, empty):
    """Ids are content: they must be able to go."""
    write("cmpl-1")
    write("cmpl-2", at=T0.replace(hour=10))

    assert "1 traces erased" in run("trace", "erase", "cmpl-1").out
    assert "1 traces erased" in run("trace", "erase", "--before", "2026-12-07T11:00:00Z").out
    assert json.loads(run("trace", "list", "--json").out) == []
    assert run("trace", "erase").code != 0


def test_why_and_compare_read_two_requests(run, empty):
    """A sentence for each finding, and where they part."""
    trace = recorded_here("cmpl-1")
    other = replace(recorded(seed=4), request_id="cmpl-2")
    trace_folder().write(other)

    text = run("trace", "why", "cmpl-1").out
    assert text.startswith("cmpl-1: ")
    assert json.loads(run("trace", "why", "cmpl-1", "--json").out)["request_id"] == "cmpl-1"
    assert "differs from plain: first at token" in run("trace", "why", "cmpl-1", "--plain", "cmpl-2").out
    at = next(i for i, (a, b) in enumerate(zip(trace.emitted, other.emitted, strict=False)) if a != b)
    assert f"they part at token {at}" in run("trace", "compare", "cmpl-1", "cmpl-2").out
    assert json.loads(run("trace", "compare", "cmpl-1", "cmpl-1", "--json").out)["difference"] is None
