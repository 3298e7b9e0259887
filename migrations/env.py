"""Alembic's entry: runs the scripts on the connection that `specops.store.upgrade` hands over, or on `-x url=`."""

from alembic import context
from sqlalchemy import Connection, TypeDecorator, create_engine

from specops.store import schema, triggers


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
    triggers.restore(connection)  # batch mode copies tables and silently drops their triggers


def _run() -> None:
    """Find the connection."""
    if context.is_offline_mode():
        raise SystemExit("specops migrations need a database; run them online")
    given = context.config.attributes.get("connection")
    if given is not None:
        _migrate(given)
        return
    with create_engine(context.get_x_argument(as_dictionary=True)["url"]).begin() as connection:
        _migrate(connection)


_run()
