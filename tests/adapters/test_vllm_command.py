"""vLLM command lines as people write them: unit files, compose files, notebooks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.adapters.vllm_command import parse_command, parse_speculative
from specops.errors import InvalidInput, SpecopsError

SPECULATIVE = '{"method": "draft_model", "model": "small", "num_speculative_tokens": 4}'
REST = "--dtype bfloat16 --max-model-len=4096 --enforce-eager"
LINE = f"VLLM_USE_V1=1 vllm serve big {REST} --speculative-config '{SPECULATIVE}'"
DOTTED = " ".join(
    f"--speculative-config.{key} {value}" for key, value in (("method", "draft_model"), ("model", "small"))
) + " --speculative-config.num_speculative_tokens 4"
MIXED = """--speculative-config '{"model": "small", "method": "draft_model"}' --speculative-config.num_speculative_tokens 4"""


def test_a_unit_file_line_is_taken_apart():
    """Model, typed arguments, switches, environment and the speculative configuration."""
    command = parse_command(LINE)

    assert command.model == "big"
    assert command.arguments == {"dtype": "bfloat16", "max_model_len": 4096, "enforce_eager": True}
    assert command.environment == {"VLLM_USE_V1": "1"}
    assert command.speculative == json.loads(SPECULATIVE)


@pytest.mark.parametrize(
    "line",
    [
        f"vllm serve --model big {REST} -sc '{SPECULATIVE}'",
        f"python3 -m vllm.entrypoints.openai.api_server --model big {REST.replace('=', ' ')} {DOTTED}",
        f"vllm serve big \\\n {REST.replace('-len', '_len')} \\\n --speculative_config '{SPECULATIVE}'",
        f"/usr/bin/python -m vllm.entrypoints.cli.main serve big {REST} {MIXED}",
    ],
)
def test_every_spelling_gives_the_same_configuration(line):
    """One identity, however the same settings are written."""
    expected = parse_command(LINE.removeprefix("VLLM_USE_V1=1 ")).to_imported("x").artifacts[0]

    assert parse_command(line).to_imported("x").artifacts[0].digest == expected.digest


def test_secrets_never_reach_the_artifact():
    """API keys and tokens are dropped wherever they stand, and said so."""
    line = "HF_TOKEN=abc123 vllm serve big --api-key sk-42 --max-num-batched-tokens 512"

    found = parse_command(line).to_imported("x")

    assert "abc123" not in str(found)
    assert "sk-42" not in str(found)
    assert found.artifacts[0].properties["arguments"] == {"max_num_batched_tokens": 512}
    assert len(found.notes) == 2


def test_model_names_are_claims_and_an_unset_method_is_pointed_out():
    """A name may mean other bytes tomorrow; vLLM guesses the method from it."""
    found = parse_command("""vllm serve big --speculative-config '{"model": "eagle-x"}'""").to_imported("x")

    assert found.artifacts[0].claims == {"model": "big", "draft_model": "eagle-x"}
    assert "method is not set" in found.notes[0]


def test_values_keep_their_kind():
    """Numbers, negative numbers, several values, nested keys and repeated words."""
    command = parse_command("vllm serve m --seed -1 --ratio 0.90 --lora-modules a=b c=d --compilation-config.level 3 --x")

    assert command.arguments == {
        "seed": -1,
        "ratio": 0.9,
        "lora_modules": ["a=b", "c=d"],
        "compilation_config": {"level": 3},
        "x": True,
    }


def test_a_configuration_file_is_read_and_the_line_goes_before_it(tmp_path):
    """`--config FILE` as vLLM reads it."""
    (tmp_path / "c.yaml").write_text("model: big\ndtype: float16\nmax-model-len: 128\n")

    command = parse_command("vllm serve --config c.yaml --dtype bfloat16", folder=tmp_path)

    assert command.model == "big"
    assert command.arguments == {"dtype": "bfloat16", "max_model_len": 128}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ls -l", "not a vLLM command"),
        ("vllm serve 'open", "cannot be split"),
        ("vllm serve m --speculative-config '{'", "is not JSON"),
        ("vllm serve m --speculative-config '[1]'", "must be a JSON object, got list"),
        ("vllm serve m --speculative-config 3", "must be a JSON object"),
        ("vllm serve m --config absent.yaml", "cannot read --config"),
        ("vllm serve m " + "x" * (1 << 20), "characters, at most"),
        ("", "not a vLLM command"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, line, message):
    """The line says what stands there and what should."""
    with pytest.raises(InvalidInput, match=message):
        parse_command(line, folder=tmp_path)


def test_a_configuration_file_that_is_no_mapping_or_has_aliases_is_refused(tmp_path):
    """A list is none; aliases can stand for gigabytes."""
    (tmp_path / "list.yaml").write_text("- a\n")
    (tmp_path / "alias.yaml").write_text("a: &a [1]\nb: *a\n")

    with pytest.raises(InvalidInput, match="must hold a mapping"):
        parse_command("vllm serve m --config list.yaml", folder=tmp_path)
    with pytest.raises(InvalidInput, match="aliases"):
        parse_command("vllm serve m --config alias.yaml", folder=tmp_path)


def test_a_speculative_configuration_alone():
    """The JSON value of --speculative-config, without its secrets."""
    command = parse_speculative('{"method": "ngram", "num_speculative_tokens": 3, "hf_token": "abc"}')

    assert command.speculative == {"method": "ngram", "num_speculative_tokens": 3}


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    """No crash, whatever is pasted."""
    for line in (text, f"vllm serve {text}", f"vllm serve m --speculative-config {text}"):
        try:
            parse_command(line).to_imported("x")
        except SpecopsError:
            continue
        except UnicodeEncodeError:  # lone surrogates cannot come from a terminal
            continue
