"""A GGUF file as an artifact."""

import struct

import pytest

from specops.adapters.gguf_file import import_gguf
from specops.core.release import ArtifactKind
from specops.errors import InvalidWeights
from tests.gguf_files import gguf, key, tensor, text

KEYS = (
    key("general.architecture", 8, text("llama")),
    key("llama.embedding_length", 4, struct.pack("<I", 64)),
    key("general.name", 8, text("Somebody's Llama")),
    key("general.base_model.0.name", 8, text("Base")),
)


@pytest.fixture
def file(tmp_path):
    """Return a sound file with one tensor."""
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(keys=KEYS, tensors=(tensor("w", (8,), 0, 0),), data=32))
    return path


def test_metadata_becomes_properties_and_names_become_claims(file):
    """Sizes under config.json's names; the model's own name proves nothing."""
    found = import_gguf(file, name="m", kind=ArtifactKind.DRAFT)

    artifact = found.artifacts[0]
    assert artifact.kind is ArtifactKind.DRAFT
    assert (artifact.properties["hidden_size"], artifact.properties["model_type"]) == (64, "llama")
    assert artifact.properties["tensor_types"] == ["F32"]
    assert artifact.claims == {"general.name": "Somebody's Llama", "general.base_model.0.name": "Base"}
    assert "stays a claim" in found.notes[0]
    assert [t.name for t in artifact.tensors] == ["w"]


def test_what_is_no_gguf_is_refused(tmp_path):
    """Absent, or something else."""
    (tmp_path / "x.gguf").write_bytes(b"no gguf")

    for name in ("x.gguf", "absent.gguf"):
        with pytest.raises(InvalidWeights):
            import_gguf(tmp_path / name, name="m")
