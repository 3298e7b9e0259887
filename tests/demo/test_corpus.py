"""The corpus keeps training and held-out modules apart, the same way on every machine."""

import ast

import pytest

from specops.demo.corpus import HELD_OUT_SHARE, build, is_held_out

MODULES = [f"m{i:03d}.py" for i in range(200)]
DOC = "A sentence long enough to count as prose of its own. " * 5


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Write a library of 200 modules, each naming itself in code and in prose, and three that do not count."""
    root = tmp_path_factory.mktemp("library")
    for name in MODULES:
        mark = name.removesuffix(".py")
        padding = "\n".join(f"    {mark}_{i} = {i}" for i in range(20))
        (root / name).write_text(f'"""Prose of {mark}. {DOC}"""\n# a comment\ndef f():\n{padding}\n')
    (root / "test").mkdir()
    (root / "test" / "excluded.py").write_text(f'"""Excluded. {DOC}"""\n')
    (root / "broken.py").write_text("def (:\n")
    (root / "latin.py").write_bytes(b"# \xff\n")
    return root


@pytest.fixture(scope="module")
def corpus(library):
    """Return the library's corpus."""
    return build(library)


def _named(documents):
    text = "\n".join(documents)
    return {name for name in MODULES if name.removesuffix(".py") in text}


def test_no_module_is_in_both_halves(corpus):
    """Code and prose of a module are together, on one side of the split."""
    trained, held_out = _named(corpus.code + corpus.prose), _named(corpus.code_held_out + corpus.prose_held_out)
    assert trained & held_out == set()
    assert trained | held_out == set(MODULES)


def test_the_share_of_held_out_modules_is_as_said(corpus):
    """A tenth of the names, by hash, never by chance."""
    assert {n for n in MODULES if is_held_out(n)} == _named(corpus.code_held_out)
    names = [f"package/module_{i}.py" for i in range(4000)]
    assert abs(sum(map(is_held_out, names)) / len(names) - HELD_OUT_SHARE) < 0.02


def test_code_holds_no_english(corpus):
    """Docstrings and comments are gone; what remains is still a program."""
    for document in corpus.code:
        assert "Prose of" not in document
        assert "comment" not in document
        ast.parse(document)


def test_what_is_excluded_or_broken_is_left_out(corpus):
    """Tests, broken files and files that are not text are skipped without a word."""
    assert not any("Excluded." in document for document in corpus.prose + corpus.prose_held_out)


def test_the_digest_is_stable_and_sees_everything(library, corpus):
    """The same files give the same digest; one more word, or a document moved across the split, another."""
    again = build(library)
    assert again.digest() == corpus.digest() == corpus.origin()["sha256"]
    moved = type(corpus)(
        code=corpus.code[:-1], code_held_out=(corpus.code[-1], *corpus.code_held_out), prose=corpus.prose,
        prose_held_out=corpus.prose_held_out,
    )  # fmt: skip
    assert moved.digest() != corpus.digest()
