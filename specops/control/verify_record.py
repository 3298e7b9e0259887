"""Keep a verification as evidence about a release, and say whether it still holds. Called by `specops verify --release`.

The row carries the scope's digest; `current` compares it with the scope of today's servers, so a result for another engine,
dtype, hardware or sampling never counts. The run for MLflow is left in the outbox; `specops control project` delivers it.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from specops.control.ports import Audit, Outbox, Releases
from specops.core.fidelity_report import Verification, is_current
from specops.core.lossless import Lossless, objection
from specops.core.release import Release
from specops.errors import IllegalTransition

KIND = "fidelity"


class Findings(Protocol):
    """Findings with their scope."""

    def add(self, release_id: str, kind: str, payload: dict[str, Any], at: datetime, scope: str | None = None) -> None:
        """Keep one."""

    def of(self, release_id: str, /) -> list[dict[str, Any]]:
        """Return those about a release, oldest first."""


class Unit(Protocol):
    """One transaction."""

    @property
    def releases(self) -> Releases:
        """Releases."""

    @property
    def evidence(self) -> Findings:
        """Findings."""

    @property
    def audit(self) -> Audit:
        """The audit log."""

    @property
    def outbox(self) -> Outbox:
        """Side effects that are owed."""


class Store(Protocol):
    """Where transactions begin."""

    def begin(self) -> AbstractContextManager[Unit]:
        """Begin one."""


def record(
    store: Store, release: str, result: Verification, *, files: Mapping[str, str], actor: str, now: datetime
) -> str:
    """Keep a result about a release, with the digests of the pages written, in one transaction; return the release's id.

    Args:
        store: of the installation.
        release: name or id.
        result: what was found.
        files: name and SHA-256 of each report.
        actor: who asked.
        now: in UTC.

    Raises:
        InvalidRecord: there is no such release.
    """
    payload = result.to_record() | {"files": dict(files)}
    short = {"verdict": result.verdict.value, "tokens": result.tokens, "scope": result.scope, "files": dict(files)}
    with store.begin() as unit:
        found = unit.releases.get(release).id
        unit.evidence.add(found, KIND, payload, now, result.scope)
        unit.audit.append(tag="release:evidence:fidelity", actor=actor, subject=found, payload=short, at=now)
        unit.outbox.add("mlflow_evaluation", f"fidelity:{found}:{now.isoformat()}", _run(release, result, now), now)
    return found


def current(findings: Sequence[Mapping[str, Any]], scope: str) -> Mapping[str, Any] | None:
    """Return the newest verification of a release if it says LOSSLESS WITHIN and was made in this scope; else None."""
    mine = [row for row in findings if row["kind"] == KIND]
    return mine[-1]["payload"] if mine and is_current(mine[-1]["payload"], scope) else None


def require_lossless(
    need: Lossless, candidate: Release, findings: Sequence[Mapping[str, Any]], today: Mapping[str, Any]
) -> None:
    """Refuse a candidate without a verification that is in force.

    Args:
        need: what the policy asks for.
        candidate: the release.
        findings: evidence about it, oldest first.
        today: what its endpoint says about itself.

    Raises:
        IllegalTransition: says what is not as it must be, and how to verify.
    """
    newest = next((row["payload"] for row in reversed(findings) if row["kind"] == KIND), None)
    if why := objection(need, newest, today):
        options = " ".join(f"--{key.replace('_', '-')} {value:g}" for key, value in need.sampling.items())
        raise IllegalTransition(
            f"release {candidate.name}: {why}; the policy asks for lossless within {need.tolerance:g}: specops verify URL"
            f" --target URL --draft URL {options} --tolerance {need.tolerance:g} --release {candidate.name}"
        )


def _run(release: str, result: Verification, now: datetime) -> dict[str, Any]:
    metrics: dict[str, Any] = {"log_e": result.log_e, "tokens": result.tokens, "tv_bound": result.tv_bound}
    metrics |= {"plain_log_e": result.plain_log_e, "mutant_log_e": result.mutant_log_e, "wall_s": result.wall_s}
    if result.path:
        metrics["log_e_by_token"] = [[at, log_e] for at, log_e in result.path]
    return {
        "name": f"fidelity {release}",
        "at": now.isoformat(),
        "params": {"sampling": str(dict(result.sampling)), "alpha": result.alpha, "tolerance": result.tolerance},
        "metrics": metrics,
        "tags": {"specops.kind": "fidelity", "specops.verdict": result.verdict.value, "specops.scope": result.scope},
    }
