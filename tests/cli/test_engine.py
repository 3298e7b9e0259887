"""`specops engine check` refuses a pair that must not serve, before any model is loaded."""

import json
import pickle

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel


@pytest.fixture
def folder(tmp_path):
    """Return a builder of checkpoint folders."""

    def build(name, vocabulary=("a", "b"), weights=True):
        path = tmp_path / name
        path.mkdir()
        (path / "config.json").write_text(json.dumps({"vocab_size": len(vocabulary), "max_position_embeddings": 64}))
        words = {word: index for index, word in enumerate(vocabulary)}
        Tokenizer(WordLevel(words, unk_token=vocabulary[0])).save(str(path / "tokenizer.json"))
        if weights:
            save_file({"w": np.zeros((2, 2), dtype=np.float32)}, path / "model.safetensors")
        return path

    return build


def test_a_matching_pair_is_exit_0(run, folder):
    """All findings are listed, none refuses."""
    done = run("engine", "check", folder("target"), folder("draft"), "--json")
    assert done.code == 0
    assert "refuse" not in {f["severity"] for f in json.loads(done.out)}


def test_missing_weights_are_refused(run, folder):
    """A folder without weights is named with its way out."""
    done = run("engine", "check", folder("target", weights=False))
    assert done.code == 1
    assert "target weights" in done.out


def test_a_pickle_is_refused_unopened(run, folder, tmp_path):
    """A pickle would run code when opened; it is not opened."""

    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    path = folder("target", weights=False)
    (path / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    done = run("engine", "check", path)
    assert done.code == 1
    assert "safetensors" in done.out
    assert not (tmp_path / "ran").exists()


def test_another_tokenizer_is_refused(run, folder):
    """The same number of entries is not the same tokenizer."""
    done = run("engine", "check", folder("target"), folder("draft", ("a", "c")), "--json")
    assert done.code == 1
    (refused,) = [f for f in json.loads(done.out) if f["severity"] == "refuse"]
    assert refused["what"] == "tokenizer identity"


def test_a_missing_folder_is_refused(run, tmp_path):
    """A mistyped path is no traceback."""
    assert run("engine", "check", tmp_path / "nowhere").code == 1
