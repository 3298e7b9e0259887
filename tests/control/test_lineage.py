"""Questions about the lineage, on a real store."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from specops.control.impact import impact, stale
from specops.control.lineage import diff, find, graph, link_shared, model_digest, show
from specops.control.lineage_time import record_report, served, trace
from specops.control.register import register
from specops.core.lineage import Effect
from specops.core.outcome import Arm, Finish, Kind, Outcome
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, FileDigest, Release, TensorDigest
from specops.core.rollout import Rollout, Step, StepKind
from specops.errors import InvalidInput, InvalidRecord

T0 = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def artifact(kind, name, **changes):
    """Return an artifact whose content is its name."""
    path = "tokenizer.json" if kind == "tokenizer" else "f"
    files = (FileDigest(path=path, size=1, sha256=name.encode().hex().ljust(64, "0")),)
    return Artifact(**({"kind": ArtifactKind(kind), "name": name, "files": files} | changes))


def edge(source, kind, target):
    """Return an edge."""
    return Edge(source=source.digest, kind=EdgeKind(kind), target=target.digest)


CORPUS, TARGET, TUNED = artifact("corpus", "corpus"), artifact("target", "target"), artifact("target", "tuned")
DRAFT = artifact("draft", "draft", claims={"verifier": "somewhere/target"})
LOOSE = artifact("draft", "loose", claims={"verifier": "?"})
TOKENIZER = artifact("tokenizer", "tokenizer", facts={"content_sha256": "c" * 64})
OTHER = artifact("tokenizer", "tokenizer 2", facts={"content_sha256": "e" * 64})
PLAIN = Release(name="plain", target=TARGET.digest, tokenizer="c" * 64)
FAST = Release(
    name="fast", target=TARGET.digest, tokenizer="c" * 64, method="draft_model", draft=DRAFT.digest, num_speculative_tokens=4
)


@pytest.fixture
def family(store):
    """Return a store with a corpus, a target and its fine-tune, drafts, tokenizers, two releases, and a started rollout."""
    edges = (
        edge(TARGET, "trained_on", CORPUS), edge(TUNED, "fine_tuned_from", TARGET), edge(DRAFT, "distilled_from", TARGET),
        edge(TARGET, "tokenized_with", TOKENIZER),
    )  # fmt: skip
    things = (CORPUS, TARGET, TUNED, DRAFT, LOOSE, TOKENIZER, OTHER)
    register(store, artifacts=things, edges=edges, releases=(PLAIN, FAST), actor="ann", now=T0)
    steps = (Step(kind=StepKind.SHADOW, mirror=0.5), Step(kind=StepKind.WATCH, weight=1.0))
    rollout = Rollout(
        id="ro-1", baseline=PLAIN.id, candidate=FAST.id, policy_digest="p" * 64, pipeline="quickstart", steps=steps
    )
    with store.begin() as unit:
        unit.rollouts.add(rollout)
        unit.evidence.add(FAST.id, "offline", {"n": 1}, T0, scope="5" * 64)
        unit.aliases.set("production", PLAIN.id, "ann", T0)
        started = {"baseline": PLAIN.id, "candidate": FAST.id, "steps": ["shadow weight 0.0 mirror 0.5 min 20"]}
        unit.audit.append(tag="rollout:plan:started", actor="ann", subject="ro-1", payload=started, at=T0)
    return store


def test_a_thing_is_found_by_name_and_prefix_whatever_it_is(family):
    """Release, artifact; nothing and several are refused with a way out."""
    with family.read() as unit:
        assert find(unit, "fast").family == find(unit, FAST.digest[:10]).family == find(unit, FAST.id).family == "release"
        assert find(unit, DRAFT.digest[:8]).artifact == find(unit, "draft").artifact
        with pytest.raises(InvalidRecord, match="nothing is registered as nobody"):
            find(unit, "nobody")
    with family.begin() as unit:
        unit.artifacts.add(artifact("draft", "plain"))
        with pytest.raises(InvalidRecord, match=r"plain is 2 things: release plain .*, draft plain"):
            find(unit, "plain")


def test_show_tells_what_a_release_came_from(family):
    """Down to the training data; the served one is marked."""
    with family.read() as unit:
        fast, plain = show(unit, "fast"), show(unit, "plain")
        draft = show(unit, "draft")

    assert [a.name for a in fast.artifacts] == ["corpus", "draft", "target", "tokenizer"]
    assert (fast.aliases, plain.aliases) == ((), ("production",))
    assert draft.thing.artifact.claims == {"verifier": "somewhere/target"}
    assert draft.names[TARGET.digest] == "target"


def test_a_diff_of_releases_goes_down_to_the_component(family):
    """Each differing artifact is compared for itself."""
    other = Release(name="new", target=TUNED.digest, tokenizer="e" * 64)
    register(family, artifacts=(), edges=(), releases=(other,), actor="ann", now=T0)
    files = {TOKENIZER.digest: {"model": {"vocab": {"a": 0}}}, OTHER.digest: {"model": {"vocab": {"b": 0}}}}

    with family.read() as unit:
        found = diff(unit, "plain", "new", read=lambda a, _path: json.dumps(files[a.digest]).encode())

    assert set(found.details) == {"target", "tokenizer"}
    assert "tokenizer.vocabulary[0]" in [d.component for d in found.details["tokenizer"].differences]
    assert found.can_change == {"output": ["target", "tokenizer"], "speed": ["target", "tokenizer"], "neither": ["name"]}


@pytest.mark.parametrize("raw", [None, b"{", b"[" * 100_000, b"[]"])
def test_a_tokenizer_that_cannot_be_read_is_compared_by_digest(family, raw):
    """Gone or broken: said in a note, never an error."""
    with family.read() as unit:
        found = diff(unit, "tokenizer", "tokenizer 2", read=lambda _a, _path: raw)

    assert "cannot be compared" in found.details["artifact"].notes[0]
    assert found.can_change["output"] == ["files"]


def test_a_diff_of_unlike_things_is_refused(family):
    """Two releases or two artifacts; a thing does not differ from itself."""
    with family.read() as unit:
        assert diff(unit, "draft", "draft").details == {}
        with pytest.raises(InvalidRecord, match="compare two releases or two artifacts"):
            diff(unit, "fast", "draft")


def test_impact_reaches_releases_evidence_and_rollouts(family):
    """A corpus reaches everything; each release says what its evidence loses."""
    with family.read() as unit:
        found = impact(unit, "corpus")

    assert [(d.name, d.because) for d in found.artifacts] == [("target", "trained_on it"), ("draft", ""), ("tuned", "")]
    fast, plain = found.releases
    assert (fast.components, fast.can_change, plain.components) == (("target", "draft"), Effect.OUTPUT_AND_SPEED, ("target",))
    assert [(e.kind, e.scope, e.loses) for e in fast.evidence] == [("offline", "5" * 64, "all")]
    assert [(r.id, r.is_over) for r in found.rollouts] == [("ro-1", False)]
    assert found.is_served


def test_impact_of_a_draft_takes_speed_only(family):
    """Nothing but the release that uses it."""
    with family.read() as unit:
        found = impact(unit, "draft")

    assert [(r.name, r.can_change, r.evidence[0].loses) for r in found.releases] == [("fast", Effect.SPEED, "speed")]
    assert not found.is_served


def test_impact_of_a_tokenizer_finds_releases_that_name_its_content(family):
    """Releases may name the content's digest instead of the artifact's."""
    with family.read() as unit:
        assert {r.name for r in impact(unit, "tokenizer").releases} == {"fast", "plain"}
        assert impact(unit, "tokenizer 2").releases == ()
        assert [r.name for r in impact(unit, "fast").releases] == ["fast"]


def test_stale_drafts_are_those_of_another_teacher(family):
    """Fresh beside the teacher; stale beside its fine-tune, and where no teacher is on record."""
    with family.read() as unit:
        now, later = stale(unit), stale(unit, "tuned")

    assert (now.fresh, [d.name for d in now.stale]) == (1, ["loose"])
    assert "only claim verifier ?" in now.stale[0].why
    assert [(d.name, d.teachers, d.releases) for d in later.stale] == [("draft", ("target",), ("fast",)), ("loose", (), ())]
    assert "was made from its teacher since" in later.stale[0].why


def test_stale_asks_for_a_target(family, open_fresh):
    """A release will do; a draft will not, and without an alias one must be named."""
    unrelated = artifact("target", "unrelated")
    register(family, artifacts=(unrelated,), edges=(), releases=(), actor="ann", now=T0)
    with family.read() as unit:
        assert stale(unit, "fast").target_name == "target"
        assert "another target" in stale(unit, "unrelated").stale[0].why
        with pytest.raises(InvalidRecord, match="not a target"):
            stale(unit, "draft")
    with open_fresh().read() as unit, pytest.raises(InvalidRecord, match="--target"):
        stale(unit)


def test_equal_tensors_are_linked_once(store):
    """Under 1% of the smaller one's values is chance."""
    def model(name, *tensors):
        found = tuple(TensorDigest(file="f", name=n, dtype="F32", shape=shape, digest=d) for n, shape, d in tensors)
        return artifact("target", name, tensors=found)

    models = model("a", ("w", (1000,), "b3:w"), ("n", (1,), "b3:n")), model("b", ("w2", (1000,), "b3:w"))
    by_chance = model("c", ("v", (1000,), "b3:v"), ("n", (1,), "b3:n"))
    with store.begin() as unit:
        first, second, third = (unit.artifacts.add(m) for m in (*models, by_chance))
        (drawn,) = link_shared(unit, second)
        assert {drawn.source, drawn.target} == {first, second}
        assert link_shared(unit, first) == link_shared(unit, third) == ()


def test_the_graph_has_a_thing_and_what_is_around_it(family):
    """Or every release's; too many nodes are left out, farthest first."""
    with family.read() as unit:
        one, whole, few = graph(unit, "draft"), graph(unit, None), graph(unit, "target", limit=2)

    assert {label for _, label, _ in one.nodes} == {"draft", "target", "corpus", "tokenizer", "fast"}
    assert {"fast", "plain", "corpus"} <= {label for _, label, _ in whole.nodes}
    assert (FAST.digest, "uses", DRAFT.digest) in whole.edges
    assert (len(few.nodes), few.left_out > 0) == (2, True)
    assert few.nodes[0][1] == "target"


def test_what_served_is_read_from_rollouts_and_the_alias(family):
    """A time without zone is refused."""
    with family.read() as unit:
        assert served(unit, T0).shares == ((PLAIN.id, 1.0),)
        assert served(unit, T0).rollout.mirror == 0.5
        assert served(unit, T0 - timedelta(days=1)).shares == ()
        with pytest.raises(InvalidInput, match="has no zone"):
            served(unit, T0.replace(tzinfo=None))


def outcome(**changes):
    """Return an outcome."""
    fields = {"request_id": "r1", "arm": Arm.CANDIDATE, "kind": Kind.SHADOW, "release_id": FAST.id, "at": T0}
    return Outcome(**(fields | {"finish": Finish.STOP, "e2e_s": 1.0} | changes))


def test_a_request_is_traced_to_files_and_entries(family):
    """Both arms of it; a release that is not registered is said."""
    with family.begin() as unit:
        unit.outcomes.append("ro-1", [outcome(), outcome(arm=Arm.BASELINE, release_id="rel-gone")])
    with family.read() as unit:
        found = trace(unit, "r1")

    assert (found.kind, found.rollouts, len(found.answers)) == ("request", ("ro-1",), 2)
    assert [s.thing.name for s in found.releases] == ["fast"]
    assert "target" in [a.name for a in found.releases[0].artifacts]
    assert {e.tag for e in found.entries} >= {"rollout:plan:started", "lineage:artifact:registered"}
    assert found.notes == ("release rel-gone is not registered here",)


def test_a_written_report_is_traced_to_its_rollout(family):
    """By the digest of the file, with an audit entry."""
    record_report(family, rollout_id="ro-1", files={"report.html": "9" * 64}, actor="bob", now=T0)

    with family.read() as unit:
        by_file, by_digest = trace(unit, "report.html", sha256="9" * 64), trace(unit, "9" * 64)
        with pytest.raises(InvalidInput, match="among reports by digest"):
            trace(unit, "other.html", sha256="8" * 64)

    assert by_file.kind == by_digest.kind == "report"
    assert {s.thing.name for s in by_file.releases} == {"plain", "fast"}
    assert "report:bundle:written" in {e.tag for e in by_file.entries}


def test_an_mlflow_run_is_traced_by_its_tags(family):
    """What they name is looked up; a run about something else is refused."""
    tags = {"x" * 32: {"specops.release_digest": FAST.digest}, "y" * 32: {"mlflow.user": "ann"}}
    with family.read() as unit:
        found = trace(unit, "x" * 32, run_tags=tags.get)
        assert (found.kind, [s.thing.name for s in found.releases]) == ("run", ["fast"])
        with pytest.raises(InvalidInput, match="no tag of a release"):
            trace(unit, "y" * 32, run_tags=tags.get)
        with pytest.raises(InvalidInput, match="outcomes, reports and MLflow runs"):
            trace(unit, "z" * 32, run_tags=tags.get)


def _weights(name, header):
    """Return a target whose one tensor is the same whatever its file's header is."""
    file = FileDigest(path="m.safetensors", size=9, sha256=header * 64)
    tensor = TensorDigest(file="m.safetensors", name="w", dtype="F32", shape=(9,), digest="b3:w")
    return artifact("target", name, files=(file,), tensors=(tensor,))


def test_a_release_with_the_same_tensors_in_another_file_changes_nothing(store):
    """The target's digest differs, what is computed does not, and no line says otherwise."""
    ours, theirs = _weights("ours", "1"), _weights("theirs", "2")
    pair = [Release(name=name, target=t.digest, tokenizer="c" * 64) for name, t in (("one", ours), ("two", theirs))]
    register(store, artifacts=(ours, theirs), edges=(), releases=pair, actor="ann", now=T0)

    with store.read() as unit:
        found = diff(unit, "one", "two")

    assert found.can_change == {"output": [], "speed": [], "neither": ["name", "target"]}
    assert "every tensor is the same" in next(d.why for d in found.differences if d.component == "target")


def test_things_of_two_kinds_are_not_compared(family):
    """A target and a draft are both models, a tokenizer is none."""
    with family.read() as unit:
        with pytest.raises(InvalidRecord, match="tokenizer is a tokenizer, target a target; compare two artifacts of one kind"):
            diff(unit, "tokenizer", "target")
        assert diff(unit, "target", "draft").details


def test_a_model_is_named_by_name_or_digits(family):
    """Nothing else is a model."""
    with family.read() as unit:
        assert {model_digest(unit, key) for key in ("draft", DRAFT.digest[:8], DRAFT.digest)} == {DRAFT.digest}
        for key, why in (("nope", "no model is registered as 'nope'"), ("corpus", "corpus is a corpus, expected a target")):
            with pytest.raises(InvalidRecord, match=why):
                model_digest(unit, key)
