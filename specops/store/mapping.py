"""Between frozen types and rows: one `..._to_row` and `..._from_row` per type. Rows never leave `store/`."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row

from specops.core.canonical import digest_of
from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, FileDigest, Release, TensorDigest
from specops.core.rollout import Rollout
from specops.core.verdict import Verdict
from specops.errors import InvalidRecord, LineageBroken

if TYPE_CHECKING:
    import pyarrow as pa


def artifact_to_row(artifact: Artifact) -> dict[str, Any]:
    """Return the columns of an artifact."""
    return {
        "digest": artifact.digest,
        "kind": artifact.kind.value,
        "name": artifact.name,
        "location": artifact.location,
        "files": [asdict(f) for f in artifact.files],
        "facts": artifact.facts,
        "properties": artifact.properties,
        "claims": artifact.claims,
    }


def artifact_from_row(row: Row[Any], tensors: tuple[TensorDigest, ...] = ()) -> Artifact:
    """Build an artifact; tensors are rows of their own and only brought where asked for.

    The digest is not checked: `checked_artifact` does, where one artifact is asked for.
    """
    return Artifact(
        kind=ArtifactKind(row.kind),
        name=row.name,
        files=tuple(FileDigest(**f) for f in row.files),
        facts=row.facts,
        properties=row.properties,
        claims=row.claims,
        tensors=tensors,
        location=row.location,
    )


def checked_artifact(row: Row[Any]) -> Artifact:
    """Build an artifact and check that its row still is what its digest says.

    Raises:
        LineageBroken: the row was altered.
    """
    try:
        found = artifact_from_row(row)
        gives = found.digest
    except (InvalidRecord, TypeError, ValueError, KeyError, AttributeError) as exc:
        raise _altered(f"artifact {str(row.digest)[:16]}", f"its record is none: {exc}") from exc
    if gives != row.digest:
        raise _altered(f"artifact {str(row.digest)[:16]}", f"its record gives {gives[:16]}")
    return found


def checked_release(row: Row[Any]) -> Release:
    """Build a release and check that its row still is what its digest, id and name say.

    Raises:
        LineageBroken: the row was altered.
    """
    try:
        found = release_from_row(row)
        gives = found.digest
    except (InvalidRecord, TypeError, ValueError, KeyError, AttributeError) as exc:
        raise _altered(f"release {row.id}", f"its record is none: {exc}") from exc
    if (gives, found.id) != (row.digest, row.id):
        raise _altered(f"release {row.id}", f"its record gives {found.id}, digest {gives[:16]}")
    if found.name != row.name:
        raise _altered(f"release {row.id}", f"it is called {row.name}, its record says {found.name}")
    return found


def checked_pair(row: Row[Any]) -> dict[str, Any]:
    """Return a pair's record and check that it still is what its digest says; as `core.pair.Pair.digest`, on the record.

    Raises:
        LineageBroken: the row was altered.
    """
    record = row.record
    if not isinstance(record, dict):
        raise _altered(f"pair {row.digest[:16]}", f"its record is a {type(record).__name__}")
    gives = digest_of({key: value for key, value in record.items() if key != "remarks"})
    if gives != row.digest:
        raise _altered(f"pair {row.digest[:16]}", f"its record gives {gives[:16]}")
    return record


def _altered(what: str, why: str) -> LineageBroken:
    return LineageBroken(f"{what} in the database was altered: {why}; restore a backup")


def tensor_to_row(artifact: str, tensor: TensorDigest) -> dict[str, Any]:
    """Return the columns of a tensor of an artifact."""
    return asdict(tensor) | {"artifact": artifact, "shape": list(tensor.shape)}


def tensor_from_row(row: Row[Any]) -> TensorDigest:
    """Build a tensor."""
    return TensorDigest(file=row.file, name=row.name, dtype=row.dtype, shape=tuple(row.shape), digest=row.digest)


def release_to_row(release: Release) -> dict[str, Any]:
    """Return the columns of a release."""
    return {"id": release.id, "digest": release.digest, "name": release.name, "record": release.to_record()}


def release_from_row(row: Row[Any]) -> Release:
    """Build a release."""
    return Release.from_record(row.record)


def edge_to_row(edge: Edge) -> dict[str, Any]:
    """Return the columns of an edge."""
    return {"source": edge.source, "kind": edge.kind.value, "target": edge.target}


def edge_from_row(row: Row[Any]) -> Edge:
    """Build an edge."""
    return Edge(source=row.source, kind=EdgeKind(row.kind), target=row.target)


def rollout_to_row(rollout: Rollout) -> dict[str, Any]:
    """Return the columns of a rollout."""
    return {"id": rollout.id, "version": rollout.version, "state": rollout.state.value, "record": rollout.to_record()}


def rollout_from_row(row: Row[Any]) -> Rollout:
    """Build a rollout."""
    return Rollout.from_record(row.record)


def verdict_to_row(rollout_id: str, verdict: Verdict) -> dict[str, Any]:
    """Return the columns of a verdict."""
    return {
        "rollout_id": rollout_id,
        "result": verdict.result.value,
        "policy_digest": verdict.policy_digest,
        "outcomes": verdict.outcomes,
        "at": verdict.at,
        "record": verdict.to_record(),
    }


def outcomes_to_table(outcomes: Iterable[Outcome]) -> "pa.Table":
    """Return outcomes as flat Arrow columns; times in UTC with microseconds, the acceptance counts as four columns."""
    import pyarrow as pa  # noqa: PLC0415  # only sealing and reading segments needs it

    return pa.Table.from_pylist([_flat(o) for o in outcomes], schema=_arrow_schema())


def outcomes_from_table(table: "pa.Table") -> list[Outcome]:
    """Build the outcomes of a segment, in its order."""
    return [_unflat(row) for row in table.to_pylist()]


def _arrow_schema() -> "pa.Schema":
    import pyarrow as pa  # noqa: PLC0415

    text, count, real, flag = pa.string(), pa.int64(), pa.float64(), pa.bool_()
    return pa.schema(
        [
            pa.field("request_id", text, nullable=False),
            pa.field("arm", text, nullable=False),
            pa.field("kind", text, nullable=False),
            pa.field("release_id", text, nullable=False),
            pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("finish", text, nullable=False),
            pa.field("e2e_s", real, nullable=False),
            pa.field("ttft_s", real),
            pa.field("prompt_tokens", count, nullable=False),
            pa.field("completion_tokens", count, nullable=False),
            pa.field("in_flight", count, nullable=False),
            pa.field("rounds", count),
            pa.field("drafted", count),
            pa.field("accepted", count),
            pa.field("histogram", pa.list_(count)),
            pa.field("error", text),
            pa.field("text_sha256", text),
            pa.field("retried_on_baseline", flag, nullable=False),
            pa.field("assigned", text),
            pa.field("share", real),
        ],
    )


def _flat(outcome: Outcome) -> dict[str, Any]:
    record = asdict(outcome)
    return record | (record.pop("acceptance") or {}) | {"at": outcome.at.astimezone(UTC)}


def _unflat(row: dict[str, Any]) -> Outcome:
    counts = {name: row.pop(name) for name in ("rounds", "drafted", "accepted", "histogram")}
    acceptance = None if counts["rounds"] is None else Acceptance(**(counts | {"histogram": tuple(counts["histogram"])}))
    return Outcome(
        **(
            row
            | {
                "arm": Arm(row["arm"]),
                "kind": Kind(row["kind"]),
                "finish": Finish(row["finish"]),
                "assigned": Arm(row["assigned"]) if row["assigned"] else None,
                "at": row["at"].astimezone(UTC),
                "acceptance": acceptance,
            }
        ),
    )
