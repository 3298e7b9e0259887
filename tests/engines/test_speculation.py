"""Speculative settings in vLLM's words: what they become, what is refused, and that a server serves them."""

import json

import pytest

from specops.core.trace import Rule
from specops.decoding.batch import DynamicK
from specops.decoding.draft import ModelDraft
from specops.decoding.lookup import NgramDraft, SuffixDraft
from specops.engines.config import ServerConfig
from specops.engines.engine import check_config
from specops.engines.process import serve_command
from specops.engines.speculation import Speculation, read_speculative_config
from specops.errors import InvalidInput

EVERYTHING = {
    "method": "suffix", "num_speculative_tokens": 5, "rejection_sample_method": "block", "suffix_decoding_max_tree_depth": 8,
    "suffix_decoding_max_spec_factor": 2.0, "suffix_decoding_min_token_prob": 0.2,
    "num_speculative_tokens_per_batch_size": [[1, 4, 5], [9, 16, 2]],
}  # fmt: skip


def test_vllms_json_becomes_fields_and_settings():
    """Method, draft and k are the server's own; the rest is how the rounds go."""
    own, settings = read_speculative_config(json.dumps(EVERYTHING))

    assert own == {"method": "suffix", "num_speculative_tokens": 5}
    assert settings.rule is Rule.BLOCK
    assert settings.draft("suffix", 5, None) == SuffixDraft(5, 8, 2.0, 0.2)
    assert Speculation.from_record(json.loads(json.dumps(settings.to_record()))) == settings


def test_a_draft_folder_alone_names_the_method():
    """As in vLLM, where `model` without a method is a draft model."""
    own, _ = read_speculative_config('{"model": "/models/draft", "num_speculative_tokens": 3}')

    assert (own["method"], str(own["draft"])) == ("draft_model", "/models/draft")


def test_every_method_has_its_draft(pair):
    """The defaults of this engine."""
    settings, model = Speculation(), object()

    assert settings.draft(None, 0, None) is None
    assert settings.draft("ngram", 3, None) == NgramDraft(3, 4, 2)
    assert settings.draft("draft_model", 3, model) == ModelDraft(model, 3)
    assert Speculation(draft_sample_method="greedy").draft("draft_model", 3, model).greedy


@pytest.mark.parametrize(("running", "k"), [(1, 5), (4, 5), (5, 5), (8, 5), (9, 2), (16, 2), (99, 2)])
def test_a_table_reads_as_in_vllm(running, k):
    """Ranges include their ends; gaps and what lies beyond the last keep the k before."""
    table = {"num_speculative_tokens_per_batch_size": [[1, 4, 5], [9, 16, 2]]}

    assert Speculation.from_record(table).dynamic.most(running) == k
    assert Speculation().dynamic == DynamicK()
    assert Speculation(adaptive_k=True).dynamic.by_acceptance


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"), ("[1]", "JSON object"), ('{"parallel_drafting": true}', "parallel_drafting is not known"),
        ('{"rejection_sample_method": "synthetic"}', "standard or block"),
        ('{"draft_sample_method": "loud"}', "probabilistic or"),
        ('{"prompt_lookup_min": 9}', "min_n 9"), ('{"suffix_decoding_min_token_prob": 2}', "min_prob"),
        ('{"num_speculative_tokens_per_batch_size": [[2, 4, 5]]}', "first from 1"),
        ('{"num_speculative_tokens_per_batch_size": [[1, 4, 5], [4, 8, 2]]}', "do not overlap"),
        ('{"num_speculative_tokens_per_batch_size": [[1, 4]]}', "cannot be read"),
        ('{"num_speculative_tokens_per_batch_size": [[1, 4, -1]]}', "k >= 0"),
        ('{"prompt_lookup_max": "many"}', "cannot be read"),
    ],
)  # fmt: skip
def test_what_this_engine_does_not_run_is_refused(text, message):
    """A lossy rule above all; nothing is ignored."""
    with pytest.raises(InvalidInput, match=message):
        read_speculative_config(text)


def test_a_config_with_settings_survives_record_and_command_line(pair):
    """Nothing is lost on the way to a subprocess or a terminal."""
    own, settings = read_speculative_config(json.dumps(EVERYTHING))
    config = ServerConfig(model=pair[0], dtype="bfloat16", speculation=settings, **own)

    words = serve_command(config)

    assert ServerConfig.from_record(json.loads(json.dumps(config.to_record()))) == config
    assert words[words.index("--dtype") + 1] == "bfloat16"
    assert read_speculative_config(words[words.index("--speculative-config") + 1])[1] == settings


@pytest.mark.parametrize(
    "settings",
    [
        {"rejection_sample_method": "block"}, {"draft_sample_method": "greedy"},
        {"num_speculative_tokens_per_batch_size": [[1, 1, 3], [2, 8, 0]]}, {"adaptive_k": True},
    ],
)  # fmt: skip
def test_settings_are_served_and_shown(pair, make_server, plain, settings):
    """The server says what it runs, answers, and at temperature 0 the text is the plain one."""
    own = {"draft": pair[1], "method": "draft_model", "num_speculative_tokens": 3}
    client, _ = make_server(model=pair[0], speculation=Speculation.from_record(settings), **own)
    ask = {"max_tokens": 16, "temperature": 0.0, "ignore_eos": True, "return_token_ids": True}

    text = client.complete("one two three", **ask).text
    assert text == plain.complete("one two three", **ask).text
    client.complete("one two three", **ask | {"temperature": 1.0})
    facts = client.server_info()["specops"]

    assert facts["rejection_sample_method"] == settings.get("rejection_sample_method", "standard")
    assert facts["draft_sample_method"] == settings.get("draft_sample_method", "probabilistic")
    assert json.loads(json.dumps(facts["speculation"])) == settings


def test_a_suffix_server_answers(pair, make_server):
    """Without a draft folder."""
    client, engine = make_server(model=pair[0], method="suffix", num_speculative_tokens=4)

    done = client.complete("one two one two one", max_tokens=16, temperature=0.0, ignore_eos=True)

    assert client.server_info()["specops"]["method"] == "suffix"
    assert engine.k == 4
    assert done.completion_tokens == 16


def test_a_device_that_is_not_there_is_refused_before_anything_is_loaded(pair, monkeypatch):
    """With the way out."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    with pytest.raises(InvalidInput, match="pass --device cpu"):
        check_config(ServerConfig(model=pair[0], device="cuda"))
