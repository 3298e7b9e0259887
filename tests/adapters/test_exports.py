"""CycloneDX, OpenLineage and in-toto documents of one slice."""

import json
from datetime import UTC, datetime
from pathlib import Path

import cyclonedx.schema
import jsonschema
import pytest
from referencing import Registry, Resource

from specops.adapters import dsse, intoto
from specops.adapters.cyclonedx import to_cyclonedx
from specops.adapters.openlineage import to_openlineage
from specops.adapters.signing import load_or_create
from specops.core.canonical import digest_of
from specops.core.pair import Pair
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, FileDigest, Release, document
from specops.core.slice import Evidence, LineageSlice
from specops.core.vocabulary import Relation, VocabularyRelation
from specops.errors import ChainBroken, InvalidInput

AT = datetime(2026, 11, 30, tzinfo=UTC)


def _artifact(kind, name, **changes):
    files = (FileDigest(path="f.bin", size=3, sha256=digest_of(name), blake3="b" * 64),)
    return Artifact(kind=kind, name=name, files=files, **changes)


TARGET = _artifact(
    ArtifactKind.TARGET, "target", properties={"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, claims={"b": "x"}
)
DRAFT = _artifact(ArtifactKind.DRAFT, "draft", facts={"licence": "MIT"})
CORPUS = _artifact(ArtifactKind.CORPUS, "code")
TOKENIZER = _artifact(ArtifactKind.TOKENIZER, "tokenizer")
MACHINE = document(ArtifactKind.HARDWARE, "box", {"cores": 2})
PAIR = Pair(
    target=TARGET.digest, method="draft_model", draft=DRAFT.digest, target_tokenizer=TOKENIZER.digest,
    draft_tokenizer=TOKENIZER.digest, vocabulary_sha256="v" * 64,
    vocabulary=VocabularyRelation(kind=Relation.IDENTICAL, real_size=300, target_size=300, draft_size=300),
)  # fmt: skip
RELEASE = Release(
    name="spec", target=TARGET.digest, tokenizer=TOKENIZER.digest, method="draft_model", draft=DRAFT.digest,
    draft_tokenizer=TOKENIZER.digest, num_speculative_tokens=4, pair=PAIR.digest,
)  # fmt: skip
PART = LineageSlice(
    subject=RELEASE.id,
    artifacts=(TARGET, DRAFT, CORPUS, TOKENIZER, MACHINE),
    edges=(
        Edge(source=DRAFT.digest, kind=EdgeKind.DISTILLED_FROM, target=TARGET.digest),
        Edge(source=DRAFT.digest, kind=EdgeKind.TRAINED_ON, target=CORPUS.digest),
        Edge(source=TARGET.digest, kind=EdgeKind.TOKENIZED_WITH, target=TOKENIZER.digest),
    ),
    releases=(RELEASE,),
    pairs=(PAIR,),
    evidence=(
        Evidence(subject=RELEASE.id, kind="offline", payload={"ratio": 1.4}, at=AT.isoformat(), scope=MACHINE.digest),
        Evidence(subject="ro-1", kind="endpoints", payload={}, at=AT.isoformat()),
    ),
)


@pytest.fixture(scope="module")
def schema():
    """Return a validator of the official CycloneDX 1.6 schema, from the reference library."""
    folder = Path(cyclonedx.schema.__file__).parent / "_res"
    named = {"bom": "bom-1.6.SNAPSHOT", "spdx": "spdx.SNAPSHOT", "jsf": "jsf-0.82.SNAPSHOT"}
    loaded = {key: json.loads((folder / f"{name}.schema.json").read_text()) for key, name in named.items()}
    registry = Registry().with_resources((s["$id"], Resource.from_contents(s)) for s in loaded.values())
    return jsonschema.Draft7Validator(loaded["bom"], registry=registry, format_checker=jsonschema.FormatChecker())


def test_the_bom_is_valid_cyclonedx(schema):
    """Against the official schema, as text that any scanner would read."""
    bom = json.loads(json.dumps(to_cyclonedx(PART, at=AT, version="0.1.0")))

    assert [e.message for e in schema.iter_errors(bom)] == []
    assert bom["metadata"]["component"]["name"] == "spec"


def test_the_bom_says_what_came_from_what():
    """Pedigree, data set, model card, dependencies and both digests of each file; claims are marked."""
    bom = to_cyclonedx(PART, at=AT, version="0.1.0")
    found = {c["bom-ref"]: c for c in bom["components"]}

    assert found[DRAFT.digest]["pedigree"]["ancestors"][0]["name"] == "target"
    assert found[DRAFT.digest]["modelCard"]["modelParameters"]["datasets"] == [{"ref": CORPUS.digest}]
    assert found[TARGET.digest]["modelCard"]["modelParameters"]["modelArchitecture"] == "LlamaForCausalLM"
    assert {h["alg"] for h in found[TARGET.digest]["components"][0]["hashes"]} == {"SHA-256", "BLAKE3"}
    assert {"name": "specops:claim:b", "value": "x"} in found[TARGET.digest]["properties"]
    needs = {d["ref"]: d.get("dependsOn", []) for d in bom["dependencies"]}
    assert set(needs[RELEASE.digest]) == {TARGET.digest, DRAFT.digest, TOKENIZER.digest}


def test_the_bom_is_the_same_each_time_and_another_for_other_content():
    """The serial number comes from the content, not from chance."""
    first, again = (to_cyclonedx(PART, at=AT, version="0.1.0") for _ in range(2))
    other = to_cyclonedx(LineageSlice(subject=TARGET.digest, artifacts=(TARGET,)), at=AT, version="0.1.0")

    assert first == again
    assert first["serialNumber"] != other["serialNumber"]
    assert "component" not in other["metadata"]


def test_openlineage_events_carry_digests_in_names():
    """One event per release with all that it stands on, one per finding about a release; findings of others are left out."""
    registered, found = to_openlineage(PART, at=AT)

    names = {d["name"] for d in registered["inputs"]}
    assert names == {f"{a.kind}/{a.digest}" for a in (TARGET, DRAFT, CORPUS, TOKENIZER)}
    assert registered["outputs"][0]["name"] == f"release/{RELEASE.digest}"
    assert found["job"]["name"] == "evidence.offline"
    assert found["run"]["facets"]["specops_evidence"]["scope"] == MACHINE.digest


def test_openlineage_events_have_what_the_specification_requires():
    """RunEvent: eventTime, producer, schemaURL, run.runId (a UUID), job.namespace and name; facets _producer and _schemaURL."""
    for event in to_openlineage(PART, at=AT):
        assert {"eventTime", "producer", "schemaURL", "run", "job"} <= event.keys()
        assert event["eventType"] == "COMPLETE"
        assert len(event["run"]["runId"]) == 36
        facets = [*event["run"]["facets"].values()]
        facets += [f for d in event["inputs"] + event["outputs"] for f in d["facets"].values()]
        assert all({"_producer", "_schemaURL"} <= f.keys() for f in facets)


@pytest.fixture
def signer(tmp_path):
    """Return a signing key."""
    return load_or_create(tmp_path / "keys")


VERDICT = {
    "result": "FAIL",
    "findings": [{"check": n, "result": r} for n, r in (("a", "FAIL"), ("b", "PASS"), ("c", "PENDING"))],
}


def test_a_verdict_becomes_a_test_result(signer):
    """FAILED with each check under passed, failed or warned; signed, and read back with the public key."""
    envelope = dsse.seal(intoto.test_result(RELEASE, "p" * 64, VERDICT), signer)

    found = dsse.statement(json.loads(json.dumps(envelope)), signer.public_key)

    assert found["predicateType"] == intoto.TEST_RESULT
    predicate = found["predicate"]
    assert predicate["result"] == "FAILED"
    assert (predicate["failedTests"], predicate["passedTests"], predicate["warnedTests"]) == (["a"], ["b"], ["c"])
    assert found["subject"][0]["digest"]["sha256"] == RELEASE.digest


@pytest.mark.parametrize(("result", "said"), [("PASS", "PASSED"), ("PENDING", "WARNED"), ("ERROR", "FAILED")])
def test_only_a_pass_has_passed(result, said):
    """Undecided is a warning, an error is a failure."""
    assert json.loads(intoto.test_result(RELEASE, "p", {"result": result}))["predicate"]["result"] == said


def test_a_pair_proof_names_its_members_files(signer):
    """Our predicate: record, members by digest with their files, findings by digest."""
    payload = intoto.pair_proof(PAIR, (TARGET, DRAFT), PART.evidence[:1])

    found = dsse.statement(dsse.seal(payload, signer), signer.public_key)

    assert found["predicate"]["pair"]["record"] == PAIR.to_record()
    assert [m["digest"]["sha256"] for m in found["predicate"]["members"]] == [TARGET.digest, DRAFT.digest]


def _forged(envelope, **changes):
    return envelope | changes


def test_an_envelope_that_was_touched_is_not_believed(signer, tmp_path):
    """Another key, payload or type, no signature; and what is no envelope at all."""
    envelope = dsse.seal(b"{}", signer)
    other = load_or_create(tmp_path / "other").public_key

    with pytest.raises(ChainBroken, match="altered, or signed by somebody else"):
        dsse.unseal(envelope, other)
    for payload in (b'{"a": 1}', b""):
        again = dsse.seal(payload, signer)["payload"]
        with pytest.raises(ChainBroken):
            dsse.unseal(_forged(envelope, payload=again), signer.public_key)
    with pytest.raises(ChainBroken):
        dsse.unseal(_forged(envelope, signatures=[]), signer.public_key)
    with pytest.raises(InvalidInput, match="holds 'text/plain', expected"):
        dsse.unseal(_forged(envelope, payloadType="text/plain"), signer.public_key)


@pytest.mark.parametrize(
    "envelope",
    [None, [], {}, {"payloadType": 1}, {"payloadType": "a", "payload": "*", "signatures": []},
     {"payloadType": "a", "payload": "", "signatures": [1]}, {"payloadType": "a", "payload": "", "signatures": [{"sig": "é"}]}],
)  # fmt: skip
def test_what_is_no_envelope_is_refused(envelope, signer):
    """Whatever JSON comes."""
    with pytest.raises(InvalidInput, match="not a DSSE envelope"):
        dsse.unseal(envelope, signer.public_key)


@pytest.mark.parametrize("payload", [b"no json", b"[]", b'{"_type": "other"}', b"[" * 100_000])
def test_a_signed_payload_that_is_no_statement_is_refused(payload, signer):
    """The right signature on the wrong thing."""
    with pytest.raises(InvalidInput, match="payload is"):
        dsse.statement(dsse.seal(payload, signer), signer.public_key)


def test_pae_is_the_one_of_the_protocol():
    """The example of protocol.md."""
    assert dsse.pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
