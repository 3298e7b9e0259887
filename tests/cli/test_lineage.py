"""`specops lineage` shows what is registered, for people and for machines."""

import json
import os
from datetime import UTC, datetime

import pytest
from sqlalchemy import insert

from specops.adapters.signing import load_or_create
from specops.control.lineage_time import record_report
from specops.core.canonical import canonical, digest_of, sha256_hex
from specops.core.outcome import Arm, Finish, Kind, Outcome
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, FileDigest
from specops.store import schema
from specops.wiring import opened
from tests.adapters.test_lineage_bundle import _resealed

T0 = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def test_the_list_has_every_release(run, full):
    """Without a name all releases are listed."""
    done = run("lineage", "show", "--json")
    assert done.code == 0
    assert [r["name"] for r in json.loads(done.out)] == ["plain", "spec"]
    assert "draft_model" in run("lineage", "show").out


def test_a_release_comes_with_its_ancestors(run, full):
    """A draft's target is an ancestor; the edge between them is drawn."""
    value = json.loads(run("lineage", "show", "spec", "--json").out)
    assert value["release"]["num_speculative_tokens"] == 4
    assert sorted(a["name"] for a in value["artifacts"]) == ["draft", "target"]
    assert "distilled_from" in [e["kind"] for e in value["edges"]]
    assert "distilled_from" in run("lineage", "show", "spec").out


def test_a_plain_release_does_not_contain_the_draft(run, full):
    """Only what the release is made of is shown."""
    value = json.loads(run("lineage", "show", "plain", "--json").out)
    assert [a["name"] for a in value["artifacts"]] == ["target"]


def test_an_artifact_is_shown_with_claims_marked(run, full):
    """By name or by the first digits of its digest."""
    value = json.loads(run("lineage", "show", "draft", "--json").out)
    assert value["artifact"]["name"] == "draft"
    assert "claims" in run("lineage", "show", value["artifact"]["digest"][:8]).out


def test_diff_says_what_can_change(run, full):
    """A draft changes speed, not output."""
    value = json.loads(run("lineage", "diff", "plain", "spec", "--json").out)
    assert {d["component"] for d in value["differences"]} >= {"method", "draft", "num_speculative_tokens"}
    assert (value["can_change"]["output"], "draft" in value["can_change"]["speed"]) == ([], True)
    assert "can change output: nothing" in run("lineage", "diff", "plain", "spec").out
    assert "changed f" in run("lineage", "diff", "target", "draft").out


def test_a_release_does_not_differ_from_itself(run, full):
    """No difference is said in words, or as an empty list."""
    assert "no difference" in run("lineage", "diff", "spec", "spec").out
    assert json.loads(run("lineage", "diff", "spec", "spec", "--json").out)["differences"] == []


def test_impact_lists_what_depends(run, full):
    """Rollouts, releases, artifacts, and a line that counts."""
    value = json.loads(run("lineage", "impact", "target", "--json").out)
    assert [r["id"] for r in value["rollouts"]] == ["ro-1"]
    assert "2 releases, 1 rollouts depend on it" in run("lineage", "impact", "target").out
    assert "no evidence on record" in run("lineage", "impact", "draft").out


def test_stale_names_drafts_of_another_teacher(run, full):
    """Beside a named target; without one, an alias is needed."""
    assert json.loads(run("lineage", "stale", "--target", "spec", "--json").out)["fresh"] == 1
    assert "0 stale, 1 fresh" in run("lineage", "stale", "--target", "target").out
    assert run("lineage", "stale").code == 2


def test_what_served_at_a_time(run, full):
    """Shares, mirrored requests, and who did it; a time needs a zone."""
    value = json.loads(run("lineage", "at", "2026-11-29T12:00:00Z", "--json").out)
    assert (list(value["shares"].values()), value["at"]) == ([1.0], "2026-11-29T12:00:00+00:00")
    assert "rollout ro-1, running" in run("lineage", "at", "2026-11-29T12:00:00Z").out
    assert run("lineage", "at", "2026-11-29").code == run("lineage", "at", "noon").code == 2


def test_a_request_is_traced(run, full):
    """Down to files and digests; what is nowhere is exit 2."""
    with opened() as house, house.store.begin() as unit:
        spec = unit.releases.get("spec")
        fields = {"request_id": "r1", "arm": Arm.CANDIDATE, "kind": Kind.LIVE, "finish": Finish.STOP, "e2e_s": 1.0}
        unit.outcomes.append("ro-1", [Outcome(release_id=spec.id, at=datetime.now(UTC), **fields)])
    value = json.loads(run("lineage", "trace", "r1", "--json").out)
    assert {f["path"] for f in value["releases"][0]["files"]} == {"f"}
    assert "unsealed tail" in run("lineage", "trace", "r1").out
    done = run("lineage", "trace", "r2")
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_a_graph_is_written(run, full, tmp_path):
    """As HTML or SVG; other names are refused."""
    assert "written" in run("lineage", "graph", "spec", "--out", tmp_path / "g.svg").out
    assert (tmp_path / "g.svg").read_text().startswith("<svg")
    assert len(json.loads(run("lineage", "graph", "--json").out)["nodes"]) == 4
    assert run("lineage", "graph", "--out", tmp_path / "g.png").code == 2


def test_an_unknown_release_is_exit_2(run, full):
    """One line names it."""
    done = run("lineage", "show", "nobody")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "nobody" in done.err


def test_pairs_and_evidence_are_printed(run, full):
    """A pair in the graph, evidence of a release, and a served release each have their line."""
    with opened() as house, house.store.begin() as unit:
        spec = unit.releases.get("spec")
        unit.evidence.add(spec.id, "offline", {}, T0, scope="5" * 64)
        unit.aliases.set("production", spec.id, "ann", T0)
        record = {"relation": "identical"}
        proof = digest_of(record)
        unit.edges.add(Edge(source=proof, kind=EdgeKind.USES, target=spec.target))
        unit.names._connection.execute(insert(schema.pair), {"digest": proof} | {"relation": "identical", "record": record})
        unit.outcomes.append("ro-1", [Outcome(release_id="rel-gone", request_id="r9", at=T0, arm=Arm.BASELINE, kind=Kind.LIVE,
                                              finish=Finish.STOP, e2e_s=1.0)])  # fmt: skip
    told = run("lineage", "impact", "target").out
    assert all(word in told for word in (f"pair {proof[:12]}", "offline", "production serves one of them"))
    assert json.loads(run("lineage", "show", proof[:8], "--json").out)["pair"]["digest"] == proof
    assert "production" in run("lineage", "show", "spec").out
    assert "rel-gone is not registered here" in run("lineage", "trace", "r9").out


def test_a_report_file_is_traced(run, full, tmp_path):
    """By its bytes."""
    (tmp_path / "report.html").write_text("report")
    with opened() as house:
        files = {"report.html": sha256_hex(b"report")}
        record_report(house.store, rollout_id="ro-1", files=files, actor="ann", now=T0)
    assert "release spec" in run("lineage", "trace", tmp_path / "report.html").out


def test_details_of_a_diff_are_printed(run, full, tmp_path):
    """Keys, entries, and what could not be compared."""
    with opened() as house, house.store.begin() as unit:
        for letter in "pq":
            file = FileDigest(path="tokenizer.json", size=1, sha256=letter.encode().hex() * 32)
            fields = {"kind": ArtifactKind.TOKENIZER, "name": f"tok-{letter}", "claims": {"by": letter}}
            unit.artifacts.add(Artifact(files=(file,), **fields))
    told = run("lineage", "diff", "tok-p", "tok-q").out
    assert all(word in told for word in ("claims.by", "cannot be compared", "can change output: files"))


def test_times_are_iso_8601_in_utc(run, full):
    """As everywhere in JSON; what was asked in another zone is answered in UTC."""
    value = json.loads(run("lineage", "at", "2026-11-29T14:00:00+02:00", "--json").out)
    assert value["at"] == "2026-11-29T12:00:00+00:00"
    assert value["rollout"]["since"] == T0.isoformat()
    assert run("lineage", "at", value["at"]).code == 0


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "", "\x00", "12:00Z"])
def test_a_time_that_is_none_is_exit_2(run, full, text):
    """Also one that has no place in UTC's years."""
    done = run("lineage", "at", text)
    assert (done.code, done.err.count("\n"), "is not a time" in done.err) == (2, 1, True)


def test_a_bundle_with_a_false_edge_leaves_no_trace(run, full, tmp_path):
    """Refused before the store is touched, though its seal is good."""
    out = tmp_path / "b.tar"
    assert run("lineage", "export", "spec", "--out", out).code == 0
    before = run("audit", "log", "--json").out
    row = {"source": "b" * 64, "kind": "uses", "target": "no digest"}
    _resealed(out, load_or_create(full / "keys"), **{"edges.jsonl": canonical(row) + b"\n"})
    done = run("lineage", "import-bundle", out)
    assert (done.code, "expected 64 hex digits" in done.err) == (2, True)
    assert run("audit", "log", "--json").out == before


@pytest.mark.parametrize("key", ["x" * 5_000, "a\udcffb", "a\nb", "", "/dev/null", "/proc/self"])
def test_what_cannot_be_traced_is_one_line(run, full, key):
    """Names that no file system or database takes, devices, folders."""
    done = run("lineage", "trace", key)
    assert (done.code, done.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("form", ["bundle", "cyclonedx", "openlineage"])
def test_an_export_that_cannot_be_written_is_one_line(run, full, tmp_path, form):
    """A folder, and a path below a file."""
    (tmp_path / "file").touch()
    for out in (tmp_path, tmp_path / "file" / "x"):
        done = run("lineage", "export", "spec", "--out", out, "--format", form)
        assert (done.code, done.err.count("\n"), "give another --out" in done.err) == (2, 1, True)


def test_a_pipe_is_no_bundle(run, full, tmp_path):
    """Opening it would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file" in run("lineage", "import-bundle", tmp_path / "pipe").err
