"""The command line starts light, and every error becomes one line and the documented exit code."""

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "mlflow", "great_expectations", "matplotlib", "pyarrow", "sqlalchemy", "pandas", "scipy", "aiohttp")


def _loaded(code):
    """Return which heavy modules a fresh interpreter holds after running `code`."""
    script = f"import sys\ntry:\n    {code}\nexcept SystemExit as e:\n    assert not e.code\n"
    script += f"print('loaded', *[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()[-1].split()[1:]


def test_help_imports_nothing_heavy():
    """`specops --help` answers at once on a bare installation."""
    assert _loaded("from specops.cli.main import main; main(['--help'])") == []


@pytest.mark.parametrize("modules", ["judge, window, policy, rollout, pipeline, lineage, audit, merkle"])
def test_the_core_imports_nothing_heavy(modules):
    """The rules can be replayed with the base installation alone."""
    assert _loaded(f"from specops.core import {modules}") == []


def test_control_imports_no_database():
    """The control loop knows its store by protocol only."""
    assert _loaded("from specops.control import act, deliver, evaluate, inspect, register, rollouts") == []


def test_help_lists_every_noun(run):
    """What there is can be found without documentation."""
    done = run("--help")
    assert done.code == 0
    for noun in ("quickstart", "doctor", "engine", "gateway", "control", "lineage", "rollout", "policy", "report", "audit"):
        assert noun in done.out


@pytest.mark.parametrize("arguments", [["no-such-command"], ["rollout", "abort"], ["policy", "check", "--no-such-option"]])
def test_wrong_usage_is_exit_2(run, arguments):
    """A typing error is told on stderr, without a traceback."""
    done = run(*arguments)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert done.err.strip()


def test_an_unknown_setting_is_exit_2(run, full, monkeypatch):
    """A mistyped variable is found by the first command."""
    monkeypatch.setenv("SPECOPS_GATWAY_PORT", "1")
    done = run("rollout", "list")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "did you mean 'gateway_port'" in done.err


def test_a_file_that_is_no_database_is_exit_2(run, full):
    """Garbage in place of the database is one line."""
    (full / "specops.db").write_bytes(b"not a database at all, " * 50)
    for leftover in full.glob("specops.db-*"):
        leftover.unlink()
    done = run("rollout", "list")
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_the_look_at_imports_sees_a_heavy_one():
    """The two tests above could fail."""
    assert _loaded("import sqlalchemy") == ["sqlalchemy"]


@pytest.mark.parametrize("package", ["torch", "tokenizers"])
def test_a_missing_extra_is_one_line(package, tmp_path):
    """It names the package and the extra, and leaves with exit code 2."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from specops.cli.main import main\n"
        f"main(['engine', 'serve', '--model', {str(tmp_path)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "specops[torch]" in done.stderr


@pytest.mark.parametrize(("arguments", "code", "kind"), [
    (["lineage", "show", "nosuch", "--json"], 2, "InvalidRecord"),
    (["lineage", "show", "--json", "--no-such-option"], 2, "NoSuchOption"),
])  # fmt: skip
def test_a_refusal_is_json_where_json_was_asked_for(run, full, arguments, code, kind):
    """On stdout, with the message that stands on stderr, and the same exit code."""
    done = run(*arguments)
    record = json.loads(done.out)

    assert (done.code, record["class"]) == (code, kind)
    assert record["error"] in done.err
