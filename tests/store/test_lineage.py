"""What is registered stays as it was registered."""

from dataclasses import asdict

import pytest
from sqlalchemy import insert, update

from specops.core.canonical import digest_of
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, FileDigest, TensorDigest
from specops.errors import InvalidRecord, LineageBroken, RuleViolation
from specops.store import schema

FILE = FileDigest(path="f", size=1, sha256="a" * 64)


def artifact(**changes):
    """Return an artifact."""
    files = (FileDigest(path="model.safetensors", size=5, sha256="a" * 64),)
    return Artifact(
        **({"kind": ArtifactKind.TARGET, "name": "tiny", "files": files, "facts": {"seed": 1}, "location": "here"} | changes)
    )


def test_an_artifact_comes_back_equal_and_is_kept_once(store):
    """Registering content twice changes nothing."""
    with store.begin() as unit:
        digest = unit.artifacts.add(artifact())
        unit.artifacts.add(artifact(location="elsewhere"))
    with store.read() as unit:
        assert unit.artifacts.get(digest) == artifact()
        assert unit.artifacts.all() == [artifact()]
        with pytest.raises(InvalidRecord, match="no artifact ffff"):
            unit.artifacts.get("f" * 64)


def test_a_release_is_found_by_id_and_by_name(store, make_release):
    """Both handles lead to the same frozen value."""
    release = make_release(engine={"name": "torch"})
    with store.begin() as unit:
        assert unit.releases.add(release) == unit.releases.add(release) == release.id
    with store.read() as unit:
        assert unit.releases.get(release.id) == unit.releases.get("plain") == release
        assert unit.releases.all() == [release]
        with pytest.raises(InvalidRecord, match="no release fast"):
            unit.releases.get("fast")


def test_a_name_or_a_configuration_is_registered_once(store, make_release):
    """A name never moves silently, and one configuration has one name."""
    with store.begin() as unit:
        unit.releases.add(make_release())
        with pytest.raises(InvalidRecord, match="the name plain belongs to"):
            unit.releases.add(make_release(target="u" * 64))
        with pytest.raises(InvalidRecord, match="is registered as plain"):
            unit.releases.add(make_release("other"))


def test_edges_stay_acyclic(store):
    """An edge that closes a cycle is refused, and what was there stays."""
    forth, back = (Edge(source=a, kind=EdgeKind.DISTILLED_FROM, target=b) for a, b in (("d", "t"), ("t", "d")))
    with store.begin() as unit:
        unit.edges.add(forth)
        unit.edges.add(forth)
        with pytest.raises(InvalidRecord, match="cycle"):
            unit.edges.add(back)
        assert unit.edges.all() == [forth]


def test_an_alias_moves_and_every_move_stays_on_record(store, make_release, t0):
    """The alias points to the last release; its history names who moved it."""
    with store.begin() as unit:
        first, second = unit.releases.add(make_release("a")), unit.releases.add(make_release("b", target="u" * 64))
        assert unit.aliases.get("production") is None
        for release, actor in ((first, "ann"), (second, "bob"), (first, "control")):
            unit.aliases.set("production", release, actor, t0)
    with store.read() as unit:
        assert unit.aliases.get("production") == first
        assert [(e.release_id, e.actor, e.at) for e in unit.aliases.history("production")] == [
            (first, "ann", t0), (second, "bob", t0), (first, "control", t0),
        ]  # fmt: skip


def test_an_alias_of_an_unknown_release_is_refused(store, t0):
    """Nothing points into the void."""
    with store.begin() as unit, pytest.raises(InvalidRecord, match="no such release"):
        unit.aliases.set("production", "rel-0", "ann", t0)


def test_policies_and_evidence_come_back(store, t0):
    """A policy's text is kept once; evidence in order, infinite numbers included."""
    with store.begin() as unit:
        unit.policies.add("d", "default", "text")
        unit.policies.add("d", "default", "text")
        for n in (1.0, float("inf")):
            unit.evidence.add("rel-1", "offline", {"e_value": n}, t0)
    with store.read() as unit:
        assert unit.policies.get("d") == "text"
        assert [e["payload"]["e_value"] for e in unit.evidence.of("rel-1")] == [1.0, float("inf")]
        assert unit.evidence.of("rel-1")[0] | {"payload": None} == {
            "subject": "rel-1", "kind": "offline", "payload": None, "at": "2026-11-29T12:00:00+00:00",
        }  # fmt: skip
        with pytest.raises(InvalidRecord, match="no policy x"):
            unit.policies.get("x")


def test_a_time_without_zone_never_reaches_the_database(store, t0):
    """Local times are refused at the last gate too, and nothing of the transaction stays."""
    with pytest.raises(Exception, match="time without zone"), store.begin() as unit:  # noqa: PT012
        unit.policies.add("d", "default", "text")
        unit.evidence.add("rel-1", "offline", {}, t0.replace(tzinfo=None))
    with store.read() as unit, pytest.raises(InvalidRecord):
        unit.policies.get("d")


def test_a_foreign_key_that_leads_nowhere_is_refused(store):
    """A window of an unknown rollout breaks the transaction with one line."""
    with pytest.raises(RuleViolation, match=r"(?i)foreign key"), store.begin() as unit:
        unit.windows.save("ro-0", {}, "e", 1)


def of_tensors(name, *tensors):
    """Return an artifact with tensors of (name, shape, digest)."""
    found = tuple(
        TensorDigest(file="model.safetensors", name=n, dtype="F32", shape=shape, digest=d) for n, shape, d in tensors
    )
    files = (FileDigest(path="model.safetensors", size=5, sha256=name.encode().hex().ljust(64, "0")),)
    return artifact(name=name, files=files, tensors=found)


def test_an_artifact_is_found_by_name_and_by_the_first_digits(store):
    """Eight digits will do; fewer, or pattern characters, match nothing."""
    with store.begin() as unit:
        digest = unit.artifacts.add(artifact())
        assert unit.artifacts.get(digest[:8]) == artifact()
        assert [a.name for a in unit.artifacts.find("tiny")] == [a.name for a in unit.artifacts.find(digest[:12])] == ["tiny"]
        for text in (digest[:7], "ti%", "", "\x00", "\ud800", "x" * 300):
            assert unit.artifacts.find(text) == []
        assert [a.name for a in unit.artifacts.of_kind("target")] == ["tiny"]


def test_digits_that_fit_several_artifacts_are_refused_with_all_names(store):
    """A person is asked for more digits."""
    with store.begin() as unit:
        for number in range(2):
            row = {"digest": "ab12cd34" + str(number) * 56, "kind": "target", "name": f"m{number}", "location": ""}
            unit.artifacts._connection.execute(insert(schema.artifact), row | {"files": [asdict(FILE)], "facts": {}})
        with pytest.raises(InvalidRecord, match=r"ab12cd34000.* \(m0\), ab12cd34111.* \(m1\); give more digits"):
            unit.artifacts.get("ab12cd34")


def test_a_release_is_found_by_its_digest(store, make_release):
    """Whole or its first digits."""
    with store.begin() as unit:
        release = make_release()
        unit.releases.add(release)
        assert unit.releases.get(release.digest) == unit.releases.get(release.digest[:9]) == release
        assert unit.releases.without_edges() == [release]
        unit.edges.add(Edge(source=release.digest, kind=EdgeKind.USES, target=release.target))
        assert unit.releases.without_edges() == []


def test_tensors_come_back_and_equal_ones_are_found(store):
    """By content, whatever their names; the share is of the smaller artifact."""
    one = of_tensors("one", ("embed", (10, 10), "b3:e"), ("head", (10, 30), "b3:h"))
    two = of_tensors("two", ("renamed", (10, 10), "b3:e"), ("other", (10, 10), "b3:o"))
    with store.begin() as unit:
        first, second = unit.artifacts.add(one), unit.artifacts.add(two)
        assert unit.artifacts.tensors_of(first) == one.tensors
        assert unit.artifacts.sharing(first) == [(second, 1, 100, 0.5)]
        assert unit.artifacts.sharing(second) == [(first, 1, 100, 0.5)]
        third = unit.artifacts.add(of_tensors("three", ("x", (1,), "b3:x")))
        assert unit.artifacts.sharing(third) == []


def test_names_of_digests_across_families(store, make_release):
    """What nothing is registered under is left out; all that depends is found in one query."""
    with store.begin() as unit:
        model, release = unit.artifacts.add(artifact()), make_release()
        unit.releases.add(release)
        record = {"relation": "identical"}
        proof = digest_of(record)
        pair = {"digest": proof, "relation": "identical", "record": record}
        unit.names._connection.execute(insert(schema.pair), pair)
        unit.edges.add_many([
            Edge(source=release.digest, kind=EdgeKind.USES, target=proof),
            Edge(source=proof, kind=EdgeKind.USES, target=model), Edge(source="f" * 64, kind=EdgeKind.USES, target=model),
        ])  # fmt: skip
        found = unit.names.of([model, release.digest, proof, "0" * 64])
        named = {n.family: n.name for n in found.values()}
        assert named == {"artifact": "tiny", "release": "plain", "pair": f"pair {proof[:12]}"}
        assert sorted(n.family for n in unit.names.depending_on([model])) == ["pair", "release"]
        assert [n.family for n in unit.names.depending_on(["f" * 64, "0" * 64])] == []
        assert unit.names.pairs(proof[:8]) == [(proof, record)]


def test_evidence_has_a_scope_and_is_listed_without_its_payload(store, t0):
    """Only where one was given; by subject and by kind."""
    with store.begin() as unit:
        unit.evidence.add("rel-1", "offline", {"n": 1}, t0, scope="a" * 64)
        unit.evidence.add("rel-2", "report", {"n": 2}, t0)
        assert [e.get("scope") for e in unit.evidence.about(["rel-1", "rel-2"])] == ["a" * 64, None]
        assert unit.evidence.listed(["rel-2", "rel-1"]) == [("rel-1", "offline", t0, "a" * 64), ("rel-2", "report", t0, None)]
        assert [e["subject"] for e in unit.evidence.of_kind("report")] == ["rel-2"]


@pytest.mark.parametrize("column", ["record", "name", "id"])
def test_an_altered_release_is_named(store, make_release, column):
    """Its record, its name or its id no longer is what was registered."""
    release = make_release()
    with store.begin() as unit:
        unit.releases.add(release)
        table = schema.release
        changes = {"record": release.to_record() | {"target": "f" * 64}, "name": "other", "id": "rel-other"}
        unit.releases._connection.execute(update(table).values({column: changes[column]}))
        with pytest.raises(LineageBroken, match=r"release rel-\w+ in the database was altered: .*; restore a backup"):
            unit.releases.get(release.digest)


@pytest.mark.parametrize("record", [{"target": 5}, {"name": ""}, [], {"stray": 1}])
def test_a_release_whose_record_is_none_is_named(store, make_release, record):
    """Whatever stands there, it ends in one line."""
    release = make_release()
    with store.begin() as unit:
        unit.releases.add(release)
        unit.releases._connection.execute(update(schema.release).values(record=record))
        with pytest.raises(LineageBroken, match="altered: its record is none"):
            unit.releases.find(release.name)


def test_an_altered_artifact_is_named(store):
    """By digest and by name."""
    with store.begin() as unit:
        digest = unit.artifacts.add(artifact())
        unit.artifacts._connection.execute(update(schema.artifact).values(facts={"seed": 7}))
        for ask in (unit.artifacts.get, unit.artifacts.find):
            with pytest.raises(LineageBroken, match=f"artifact {digest[:16]} in the database was altered: its record gives"):
                ask(digest)
        unit.artifacts._connection.execute(update(schema.artifact).values(files=[{"nonsense": 1}]))
        with pytest.raises(LineageBroken, match="its record is none"):
            unit.artifacts.get(digest)


@pytest.mark.parametrize(("record", "why"), [({"relation": "mapped"}, "its record gives"), ([1], "its record is a list")])
def test_an_altered_pair_is_named(store, record, why):
    """Asked for by digest, or by its first digits."""
    proof = digest_of({"relation": "identical"})
    with store.begin() as unit:
        row = {"digest": proof, "relation": "identical", "record": record}
        unit.names._connection.execute(insert(schema.pair), row)
        for ask in (unit.pairs.get, unit.names.pairs):
            with pytest.raises(LineageBroken, match=f"pair {proof[:16]} in the database was altered: {why}"):
                ask(proof)
