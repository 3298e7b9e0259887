"""Which evidence loses validity when something in the lineage changes."""

import pytest

from specops.core.impact import lose, touch
from specops.core.lineage import Effect
from specops.core.release import ArtifactKind, Release

RELEASE = Release(
    name="fast", target="t", tokenizer="k", method="draft_model", draft="d", draft_tokenizer="k2", num_speculative_tokens=2,
    pair="p", chat_template="c", generation_config="g", prompts=("s1", "s2"),
)  # fmt: skip


def touched(origin, *reached):
    """Return what a change does to the release."""
    return touch(RELEASE, origin, set(reached).__contains__)


@pytest.mark.parametrize(("origin", "reached", "components", "effect", "loses"), [
    (ArtifactKind.TARGET, "t", ("target",), Effect.OUTPUT_AND_SPEED, "all"),
    (ArtifactKind.DRAFT, "d", ("draft",), Effect.SPEED, "speed"),
    (ArtifactKind.TOKENIZER, "k2", ("draft_tokenizer",), Effect.OUTPUT_AND_SPEED, "all"),
    (ArtifactKind.PROMPT, "s2", ("prompts",), Effect.OUTPUT_AND_SPEED, "all"),
    (ArtifactKind.CHAT_TEMPLATE, "c", ("chat_template",), Effect.OUTPUT_AND_SPEED, "all"),
    (ArtifactKind.RECIPE, "-", (), Effect.NEITHER, "nothing"),
    (None, "-", (), Effect.OUTPUT_AND_SPEED, "all"),
    (None, "p", ("pair",), Effect.OUTPUT_AND_SPEED, "all"),
])  # fmt: skip
def test_what_is_lost_depends_on_the_component_that_is_reached(origin, reached, components, effect, loses):
    """A draft takes speed figures only, since acceptance is exact."""
    found = touched(origin, reached)

    assert (found.components, found.can_change) == (components, effect)
    assert lose(found, "offline", origin).loses == loses


def test_a_corpus_counts_by_the_component_it_reached():
    """A draft's training data changes the draft: speed."""
    found = touched(ArtifactKind.CORPUS, "corpus", "d")

    assert lose(found, "offline", ArtifactKind.CORPUS).loses == "speed"


def test_a_changed_evaluation_set_takes_the_basis():
    """What was measured on it has to be measured again, whatever it says."""
    assert lose(touched(ArtifactKind.EVALUATION_SET, "t"), "offline", ArtifactKind.EVALUATION_SET).loses == "basis"


@pytest.mark.parametrize("kind", ["endpoints", "report"])
def test_a_record_of_what_was_loses_nothing(kind):
    """It judges nothing."""
    assert lose(touched(ArtifactKind.TARGET, "t"), kind, ArtifactKind.TARGET).loses == "nothing"
