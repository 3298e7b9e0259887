"""The portable proof that one entry is in the log: what `specops audit prove` writes and docs/reference/check_proof.py reads.

Everything a stranger needs but the public key, which must come another way: the entry's bytes, its index, the hashes that lead
to the root, and the signed checkpoint that holds this root. Building it here checks it, so that no false proof is handed out.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Any

from specops.core.audit import Checkpoint, NoteOpener, size_in
from specops.core.merkle import leaf_hash, verify_consistency, verify_inclusion
from specops.errors import ChainBroken, InvalidInput, InvalidRecord

INCLUSION, CONSISTENCY = "specops-audit-proof/1", "specops-audit-consistency/1"


def note_over(notes: Sequence[str], size: int) -> str:
    """Return the first signed note that covers `size` entries.

    Raises:
        InvalidInput: no checkpoint is that far.
    """
    covering = [note for note in notes if size_in(note) >= size]
    if not covering:
        raise InvalidInput(f"audit entry {size - 1} is not under a checkpoint yet; run: specops audit checkpoint")
    return min(covering, key=size_in)


def prove_inclusion(
    raw: bytes, index: int, note: str, key: NoteOpener, proof_at: Callable[[int], Sequence[bytes]]
) -> dict[str, Any]:
    """Return the bundle of one entry.

    Args:
        raw: the entry's exact bytes.
        index: its number, from 0.
        note: a signed checkpoint that covers it.
        key: the public key, or ring, that opens the note.
        proof_at: gives the inclusion proof in the log of a size.

    Raises:
        ChainBroken: the note does not open, or the log is not the one that was signed.
    """
    head = Checkpoint.from_text(key.open(note))
    proof = _asked(proof_at, head.size)
    if not verify_inclusion(leaf_hash(raw), index, head.size, proof, head.root):
        raise ChainBroken(
            f"audit entry {index} has no proof under the checkpoint at size {head.size}: the log was altered; "
            "run: specops audit verify"
        )
    return {
        "format": INCLUSION,
        "index": index,
        "size": head.size,
        "entry": _encode(raw),
        "proof": [_encode(one) for one in proof],
        "checkpoint": note,
        "key": note.rpartition("\n\n")[2].split(" ")[1],  # a name only: the key itself comes another way
    }


def prove_consistency(
    old_note: str, new_note: str, key: NoteOpener, proof_between: Callable[[int, int], Sequence[bytes]]
) -> dict[str, Any]:
    """Return the bundle which shows that the log under `old_note` is a beginning of the one under `new_note`.

    Raises:
        ChainBroken: a note does not open, or the log was rewritten between the two.
    """
    old, new = (Checkpoint.from_text(key.open(note)) for note in (old_note, new_note))
    proof = _asked(proof_between, old.size, new.size)
    if not verify_consistency(old.size, new.size, old.root, new.root, proof):
        raise ChainBroken(
            f"the log of {old.size} entries is no beginning of that of {new.size}, it was rewritten; see specops audit verify"
        )
    return {"format": CONSISTENCY, "proof": [_encode(one) for one in proof], "old": old_note, "new": new_note}


def _asked(proof: Callable[..., Sequence[bytes]], *sizes: int) -> Sequence[bytes]:
    """Ask the log for a proof; one that is shorter than what was signed has none."""
    try:
        return proof(*sizes)
    except InvalidRecord as exc:
        raise ChainBroken(f"the log is shorter than a signed checkpoint of it: {exc}; run: specops audit verify") from exc


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
