"""The story's clients: one open-loop stream of held-out prompts, first code, then prose."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from specops.load.generator import LoadGenerator, LoadReport, Prompt, Sent
from specops.load.schedule import Arrivals, gaps_s
from specops.wiring import now

MAX_TOKENS = 32


@dataclass(slots=True, kw_only=True)
class Traffic:
    """A running load: constant arrivals, so that the wait for the next request is bounded and known.

    `shift()` turns from code to prose; `shifted_at` is when.
    """

    url: str
    code: tuple[str, ...]
    prose: tuple[str, ...]
    rate_per_s: float
    seed: int
    sent: list[Sent] = field(default_factory=list)
    shifted_at: datetime | None = None
    _started: int = 0
    _report: LoadReport | None = None
    _generator: LoadGenerator = field(init=False)
    _thread: threading.Thread = field(init=False)

    def start(self) -> None:
        """Begin to send."""
        self._generator = LoadGenerator(self.url, on_finished=self.sent.append)
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._thread.start()

    def shift(self) -> None:
        """Send prose from the next request on."""
        self.shifted_at = now()

    def stop(self) -> LoadReport:
        """Send no more, wait for the last answer and return what happened."""
        self._generator.stop()
        self._thread.join(timeout=120)
        assert self._report is not None, "the load generator ends once its requests have ended"
        return self._report

    def _run(self) -> None:
        self._report = asyncio.run(self._generator.run(self._prompts(), self._times()))

    def _times(self) -> Iterator[float]:
        at = 0.0
        for gap in gaps_s(Arrivals.CONSTANT, self.rate_per_s, np.random.default_rng(self.seed)):
            yield at
            at += gap

    def _prompts(self) -> Iterator[Prompt]:
        rng = np.random.default_rng(self.seed)
        orders = {"code": rng.permutation(len(self.code)), "prose": rng.permutation(len(self.prose))}
        taken = {"code": 0, "prose": 0}
        while True:
            domain = "code" if self.shifted_at is None else "prose"
            texts = self.code if domain == "code" else self.prose
            text = texts[orders[domain][taken[domain] % len(texts)]]
            taken[domain] += 1
            request_id = f"qs-{self._started:05d}"
            self._started += 1
            yield Prompt(request_id=request_id, prompt=text, options={"max_tokens": MAX_TOKENS, "temperature": 0.0})
