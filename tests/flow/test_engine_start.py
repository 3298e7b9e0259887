"""`specops engine serve` with what it cannot serve: documented exit code, one line on stderr, nothing left behind."""

import pickle
import socket
import subprocess
import sys

import pytest

from specops.errors import EXIT_USAGE

pytestmark = pytest.mark.flow


@pytest.fixture
def serve(tmp_path, listing, small_environment):
    """Run `specops engine serve` in an empty folder; return exit code, stderr and whether any file changed."""

    def run(model, port):
        before = listing(tmp_path)
        words = [sys.executable, "-m", "specops.cli.main", "engine", "serve", "--model", str(model), "--port", str(port)]
        ended = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False, env=small_environment
        )
        assert ended.stdout == ""
        return ended.returncode, ended.stderr, listing(tmp_path) == before

    return run


def assert_refused(result, *words):
    """Exit code of wrong input, one `error:` line with these words, nothing written."""
    code, stderr, is_untouched = result
    assert code == EXIT_USAGE
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1
    assert [word for word in words if word not in stderr] == []
    assert is_untouched


def test_a_port_in_use_is_refused(serve, make_model, tmp_path):
    """The line names the port."""
    model = make_model(tmp_path / "model")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        assert_refused(serve(model, port), str(port), "in use")


def test_missing_weights_are_refused(serve, make_model, tmp_path):
    """The line names the folder."""
    model = make_model(tmp_path / "model")
    (model / "model.safetensors").unlink()

    assert_refused(serve(model, 0), str(model), "safetensors")


def test_a_corrupt_checkpoint_is_refused(serve, make_model, tmp_path):
    """Half a file is told from a whole one before anything is loaded."""
    weights = make_model(tmp_path / "model") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])

    assert_refused(serve(weights.parent, 0), "model.safetensors")


def test_a_pickle_checkpoint_is_refused_unopened(serve, make_model, tmp_path):
    """A pickle that would write a file when opened writes none."""
    model = make_model(tmp_path / "model")
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(str(tmp_path / "opened"))))

    assert_refused(serve(model, 0), "pytorch_model.bin", "pickle")
    assert not (tmp_path / "opened").exists()


class Bomb:
    """Writes a file when unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return (open, (self._path, "w"))
