"""A gateway as a child process: start it, wait until it serves, stop or kill it. For the demonstration and the flow tests."""

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from specops.errors import GatewayUnavailable
from specops.gateway.client import GatewayClient

LAUNCHER = (sys.executable, "-m", "specops.cli.main", "gateway", "serve")
_PROBE_EVERY_S = 0.05
_LOG_TAIL_BYTES = 2_000


@dataclass(slots=True, kw_only=True)
class GatewayProcess:
    """One gateway process on the loopback interface; output goes to `log_path`, by default `gateway.log` in its folder."""

    port: int
    state_dir: Path
    log_path: Path | None = None
    launcher: tuple[str, ...] = LAUNCHER
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def base_url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """The file its output goes to."""
        return self.log_path or self.state_dir / "gateway.log"

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def start(self) -> Self:
        """Start the process; returns before it serves."""
        self.state_dir.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = [*self.launcher, "--port", str(self.port), "--state-dir", str(self.state_dir)]
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603
        return self

    def wait_ready(self, timeout_s: float = 20.0) -> Self:
        """Return once it answers.

        Raises:
            GatewayUnavailable: it ended, or did not answer in time; the message holds the end of its log.
        """
        deadline = time.monotonic() + timeout_s
        with GatewayClient(self.base_url, timeout_s=1.0) as client:
            while self.pid is not None:
                try:
                    client.status()
                except GatewayUnavailable:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(_PROBE_EVERY_S)
                else:
                    return self
        state = "did not answer in time" if self.pid is not None else "ended while starting"
        raise GatewayUnavailable(f"the gateway on port {self.port} {state}; end of {self.log}: {self._log_tail()}")

    def kill(self) -> None:
        """End it at once, as a crash would (SIGKILL)."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def stop(self, timeout_s: float = 35.0) -> int | None:
        """Let it drain (SIGTERM), killing it after `timeout_s`; return its exit code, None when it was never started."""
        if self._child is None:
            return None
        self._child.terminate()
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._child.returncode

    def __enter__(self) -> Self:
        return self.start().wait_ready()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _log_tail(self) -> str:
        return self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
