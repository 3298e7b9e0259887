"""An engine server as a child process: start it, wait for it, stop it, and say why when it died.

The child gets its own session, so a signal to the terminal does not reach it, and its output goes to a file. By default it
outlives its starter; `dies_with_parent` makes it end with the starter, however that ends. Called by wiring and the tests.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self

from specops.engines.client import EngineClient
from specops.engines.config import ServerConfig
from specops.errors import EngineUnavailable, InvalidInput

PARENT_VARIABLE = "_SPECOPS_PARENT_PID"  # no setting: those begin with SPECOPS_
_POLL_S = 0.1
_LAST_LINES = 8
_GRACE_S = 5.0
_OPTIONS = (  # fields of ServerConfig that are options of `specops engine serve`
    "model", "host", "port", "served_model_name", "method", "num_speculative_tokens", "draft", "threads", "max_running",
    "dtype", "device", "speculation", "trace",
)  # fmt: skip


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
        return port


def serve_command(config: ServerConfig) -> tuple[str, ...]:
    """Return the command line that serves a config: `specops engine serve ...` with this Python.

    Raises:
        InvalidInput: the config sets something that has no option; it would be lost.
    """
    default = ServerConfig(model=config.model)
    names = [field.name for field in fields(config) if field.name not in _OPTIONS]
    lost = [name for name in names if getattr(config, name) != getattr(default, name)]
    if lost:
        raise InvalidInput(f"{', '.join(lost)} cannot be given to specops engine serve; run specops.engines.server")
    words = [sys.executable, "-m", "specops.cli.main", "engine", "serve", "--model", str(config.model)]
    words += ["--host", config.host, "--port", str(config.port), "--served-model-name", config.name]
    words += ["--threads", str(config.threads), "--max-running", str(config.max_running)]
    if config.method is not None:
        words += ["--method", config.method, "-k", str(config.num_speculative_tokens)]
    if config.draft is not None:
        words += ["--draft", str(config.draft)]
    for name in ("dtype", "device"):
        if getattr(config, name) != getattr(default, name):
            words += [f"--{name}", getattr(config, name)]
    if settings := config.speculation.to_record():
        words += ["--speculative-config", json.dumps(settings)]
    if config.trace != default.trace:
        words += ["--trace", config.trace.mode, "--trace-sample", str(config.trace.share)]
    return tuple(words)


def watch_parent(*, poll_s: float = 0.25) -> None:
    """End this process when the one named in _SPECOPS_PARENT_PID is no longer its parent; do nothing when it is unset.

    Polling is used because Linux's parent-death signal follows the starting thread, not the starting process.
    """
    named = os.environ.get(PARENT_VARIABLE, "")
    if not named.isdigit():
        return

    def watch() -> None:
        while os.getppid() == int(named):
            time.sleep(poll_s)
        os.kill(os.getpid(), signal.SIGTERM)  # drain first
        time.sleep(_GRACE_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


@dataclass(slots=True, kw_only=True)
class EngineProcess:
    """One server process.

    Attributes:
        command: what to run, such as `serve_command(config)`.
        base_url: where it will listen.
        log: file that its output is appended to.
        dies_with_parent: end it when this process ends, even by SIGKILL; the child must call `watch_parent`.
    """

    command: tuple[str, ...]
    base_url: str
    log: Path
    dies_with_parent: bool = False
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> Self:
        """Start the process; it is not ready yet.

        Raises:
            EngineUnavailable: the program cannot be started.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if name != PARENT_VARIABLE}
        if self.dies_with_parent:
            environment[PARENT_VARIABLE] = str(os.getpid())
        try:
            with self.log.open("ab") as output:
                self._child = subprocess.Popen(  # noqa: S603  # our own command
                    self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    start_new_session=True, env=environment,
                )  # fmt: skip
        except OSError as exc:
            raise EngineUnavailable(f"cannot start {self.command[0]}: {exc.strerror or exc}") from exc
        return self

    @property
    def pid(self) -> int | None:
        """Process id, None before the start."""
        return None if self._child is None else self._child.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.poll() is None

    def wait_ready(self, *, timeout_s: float = 120.0, on_tick: Callable[[float], None] | None = None) -> None:
        """Return when /health answers 200.

        Args:
            timeout_s: longest wait.
            on_tick: called about ten times a second with the seconds waited, for a progress bar.

        Raises:
            EngineUnavailable: it died or was not ready in time; the message has the last lines of its log.
        """
        client, began_s = EngineClient(self.base_url, timeout_s=1.0), time.monotonic()
        while (waited_s := time.monotonic() - began_s) < timeout_s:
            if self._child is None or self._child.poll() is not None:
                code = None if self._child is None else self._child.returncode
                raise EngineUnavailable(f"engine at {self.base_url} ended at start with code {code}: {self.last_lines()}")
            try:
                client.health()
            except EngineUnavailable:
                if on_tick is not None:
                    on_tick(waited_s)
                time.sleep(_POLL_S)
            else:
                return
        raise EngineUnavailable(f"engine at {self.base_url} not ready after {timeout_s:g} s: {self.last_lines()}")

    def last_lines(self) -> str:
        """Return the end of the log in one line, with the file's name."""
        try:
            lines = self.log.read_text("utf-8", "replace").splitlines()
        except OSError:
            lines = []
        shown = " / ".join(line.strip() for line in lines[-_LAST_LINES:] if line.strip()) or "no output"
        return f"{shown} (log: {self.log})"

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """End the process: SIGTERM, and SIGKILL when it still runs after `timeout_s`; no error when it is gone."""
        if self._child is None:
            return
        self._signal(signal.SIGTERM)
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the process and its group at once with SIGKILL."""
        if self._child is None:
            return
        self._signal(signal.SIGKILL)
        self._child.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.is_alive and self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)  # its own session, so its pid is its group

    def __enter__(self) -> Self:
        """Start the process."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop the process."""
        self.stop()
