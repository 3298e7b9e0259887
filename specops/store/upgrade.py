"""Brings a database to the newest schema with Alembic, inside the caller's transaction.

Called by `database.open_store`. DDL is transactional on both databases and the caller holds the writer lock, so two processes
that start at once cannot both upgrade, and a failed upgrade leaves the database as it was. The scripts are in migrations/ of a
checkout, in specops/_shipped/migrations of an installed wheel.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect

import specops
from specops.errors import InvalidInput, RuleViolation
from specops.store import schema

if TYPE_CHECKING:
    from alembic.config import Config

_VERSION_TABLE = "alembic_version"


def scripts() -> Path:
    """Return the folder of the migration scripts.

    Raises:
        InvalidInput: the installation lacks it.
    """
    package = Path(specops.__file__).parent
    for folder in (package / "_shipped" / "migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise InvalidInput(f"the migration scripts of specops are missing beside {package}; install the package again")


def config(connection: Connection | None = None) -> "Config":
    """Return Alembic's configuration, made in code; `connection` is what env.py shall use."""
    from alembic.config import Config  # noqa: PLC0415  # a second to import, and an up-to-date database does not need it

    out = Config()
    out.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    out.attributes["connection"] = connection
    return out


def current(connection: Connection) -> str | None:
    """Return the revision of the database; None for a new file."""
    if not inspect(connection).has_table(_VERSION_TABLE):
        return None
    return connection.exec_driver_sql(f"SELECT version_num FROM {_VERSION_TABLE}").scalar()  # noqa: S608


def run(connection: Connection, revision: str = "head") -> None:
    """Upgrade the database.

    Raises:
        RuleViolation: its revision is unknown here, so a newer specops made it.
        InvalidInput: it has tables, and they are not ours.
    """
    at = current(connection)
    if at == schema.HEAD_REVISION and revision == "head":
        return
    from alembic import command  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    setup = config(connection)
    known = [script.revision for script in ScriptDirectory.from_config(setup).walk_revisions()]
    tables = [name for name in inspect(connection).get_table_names() if name != _VERSION_TABLE]
    if tables and (at is None or (at not in known and schema.audit_entry.name not in tables)):
        raise InvalidInput(f"the database holds tables of something else ({', '.join(sorted(tables)[:3])}); use one of its own")
    if at is not None and at not in known:
        raise RuleViolation(
            f"the database is at schema revision {at}, this specops knows revisions up to {schema.HEAD_REVISION}; "
            "install the specops that made it, or use another database"
        )
    command.upgrade(setup, revision)
