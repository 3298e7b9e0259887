"""A `specops` command in the background: started with a log file, ended for sure. Used by `specops up` and the quickstart."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self


@dataclass(slots=True, kw_only=True)
class Background:
    """One child process `specops WORDS...`; its output is appended to `log`, `environment` goes on top of ours."""

    words: tuple[str, ...]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    _child: "subprocess.Popen[bytes] | None" = None

    def start(self) -> Self:
        """Start the command."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603  # our own command
                [sys.executable, "-m", "specops.cli.main", *self.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(self.environment),
            )
        return self

    @property
    def pid(self) -> int | None:
        """Process id; None before the start."""
        return None if self._child is None else self._child.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._child is not None and self._child.poll() is None

    def end(self, *, kill: bool = False, timeout_s: float = 15.0) -> None:
        """End it: SIGTERM, and SIGKILL when asked or when it still runs after `timeout_s`; no error when it is gone."""
        if self._child is None:
            return
        if kill:
            self._child.kill()
        else:
            self._child.terminate()
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
