"""Opening: migrations, strangers, newer databases, and several processes at once."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect

from specops.errors import InvalidInput, RuleViolation, StoreUnavailable
from specops.store import schema, triggers, upgrade
from specops.store.database import open_store
from specops.store.verify import verify

ROOT = Path(__file__).parents[2]
APPENDER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from specops.store.database import open_store

store = open_store(sys.argv[1], segments=Path(sys.argv[2]))
for number in range(int(sys.argv[3])):
    with store.begin() as unit:
        unit.next_revision()
        unit.audit.append(tag="test:entry:added", actor=sys.argv[4], subject="s", payload={"n": number}, at=datetime.now(UTC))
store.close()
"""


def test_up_and_down_and_up_again_leaves_what_the_schema_says(tmp_path):
    """The migrations lead to schema.py exactly, with guards, and can be undone."""
    engine = create_engine(f"sqlite:///{tmp_path / 'x.db'}")
    with engine.begin() as connection:
        config = upgrade.config(connection)
        command.upgrade(config, "head")
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
        assert triggers.missing(connection) == ()

        command.downgrade(config, "base")
        assert inspect(connection).get_table_names() == ["alembic_version"]

        command.upgrade(config, "head")
        assert compare_metadata(context, schema.metadata) == []
    engine.dispose()


def test_the_newest_script_is_the_revision_that_the_code_expects():
    """HEAD_REVISION saves an import at each start, so it must be right."""
    assert ScriptDirectory.from_config(upgrade.config()).get_current_head() == schema.HEAD_REVISION


def test_a_database_of_a_newer_specops_is_refused(path, tmp_path):
    """An old program does not write into tables that it does not know."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    known = f"at schema revision 9999, this specops knows revisions up to {schema.HEAD_REVISION}"
    with pytest.raises(RuleViolation, match=known):
        open_store(f"sqlite:///{path}", segments=tmp_path)


def test_somebody_elses_database_is_refused_and_left_alone(tmp_path):
    """A file with other tables is not taken over."""
    engine = create_engine(f"sqlite:///{tmp_path / 'x.db'}")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE runs (id INTEGER)")
    with pytest.raises(InvalidInput, match="tables of something else \\(runs\\)"):
        open_store(f"sqlite:///{tmp_path / 'x.db'}", segments=tmp_path)
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["runs"]
    engine.dispose()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "postgresql://h/d", "nonsense"])
def test_a_url_that_is_no_sqlite_file_is_refused(url, tmp_path):
    """One line says what works."""
    with pytest.raises(InvalidInput, match="sqlite:///path/to"):
        open_store(url, segments=tmp_path)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    """Its content stays as it was."""
    (tmp_path / "x.db").write_text("not a database, and long enough to be looked at" * 100)
    with pytest.raises(InvalidInput, match="not a database"):
        open_store(f"sqlite:///{tmp_path / 'x.db'}", segments=tmp_path)


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path):
    """A file where the folder should be gives one line."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="cannot make the folder"):
        open_store(f"sqlite:///{tmp_path / 'file' / 'x' / 'x.db'}", segments=tmp_path)


def test_processes_that_start_and_append_at_once_make_one_sound_log(tmp_path, signer):
    """Two processes make, migrate and fill one new database; no entry is lost, doubled or out of the chain."""
    url = f"sqlite:///{tmp_path / 'new' / 'specops.db'}"
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", APPENDER, url, str(tmp_path), "25", actor], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        for actor in ("a", "b")
    ]
    errors = [run.communicate(timeout=120)[1] for run in runs]

    assert [run.returncode for run in runs] == [0, 0], errors
    store = open_store(url, segments=tmp_path)
    store.checkpoint(signer, tmp_path / "notes")
    assert verify(store, tmp_path / "notes", signer.public_key).proven == 50
    with store.begin() as unit:
        assert sorted(e.actor for e in unit.audit.all()) == ["a"] * 25 + ["b"] * 25
        assert unit.next_revision() == 51
    store.close()


def test_threads_share_a_store(store, append):
    """Writers wait for each other; readers see whole transactions."""
    threads = [threading.Thread(target=append, args=(10,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.read() as unit:
        assert [e.index for e in unit.audit.all()] == list(range(40))
