"""Deliver what the outbox holds: at least once, with backoff, never able to change a verdict."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from specops.control.ports import Store
from specops.errors import SpecopsError

Send = Callable[[str, dict[str, Any]], None]
MAX_BACKOFF_S = 300.0


def deliver(store: Store, senders: Mapping[str, Send], *, clock: Callable[[], datetime]) -> tuple[str, ...]:
    """Send each due message whose kind has a sender; return the keys delivered. A failure is stored and tried again later."""
    with store.read() as unit:  # looking takes no write lock: this runs twice a second beside the control loop
        due = [m for m in unit.outbox.due(clock()) if m.kind in senders]
    delivered = []
    for message in due:
        try:
            senders[message.kind](message.key, message.payload)
        except (SpecopsError, OSError) as exc:
            wait_s = min(MAX_BACKOFF_S, 2.0**message.attempts)
            with store.begin() as unit:
                unit.outbox.failed(message.id, f"{type(exc).__name__}: {exc}", clock() + timedelta(seconds=wait_s))
            continue
        now = clock()
        with store.begin() as unit:
            unit.outbox.done(message.id, now)
            unit.audit.append(
                tag=f"outbox:{message.kind}:delivered",
                actor="specops",
                subject=message.key,
                payload={"attempts": message.attempts + 1},
                at=now,
            )
        delivered.append(message.key)
    return tuple(delivered)
