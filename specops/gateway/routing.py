"""Where requests go now: the newest route, kept on disk, and the local guard that may fall back but never advance.

The control plane replaces the route through `admin`; `recording` shows every outcome to the guard. The guard knows two rules
only, both about a candidate that cannot answer; judging quality and speed is the control plane's work. A trip survives a
restart and ends only with a route of a higher revision.
"""

import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import orjson

from specops.core.outcome import Arm, Finish, Outcome
from specops.core.route import Route
from specops.errors import IllegalTransition, InvalidRecord

ROUTE_FILE = "route.json"
TRIP_AFTER = 3  # consecutive failures of one candidate; one or two may be the request's fault
UNREACHABLE = "engine_unreachable"
COUNTED = frozenset({"engine_5xx", "broken_stream", "malformed_stream", "nan_text"})

_log = logging.getLogger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Routing:
    """The route in force, its effective shares, and the trip if there is one."""

    def __init__(self, state_dir: Path, *, now: Callable[[], datetime] = _utc_now) -> None:
        """Load what the last process left in `state_dir`, if anything.

        Raises:
            InvalidRecord: the file is damaged.
        """
        self._path = state_dir / ROUTE_FILE
        self._now = now
        self._failures = 0
        self.route: Route | None = None
        self.tripped: str | None = None
        self.applied_at: str | None = None
        if self._path.exists():
            self._load()

    @property
    def effective_weight(self) -> float:
        """The candidate's live share after the guard, in [0, 1]."""
        return self.route.weight if self.route and self.tripped is None else 0.0

    @property
    def effective_mirror(self) -> float:
        """The mirrored share after the guard, in [0, 1]."""
        return self.route.mirror if self.route and self.tripped is None else 0.0

    def put(self, route: Route) -> None:
        """Replace the route and re-arm the guard; the same route again changes nothing.

        Raises:
            IllegalTransition: the revision is not higher than the one in force.
            OSError: the route cannot be kept on disk; nothing was changed.
        """
        if self.route is not None and route.revision <= self.route.revision:
            if route == self.route:
                return
            raise IllegalTransition(
                f"route revision is {route.revision}, expected more than {self.route.revision}; send the next revision"
            )
        applied_at = self._now().isoformat()
        self._save(route, None, applied_at)
        self.route, self.tripped, self.applied_at, self._failures = route, None, applied_at, 0

    def observe(self, outcome: Outcome, *, revision: int, detail: str = "") -> None:
        """Show the guard one outcome of a request that was sent under `revision`.

        1. Only the candidate of the route in force counts; late results of an older route do not.
        2. Unreachable: trip at once.
        3. TRIP_AFTER failures in a row: trip. An answer that ended well starts the count again; aborts and 4xx leave it.
        """
        if self.route is None or outcome.arm is not Arm.CANDIDATE or revision != self.route.revision or self.tripped:
            return  # 1.
        if outcome.error == UNREACHABLE:  # 2.
            self._trip(f"candidate {self.route.candidate_url} is unreachable: {detail or outcome.error}")
        elif outcome.error in COUNTED:  # 3.
            self._failures += 1
            if self._failures >= TRIP_AFTER:
                self._trip(
                    f"candidate {self.route.candidate_url} failed {self._failures} times running: {outcome.error} {detail}"
                )
        elif outcome.finish in {Finish.STOP, Finish.LENGTH}:
            self._failures = 0

    def _trip(self, reason: str) -> None:
        self.tripped = reason.strip()
        _log.warning("fell back to the baseline: %s", self.tripped)
        assert self.route is not None
        assert self.applied_at is not None
        try:
            self._save(self.route, self.tripped, self.applied_at)
        except OSError:  # traffic is safe already; only a restart would forget
            _log.exception("cannot keep the trip in %s", self._path)

    def _save(self, route: Route, tripped: str | None, applied_at: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(orjson.dumps({"route": route.to_record(), "tripped": tripped, "applied_at": applied_at}))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)

    def _load(self) -> None:
        try:
            held = orjson.loads(self._path.read_bytes())
            self.route, self.tripped, self.applied_at = Route.from_record(held["route"]), held["tripped"], held["applied_at"]
        except (orjson.JSONDecodeError, KeyError, TypeError, InvalidRecord) as exc:
            raise InvalidRecord(f"{self._path} is not a stored route: {exc}; delete it and send the route again") from exc
