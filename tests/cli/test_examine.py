"""`specops doctor` looks at everything and breaks at nothing."""

import json
from datetime import UTC, datetime

from specops.settings import Settings
from specops.wiring import opened


def test_a_sound_folder_is_exit_0(run, full):
    """Optional things that are absent are not broken."""
    done = run("doctor", "--json")
    lines = {x["what"]: x for x in json.loads(done.out)}
    assert done.code == 0
    assert lines["database"]["ok"] is lines["audit log"]["ok"] is True
    assert lines["gateway"]["ok"] is None


def test_a_missing_folder_is_not_made(run, full, monkeypatch, tmp_path):
    """Looking leaves no trace."""
    monkeypatch.setenv("SPECOPS_DATA_DIR", str(tmp_path / "nowhere"))
    done = run("doctor")
    assert done.code == 0
    assert "does not exist yet" in done.out
    assert not (tmp_path / "nowhere").exists()


def test_a_stuck_message_is_shown(run, full):
    """A side effect that failed is named with its tries, and is exit 1."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with opened(Settings(data_dir=full)) as house, house.store.begin() as unit:
        unit.outbox.add("alert", "k", {}, at)
        unit.outbox.failed(unit.outbox.due(at)[0].id, "OSError: refused", at)
    done = run("doctor")
    assert done.code == 1
    assert "alert tried 1x" in done.out
