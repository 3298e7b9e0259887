"""The portable bundle: a lineage slice in one tar file that another site can believe without asking this one.

Written by `specops lineage export --format bundle`, read by `lineage import-bundle`. The manifest binds every member's SHA-256
and is sealed by the exporter's key; audit entries travel with inclusion proofs under a signed checkpoint. A reader re-computes
every identity before anything is taken in, and trusts no path: only the known members exist, as plain files of bounded size.

Layout: docs/reference/formats.md.
"""

import base64
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specops.adapters.dsse import seal, unseal
from specops.core.audit import AuditEntry, Checkpoint
from specops.core.canonical import canonical
from specops.core.merkle import leaf_hash, verify_inclusion
from specops.core.pair import Pair
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, FileDigest, Release, TensorDigest
from specops.core.slice import Bundle, Evidence, LineageSlice, ProvenEntry
from specops.errors import ChainBroken, InvalidInput, InvalidRecord, LineageBroken

if TYPE_CHECKING:
    from specops.adapters.signing import PublicKey, Signer

FORMAT = "specops-lineage/1"
MANIFEST, SEAL, KEY, CHECKPOINT = "manifest.json", "manifest.dsse.json", "key.pub", "checkpoint.txt"
TABLES = ("artifacts", "edges", "releases", "pairs", "evidence", "audit")
MAX_MEMBER_BYTES = 1 << 30
_DIGEST = re.compile("[0-9a-f]{64}")
SEAL_TYPE = "application/vnd.specops.lineage-manifest+json"


def write_bundle(path: Path, bundle: Bundle, signer: "Signer") -> str:
    """Write a bundle and return the SHA-256 of its manifest; the same bundle gives the same bytes."""
    members = {f"{name}.jsonl": _lines(rows) for name, rows in _rows(bundle).items()}
    members |= {CHECKPOINT: bundle.note.encode(), KEY: signer.public_key.to_line().encode()}
    files = {name: hashlib.sha256(raw).hexdigest() for name, raw in sorted(members.items())}
    manifest = canonical({"format": FORMAT, "subject": bundle.part.subject, "files": files})
    members |= {MANIFEST: manifest, SEAL: canonical(seal(manifest, signer, payload_type=SEAL_TYPE))}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(members):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(members[name]), 0o644
            tar.addfile(entry, io.BytesIO(members[name]))
    return hashlib.sha256(manifest).hexdigest()


def read_bundle(path: Path, key: "PublicKey | None" = None) -> tuple[Bundle, "PublicKey"]:
    """Read and check a bundle; return it with the key that sealed it.

    Args:
        path: the tar file.
        key: the exporter's key, got on another way. None takes the bundle's own word for who made it: then it proves only
            that nothing was altered since, and the caller should say so.

    Raises:
        InvalidInput: not a bundle, a strange member, or one that is too large.
        ChainBroken: the seal, the checkpoint or an inclusion proof does not hold.
        LineageBroken: a record is not what its digest says; it is named.
    """
    from specops.adapters.signing import PublicKey  # noqa: PLC0415

    members = _members(path)
    trusted = key or PublicKey.from_line(_text(members, KEY))
    manifest = unseal(_json(members[SEAL], SEAL), trusted, payload_type=SEAL_TYPE)
    if manifest != members[MANIFEST]:
        raise ChainBroken(f"{MANIFEST} of {path} is not the sealed one; get the bundle again")
    said = _json(manifest, MANIFEST)
    if said.get("format") != FORMAT:
        raise InvalidInput(f"{path} has format {said.get('format')!r}, this specops reads {FORMAT}; use a newer one")
    sealed = said.get("files")
    if not isinstance(sealed, dict) or sealed.keys() != members.keys() - {MANIFEST, SEAL}:
        raise LineageBroken(f"the manifest of {path} does not seal every member; get the bundle again")
    for name, digest in sealed.items():
        if hashlib.sha256(members.get(name, b"")).hexdigest() != digest:
            raise LineageBroken(f"{name} of {path} is not the one that was sealed; get the bundle again")
    rows = {name: [_json(line, name) for line in members[f"{name}.jsonl"].splitlines()] for name in TABLES}
    try:
        bundle = _bundle(str(said["subject"]), rows, _text(members, CHECKPOINT))
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise InvalidInput(f"{path} holds a record that cannot be read: {exc!r}; export it again") from exc
    _check_audit(bundle, trusted)
    return bundle, trusted


def _rows(bundle: Bundle) -> dict[str, list[dict[str, Any]]]:
    part = bundle.part
    return {
        "artifacts": [{"digest": a.digest} | asdict(a) for a in part.artifacts],
        "edges": [asdict(e) for e in part.edges],
        "releases": [{"digest": r.digest, "record": r.to_record()} for r in part.releases],
        "pairs": [{"digest": p.digest, "record": p.to_record()} for p in part.pairs],
        "evidence": [asdict(e) for e in part.evidence],
        "audit": [
            {"index": e.index, "raw": _encode(e.raw), "proof": [_encode(h) for h in e.proof]} for e in bundle.audit
        ],
    }


def _bundle(subject: str, rows: dict[str, list[dict[str, Any]]], note: str) -> Bundle:
    part = LineageSlice(
        subject=subject,
        artifacts=tuple(map(_artifact, rows["artifacts"])),
        edges=tuple(map(_edge, rows["edges"])),
        releases=tuple(map(_release, rows["releases"])),
        pairs=tuple(map(_pair, rows["pairs"])),
        evidence=tuple(Evidence(**r) for r in rows["evidence"]),
    )
    decode = base64.b64decode
    audit = tuple(
        ProvenEntry(
            index=r["index"], raw=decode(r["raw"], validate=True), proof=tuple(decode(h, validate=True) for h in r["proof"])
        )
        for r in rows["audit"]
    )
    return Bundle(part=part, audit=audit, note=note)


def _artifact(row: dict[str, Any]) -> Artifact:
    tensors = tuple(TensorDigest(**(t | {"shape": tuple(t["shape"])})) for t in row["tensors"])
    files = tuple(FileDigest(**f) for f in row["files"])
    fields = {key: value for key, value in row.items() if key != "digest"}
    artifact = Artifact(**(fields | {"kind": ArtifactKind(row["kind"]), "files": files, "tensors": tensors}))
    _same("artifact", artifact.name, artifact.digest, row["digest"])
    return artifact


def _edge(row: dict[str, Any]) -> Edge:
    """Return an edge; an end that is no digest would stay in the graph for ever, and no question would reach it."""
    edge = Edge(source=row["source"], kind=EdgeKind(row["kind"]), target=row["target"])
    for end in (edge.source, edge.target):
        if not isinstance(end, str) or not _DIGEST.fullmatch(end):
            raise InvalidInput(f"the bundle has a {edge.kind} edge at {str(end)[:80]!r}; expected 64 hex digits; export again")
    return edge


def _release(row: dict[str, Any]) -> Release:
    release = Release.from_record(row["record"])
    _same("release", release.name, release.digest, row["digest"])
    return release


def _pair(row: dict[str, Any]) -> Pair:
    pair = Pair.from_record(row["record"])
    _same("pair", f"of {pair.target[:12]}", pair.digest, row["digest"])
    return pair


def _same(what: str, name: str, got: str, said: str) -> None:
    if got != said:
        raise LineageBroken(f"{what} {name} is not what the bundle says: its record gives {got[:16]}, the bundle {said[:16]}")


def _check_audit(bundle: Bundle, key: "PublicKey") -> None:
    """Check each entry against the signed checkpoint."""
    if not bundle.audit:
        return
    try:
        head = Checkpoint.from_text(key.open(bundle.note))
        for entry in bundle.audit:
            AuditEntry.from_bytes(entry.raw)
    except InvalidRecord as exc:
        raise ChainBroken(f"the bundle's audit part cannot be read: {exc}") from exc
    for entry in bundle.audit:
        if not verify_inclusion(leaf_hash(entry.raw), entry.index, head.size, entry.proof, head.root):
            raise ChainBroken(f"audit entry {entry.index} is not in the log of {head.size} entries that {key.name} signed")


def _members(path: Path) -> dict[str, bytes]:
    """Read the tar's members: exactly the known names, plain files, each once, bounded."""
    expected = {MANIFEST, SEAL, KEY, CHECKPOINT, *(f"{name}.jsonl" for name in TABLES)}
    found: dict[str, bytes] = {}
    if path.exists() and not path.is_file():  # a pipe would block for ever
        raise InvalidInput(f"{path} is not a file; expected the tar of specops lineage export")
    try:
        with tarfile.open(path, "r:") as tar:
            for entry in tar:
                if entry.name not in expected or entry.name in found or not entry.isfile() or entry.size > MAX_MEMBER_BYTES:
                    raise InvalidInput(f"{path} has a member that no bundle has, {entry.name[:80]!r}; specops did not make it")
                stream = tar.extractfile(entry)
                found[entry.name] = stream.read() if stream else b""
    except (OSError, tarfile.TarError, ValueError) as exc:
        raise InvalidInput(f"{path} is not a bundle: {exc}; expected the tar of specops lineage export") from exc
    if missing := sorted(expected - set(found)):
        raise InvalidInput(f"{path} is not a whole bundle: {missing[0]} is missing; get it again")
    return found


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(canonical(row) + b"\n" for row in rows)


def _text(members: dict[str, bytes], name: str) -> str:
    try:
        return members[name].decode()
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"{name} of the bundle is no text; get it again") from exc


def _json(raw: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"{where} of the bundle is not JSON: {exc}; get it again") from exc
    if not isinstance(value, dict):
        raise InvalidInput(f"{where} of the bundle must hold objects, got {type(value).__name__}; get it again")
    return value
