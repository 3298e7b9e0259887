"""A server as a child process: ready, stopped, killed, and explained when it dies."""

import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from specops.engines.client import EngineClient
from specops.engines.config import ServerConfig
from specops.engines.process import EngineProcess, free_port, serve_command
from specops.errors import EngineUnavailable, InvalidInput

pytestmark = pytest.mark.flow


def process(config, log):
    """Return a server process that is not started."""
    command = (sys.executable, "-m", "specops.engines.server", json.dumps(config.to_record()))
    return EngineProcess(command=command, base_url=f"http://127.0.0.1:{config.port}", log=log)


def test_it_serves_then_drains_on_stop_and_frees_the_port(pair, tmp_path):
    """SIGTERM ends it with code 0 after what runs has ended."""
    ticks = []
    with process(ServerConfig(model=pair[0], port=free_port()), tmp_path / "engine.log") as engine:
        engine.wait_ready(timeout_s=60, on_tick=ticks.append)
        answer = EngineClient(engine.base_url).complete("def", max_tokens=5)
    assert ticks
    assert answer.completion_tokens == 5
    assert not engine.is_alive
    assert "drains" in engine.last_lines()


def test_it_says_why_it_died(pair, tmp_path):
    """The last lines of the log are in the error, with the file's name."""
    engine = process(ServerConfig(model=tmp_path / "nowhere", port=free_port()), tmp_path / "engine.log").start()

    with pytest.raises(EngineUnavailable, match=r"code 2: error: no model folder .*nowhere.*log: "):
        engine.wait_ready(timeout_s=60)
    engine.stop()


def test_kill_ends_it_at_once(pair, tmp_path):
    """SIGKILL needs no cooperation; clients get EngineUnavailable."""
    engine = process(ServerConfig(model=pair[0], port=free_port()), tmp_path / "engine.log").start()
    engine.wait_ready(timeout_s=60)

    engine.kill()

    assert not engine.is_alive
    with pytest.raises(EngineUnavailable, match="is the engine running"):
        EngineClient(engine.base_url).health()


def test_it_dies_with_its_parent_when_asked(tmp_path):
    """A SIGKILL of the starter ends the child too."""
    child = "import time\nfrom specops.engines.process import watch_parent\nwatch_parent(poll_s=0.01)\ntime.sleep(60)"
    starter = (
        "import os,sys,time\nfrom pathlib import Path\nfrom specops.engines.process import EngineProcess\n"
        f"p = EngineProcess(command=(sys.executable, '-c', {child!r}), base_url='http://127.0.0.1:9', "
        f"log=Path({str(tmp_path / 'log')!r}), dies_with_parent=True).start()\n"
        "print(p.pid, flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        handle = os.pidfd_open(pid)
        parent.send_signal(signal.SIGKILL)
    ended, _, _ = select.select([handle], [], [], 20)  # a pidfd becomes readable when its process ends
    os.close(handle)

    assert ended


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "eagle", "num_speculative_tokens": 2}, {"method": "ngram"}, {"num_speculative_tokens": 2}, {"port": 70000},
        {"method": "draft_model", "num_speculative_tokens": 2}, {"threads": 0}, {"device": "tpu"}, {"max_waiting": -1},
    ],
)  # fmt: skip
def test_a_config_that_cannot_work_is_refused(pair, fields):
    """Method, draft and k must fit together."""
    with pytest.raises(InvalidInput):
        ServerConfig(model=pair[0], **fields)


def test_the_command_line_loses_nothing(speculative_config):
    """Every set field is an option, or the command is refused."""
    config = replace(speculative_config, drain_s=30.0, threads=2)

    words = " ".join(serve_command(config))

    assert "--method draft_model -k 3" in words
    assert "--threads 2" in words
    with pytest.raises(InvalidInput, match="drain_s cannot be given"):
        serve_command(speculative_config)


def test_a_config_survives_its_record(speculative_config):
    """The record is what a subprocess is started with."""
    assert ServerConfig.from_record(json.loads(json.dumps(speculative_config.to_record()))) == speculative_config
    with pytest.raises(InvalidInput, match="surprise"):
        ServerConfig.from_record(speculative_config.to_record() | {"surprise": 1})
