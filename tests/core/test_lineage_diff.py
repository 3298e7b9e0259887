"""What differs between two artifacts, down to tensors, keys and tokenizer entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core.lineage import Effect
from specops.core.lineage_diff import Group, diff_artifacts, diff_tokenizers, effect_of, flat, join
from specops.core.release import Artifact, ArtifactKind, FileDigest, TensorDigest

TOKENIZER = {
    "model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    "added_tokens": [{"id": 3, "content": "<s>", "special": True}],
    "normalizer": {"type": "NFC"},
}


def artifact(kind=ArtifactKind.TARGET, files=(("config.json", "c"), ("model.safetensors", "m")), **changes):
    """Return an artifact of files (path, digest)."""
    digests = tuple(FileDigest(path=path, size=1, sha256=digest * 64) for path, digest in files)
    return Artifact(kind=kind, name=str(kind), files=digests, **changes)


def tensors(**digests):
    """Return tensors by name."""
    return [TensorDigest(file="f", name=n, dtype="F32", shape=(1,), digest=d) for n, d in digests.items()]


def test_equal_artifacts_do_not_differ():
    """Every group counts what is the same."""
    found = diff_artifacts(artifact(), artifact())

    assert [(g.component, g.same, g.differs) for g in found.groups] == [("files", 2, False)]
    assert (found.differences, found.notes, found.can_change) == ((), (), Effect.NEITHER)


def test_a_changed_shard_is_named_and_a_moved_one_is_not_a_changed_one():
    """Content under another name is moved."""
    right = artifact(files=(("config.json", "x"), ("new.safetensors", "n"), ("other.safetensors", "m")))

    (files,) = diff_artifacts(artifact(), right).groups

    assert (files.same, files.changed, files.moved, files.only_left, files.only_right) == (0, 1, 1, 0, 1)
    assert files.names == (
        "changed config.json", "moved model.safetensors -> other.safetensors", "only right new.safetensors",
    )  # fmt: skip
    assert files.can_change is Effect.OUTPUT_AND_SPEED


def test_tensors_are_compared_by_name_and_content():
    """A renamed tensor computes the same; a changed one may not."""
    left, right = artifact(), artifact(files=(("model.safetensors", "n"),))

    renamed = diff_artifacts(left, right, tensors=(tensors(a="1", b="2"), tensors(a="1", c="2"))).groups[1]
    changed = diff_artifacts(left, right, tensors=(tensors(a="1", b="2"), tensors(a="1", b="3"))).groups[1]

    assert (renamed.moved, renamed.can_change) == (1, Effect.NEITHER)
    assert (changed.names, changed.can_change) == (("changed b",), Effect.OUTPUT_AND_SPEED)


def test_equal_tensors_in_other_files_are_said_in_words():
    """And tensors that one side lacks digests of are said to be uncompared."""
    left, right = artifact(), artifact(files=(("model.safetensors", "n"),))

    same = diff_artifacts(left, right, tensors=(tensors(a="1"), tensors(a="1")))
    unknown = diff_artifacts(left, right, tensors=(tensors(a="1"), []))

    assert "every tensor is the same" in same.notes[0]
    assert "target was registered without tensor digests" in unknown.notes[0]


def test_keys_differ_by_section():
    """A property computes, a fact and a claim do not."""
    left = artifact(properties={"rope": {"theta": 1}, "same": {}}, claims={"base": "x"})
    right = artifact(properties={"rope": {"theta": 2}, "same": {}}, facts={"seed": 1})

    found = {d.component: d.can_change for d in diff_artifacts(left, right).differences}

    assert found == {
        "properties.rope.theta": Effect.OUTPUT_AND_SPEED, "facts.seed": Effect.NEITHER, "claims.base": Effect.NEITHER,
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "effect"), [
    (ArtifactKind.DRAFT, Effect.SPEED), (ArtifactKind.CORPUS, Effect.NEITHER), (ArtifactKind.HARDWARE, Effect.OUTPUT_AND_SPEED),
])  # fmt: skip
def test_what_can_change_depends_on_what_it_is(kind, effect):
    """A draft changes speed only; what is unknown may change both."""
    assert effect_of(kind)[0] is effect
    assert diff_artifacts(artifact(kind), artifact(kind, files=(("f", "f"),))).can_change is effect


def test_another_kind_is_a_difference():
    """Comparing a draft with a target is allowed and said."""
    assert "kind" in [d.component for d in diff_artifacts(artifact(), artifact(ArtifactKind.DRAFT)).differences]


def test_tokenizers_that_are_not_at_hand_are_said_to_be_uncompared():
    """Their files differ, nobody can say where."""
    left, right = (artifact(ArtifactKind.TOKENIZER, files=(("tokenizer.json", d),)) for d in "ab")

    assert "cannot be compared" in diff_artifacts(left, right).notes[0]
    assert diff_artifacts(left, right, tokenizers=(TOKENIZER, TOKENIZER)).notes == ()


def changed(**changes):
    """Return the differences of a changed tokenizer as (component, left, right)."""
    return [(d.component, d.left, d.right) for d in diff_tokenizers(TOKENIZER, TOKENIZER | changes)]


def test_the_first_differing_entry_of_a_tokenizer_is_shown():
    """By id, rank and place; other stages by digest."""
    model = TOKENIZER["model"]
    assert changed() == []
    assert changed(model=model | {"vocab": {"a": 0, "c": 1, "ab": 2}}) == [("tokenizer.vocabulary[1]", "b", "c")]
    assert changed(model=model | {"vocab": model["vocab"] | {"c": 3}}) == [("tokenizer.vocabulary[3]", None, "c")]
    assert changed(model=model | {"merges": [["b", "a"]]}) == [("tokenizer.merges[0]", "a b", "b a")]
    assert changed(added_tokens=[]) == [("tokenizer.added_tokens[0]", "3 '<s>' special", None)]
    assert [name for name, _, _ in changed(normalizer=None)] == ["tokenizer.normalizer"]


def test_merges_as_pairs_and_as_text_are_the_same():
    """Newer files only write them in another form."""
    assert changed(model=TOKENIZER["model"] | {"merges": [["a", "b"]]}) == []


def test_a_list_vocabulary_is_read_by_place():
    """Unigram models hold (token, score)."""
    left, right = ({"model": {"vocab": [["a", -1.0], [token, -2.0]]}} for token in "bc")

    assert [d.component for d in diff_tokenizers(left, right)] == ["tokenizer.vocabulary[1]"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=9,
)
SHAPE = st.fixed_dictionaries({}, optional={"model": st.dictionaries(st.sampled_from(["vocab", "merges"]), JSON) | JSON,
                                            "added_tokens": JSON, "decoder": JSON})  # fmt: skip


@given(SHAPE, SHAPE)
def test_any_json_can_be_compared(left, right):
    """A file of another shape is compared as far as it can be read, and never differs from itself."""
    assert diff_tokenizers(left, left) == []
    assert all(d.component.startswith("tokenizer.") for d in diff_tokenizers(left, right))


NAMES = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("xyz"), max_size=6)


@given(NAMES, NAMES)
def test_every_tensor_is_counted_once(left, right):
    """Each name of either side is in exactly one count."""
    group = next(
        (g for g in diff_artifacts(artifact(), artifact(), tensors=(tensors(**left), tensors(**right))).groups[1:]), None
    )
    if group is not None:
        assert group.same + group.changed + group.moved + group.only_left == len(left)
        assert group.same + group.changed + group.moved + group.only_right == len(right)
        assert isinstance(group, Group)
        assert group.differs == (left != right)


@given(st.lists(st.sampled_from(Effect)), st.lists(st.sampled_from(Effect)))
def test_joining_effects_is_a_union(one, two):
    """Order and grouping do not matter; nothing joined can change nothing."""
    assert join([join(one), join(two)]) is join([*two, *one])
    assert join([]) is Effect.NEITHER


def test_nested_keys_become_dotted():
    """An empty mapping stays a value."""
    assert flat({"a": {"b": 1}, "c": {}, "d": [1]}) == {"a.b": 1, "c": {}, "d": [1]}


def _weights(digest, *, config="c", index=None, file="model.safetensors"):
    """Return an artifact of weights and one tensor in them."""
    extra = (("model.safetensors.index.json", index),) if index else ()
    made = artifact(files=tuple(sorted((("config.json", config), (file, digest), *extra))))
    return made, [TensorDigest(file=file, name="a", dtype="F32", shape=(1,), digest="b3:1")]


@pytest.mark.parametrize(("right", "effect"), [
    (_weights("n"), Effect.NEITHER),
    (_weights("n", file="model-00001-of-00001.safetensors", index="i"), Effect.NEITHER),
    (_weights("n", config="x"), Effect.OUTPUT_AND_SPEED),
    (_weights("n", file="z.safetensors", config="x"), Effect.OUTPUT_AND_SPEED),
])  # fmt: skip
def test_the_same_tensors_in_other_files_change_nothing(right, effect):
    """A new header or another sharding; a changed config.json still counts."""
    left = _weights("m")

    found = diff_artifacts(left[0], right[0], tensors=(left[1], right[1]))

    assert (found.groups[0].differs, found.can_change) == (True, effect)
