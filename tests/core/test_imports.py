"""What a configuration proves and what it claims."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core.canonical import canonical
from specops.core.imports import MAX_ITEMS, Role, bounded, describe_card, describe_config
from specops.errors import InvalidRecord

EAGLE3 = {
    "speculators_model_type": "eagle3",
    "draft_vocab_size": 40,
    "target_hidden_size": 16,
    "transformer_layer_config": {"hidden_size": 16, "vocab_size": 300},
    "speculators_config": {
        "algorithm": "eagle3",
        "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "tree"}, {"proposal_type": "greedy", "speculative_tokens": 3}],
        "verifier": {"name_or_path": "private/path", "architectures": ["LlamaForCausalLM"]},
    },
}


def test_a_size_is_a_property_and_a_name_is_a_claim():
    """What these bytes are can be read again; what they were made from cannot."""
    about = describe_config({"hidden_size": 16, "_name_or_path": "someone/else", "unknown": 1}, "config.json")

    assert about.properties == {"hidden_size": 16}
    assert about.claims == {"name_or_path": "someone/else"}
    assert about.role is Role.MODEL
    assert not about.role.is_head


def test_a_speculators_head_names_its_verifier_as_a_claim():
    """The verifier's path is somebody's folder, not a digest; the layer config is nested."""
    about = describe_config(EAGLE3, "config.json")

    assert about.role is Role.EAGLE3
    assert about.role.is_head
    assert about.num_speculative_tokens == 3
    assert about.properties["hidden_size"] == 16
    assert about.claims == {"verifier": "private/path", "verifier_architectures": ["LlamaForCausalLM"]}


@pytest.mark.parametrize(
    ("config", "role"),
    [
        ({"architectures": ["EagleLlamaForCausalLM"]}, Role.EAGLE),
        ({"model_type": "medusa"}, Role.MEDUSA),
        ({"model_type": "deepseek_mtp"}, Role.MTP),
        ({"model_type": "mlp_speculator"}, Role.MLP_SPECULATOR),
        ({"architectures": "not a list", "model_type": "llama"}, Role.MODEL),
    ],
)
def test_heads_are_recognised_by_what_they_say_they_are(config, role):
    """Never by the folder's name."""
    assert describe_config(config, "c").role is role


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([1], "must be a JSON object, got list"),
        ({"vocab_size": "300"}, "vocab_size must be a whole number above 0, got '300'"),
        ({"hidden_size": True}, "hidden_size must be a whole number"),
        ({"hidden_size": -1}, "hidden_size must be a whole number"),
        ({"text_config": 3}, "nested model config must be a JSON object"),
        ({"speculators_config": []}, "speculators_config must be a JSON object"),
        ({"speculators_config": {"proposal_methods": {"a": 1}}}, "proposal_methods must be a list of objects"),
        ({"speculators_config": {"proposal_methods": [{"speculative_tokens": 0}]}}, "speculative_tokens must be"),
    ],
)
def test_a_broken_configuration_is_refused_by_name(config, message):
    """The line says what stands there and what should."""
    with pytest.raises(InvalidRecord, match=message):
        describe_config(config, "config.json")


def test_a_speculators_config_may_be_silent():
    """No method, verifier or algorithm: nothing is made up."""
    about = describe_config({"speculators_config": {"verifier": "text", "proposal_methods": None}}, "c")

    assert about.num_speculative_tokens is None
    assert about.claims == {}
    assert about.role is Role.MODEL


def test_a_card_only_claims():
    """Base model and licence are kept, the rest is not; a card that is no mapping says nothing."""
    assert describe_card({"base_model": ["a"], "license": "mit", "tags": ["x"], "datasets": []}) == {
        "base_model": ["a"],
        "license": "mit",
    }
    assert describe_card("text") == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


@given(JSON)
def test_what_is_bounded_is_canonical_json(value):
    """Whatever a file holds, what is kept of it can be hashed."""
    try:
        kept = bounded(value, "x")
    except InvalidRecord:
        return
    try:
        canonical(kept)
    except UnicodeEncodeError:  # lone surrogates cannot come from a UTF-8 file
        return


def test_huge_values_are_refused_or_cut():
    """Depth and width are refused, numbers beyond JSON's reach become text."""
    deep = current = []
    for _ in range(20):
        current.append([])
        current = current[0]

    with pytest.raises(InvalidRecord, match="nested more than"):
        bounded(deep, "config")
    with pytest.raises(InvalidRecord, match="entries"):
        bounded([0] * (MAX_ITEMS + 1), "config")
    assert bounded(2**60, "n") == str(2**60)
    assert bounded(math.nan, "n") == "nan"
    assert bounded("a\x00b", "t") == "a�b"
