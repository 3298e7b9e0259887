"""What is registered stays as it was registered."""

import pytest

from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, FileDigest
from specops.errors import InvalidRecord, RuleViolation


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
    with pytest.raises(RuleViolation, match="FOREIGN KEY"), store.begin() as unit:
        unit.windows.save("ro-0", {}, "e", 1)
