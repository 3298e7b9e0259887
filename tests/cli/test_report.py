"""`specops report build` writes one file, or says why not."""

import json


def test_without_a_rollout_it_is_exit_2(run, empty, tmp_path):
    """Nothing is written."""
    done = run("report", "build", "--out", tmp_path / "r.html")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert not (tmp_path / "r.html").exists()


def test_a_page_is_written(run, full, tmp_path):
    """A rollout without any outcome has a report too."""
    done = run("report", "build", "--out", tmp_path / "r.html")
    assert done.code == 0
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_json_writes_nothing(run, full, tmp_path):
    """The data can be read by machines."""
    value = json.loads(run("report", "build", "ro-1", "--json").out)
    assert [r["name"] for r in value["releases"]] == ["plain", "spec"]
    assert not (tmp_path / "report.html").exists()
