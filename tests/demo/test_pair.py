"""The shipped pair is found whole, or the message says how to make it."""

import shutil

import pytest

from specops.demo.pair import FOLDER, load_pair
from specops.errors import InvalidWeights

FILES = ("target/model.safetensors", "draft/model.safetensors", "stale/model.safetensors", "prompts.json", "recipe.json")
shipped = pytest.mark.skipif(not (FOLDER / "target/model.safetensors").exists(), reason="the weights are not trained yet")


@pytest.fixture
def folder(tmp_path):
    """Return a folder that looks like a pair."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"code": ["a"]}')
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_names_the_way_out(folder, name):
    """Reinstall, or train: with the folder in the command."""
    (folder / name).unlink()
    with pytest.raises(InvalidWeights, match=rf"lacks .*{name}; .*specops demo train") as caught:
        load_pair(folder)
    assert str(folder) in str(caught.value)


def test_a_whole_folder_is_a_pair(folder):
    """Folders, prompts and record are handed out."""
    pair = load_pair(folder)
    assert (pair.target, pair.draft, pair.stale) == (folder / "target", folder / "draft", folder / "stale")
    assert pair.prompts == {"code": ("a",)}


@shipped
def test_the_shipped_pair_has_prompts_of_both_domains():
    """Enough of each for the story."""
    pair = load_pair()
    assert {name: len(texts) for name, texts in pair.prompts.items()} == {"code": 700, "prose": 400}
    assert len(pair.recipe["corpus"]["sha256"]) == 64


@shipped
def test_a_copy_of_the_pair_works_elsewhere(tmp_path):
    """Nothing but the folder matters."""
    assert load_pair(shutil.copytree(FOLDER, tmp_path / "copy")).prompts == load_pair().prompts
