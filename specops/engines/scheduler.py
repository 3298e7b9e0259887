"""One worker thread that decodes: requests take turns, one round each.

Torch is not shared between threads and a round of a small model is short, so fairness by turns is enough. What a request does
with its tokens is left to its callbacks, which run in the worker thread. Called by `engines.engine`.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from specops.decoding.loop import Step
from specops.errors import EngineUnavailable


@dataclass(eq=False, slots=True, kw_only=True)
class Job:
    """One request in the scheduler.

    Attributes:
        open: makes the generator of rounds; called in the worker thread at admission.
        on_step: takes a round, returns whether to go on.
        on_end: called once, with the error that ended the job or None.
        is_cancelled: set by anybody; honoured before the next round.
    """

    open: Callable[[], Iterator[Step]]
    on_step: Callable[[Step], bool]
    on_end: Callable[[Exception | None], None]
    is_cancelled: threading.Event = field(default_factory=threading.Event)
    _rounds: Iterator[Step] | None = None


class Scheduler:
    """Round-robin over at most `max_running` requests; at most `max_waiting` more may wait."""

    def __init__(self, *, max_running: int, max_waiting: int) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._running: deque[Job] = deque()
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="decoding", daemon=True)
        self._thread.start()

    @property
    def running(self) -> int:
        """Requests that take turns now."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that wait for a turn."""
        return len(self._waiting)

    @property
    def is_alive(self) -> bool:
        """Whether the worker can still decode."""
        return self._thread.is_alive() and not self._is_closed

    def submit(self, job: Job) -> None:
        """Queue a job.

        Raises:
            EngineUnavailable: the queue is full, or the scheduler is closed.
        """
        with self._changed:
            if self._is_closed:
                raise EngineUnavailable("engine is shutting down; send the request to another replica")
            present = len(self._running) + sum(not job.is_cancelled.is_set() for job in self._waiting)
            if present >= self._max_running + self._max_waiting:
                raise EngineUnavailable(f"{present} requests are running or waiting, no more fit; try again later")
            self._waiting.append(job)
            self._changed.notify()

    def close(self, *, timeout_s: float = 5.0) -> None:
        """Cancel every job and end the worker; safe to call twice."""
        with self._changed:
            self._is_closed = True
            for job in (*self._running, *self._waiting):
                job.is_cancelled.set()
            self._changed.notify()
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            if self._turn(job):
                continue
            with self._changed:
                self._running.remove(job)

    def _next(self) -> Job | None:
        """Admit who waits and return whose turn it is; None when closed and empty."""
        with self._changed:
            while not self._running and not self._waiting:
                if self._is_closed:
                    return None
                self._changed.wait()
            # A cancelled request passes the limit: its turn only ends it.
            while self._waiting and (len(self._running) < self._max_running or self._waiting[0].is_cancelled.is_set()):
                self._running.append(self._waiting.popleft())
            self._running.rotate(-1)
            return self._running[-1]

    def _turn(self, job: Job) -> bool:
        """Run one round; return whether the job goes on."""
        error: Exception | None = None
        try:
            if not job.is_cancelled.is_set():
                if job._rounds is None:  # noqa: SLF001  # the scheduler owns this field
                    job._rounds = job.open()  # noqa: SLF001
                step = next(job._rounds, None)  # noqa: SLF001
                if step is not None and job.on_step(step):
                    return True
        except Exception as exc:  # noqa: BLE001  # one broken request must not end the others
            error = exc
        job._rounds = None  # noqa: SLF001  # frees the key-value cache
        job.on_end(error)
        return False
