"""Settings come from a file and the environment, and a mistake in either is named before anything starts."""

from pathlib import Path

import pytest

from specops.errors import InvalidInput
from specops.settings import FILE, load_settings


@pytest.fixture
def load(tmp_path):
    """Return a function that loads settings from TOML text and variables."""

    def go(text="", **environ):
        (tmp_path / FILE).write_text(text, encoding="utf-8")
        return load_settings(tmp_path, environ)

    return go


def test_without_file_and_variables_there_are_defaults(tmp_path):
    """Nothing needs to be configured to start."""
    settings = load_settings(tmp_path, {})
    assert settings.gateway_url == "http://127.0.0.1:8700"
    assert settings.store_url.startswith("sqlite:////")


def test_the_file_is_read(load):
    """Values have their types."""
    settings = load('gateway_port = 9000\ndata_dir = "elsewhere"\n')
    assert (settings.gateway_port, settings.data_dir) == (9000, Path("elsewhere"))


def test_a_variable_overrides_the_file(load):
    """The environment has the last word; other variables are not ours."""
    assert load("gateway_port = 9000", SPECOPS_GATEWAY_PORT="9001", HOME="/x").gateway_port == 9001


@pytest.mark.parametrize("source", [{"text": "gatway_port = 1"}, {"SPECOPS_GATWAY_PORT": "1"}])
def test_an_unknown_key_gets_a_suggestion(load, source):
    """A typing error names the key that was meant."""
    with pytest.raises(InvalidInput, match="did you mean 'gateway_port'"):
        load(**source)


def test_an_unknown_key_without_a_neighbour_lists_what_there_is(load):
    """Where nothing is near, all keys are named."""
    with pytest.raises(InvalidInput, match=r"known: data_dir, .*actor"):
        load("zzzzzz = 1")


@pytest.mark.parametrize("value", ['"many"', "true", "87.5", "[1]", '""'])
def test_a_port_must_be_a_number(load, value):
    """Nothing is rounded or guessed into an integer."""
    with pytest.raises(InvalidInput, match="gateway_port must be int"):
        load(f"gateway_port = {value}")


@pytest.mark.parametrize("line", ["data_dir = 5", "actor = 5", "gateway_host = true"])
def test_a_text_must_be_a_text(load, line):
    """A number where a text belongs is a mistake, not a text of digits."""
    with pytest.raises(InvalidInput, match="must be str"):
        load(line)


@pytest.mark.parametrize("content", [b"gateway_port = ", b"\xff\xfe"])
def test_a_broken_file_is_named(tmp_path, content):
    """Broken TOML, or no text at all, names the file."""
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(InvalidInput, match=r"specops\.toml is not valid TOML"):
        load_settings(tmp_path, {})


def test_explicit_places_win_over_the_data_folder(load):
    """Database, MLflow, checkpoints and actor may live elsewhere."""
    settings = load(
        'database_url = "sqlite:///x.db"\nmlflow_tracking_uri = "http://m"\ncheckpoint_path = "/c.txt"\nactor = "ann"'
    )
    assert (settings.store_url, settings.mlflow_uri) == ("sqlite:///x.db", "http://m")
    assert (settings.checkpoints, settings.who) == (Path("/c.txt"), "ann")


def test_the_places_default_into_the_data_folder(load):
    """One folder holds everything unless told otherwise."""
    settings = load(SPECOPS_DATA_DIR="/d")
    assert (settings.store_url, settings.mlflow_uri) == ("sqlite:////d/specops.db", "sqlite:////d/mlflow.db")
    assert settings.checkpoints == Path("/d/checkpoints.txt")


@pytest.mark.parametrize(("value", "meant"), [("true", True), ("1", True), ("False", False), ("0", False)])
def test_a_switch_is_on_or_off(load, value, meant):
    """In the environment as a word or a digit, in the file as TOML's own."""
    assert load(SPECOPS_KEEP_SAMPLES=value).keep_samples is meant
    assert load("keep_samples = true").keep_samples is True


@pytest.mark.parametrize("line", ['keep_samples = "maybe"', "keep_samples = 1", "samples_days = true"])
def test_a_switch_is_no_number(load, line):
    """And a number is no switch."""
    with pytest.raises(InvalidInput, match="must be"):
        load(line)
