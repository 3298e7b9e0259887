"""Opening, locking and guarding: what both databases do, and what each does in its own way."""

import subprocess
import sys
import threading
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import make_url, select, text

from specops.errors import InvalidInput, InvalidRecord, MissingExtra, RuleViolation, StoreUnavailable
from specops.store import schema, triggers
from specops.store.database import open_store

ROOT = Path(__file__).parents[2]
APPENDER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from specops.store.database import open_store

store = open_store(sys.argv[1], segments=Path(sys.argv[2]))
print("open", flush=True)
for number in range(int(sys.argv[3])):
    with store.begin() as unit:
        unit.next_revision()
        unit.audit.append(tag="test:entry:added", actor=sys.argv[4], subject="s", payload={"n": number}, at=datetime.now(UTC))
store.close()
"""


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a process which appends to a store."""
    running = []

    def build(url, actor, count):
        command = [sys.executable, "-c", APPENDER, url, str(tmp_path), str(count), actor]
        running.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return running[-1]

    yield build
    for process in running:
        process.kill()
        process.communicate()


def assert_sound(entries):
    """Check that a log is one chain of numbers from 0, and return how many entries each actor has."""
    assert [entry.index for entry in entries] == list(range(len(entries)))
    actors = [entry.actor for entry in entries]
    for actor in set(actors):
        assert [e.payload["n"] for e in entries if e.actor == actor] == list(range(actors.count(actor)))
    return {actor: actors.count(actor) for actor in sorted(set(actors))}


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite+pysqlcipher:///x.db"])
def test_a_url_that_is_no_sqlite_file_is_refused(url, tmp_path):
    """One line says what works."""
    with pytest.raises(InvalidInput, match="sqlite:///path/to"):
        open_store(url, segments=tmp_path)


@pytest.mark.parametrize("url", ["mysql://u:geheim@h/d", "postgres://u:geheim@h/d", "x", "postgresql://u:geheim@h:x/d", ""])
def test_a_url_of_anything_else_is_refused_without_its_password(url, tmp_path):
    """One line says what works, and repeats nothing that is secret."""
    with pytest.raises(InvalidInput, match=r"sqlite:///path/to.*or postgresql://") as caught:
        open_store(url, segments=tmp_path)
    assert "geheim" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("url", ["postgresql+psycopg2://u:geheim@h/d", "postgresql+asyncpg://h/d", "postgresql://u:geheim@h"])
def test_another_driver_or_no_database_is_refused(url, tmp_path):
    """The way out is the URL that works."""
    with pytest.raises(InvalidInput, match="postgresql://") as caught:
        open_store(url, segments=tmp_path)
    assert "geheim" not in str(caught.value)


def test_postgresql_without_its_driver_names_the_extra(monkeypatch, tmp_path):
    """SQLite needs no extra, so the driver is one."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"specops\[postgres\]"):
        open_store("postgresql://h/d", segments=tmp_path)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    """Its content stays as it was."""
    (tmp_path / "x.db").write_text("not a database, and long enough to be looked at" * 100)
    with pytest.raises(InvalidInput, match="not a database"):
        open_store(f"sqlite:///{tmp_path / 'x.db'}", segments=tmp_path)


@pytest.mark.parametrize("name", ["file/x/x.db", "nul%00/x.db"])
def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, name):
    """A file where the folder should be, or a name that no system takes."""
    (tmp_path / "file").write_text("")
    with pytest.raises((StoreUnavailable, InvalidInput), match="cannot"):
        open_store(f"sqlite:///{tmp_path}/{name}".replace("%00", "\0"), segments=tmp_path)


def test_a_server_that_is_not_there_is_unavailable(tmp_path, postgres):
    """Connection refused is worth another try."""
    with pytest.raises(StoreUnavailable, match=r"does not answer.*try again"):
        open_store(f"postgresql://u:geheim@/d?host={tmp_path}", segments=tmp_path)


def test_who_is_not_let_in_is_told_and_the_password_is_not(postgres, tmp_path):
    """Trying again does not help, so it is no StoreUnavailable."""
    for url in (postgres.url("absent"), postgres.url("postgres", "stranger:geheim")):
        with pytest.raises(InvalidInput, match=r"does not exist.*check database_url") as caught:
            open_store(url, segments=tmp_path)
        assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("user", ["guarded:geheim", "guarded"])
def test_a_wrong_or_missing_password_is_the_callers_to_mend(postgres, tmp_path, user, monkeypatch):
    """The line names the role and not the password."""
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    with postgres.connect() as connection:
        connection.execute("DROP ROLE IF EXISTS guarded")
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    with pytest.raises(InvalidInput, match=r"password.*check database_url") as caught:
        open_store(postgres.url("postgres", user), segments=tmp_path)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "error"),
    [("UPDATE counter SET value = 1 / 0", "cannot hold a value"), ("SELECT * FROM absent", "cannot be used")],
)
def test_what_postgresql_rejects_is_one_line(postgres_url, tmp_path, statement, error):
    """An out-of-range value, or a table that somebody removed."""
    store = open_store(postgres_url, segments=tmp_path)
    with pytest.raises(InvalidInput, match=error), store.begin() as unit:  # noqa: PT012
        unit.next_revision()
        unit._connection.execute(text(statement))
    store.close()


def test_a_database_that_is_not_utf8_is_refused(postgres, tmp_path):
    """Else a name would be refused one day, in the middle of a rollout."""
    name = postgres.create(options="ENCODING 'LATIN1'")
    with pytest.raises(InvalidInput, match=r"encoded in LATIN1.*UTF8"):
        open_store(postgres.url(name), segments=tmp_path)
    postgres.drop(name)


def test_processes_that_start_and_append_at_once_make_one_sound_log(empty_url, tmp_path, start):
    """Four processes make, migrate and fill one new database; no entry is lost, doubled or out of the chain."""
    runs = [start(empty_url, actor, 25) for actor in "abcd"]
    errors = [run.communicate(timeout=120)[1] for run in runs]

    assert [run.returncode for run in runs] == [0] * 4, errors
    store = open_store(empty_url, segments=tmp_path)
    with store.begin() as unit:
        assert assert_sound(unit.audit.all()) == dict.fromkeys("abcd", 25)
        assert unit.next_revision() == 101
    store.close()


def test_a_killed_writer_neither_blocks_nor_breaks_the_others(url, store, start):
    """The server, or the file system, gives its lock back."""
    victim, survivor = start(url, "victim", 100_000), start(url, "survivor", 30)
    victim.stdout.readline()
    assert survivor.wait(120) == 0
    victim.kill()
    victim.wait(30)
    with store.begin() as unit:
        unit.audit.append(tag="test:entry:added", actor="last", subject="s", payload={"n": 0}, at=unit.audit.all()[0].at)
        assert assert_sound(unit.audit.all())["survivor"] == 30


def test_a_writer_that_waits_too_long_is_told_to_try_again(url, store, tmp_path):
    """A lock held elsewhere ends in one line; readers never wait for it."""
    hasty = open_store(url, segments=tmp_path, lock_timeout_s=0.1)
    with store.begin() as unit:
        unit.next_revision()
        with pytest.raises(StoreUnavailable, match=r"does not answer.*try again"), hasty.begin():
            pytest.fail("two writers at once")
        with hasty.read() as view:
            assert view.audit.all() == []
    with hasty.begin() as unit:
        assert unit.next_revision() == 2
    hasty.close()


def test_threads_share_a_store(store, append):
    """Writers wait for each other; readers see whole transactions."""
    threads = [threading.Thread(target=append, args=(10,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.read() as unit:
        assert [e.index for e in unit.audit.all()] == list(range(40))


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", "x" * 201])
def test_a_name_that_a_database_cannot_hold_is_refused_on_both(store, make_rollout, name):
    """A NUL character, half a surrogate pair, too long: one line instead of a crash, and nothing was changed."""
    with pytest.raises(InvalidRecord, match="store"), store.begin() as unit:  # noqa: PT012
        unit.next_revision()
        unit.rollouts.add(make_rollout(id=name))
    with store.begin() as unit:
        assert unit.next_revision() == 1


@pytest.mark.parametrize("value", ["a\0b", "a\ud800b", "\U0001f600", float("inf")])
def test_json_comes_back_as_it_went_in(store, t0, value):
    """What a payload holds is escaped where the database could not hold it."""
    with store.begin() as unit:
        unit.outbox.add("alert", "k", {"x": value}, t0)
    with store.read() as unit:
        assert unit.outbox.due(t0)[0].payload == {"x": value}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_entry SET tag = 'x'",
        "DELETE FROM audit_entry",
        "TRUNCATE audit_entry, verdict",
        "TRUNCATE rollout CASCADE",
        "INSERT INTO audit_entry SELECT * FROM audit_entry ON CONFLICT (position) DO UPDATE SET tag = 'x'",
        "SET LOCAL session_replication_role = replica; DELETE FROM audit_entry",
    ],
)
def test_postgresql_itself_refuses_to_change_the_log(postgres_url, tmp_path, t0, statement):
    """Also a superuser in replica mode, and TRUNCATE of a table that a verdict hangs on."""
    store = open_store(postgres_url, segments=tmp_path)
    with store.begin() as unit:
        unit.audit.append(tag="test:entry:added", actor="a", subject="s", payload={}, at=t0)
    with pytest.raises(RuleViolation, match="append-only"), store.begin() as unit:
        unit._connection.execute(text(statement))
    store.close()


BENDING = "CREATE OR REPLACE TRIGGER refuse_update_audit_entry"
BENT = [
    "DROP TRIGGER refuse_update_audit_entry ON audit_entry",
    "ALTER TABLE audit_entry DISABLE TRIGGER refuse_update_audit_entry",
    "ALTER TABLE audit_entry ENABLE TRIGGER refuse_update_audit_entry",
    f"{BENDING} BEFORE UPDATE ON audit_entry FOR EACH ROW WHEN (false) EXECUTE FUNCTION specops_refuse()",
    f"{BENDING} BEFORE UPDATE OF tag ON audit_entry FOR EACH ROW EXECUTE FUNCTION specops_refuse()",
    f"{BENDING} AFTER UPDATE ON audit_entry FOR EACH ROW EXECUTE FUNCTION specops_refuse()",
    "CREATE OR REPLACE FUNCTION specops_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "DROP FUNCTION specops_refuse CASCADE",
]


@pytest.mark.parametrize("statement", BENT)
def test_a_postgresql_guard_that_was_bent_is_put_back_and_the_log_says_so(postgres_url, tmp_path, statement):
    """Dropped, switched off, on only in normal sessions, conditional, for one column, of an empty body."""
    store = open_store(postgres_url, segments=tmp_path)
    with store.begin() as unit:
        unit._connection.execute(text(statement))
    open_store(postgres_url, segments=tmp_path).close()
    with store.begin() as unit:
        assert triggers.missing(unit._connection) == ()
        (entry,) = unit.audit.all()
    assert (entry.tag, "refuse_update_audit_entry" in entry.payload["triggers"]) == ("store:triggers:restored", True)
    store.close()


def test_the_self_test_does_not_trust_names_on_either_database(store):
    """A rule that swallows writes leaves every guard in place, and is found by trying."""
    with store.begin() as unit:
        connection = unit._connection
        if connection.dialect.name == "sqlite":
            connection.execute(text("DROP TRIGGER refuse_update_audit_entry"))
        else:
            connection.execute(text("CREATE RULE quiet AS ON UPDATE TO audit_entry DO INSTEAD NOTHING"))
            assert triggers.missing(connection) == ()
        with pytest.raises(RuleViolation, match="UPDATE went through"):
            triggers.self_test(connection)


def test_a_role_that_may_only_add_to_the_log_is_enough(postgres, postgres_url, tmp_path, t0):
    """The statements of docs/how-to/use-postgresql.md: what was never granted counts as refused, and work goes on."""
    page = (ROOT / "docs" / "how-to" / "use-postgresql.md").read_text()
    name = make_url(postgres_url).database
    grants = page.split("```sql\n-- grants")[1].split("```")[0].partition("\n")[2]
    with postgres.connect(name) as connection:
        connection.execute("DROP ROLE IF EXISTS specops_app")
        connection.execute("CREATE ROLE specops_app LOGIN")
        connection.execute(grants)
    store = open_store(postgres.url(name, "specops_app"), segments=tmp_path)
    with store.begin() as unit:
        unit.audit.append(tag="test:entry:added", actor="a", subject="s", payload={}, at=t0)
        unit.outbox.add("alert", "k", {}, t0)
    with pytest.raises(InvalidInput, match="may not do that"), store.begin() as unit:
        unit._connection.execute(text("DELETE FROM audit_entry"))
    store.close()
    with postgres.connect(name) as connection:
        connection.execute("DROP OWNED BY specops_app")
        connection.execute("DROP ROLE specops_app")


def test_a_reader_cannot_write_on_postgresql(postgres_url, tmp_path):
    """The server refuses it, and the line says what else that may mean: a standby."""
    store = open_store(postgres_url, segments=tmp_path)
    with pytest.raises(InvalidInput, match="takes no writes"), store.read() as unit:
        unit.next_revision()
    store.close()


def test_a_connection_that_the_server_cut_is_replaced(postgres, postgres_url, tmp_path):
    """A restarted server costs the transaction that was running, not the next one."""
    store = open_store(postgres_url, segments=tmp_path)
    with pytest.raises(StoreUnavailable, match="does not answer"), store.begin() as unit:  # noqa: PT012
        pid = unit._connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        with postgres.connect() as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        unit.next_revision()
    with store.begin() as unit:
        assert unit.next_revision() == 1
    store.close()


def test_times_sort_like_moments_on_both(store, t0):
    """Times are text of one width and zone, so the database's order is theirs."""
    zone = timezone(timedelta(hours=9))
    moments = [t0 + timedelta(microseconds=step) for step in (0, 1, 999_999, 1_000_000, 86_400_000_000)]
    with store.begin() as unit:
        for moment in moments[::-1]:
            unit.outbox.add("alert", str(moment), {}, moment.astimezone(zone))
        query = select(schema.outbox.c.at).order_by(schema.outbox.c.at)
        assert list(unit._connection.execute(query).scalars()) == moments
