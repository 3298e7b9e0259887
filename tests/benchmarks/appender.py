"""The process that appends audit entries until it is done or killed; used by the benchmark `audit` and by the kill test.

After each commit the entry's index is written to the journal and forced to the disk, so that the journal never claims an entry
that was not committed; then it is printed, so that the parent knows without looking.
"""

import subprocess
import sys
from pathlib import Path

APPENDER = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from specops.store.database import open_store

url, segments, count, journal = sys.argv[1:]
store = open_store(url, segments=Path(segments))
handle = os.open(journal, os.O_WRONLY | os.O_APPEND)
for number in range(int(count)):
    with store.begin() as unit:
        entry = dict(tag="test:entry:added", actor=journal, subject="s", payload={"n": number}, at=datetime.now(UTC))
        index = unit.audit.append(**entry)
    os.write(handle, f"{index}\\n".encode())
    os.fsync(handle)
    print(index, flush=True)
store.close()
"""


def start(url: str, segments: Path, count: int, journal: Path, *, watched: bool) -> "subprocess.Popen[str]":
    """Start a process that appends `count` entries; its standard output is a pipe when it is watched."""
    journal.touch()
    command = [sys.executable, "-c", APPENDER, url, str(segments), str(count), str(journal)]
    return subprocess.Popen(command, stdout=subprocess.PIPE if watched else subprocess.DEVNULL, text=True)


def committed(journal: Path) -> list[int]:
    """Return the indices in a journal; a line that the kill cut does not count."""
    lines = journal.read_text(encoding="utf-8").split("\n")
    return [int(line) for line in lines[:-1]]
