"""Alerts and their receiver, over real HTTP on 127.0.0.1."""

import json
import socket
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from specops.adapters.alerts import Alert, Receiver, post
from specops.errors import InvalidInput, InvalidRecord, Unavailable

AT = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
ALERT = Alert(
    name="SpecopsRolledBack",
    labels={"service": "specops", "severity": "critical", "rollout": "r-1", "check": "acceptance"},
    annotations={"summary": "rollout r-1 rolled back", "owner": "inference-oncall"},
    starts_at=AT,
)


@pytest.fixture
def receiver(tmp_path):
    """Return a listening receiver."""
    with Receiver(tmp_path / "alerts.jsonl") as receiver:
        yield receiver


def status_of(url, body):
    """Post raw bytes; return the HTTP status."""
    request = urllib.request.Request(url, data=body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_posted_alert_arrives_whole(receiver):
    """What was sent is what the receiver has in its file."""
    post(receiver.url, [ALERT])

    assert receiver.received() == (ALERT,)
    assert json.loads(receiver.log.read_text())["alert"]["labels"]["alertname"] == "SpecopsRolledBack"


def test_a_resolved_alert_keeps_its_identity(receiver):
    """Firing and resolved are one incident: same labels, and an end."""
    post(receiver.url, [ALERT])
    post(receiver.url, [ALERT.resolved(AT + timedelta(minutes=3))])

    firing, resolved = receiver.received()
    assert firing.labels == resolved.labels
    assert (firing.ends_at, resolved.ends_at) == (None, AT + timedelta(minutes=3))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{not json", 400),
        (b"{}", 422),
        (b'[{"annotations": {}}]', 422),
        (b'[{"labels": {"severity": "critical"}}]', 422),
        (b'[{"labels": {"alertname": "a", "n": 3}}]', 422),
        (b'[{"labels": {"alertname": "a"}, "startsAt": "yesterday"}]', 422),
        (b'[{"labels": {"alertname": "a"}, "startsAt": "2026-01-01T00:00:00"}]', 422),
        (b'[{"labels": {"alertname": "a"}, "value": 3}]', 422),
        (b"[3]", 422),
        (b'[{"labels": {"alertname": "a"}}]', 200),
    ],
)
def test_the_receiver_tells_good_from_bad(receiver, body, status):
    """Only well-formed alerts are stored; the rest is refused with the reason."""
    assert status_of(receiver.url + "/api/v2/alerts", body) == status
    assert len(receiver.received()) == (status == 200)


def test_the_receiver_has_no_other_door(receiver):
    """A wrong path is not found, and stores nothing; its health can be asked."""
    assert status_of(receiver.url + "/api/v1/alerts", b"[]") == 404
    with urllib.request.urlopen(receiver.url + "/-/healthy", timeout=5) as response:
        assert response.status == 200


def test_a_refusal_is_unavailable_and_says_why(receiver):
    """The sender keeps its alerts and learns the receiver's words."""
    with pytest.raises(Unavailable, match="404"):
        post(receiver.url + "/elsewhere", [ALERT])


def test_a_dead_receiver_is_unavailable():
    """Nothing listens: the caller hears so within the timeout."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

    with pytest.raises(Unavailable, match="did not answer"):
        post(url, [ALERT], timeout_s=1.0)


def test_only_http_is_posted_to():
    """A file URL is a mistake, not a receiver."""
    with pytest.raises(InvalidInput, match="neither http nor https"):
        post("file:///etc/passwd", [ALERT])


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": {"bad-name": "x"}},
        {"labels": {"alertname": "x"}},
        {"starts_at": AT.replace(tzinfo=None)},
        {"name": ""},
    ],
)
def test_a_malformed_alert_cannot_be_made(fields):
    """Bad label names, a second alertname, a time without zone, no name."""
    with pytest.raises(InvalidRecord):
        Alert(**({"name": "a", "labels": {}, "starts_at": AT} | fields))


def test_an_alert_survives_the_outbox():
    """The record form is complete."""
    alert = replace(ALERT, ends_at=AT, generator_url="http://127.0.0.1/report")

    assert Alert.from_record(json.loads(json.dumps(alert.to_record()))) == alert
