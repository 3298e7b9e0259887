"""Migrations on both databases: up, down, what they lead to, and every row that was there before."""

from argparse import Namespace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, Table, inspect, select, text

from specops.errors import InvalidInput, RuleViolation
from specops.store import schema, triggers, upgrade
from specops.store.database import open_store

REVISIONS = [script.revision for script in ScriptDirectory.from_config(upgrade.config()).walk_revisions()][::-1]
AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC).isoformat(timespec="microseconds")
TIMES = dict.fromkeys(("at", "expires_at", "due_at", "done_at"), AT)
SPECIAL = TIMES | dict.fromkeys(("facts", "files", "properties", "claims", "payload", "record"), "{}") | {"shape": "[2]"}


@pytest.fixture
def diff():
    """Return a function that lists how a database differs from schema.py."""

    def compare(connection):
        return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), schema.metadata)

    return compare


@pytest.fixture
def fill():
    """Return a function that puts one row into every table, as the tables are now, and returns all rows."""

    def insert(connection):
        reflected = MetaData()
        reflected.reflect(connection)
        for table in reflected.sorted_tables:
            if table.name != "alembic_version":
                connection.execute(table.insert().values({c.name: value(c) for c in table.columns}))
        return rows(connection)

    def value(column):
        if column.name in SPECIAL:
            return SPECIAL[column.name]
        kind = column.type.python_type
        return 7 if kind is int else b"\x00\xff" if kind is bytes else "x"

    return insert


def rows(connection):
    """Return table -> its rows as dictionaries, whatever the revision."""
    names = [name for name in inspect(connection).get_table_names() if name != "alembic_version"]
    tables = [Table(name, MetaData(), autoload_with=connection, resolve_fks=False) for name in names]
    return {table.name: [dict(row) for row in connection.execute(select(table)).mappings()] for table in tables}


def test_up_and_down_and_up_again_leaves_what_the_schema_says(engine, diff):
    """The migrations lead to schema.py exactly, with guards, and can be undone."""
    with engine.begin() as connection:
        config = upgrade.config(connection)
        command.upgrade(config, "head")
        assert diff(connection) == []
        assert triggers.missing(connection) == ()

        command.downgrade(config, "base")
        assert inspect(connection).get_table_names() == ["alembic_version"]

        command.upgrade(config, "head")
        assert diff(connection) == []
        assert triggers.missing(connection) == ()


def test_the_newest_script_is_the_revision_that_the_code_expects():
    """HEAD_REVISION saves an import at each start, so it must be right."""
    assert REVISIONS[-1] == schema.HEAD_REVISION


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_filled_database_of_every_revision_comes_up_to_date_with_its_rows(empty_url, engine, fill, diff, tmp_path, revision):
    """Nothing that was there is lost or changed, and the guards stand."""
    with engine.begin() as connection:
        upgrade.run(connection, revision)
        before = fill(connection)
    open_store(empty_url, segments=tmp_path).close()
    with engine.begin() as connection:
        after = rows(connection)
        for name, old in before.items():
            assert [{key: row[key] for key in old[0]} for row in after[name]] == old, name
        assert diff(connection) == []
        assert triggers.missing(connection) == ()
        triggers.self_test(connection)


@pytest.mark.parametrize(("older", "newer"), list(pairwise(REVISIONS)))
def test_a_step_back_keeps_the_rows_of_what_is_left(engine, fill, older, newer):
    """Going back one revision loses only the tables and columns that it added, and the guards stand."""
    with engine.begin() as connection:
        upgrade.run(connection, newer)
        before = fill(connection)
        command.downgrade(upgrade.config(connection), older)
        for name, left in rows(connection).items():
            assert left == [{key: row[key] for key in left[0]} for row in before[name]], name
        assert triggers.missing(connection) == ()


def test_alembic_by_hand_takes_a_url_and_the_writer_lock(empty_url, engine, diff):
    """`-x url=` goes through specops' own engine, so that a running service waits."""
    config = upgrade.config()
    config.cmd_opts = Namespace(x=[f"url={empty_url}"])
    command.upgrade(config, "head")
    with engine.begin() as connection:
        assert diff(connection) == []
        assert triggers.missing(connection) == ()


def test_an_upgrade_that_fails_leaves_the_database_as_it_was(engine, fill):
    """Statements of a migration are part of the transaction, on both databases."""
    with engine.begin() as connection:
        upgrade.run(connection, REVISIONS[0])
        before = fill(connection)
    with pytest.raises(ZeroDivisionError), engine.begin() as connection:  # noqa: PT012
        upgrade.run(connection)
        _ = 1 / 0
    with engine.begin() as connection:
        assert upgrade.current(connection) == REVISIONS[0]
        assert rows(connection) == before


def test_a_database_of_a_newer_specops_is_refused(engine, empty_url, tmp_path):
    """An old program does not write into tables that it does not know."""
    with engine.begin() as connection:
        upgrade.run(connection)
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    known = f"at schema revision 9999, this specops knows revisions up to {schema.HEAD_REVISION}"
    with pytest.raises(RuleViolation, match=known):
        open_store(empty_url, segments=tmp_path)


@pytest.mark.parametrize("extra", ["CREATE TABLE others (id INTEGER)", "CREATE TABLE alembic_version (version_num TEXT)"])
def test_somebody_elses_database_is_refused_and_left_alone(engine, empty_url, tmp_path, extra):
    """A database with other tables is not taken over, whether or not another program migrates it with Alembic."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE runs (id INTEGER)"))
        connection.execute(text(extra))
        if "alembic" in extra:
            connection.execute(text("INSERT INTO alembic_version VALUES ('1bd49d398cd2')"))
        before = inspect(connection).get_table_names()
    with pytest.raises(InvalidInput, match=r"tables of something else .*runs"):
        open_store(empty_url, segments=tmp_path)
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == before
