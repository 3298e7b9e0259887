"""`specops trace list` says what was recorded, and of a broken file what is wrong."""

import json
from datetime import UTC, datetime

from specops.core.trace import Cut, Trace
from specops.wiring import trace_folder

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
