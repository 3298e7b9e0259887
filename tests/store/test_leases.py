"""Leases: one holder, a token that grows, and the database's clock where several hosts share it."""

from datetime import timedelta

from specops.store.database import open_store


def test_a_lease_on_a_file_goes_by_the_given_time(path, tmp_path, t0):
    """Renewal keeps the token; every new holding raises it; who comes too early gets nothing."""
    second = timedelta(seconds=1)
    store = open_store(f"sqlite:///{path}", segments=tmp_path)
    with store.begin() as unit:
        take = unit.leases.take
        assert take("control", "a", t0, 10) == 1
        assert take("control", "a", t0 + 5 * second, 10) == 1
        assert take("control", "b", t0 + 14 * second, 10) is None
        assert take("control", "b", t0 + 15 * second, 10) == 2
        assert take("other", "b", t0, 10) == 1
    store.close()


def test_a_lease_on_postgresql_goes_by_the_clock_of_the_database(postgres_url, tmp_path, t0):
    """A host whose clock is years ahead takes nothing away from the holder."""
    store = open_store(postgres_url, segments=tmp_path)
    ahead = t0 + timedelta(days=3650)
    with store.begin() as unit:
        assert unit.leases.take("control", "a", t0, 60) == 1
    with store.begin() as unit:
        assert unit.leases.take("control", "b", ahead, 60) is None
        assert unit.leases.take("control", "a", ahead, 60) == 1
    store.close()


def test_a_lease_that_ran_out_goes_to_the_next_with_a_higher_token(store, t0):
    """The old holder comes back as a new one: its old token is below the one in force."""
    with store.begin() as unit:
        assert unit.leases.take("control", "a", t0, 0) == 1
    with store.begin() as unit:
        assert unit.leases.take("control", "b", t0, 60) == 2
        assert unit.leases.take("control", "a", t0, 60) is None


def test_a_lease_given_back_is_free_at_once(store, t0):
    """Only its holder can give it back, and only once; a token is never given out twice."""
    with store.begin() as unit:
        assert unit.leases.take("control", "a", t0, 60) == 1
        assert not unit.leases.release("control", "b")
        assert unit.leases.release("control", "a")
        assert not unit.leases.release("control", "a")
        assert unit.leases.take("control", "a", t0, 60) == 2
