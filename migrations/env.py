"""Alembic's entry: runs the scripts on the connection that `specops.store.upgrade` hands over, or on `-x url=`."""

from alembic import context
from sqlalchemy import Connection, TypeDecorator

from specops.store import dialect, schema, triggers
from specops.store.database import LOCK_TIMEOUT_S


def _render(kind: str, item: object, _context: object) -> str | bool:
    """Write our column types as the plain types that they are stored in: a script must not change when our code does."""
    return f"sa.{item.impl!r}" if kind == "type" and isinstance(item, TypeDecorator) else False


def _migrate(connection: Connection) -> None:
    """Run in the caller's transaction when there is one, so that an upgrade happens whole or not at all."""
    context.configure(
        connection=connection,
        target_metadata=schema.metadata,
        render_as_batch=True,
        transactional_ddl=True,
        compare_type=True,
        render_item=_render,
    )
    with context.begin_transaction():
        context.run_migrations()
    triggers.restore(connection)  # on SQLite, batch mode copies tables and silently drops their triggers


def _run() -> None:
    """Find the connection."""
    if context.is_offline_mode():
        raise SystemExit("specops migrations need a database; run them online")
    given = context.config.attributes.get("connection")
    if given is not None:
        _migrate(given)
        return
    kind, url = dialect.for_url(context.get_x_argument(as_dictionary=True)["url"])
    engine = kind.engine(url, LOCK_TIMEOUT_S)
    with engine.begin() as connection:  # specops' own engine: its transaction holds the writer lock
        _migrate(connection)
    engine.dispose()


_run()
