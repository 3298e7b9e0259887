"""What differs between databases, as one small protocol, and which file answers for which database.

`database` opens through it, `triggers` guards through it, leases ask it for the time. `sqlite` and `postgres` implement it as
plain modules; everything else in `store/` is the same on both.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import URL, Connection, Engine, Executable, make_url
from sqlalchemy.exc import DBAPIError

from specops.errors import InvalidInput, SpecopsError
from specops.store import postgres, sqlite

WAYS = "use sqlite:///path/to/specops.db or postgresql://user:password@host/database"
"""The way out of every message about a URL."""


class Dialect(Protocol):
    """One kind of database."""

    READING: Mapping[str, Any]
    """Execution options of a connection whose transaction only reads."""

    def engine(self, url: URL, lock_timeout_s: float) -> Engine:
        """Return an engine whose transactions take the one writer lock when they begin, unless they have `READING`."""
        ...

    def missing_guards(self, connection: Connection, tables: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the guards of these tables that are absent, switched off, or not ours word for word."""
        ...

    def restore_guard(self, connection: Connection, name: str) -> None:
        """Put one of the guards named by `missing_guards` back."""
        ...

    def replacing(self, row: Mapping[str, Any]) -> Executable:
        """Return a statement that would overwrite this row of the audit log by inserting it again."""
        ...

    def is_refusal(self, exc: DBAPIError) -> bool:
        """Say whether the database refused a write on purpose: a guard, a constraint, a missing privilege."""
        ...

    def now(self, connection: Connection, given: datetime) -> datetime:
        """Return the time that leases go by: the database's where several hosts share it, else the given one."""
        ...

    def translated(self, exc: DBAPIError) -> SpecopsError:
        """Return our error for one of the database's, without secrets."""
        ...


_KNOWN: Mapping[str, Dialect] = {"sqlite": sqlite, "postgresql": postgres}


def of(connection: Connection) -> Dialect:
    """Return the dialect of an open connection."""
    return _KNOWN[connection.dialect.name]


def for_url(url: str) -> tuple[Dialect, URL]:
    """Return the dialect and the parsed URL of a database.

    Raises:
        InvalidInput: it is no URL, or of a database that is not supported. The message never repeats user or password.
    """
    try:
        parsed = make_url(url)
    except Exception:  # noqa: BLE001  # anything: parsers raise what they like
        # not chained: the parser's message may quote a piece of the password
        raise InvalidInput(f"a database URL that begins with {url.partition(':')[0][:20]!r} cannot be read; {WAYS}") from None
    known = _KNOWN.get(parsed.get_backend_name())
    if known is None:
        raise InvalidInput(f"specops cannot store in {parsed.get_backend_name()!r}; {WAYS}")
    return known, parsed
