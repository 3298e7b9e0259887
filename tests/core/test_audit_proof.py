"""Portable proofs: built only when they hold, and checked by a script that knows nothing of specops."""

import base64
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from specops.adapters.signing import load_or_create
from specops.core.audit import AuditEntry, Checkpoint
from specops.core.audit_proof import note_over, prove_consistency, prove_inclusion
from specops.core.merkle import consistency_proof, inclusion_proof, leaf_hash, root_of
from specops.errors import ChainBroken, InvalidInput

SCRIPT = Path(__file__).parents[2] / "docs" / "reference" / "check_proof.py"
RAWS = [
    AuditEntry(index=i, tag="a:b:c", actor="ann", subject="s", payload={"n": i}, at=datetime(2026, 1, 1, tzinfo=UTC)).to_bytes()
    for i in range(11)
]
LEAVES = [leaf_hash(raw) for raw in RAWS]


@pytest.fixture(scope="module")
def signer(tmp_path_factory):
    """Return a signing key."""
    return load_or_create(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Return another key of the same name."""
    return load_or_create(tmp_path_factory.mktemp("keys"))


def note_at(signer, size):
    """Return the signed checkpoint of the first so many entries."""
    return signer.sign(Checkpoint(origin=signer.name, size=size, root=root_of(LEAVES[:size])).to_text())


def bundle_of(signer, index, size=11):
    """Return the proof of an entry."""
    note = note_at(signer, size)
    return prove_inclusion(RAWS[index], index, note, signer.public_key, lambda n: inclusion_proof(LEAVES[:n], index))


@pytest.fixture
def check(tmp_path, signer):
    """Return a function that runs the script in a process of its own."""

    def run(bundle, key=signer, *flags):
        (tmp_path / "bundle.json").write_text(json.dumps(bundle))
        (tmp_path / "key.pub").write_text(key if isinstance(key, str) else key.public_key.to_line())
        command = [sys.executable, "-I", *flags, str(SCRIPT), str(tmp_path / "bundle.json"), str(tmp_path / "key.pub")]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    return run


@pytest.mark.parametrize(("index", "size"), [(0, 1), (6, 11), (10, 11)])
def test_the_script_proves_a_true_bundle(check, signer, index, size):
    """First, middle, last: exit 0 and the entry in words."""
    done = check(bundle_of(signer, index, size))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"entry {index} of {size}" in done.stdout
    assert '"actor":"ann"' in done.stdout


def flipped(text):
    """Return base64 text with one bit of its content changed."""
    raw = bytearray(base64.b64decode(text))
    raw[len(raw) // 2] ^= 1
    return base64.b64encode(raw).decode()


@pytest.mark.parametrize("forge", [
    lambda b: b | {"entry": flipped(b["entry"])},
    lambda b: b | {"proof": [flipped(b["proof"][0]), *b["proof"][1:]]},
    lambda b: b | {"proof": b["proof"][:-1]},
    lambda b: b | {"proof": [*b["proof"], b["proof"][0]]},
    lambda b: b | {"index": 5},
    lambda b: b | {"index": "6"},
    lambda b: b | {"entry": base64.b64encode(RAWS[5]).decode()},
    lambda b: b | {"entry": base64.b64encode(RAWS[5]).decode(), "index": 5},
    lambda b: b | {"checkpoint": b["checkpoint"].replace("\n11\n", "\n12\n")},
    lambda b: b | {"checkpoint": b["checkpoint"].partition("\n\n")[0] + "\n\n"},
    lambda b: b | {"checkpoint": 5},
    lambda b: {},
    lambda b: [],
])  # fmt: skip
def test_the_script_refuses_a_forged_bundle(check, signer, forge):
    """Flipped bits, cut and padded proofs, another index or entry, an edited or unsigned head: exit 1, also without asserts."""
    done = check(forge(bundle_of(signer, 6)), signer, "-O")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("NOT PROVEN: ")
    assert "Traceback" not in done.stderr


def test_the_script_refuses_another_key(check, signer, other):
    """A key of the same name, and a line that is none."""
    assert "is not signed by specops/audit" in check(bundle_of(signer, 6), other).stderr
    assert check(bundle_of(signer, 6), "hello").returncode == 1


def test_a_false_proof_is_never_handed_out(signer, other):
    """Another key, another entry, a log shorter than what was signed."""
    note = note_at(signer, 11)
    with pytest.raises(ChainBroken, match="not signed by"):
        prove_inclusion(RAWS[6], 6, note, other.public_key, lambda n: inclusion_proof(LEAVES[:n], 6))
    with pytest.raises(ChainBroken, match="audit entry 6 has no proof"):
        prove_inclusion(RAWS[5], 6, note, signer.public_key, lambda n: inclusion_proof(LEAVES[:n], 6))
    with pytest.raises(ChainBroken, match="shorter than a signed checkpoint"):
        prove_inclusion(RAWS[6], 6, note, signer.public_key, lambda _: inclusion_proof(LEAVES[:6], 6))


def test_growth_between_two_checkpoints_is_proven_or_refused(signer):
    """The older log is a beginning of the newer one; a rewritten one is not."""
    older, newer = note_at(signer, 4), note_at(signer, 11)
    bundle = prove_consistency(older, newer, signer.public_key, lambda a, b: consistency_proof(LEAVES[:b], a))
    assert (bundle["old"], bundle["new"], len(bundle["proof"])) == (older, newer, 2)
    with pytest.raises(ChainBroken, match="it was rewritten"):
        prove_consistency(older, newer, signer.public_key, lambda a, b: consistency_proof(LEAVES[:b], a + 1))


def test_the_first_checkpoint_that_covers_an_entry_is_taken(signer):
    """An entry beyond all of them has to wait for the next."""
    notes = [note_at(signer, size) for size in (8, 4, 11)]
    assert note_over(notes, 5) == notes[0]
    with pytest.raises(InvalidInput, match="audit entry 11 is not under a checkpoint yet"):
        note_over(notes, 12)
