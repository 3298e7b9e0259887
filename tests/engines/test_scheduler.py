"""The worker: requests share its rounds, and no request's end is another's."""

import threading

import pytest

from specops.decoding.lookup import NgramDraft
from specops.decoding.request import Request
from specops.engines.scheduler import Job, Scheduler
from specops.errors import EngineUnavailable, InvalidInput
from specops.transformer.model import load_model

PATIENCE_S = 60


class Caller:
    """A job, what it got, and how it ended."""

    def __init__(self, *, max_tokens=8, ids=(1, 2), on_step=None, gate=None):
        self.tokens, self.error, self.ended, self.ends = [], None, threading.Event(), 0
        self._request, self._react, self._gate = (ids, max_tokens), on_step, gate
        self.job = Job(open=self._open, on_step=self._on_step, on_end=self._on_end)

    def _open(self):
        if self._gate is not None:
            assert self._gate.wait(PATIENCE_S)
        ids, max_tokens = self._request
        return Request(prompt_ids=ids, max_tokens=max_tokens, ignore_eos=True)

    def _on_step(self, step):
        self.tokens += step.tokens
        return self._react() if self._react else True

    def _on_end(self, error):
        self.error, self.ends = error, self.ends + 1
        self.ended.set()

    def wait(self):
        """Wait for the end and return self."""
        assert self.ended.wait(PATIENCE_S)
        return self


@pytest.fixture(params=[None, NgramDraft(3, 3, 1)], ids=["plain", "speculative"])
def scheduler(request, pair):
    """Return a scheduler with two slots and two places in the queue."""
    target = load_model(pair[0])
    made = Scheduler(target=target, draft=request.param, max_running=2, max_waiting=2)
    yield made
    made.close(timeout_s=PATIENCE_S)


def test_every_request_gets_its_tokens_and_one_end(scheduler):
    """More requests than slots: those that wait are admitted as slots get free."""
    callers = [Caller(max_tokens=4 + i, ids=(1, i)) for i in range(4)]

    for caller in callers:
        scheduler.submit(caller.job)
    for caller in callers:
        caller.wait()

    assert [len(c.tokens) for c in callers] == [4, 5, 6, 7]
    assert [(c.error, c.ends) for c in callers] == [(None, 1)] * 4


def test_the_queue_has_an_end(scheduler):
    """Running and waiting together are limited, and the refusal names the way out."""
    gate = threading.Event()
    callers = [Caller(gate=gate) for _ in range(4)]
    for caller in callers:
        scheduler.submit(caller.job)

    with pytest.raises(EngineUnavailable, match="no more fit; try again later"):
        scheduler.submit(Caller().job)

    gate.set()
    for caller in callers:
        assert len(caller.wait().tokens) == 8


def test_a_bad_request_and_a_failing_callback_end_alone(scheduler):
    """An unknown token, and a client whose callback raises; the third request does not notice."""

    def fail():
        raise RuntimeError("client is gone")

    bad, failing, good = Caller(ids=(999,)), Caller(on_step=fail), Caller(max_tokens=12)
    for caller in (bad, failing, good):
        scheduler.submit(caller.job)

    assert isinstance(bad.wait().error, InvalidInput)
    assert isinstance(failing.wait().error, RuntimeError)
    assert len(good.wait().tokens) == 12
    assert good.error is None


def test_a_cancelled_request_frees_its_slot(scheduler):
    """Cancelled from its own callback; the next ones still get theirs."""
    first = Caller(max_tokens=60, on_step=lambda: first.job.is_cancelled.set() or True)
    scheduler.submit(first.job)
    assert len(first.wait().tokens) < 60

    later = [Caller() for _ in range(2)]
    for caller in later:
        scheduler.submit(caller.job)

    assert [len(c.wait().tokens) for c in later] == [8, 8]
    assert (scheduler.running, scheduler.waiting) == (0, 0)


def test_closing_ends_everybody(scheduler):
    """Running and waiting requests end once, and later ones are refused."""
    callers = [Caller(max_tokens=60) for _ in range(4)]
    for caller in callers:
        scheduler.submit(caller.job)

    scheduler.close(timeout_s=PATIENCE_S)

    assert [c.wait().ends for c in callers] == [1] * 4
    assert not scheduler.is_alive
    with pytest.raises(EngineUnavailable, match="shutting down"):
        scheduler.submit(Caller().job)
