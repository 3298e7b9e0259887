"""`specops samples`: what is kept can be seen and erased, and the log says so without saying what."""

import json

import pytest

from specops.settings import load_settings
from specops.wiring import now, opened


@pytest.fixture
def kept(full):
    """Keep one sample."""
    with opened(load_settings()) as house, house.store.begin() as unit:
        house.samples().keep(unit, "req-1", "who is Ann", "a person", now())
    return full


def test_a_sample_is_shown_and_erased(run, kept):
    """Afterwards there is nothing, and one entry."""
    assert [s["text"] for s in json.loads(run("samples", "show", "req-1", "--json").out)] == ["who is Ann", "a person"]
    assert "who is Ann" in run("samples", "show", "req-1").out
    assert run("samples", "erase", "req-1").out == "erased 2 parts\n"
    assert "nothing is kept" in run("samples", "show", "req-1").out
    (entry,) = json.loads(run("audit", "log", "--tag", "samples", "--json").out)
    assert (entry["actor"], entry["payload"], "req-1" in str(entry)) == ("bob", {"parts": 2}, False)


def test_nothing_goes_before_its_time(run, kept):
    """`expire` erases only what is over."""
    assert run("samples", "expire").out == "erased 0 parts\n"
