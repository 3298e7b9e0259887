"""A lossy setting is found wherever it stands, and served only when somebody allowed it by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core.lossy import lossy_settings, require_exact
from specops.core.release import Release
from specops.errors import IncompatibleRelease


def release(lossy=(), engine=None, **config):
    """Return a release with this speculative configuration."""
    return Release(
        name="r", target="t", tokenizer="k", method="ngram", num_speculative_tokens=2, speculative_config=config,
        engine=engine or {}, lossy=tuple(lossy),
    )  # fmt: skip


@pytest.mark.parametrize(("config", "found"), [
    ({}, ()),
    ({"rejection_sample_method": "standard", "prompt_lookup_max": 4, "draft_sample_method": "probabilistic"}, ()),
    ({"rejection_sample_method": "block"}, ()),
    ({"rejection_sample_method": None, "posterior_alpha": None, "new_key": None}, ()),
    ({"rejection_sample_method": "fly"}, ("rejection_sample_method: fly",)),
    ({"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 3},
     ("rejection_sample_method: synthetic", "synthetic_acceptance_length: 3")),
    ({"rejection_sample_method": ["standard"]}, ("rejection_sample_method: ['standard']",)),
    ({"posterior_threshold": 0.09}, ("posterior_threshold: 0.09",)),
    ({"acceptance_method": "rejection_sampler"}, ()),
    ({"acceptance_method": "typical_acceptance_sampler"}, ("acceptance_method: typical_acceptance_sampler",)),
    ({"draft_load_config": {"deep": [{"posterior_alpha": 0.3}]}}, ("posterior_alpha: 0.3",)),
    ({"speculative_accept_threshold_single": 1.0}, ()),
    ({"speculative_accept_threshold_acc": 0.9}, ("speculative_accept_threshold_acc: 0.9",)),
    ({"verifier_accept_k": True}, ("verifier_accept_k: True",)),
    ({"accept_anything": 1}, ("accept_anything: 1",)),
])  # fmt: skip
def test_what_breaks_exactness_is_named(config, found):
    """Off values are exact, unknown keys are not known to be."""
    assert lossy_settings("ngram", config) == found


def test_engine_arguments_count_where_they_are_known():
    """SGLang takes its thresholds there; other arguments are not about acceptance."""
    engine = {"arguments": {"speculative_accept_threshold_single": 0.5, "dtype": "bfloat16"}}

    assert lossy_settings("eagle", {}, engine) == ("speculative_accept_threshold_single: 0.5",)


def test_a_method_that_is_no_speculation_is_named():
    """It stands among the methods of vLLM."""
    assert lossy_settings("extract_hidden_states", {}) == ("method: extract_hidden_states",)


def test_an_exact_release_passes():
    """Nothing to allow."""
    require_exact(release(prompt_lookup_max=3))


def test_a_lossy_release_is_refused_by_name():
    """The message says how to allow it."""
    with pytest.raises(IncompatibleRelease, match="--allow-lossy 'rejection_sample_method: fly'"):
        require_exact(release(rejection_sample_method="fly", lossy=["rejection_sample_method: fly"]))


@pytest.mark.parametrize(("setting", "names", "allowed"), [
    ("rejection_sample_method: fly", {"fly"}, True),
    ("rejection_sample_method: fly", {"rejection_sample_method: fly"}, True),
    ("rejection_sample_method: fly", {"rejection_sample_method"}, False),
    ("rejection_sample_method: fly", {"synthetic"}, False),
    ("posterior_alpha: 0.3", {"posterior_alpha"}, True),
    ("posterior_alpha: 0.3", {"posterior_alpha: 0.3"}, True),
    ("posterior_alpha: 0.3", {"0.3"}, False),
])  # fmt: skip
def test_a_name_allows_just_what_it_names(setting, names, allowed):
    """A rule in full or by its value, another setting in full or by its key."""
    key, _, value = setting.partition(": ")
    made = release(lossy=[setting], **{key: float(value) if value[0].isdigit() else value})
    if allowed:
        require_exact(made, names)
    else:
        with pytest.raises(IncompatibleRelease):
            require_exact(made, names)


def test_a_release_must_declare_what_it_was_allowed():
    """So that its identity says so."""
    with pytest.raises(IncompatibleRelease, match="declares lossy settings"):
        require_exact(release(rejection_sample_method="fly"), {"fly"})


def test_a_configuration_without_end_is_refused():
    """Bounded work on a hostile file."""
    with pytest.raises(IncompatibleRelease, match="no engine's does"):
        lossy_settings("ngram", {"draft_load_config": [0] * 200_000})


@given(st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=4), max_size=4))
def test_allowing_every_name_allows_the_release(config):
    """Whatever the configuration, its own names are enough, and none is enough only if there is none."""
    names = lossy_settings("ngram", config)
    made = Release(
        name="r", target="t", tokenizer="k", method="ngram", num_speculative_tokens=2, speculative_config=config, lossy=names
    )  # fmt: skip

    require_exact(made, names)
    if names:
        with pytest.raises(IncompatibleRelease):
            require_exact(made)
