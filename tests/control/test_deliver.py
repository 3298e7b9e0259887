"""The outbox is emptied at least once, patiently, and never loses what it cannot deliver."""

import pytest

from specops.control.deliver import MAX_BACKOFF_S, deliver
from specops.errors import InvalidInput


@pytest.fixture
def queue(store, clock):
    """Return a function that queues a message."""

    def add(kind="alert", key="k1"):
        with store.begin() as unit:
            unit.outbox.add(kind, key, {"n": 1}, clock())

    return add


@pytest.fixture
def receiver():
    """Return a receiver that refuses the first calls: [refusals left, calls]."""

    class Receiver:
        def __init__(self):
            self.calls, self.errors = [], []

        def __call__(self, key, payload):
            self.calls.append((key, payload))
            if self.errors:
                raise self.errors.pop(0)

    return Receiver()


def test_a_message_is_delivered_once_and_audited(store, clock, queue, receiver):
    """What was delivered is not sent again."""
    queue()
    assert deliver(store, {"alert": receiver}, clock=clock) == ("k1",)
    assert deliver(store, {"alert": receiver}, clock=clock) == ()
    assert receiver.calls == [("k1", {"n": 1})]
    with store.read() as unit:
        assert [(e.tag, e.payload) for e in unit.audit.of("k1")] == [("outbox:alert:delivered", {"attempts": 1})]


def test_a_failure_is_tried_again_later_and_later(store, clock, queue, receiver):
    """Waits double from a second; nothing is sent before its time."""
    queue()
    receiver.errors = [OSError("refused")] * 3
    for wait_s in (1, 2, 4):
        assert deliver(store, {"alert": receiver}, clock=clock) == ()
        clock.pass_s(wait_s - 0.1)
        calls = len(receiver.calls)
        assert deliver(store, {"alert": receiver}, clock=clock) == ()
        assert len(receiver.calls) == calls
        clock.pass_s(0.1)
    assert deliver(store, {"alert": receiver}, clock=clock) == ("k1",)


def test_the_wait_is_bounded(store, clock, queue, receiver):
    """After many failures a message is still tried every five minutes."""
    queue()
    receiver.errors = [InvalidInput("refused")] * 12
    for _ in range(12):
        deliver(store, {"alert": receiver}, clock=clock)
        clock.pass_s(MAX_BACKOFF_S)
    assert len(receiver.calls) == 12
    assert deliver(store, {"alert": receiver}, clock=clock) == ("k1",)


def test_one_failure_does_not_hold_up_the_others(store, clock, queue, receiver):
    """Messages are independent."""
    queue(key="k1")
    queue(key="k2")
    receiver.errors = [OSError("refused")]
    assert deliver(store, {"alert": receiver}, clock=clock) == ("k2",)


def test_unknown_kinds_are_left_alone(store, clock, queue, receiver):
    """A message of another process's kind waits untouched."""
    queue(kind="mlflow_alias")
    assert deliver(store, {"alert": receiver}, clock=clock) == ()
    with store.read() as unit:
        assert [(m.kind, m.attempts) for m in unit.outbox.due(clock())] == [("mlflow_alias", 0)]


def test_a_kill_between_sending_and_noting_sends_again(store, clock, queue):
    """At least once: what was sent but not noted is sent by the next process."""
    sent = []

    def send(key, _payload):
        sent.append(key)
        if len(sent) == 1:
            raise KeyboardInterrupt

    queue()
    with pytest.raises(KeyboardInterrupt):
        deliver(store, {"alert": send}, clock=clock)
    assert deliver(store, {"alert": send}, clock=clock) == ("k1",)
    assert sent == ["k1", "k1"]
