"""The portable bundle: the same bytes each time, believed only as far as it can be re-computed."""

import hashlib
import io
import json
import tarfile
from dataclasses import replace

import pytest

from specops.adapters.dsse import seal
from specops.adapters.lineage_bundle import KEY, MANIFEST, SEAL, SEAL_TYPE, read_bundle, write_bundle
from specops.adapters.signing import load_or_create
from specops.core.audit import AuditEntry, Checkpoint
from specops.core.canonical import canonical
from specops.core.merkle import Frontier, inclusion_proof, leaf_hash
from specops.core.slice import Bundle, ProvenEntry
from specops.errors import ChainBroken, InvalidInput, LineageBroken, SpecopsError
from tests.adapters.test_exports import AT, PART, RELEASE, TARGET


def _log(signer, count=5):
    """Return proven entries of a small log and its signed checkpoint."""
    fields = {"tag": "lineage:artifact:registered", "actor": "ann", "subject": RELEASE.id, "payload": {}, "at": AT}
    raws = [AuditEntry(index=i, **fields).to_bytes() for i in range(count)]
    leaves = [leaf_hash(raw) for raw in raws]
    frontier = Frontier()
    for leaf in leaves:
        frontier = frontier.append(leaf)
    note = signer.sign(Checkpoint(origin=signer.name, size=count, root=frontier.root).to_text())
    return tuple(ProvenEntry(index=i, raw=raws[i], proof=inclusion_proof(leaves, i)) for i in (1, 4)), note


@pytest.fixture
def signer(tmp_path):
    """Return the exporter's key."""
    return load_or_create(tmp_path / "keys")


@pytest.fixture
def bundle(signer):
    """Return a bundle with everything in it."""
    entries, note = _log(signer)
    return Bundle(part=PART, audit=entries, note=note)


@pytest.fixture
def written(bundle, signer, tmp_path):
    """Return the path of the written bundle."""
    write_bundle(tmp_path / "out" / "b.tar", bundle, signer)
    return tmp_path / "out" / "b.tar"


def _members(path):
    with tarfile.open(path) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar}


def _pack(path, members):
    with tarfile.open(path, "w") as tar:
        for name, raw in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            tar.addfile(entry, io.BytesIO(raw))
    return path


def _resealed(path, signer, **changes):
    """Pack the bundle anew with changed members, under a fresh seal: what a dishonest exporter could do."""
    members = _members(path) | changes
    said = json.loads(members[MANIFEST])
    said["files"] = {name: hashlib.sha256(members[name]).hexdigest() for name in said["files"]}
    members[MANIFEST] = canonical(said)
    members[SEAL] = canonical(seal(members[MANIFEST], signer, payload_type=SEAL_TYPE))
    return _pack(path, members)


def test_what_was_written_is_read_and_the_bytes_are_stable(bundle, written, signer, tmp_path):
    """Records, proofs and key survive; two exports of one slice are one file."""
    found, key = read_bundle(written)
    write_bundle(tmp_path / "again.tar", bundle, signer)

    assert found == bundle
    assert key == signer.public_key
    assert (tmp_path / "again.tar").read_bytes() == written.read_bytes()


def test_a_trusted_key_is_not_taken_from_the_bundle(written, tmp_path):
    """Somebody who sealed it with another key is found, whatever key lies inside."""
    other = load_or_create(tmp_path / "other")

    with pytest.raises(ChainBroken, match="signed by somebody else"):
        read_bundle(written, other.public_key)


def test_an_edited_member_is_named(written):
    """Without the key nobody can make the manifest fit."""
    members = _members(written)
    changed = members["artifacts.jsonl"].replace(b'"target"', b'"tarpit"', 1)
    _pack(written, members | {"artifacts.jsonl": changed})

    with pytest.raises(LineageBroken, match=r"artifacts\.jsonl of .* is not the one that was sealed"):
        read_bundle(written)


def test_a_manifest_that_was_swapped_is_found(written):
    """The sealed one counts."""
    members = _members(written)
    _pack(written, members | {MANIFEST: members[MANIFEST].replace(b"rel-", b"lie-")})

    with pytest.raises(ChainBroken, match="is not the sealed one"):
        read_bundle(written)


def test_a_dishonest_exporter_cannot_lie_about_an_identity(written, signer):
    """Digests are re-computed: a record that does not give its digest is named even under a good seal."""
    lines = _members(written)["artifacts.jsonl"].replace(TARGET.files[0].sha256.encode(), b"0" * 64)
    _resealed(written, signer, **{"artifacts.jsonl": lines})
    with pytest.raises(LineageBroken, match="artifact target is not what the bundle says"):
        read_bundle(written)


def test_a_dishonest_exporter_cannot_lie_about_a_release(written, signer):
    """Another k under the same digest."""
    lines = _members(written)["releases.jsonl"].replace(b'"num_speculative_tokens":4', b'"num_speculative_tokens":5')
    _resealed(written, signer, **{"releases.jsonl": lines})

    with pytest.raises(LineageBroken, match="release spec is not what the bundle says"):
        read_bundle(written)


def test_an_audit_entry_needs_its_place_in_the_signed_log(bundle, signer, tmp_path):
    """Edited bytes, another index, no checkpoint."""
    one, two = bundle.audit
    forged = one.raw.replace(b"ann", b"bob")
    cases = [
        (replace(bundle, audit=(replace(one, raw=forged), two)), "is not in the log"),
        (replace(bundle, audit=(replace(one, index=2), two)), "is not in the log"),
        (replace(bundle, audit=(replace(one, raw=b"{}"), two)), "cannot be read"),
        (replace(bundle, note=""), "not a signed note"),
    ]
    for number, (case, message) in enumerate(cases):
        path = tmp_path / f"{number}.tar"
        write_bundle(path, case, signer)
        with pytest.raises(ChainBroken, match=message):
            read_bundle(path)


def test_a_bundle_without_audit_part_is_fine(signer, tmp_path):
    """A store whose log was never signed can still export."""
    write_bundle(tmp_path / "b.tar", Bundle(part=PART), signer)

    assert read_bundle(tmp_path / "b.tar")[0].part == PART


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "extra.txt"])
def test_a_strange_member_is_refused(written, name):
    """No path is ever followed: only the known names exist."""
    _pack(written, _members(written) | {name: b"x"})

    with pytest.raises(InvalidInput, match="has a member that no bundle has"):
        read_bundle(written)


def test_links_doubles_and_gaps_are_refused(written):
    """A link with a known name, a member twice, a member missing, no tar at all."""
    members = _members(written)
    with tarfile.open(written, "w") as tar:
        link = tarfile.TarInfo(KEY)
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(InvalidInput, match="no bundle has"):
        read_bundle(written)
    with tarfile.open(written, "w") as tar:
        for _ in range(2):
            tar.addfile(tarfile.TarInfo(KEY), io.BytesIO())
    with pytest.raises(InvalidInput, match="no bundle has"):
        read_bundle(written)
    _pack(written, {name: raw for name, raw in members.items() if name != KEY})
    with pytest.raises(InvalidInput, match=r"key\.pub is missing"):
        read_bundle(written)
    written.write_bytes(b"no tar")
    with pytest.raises(InvalidInput, match="is not a bundle"):
        read_bundle(written)


@pytest.mark.parametrize(
    ("member", "raw"),
    [
        ("artifacts.jsonl", b"[]\n"), ("artifacts.jsonl", b"{}\n"), ("artifacts.jsonl", b"{\n"),
        ("edges.jsonl", b'{"source": 1}\n'),
        ("releases.jsonl", b'{"digest": "a", "record": {"no": 1}}\n'), ("pairs.jsonl", b'{"digest": "a", "record": {}}\n'),
        ("audit.jsonl", b'{"index": "x", "raw": "*", "proof": []}\n'), ("evidence.jsonl", b'{"a": 1}\n'),
        ("checkpoint.txt", b"\xff"), (KEY, b"no key"),
    ],
)  # fmt: skip
def test_records_that_cannot_be_read_are_clear_errors(written, signer, member, raw):
    """Even under a good seal: an error of ours, never a crash."""
    _resealed(written, signer, **{member: raw})

    with pytest.raises(SpecopsError):
        read_bundle(written)


def test_another_format_is_refused_by_name(written, signer):
    """A newer bundle says so."""
    members = _members(written)
    manifest = canonical(json.loads(members[MANIFEST]) | {"format": "specops-lineage/9"})
    members |= {MANIFEST: manifest, SEAL: canonical(seal(manifest, signer, payload_type=SEAL_TYPE))}
    _pack(written, members)

    with pytest.raises(InvalidInput, match="this specops reads specops-lineage/1"):
        read_bundle(written)


@pytest.mark.parametrize("end", ["", "target", "A" * 64, "a" * 63, "a" * 64 + "\n", 7, None])
@pytest.mark.parametrize("side", ["source", "target"])
def test_an_edge_ends_at_digests(written, signer, side, end):
    """Whatever else would stay in the graph for ever, reached by no question."""
    row = {"source": "a" * 64, "kind": "uses", "target": "b" * 64} | {side: end}
    _resealed(written, signer, **{"edges.jsonl": canonical(row) + b"\n"})

    with pytest.raises(InvalidInput, match=r"uses edge at .* expected 64 hex digits"):
        read_bundle(written)


@pytest.mark.parametrize("files", [None, {}, [], {"edges.jsonl": "0" * 64}])
def test_a_manifest_seals_every_member(written, signer, files):
    """One that leaves a member out would let anybody change it."""
    members = _members(written)
    manifest = canonical(json.loads(members[MANIFEST]) | {"files": files})
    members |= {MANIFEST: manifest, SEAL: canonical(seal(manifest, signer, payload_type=SEAL_TYPE))}
    _pack(written, members)

    with pytest.raises(LineageBroken, match="does not seal every member"):
        read_bundle(written)
