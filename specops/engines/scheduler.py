"""One worker thread that decodes: all running requests advance together, one target forward a round.

Torch is not shared between threads, so joining, cancelling and every callback happen in the worker, between forwards. What a
request does with its tokens is left to its callbacks. Called by `engines.engine`. Test: tests/engines/test_scheduler.py.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from specops.decoding.batch import Batch, DynamicK, Row
from specops.decoding.draft import Draft, ModelDraft
from specops.decoding.request import Request, Step
from specops.device.batch import DeviceBatch
from specops.errors import EngineUnavailable
from specops.transformer.model import Model

_FIXED = DynamicK()


@dataclass(eq=False, slots=True, kw_only=True)
class Job:
    """One request in the scheduler.

    Attributes:
        open: makes the decoder's request; called in the worker thread at admission.
        on_step: takes a round, returns whether to go on.
        on_end: called once, with the error that ended the job or None.
        is_cancelled: set by anybody; honoured before the next round.
    """

    open: Callable[[], Request]
    on_step: Callable[[Step], bool]
    on_end: Callable[[Exception | None], None]
    is_cancelled: threading.Event = field(default_factory=threading.Event)


class Scheduler:
    """A batch of at most `max_running` requests; at most `max_waiting` more may wait.

    On a CUDA device the rounds of a draft model run on the device, unless `dynamic` changes k from round to round.
    """

    def __init__(
        self, *, target: Model, draft: Draft | None, max_running: int, max_waiting: int, dynamic: DynamicK = _FIXED
    ) -> None:
        self._batch: Batch | DeviceBatch
        if target.device.type == "cuda" and isinstance(draft, ModelDraft) and dynamic == _FIXED:
            self._batch = DeviceBatch(target, draft, max_running)
        else:
            self._batch = Batch(target=target, draft=draft, slots=max_running, dynamic=dynamic)
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._running: dict[Row, Job] = {}
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="decoding", daemon=True)
        self._thread.start()

    @property
    def running(self) -> int:
        """Requests that are decoded now."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
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
            for job in (*self._running.values(), *self._waiting):
                job.is_cancelled.set()
            self._changed.notify()
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while (joining := self._next()) is not None:
            for job in joining:
                self._admit(job)
            for row, job in tuple(self._running.items()):
                if job.is_cancelled.is_set():
                    self._end(row, None)
            try:
                for row, step in self._batch.round():
                    self._deliver(row, step)
            except Exception as exc:  # noqa: BLE001  # the shared forward failed: these requests end, the worker does not
                for row in tuple(self._running):
                    self._end(row, exc)

    def _next(self) -> list[Job] | None:
        """Return who is to be admitted, once there is anything to do; None when closed and empty."""
        with self._changed:
            while not self._running and not self._waiting:
                if self._is_closed:
                    return None
                self._changed.wait()
            joining: list[Job] = []
            free = self._batch.free
            # A cancelled request passes the limit: it is only ended.
            while self._waiting and (free > 0 or self._waiting[0].is_cancelled.is_set()):
                joining.append(self._waiting.popleft())
                free -= not joining[-1].is_cancelled.is_set()
            return joining

    def _admit(self, job: Job) -> None:
        if job.is_cancelled.is_set():
            job.on_end(None)
            return
        try:
            row = self._batch.join(job.open())
        except Exception as exc:  # noqa: BLE001  # one broken request must not end the others
            job.on_end(exc)
            return
        with self._changed:
            self._running[row] = job

    def _deliver(self, row: Row, step: Step | Exception) -> None:
        job = self._running[row]
        if isinstance(step, Exception):
            self._end(row, step)
            return
        try:
            if job.is_cancelled.is_set() or not job.on_step(step) or step.finish is not None:
                self._end(row, None)
        except Exception as exc:  # noqa: BLE001
            self._end(row, exc)

    def _end(self, row: Row, error: Exception | None) -> None:
        self._batch.leave(row)
        with self._changed:
            job = self._running.pop(row)
        job.on_end(error)
