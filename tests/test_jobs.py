"""Recurring work: it runs, it survives its errors, it tells when it last ran."""

import logging
import threading

import pytest

from specops.errors import InvalidRecord
from specops.jobs import Heartbeat, Job, Jobs

WAIT_S = 10.0


@pytest.fixture
def run_jobs():
    """Start a table and stop it afterwards."""
    running = []

    def start(*jobs, on_error=lambda _name, _error: None):
        table = Jobs(jobs, on_error=on_error)
        running.append(table)
        table.start()
        return table

    yield start
    for table in running:
        table.stop()


def test_a_job_runs_at_once_and_again(run_jobs):
    """The first run does not wait for the period."""
    first, third = threading.Event(), threading.Event()
    calls = []

    def run():
        calls.append(1)
        first.set()
        if len(calls) == 3:
            third.set()

    run_jobs(Job(name="a", every_s=0.02, run=run))

    assert first.wait(WAIT_S)
    assert third.wait(WAIT_S)


def test_an_error_is_reported_and_stops_nothing(run_jobs):
    """The failing job runs again, and so does its neighbour; a broken reporter changes nothing."""
    again, other = threading.Event(), threading.Event()
    told = []

    def fail():
        raise RuntimeError("boom")

    def report(name, error):
        told.append((name, str(error)))
        if len(told) == 2:
            again.set()
        raise ValueError("reporter is broken")

    logging.getLogger("specops.jobs").setLevel(logging.CRITICAL)
    table = run_jobs(Job(name="bad", every_s=0.02, run=fail), Job(name="good", every_s=0.02, run=other.set), on_error=report)

    assert again.wait(WAIT_S)
    assert other.wait(WAIT_S)
    assert set(told) == {("bad", "boom")}
    beat = table.heartbeats()["bad"]
    assert beat.failures == beat.runs >= 2
    assert beat.error == "RuntimeError('boom')"


def test_a_slow_job_never_overlaps_itself_nor_holds_up_others(run_jobs):
    """One instance at a time; the neighbour has its own thread."""
    release, other = threading.Event(), threading.Event()
    inside, most, beats = [], [], []

    def slow():
        inside.append(1)
        most.append(len(inside))
        release.wait(WAIT_S)
        inside.pop()

    def beat():
        beats.append(1)
        if len(beats) == 5:
            other.set()

    run_jobs(Job(name="slow", every_s=0.01, run=slow), Job(name="beat", every_s=0.02, run=beat))

    assert other.wait(WAIT_S)
    assert most == [1]
    release.set()


def test_heartbeats_tell_the_last_run():
    """Before the first run there is none; `stop` waits, so that afterwards the run is complete."""
    done = threading.Event()
    table = Jobs((Job(name="a", every_s=60, run=done.set),), on_error=lambda _name, _error: None)
    assert table.heartbeats() == {"a": Heartbeat()}

    table.start()
    table.start()
    assert done.wait(WAIT_S)
    table.stop()
    table.stop()

    beat = table.heartbeats()["a"]
    assert (beat.runs, beat.failures, beat.error) == (1, 0, None)
    assert beat.began_at <= beat.ended_at


def test_tables_that_cannot_work_are_refused():
    """A period of nothing, and one name twice."""
    with pytest.raises(InvalidRecord, match="expected more than 0"):
        Job(name="a", every_s=0, run=print)
    job = Job(name="a", every_s=1, run=print)
    with pytest.raises(InvalidRecord, match="expected each once"):
        Jobs((job, job), on_error=print)
