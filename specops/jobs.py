"""Recurring work in the background: a fixed table of jobs on one scheduler, with a heartbeat for each.

Built by `wiring`, which decides what runs and how often; this module decides only that a job never overlaps itself, that
late runs are folded into one, and that an error never stops the clock. Nothing is stored: the table is code, and each job
finds its own state.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from specops.errors import InvalidRecord

MISFIRE_GRACE_S = 30  # a run that is later than this is skipped; the next one is due anyway

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work done every `every_s` seconds, the first time at once."""

    name: str
    every_s: float
    run: Callable[[], None]

    def __post_init__(self) -> None:
        """Check the period."""
        if not self.every_s > 0:
            raise InvalidRecord(f"job {self.name} runs every {self.every_s} s, expected more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """When a job last ran and how it ended. Times are UTC; None before the first run; `error` is that of the last run."""

    began_at: datetime | None = None
    ended_at: datetime | None = None
    runs: int = 0
    failures: int = 0
    error: str | None = None


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Jobs:
    """A scheduler over a fixed table of jobs."""

    def __init__(
        self,
        jobs: tuple[Job, ...],
        *,
        on_error: Callable[[str, Exception], None],
        misfire_grace_s: int = MISFIRE_GRACE_S,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        """Prepare the table; nothing runs yet.

        Args:
            jobs: what to run; names are unique.
            on_error: told the job's name and its error, on the job's thread.
            misfire_grace_s: how late a run may begin, in seconds.
            now: the clock of the heartbeats.

        Raises:
            InvalidRecord: two jobs have one name.
        """
        names = [job.name for job in jobs]
        if len(set(names)) != len(names):
            raise InvalidRecord(f"job names are {names}, expected each once")
        self._jobs = jobs
        self._on_error = on_error
        self._misfire_grace_s = misfire_grace_s
        self._now = now
        self._lock = threading.Lock()
        self._heartbeats = {name: Heartbeat() for name in names}
        self._scheduler: BackgroundScheduler | None = None

    def start(self) -> None:
        """Run every job at once, then at its period; a second call does nothing."""
        if self._scheduler is not None:
            return
        self._scheduler = BackgroundScheduler(
            jobstores={"default": MemoryJobStore()},
            executors={"default": ThreadPoolExecutor(max(1, len(self._jobs)))},  # a slow job never waits for another
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": self._misfire_grace_s},
            timezone=UTC,
        )
        for job in self._jobs:
            trigger = IntervalTrigger(seconds=job.every_s, timezone=UTC)
            self._scheduler.add_job(
                self._run, trigger, args=(job,), id=job.name, name=job.name, next_run_time=datetime.now(UTC)
            )
        self._scheduler.start()

    def stop(self) -> None:
        """Start nothing more and wait for what is running; a second call does nothing."""
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            scheduler.shutdown(wait=True)

    def heartbeats(self) -> Mapping[str, Heartbeat]:
        """Return a copy of the newest heartbeat of each job, by name."""
        with self._lock:
            return dict(self._heartbeats)

    def _run(self, job: Job) -> None:
        self._note(job, began_at=self._now())
        error: Exception | None = None
        try:
            job.run()
        except Exception as exc:  # noqa: BLE001  # whatever a job raises, the others go on
            error = exc
        beat = self._heartbeats[job.name]
        failed = int(error is not None)
        text = repr(error) if error else None
        self._note(job, ended_at=self._now(), runs=beat.runs + 1, failures=beat.failures + failed, error=text)
        if error is not None:
            self._report(job, error)

    def _note(self, job: Job, **changes: object) -> None:
        with self._lock:
            self._heartbeats[job.name] = replace(self._heartbeats[job.name], **changes)  # type: ignore[arg-type]

    def _report(self, job: Job, error: Exception) -> None:
        try:
            self._on_error(job.name, error)
        except Exception:  # noqa: BLE001  # a broken reporter must not stop the clock either
            _log.exception("cannot report the error of job %s: %r", job.name, error)
