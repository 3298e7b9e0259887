"""Projection of evaluations, releases and rollouts into MLflow, for the people who live there.

MLflow is never read to decide anything: its aliases and tags can be changed without a trace, so our store stays the truth.
Called by the outbox, which delivers at least once: every write carries the tag `specops.key`, by which a second delivery finds
the first. MLflow retries a broken database for over a minute before it gives up, so the caller must not hold up traffic for it.
SQLite backend, artifacts in a local folder, no global MLflow state touched. Written for MLflow 3.17.2.
"""

import contextlib
import json
import logging
import os
import shlex
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from specops.core.release import Release
from specops.errors import InvalidInput, MissingExtra, Unavailable

KEY_TAG = "specops.key"
COMPLETE_TAG = "specops.complete"
DIGEST_TAG = "specops.release_digest"
MAX_PARAM_CHARS = 6000  # mlflow.utils.validation.MAX_PARAM_VAL_LENGTH
RETRY_AFTER_S = 5.0  # SQLite waits 20 s for a lock on its own; this is the pause after that

MetricValue = float | Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePoint:
    """Traffic from `at` on: the candidate's live weight and mirrored share, both in [0, 1], and what happened."""

    at: datetime
    weight: float
    mirror: float
    label: str


class MlflowTracking:
    """Writes to one MLflow experiment and its model registry. Opening a new database takes 5 to 14 s (its migrations)."""

    def __init__(self, tracking_uri: str, artifacts_dir: Path, experiment: str = "specops") -> None:
        """Open or create the database and the experiment.

        Args:
            tracking_uri: `sqlite:///` and an absolute path; created when missing.
            artifacts_dir: folder for run artifacts; used when the experiment is created.
            experiment: MLflow experiment name.

        Raises:
            MissingExtra: mlflow is not installed.
            Unavailable: the database cannot be opened or is locked.

        """
        self.tracking_uri = tracking_uri
        self.artifacts_dir = artifacts_dir.resolve()
        self.experiment = experiment
        self.artifacts_dir.mkdir(parents=True, exist_ok=True)
        with reaching(tracking_uri), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"The ``noload`` loader strategy")  # MLflow 3.17.2 on SQLAlchemy 2.1
            self._client = open_client(tracking_uri)
            self._experiment_id = self._open_experiment()

    def ui_command(self) -> str:
        """Return the shell line that shows this database in a browser."""
        uri, folder = shlex.quote(self.tracking_uri), shlex.quote(self.artifacts_dir.as_uri())
        return f"mlflow ui --backend-store-uri {uri} --default-artifact-root {folder} --host 127.0.0.1 --port 5000"

    def log_evaluation(
        self,
        name: str,
        *,
        key: str,
        at: datetime,
        params: Mapping[str, Any],
        metrics: Mapping[str, MetricValue],
        tags: Mapping[str, str] | None = None,
        artifacts: Sequence[Path] = (),
    ) -> str:
        """Record one evaluation as a finished run and return its run id.

        Args:
            name: run name.
            key: identity of the evaluation; the same key returns the same run and writes nothing twice.
            at: when it was measured; the timestamp of every metric.
            params: configuration; values are written as text.
            metrics: a number, or (step, number) pairs. Units belong in the name.
            tags: further run tags.
            artifacts: existing files, copied into the artifact folder.

        Raises:
            InvalidInput: an artifact is missing, or MLflow refuses a name or value.
            Unavailable: the database is locked or gone.

        """
        missing = [str(path) for path in artifacts if not path.is_file()]
        if missing:
            raise InvalidInput(f"run {name}: no such artifact file: {', '.join(missing)}; write it before logging")
        with reaching(self.tracking_uri):
            run_id, is_complete = self._run(name, key, dict(tags or {}), at)
            if not is_complete:
                self._write(run_id, params, _points(metrics, at))
                for path in artifacts:
                    self._client.log_artifact(run_id, str(path))
                self._finish(run_id, at)
        return run_id

    def log_timeline(self, name: str, *, key: str, points: Sequence[TimelinePoint]) -> str:
        """Record a rollout's traffic as the metrics `weight` and `mirror`; call again with more points to extend it."""
        if not points:
            raise InvalidInput(f"timeline {name} has no point; log it after the first route was applied")
        with reaching(self.tracking_uri):
            run_id, _ = self._run(name, key, {"specops.kind": "timeline"}, points[0].at)
            metrics = [
                (metric, value, _millis(point.at), step)
                for step, point in enumerate(points)
                for metric, value in (("weight", point.weight), ("mirror", point.mirror))
            ]
            self._write(run_id, {}, metrics)
            self._client.set_tag(run_id, "specops.timeline", "; ".join(f"{p.at.isoformat()} {p.label}" for p in points)[:5000])
            self._finish(run_id, points[-1].at)
        return run_id

    def register_release(
        self,
        model_name: str,
        release: Release,
        tags: Mapping[str, str] | None = None,
        *,
        source: str | None = None,
        run_id: str | None = None,
        at: datetime,
    ) -> int:
        """Register a release as a model version and return the version number; the same digest returns the same version.

        Args:
            model_name: registered model; created when missing.
            release: what is registered; its digests become tags of the version.
            tags: further tags of the version.
            source: artifact URI; by default a run is written that holds the release descriptor as `release.json`.
            run_id: the run that the source belongs to.
            at: when the release was registered in our store.

        """
        found = self._version_of(model_name, release.digest)
        if found is not None:
            return found
        if source is None:
            run_id, source = self._log_descriptor(model_name, release, at)
        with reaching(self.tracking_uri):
            self._open_model(model_name)
            version = self._client.create_model_version(
                model_name,
                source,
                run_id=run_id,
                tags=release_tags(release) | {KEY_TAG: release.digest} | dict(tags or {}),
            )
        return int(version.version)

    def set_alias(self, model_name: str, alias: str, version: int) -> None:
        """Point an alias at a version. MLflow forgets where it pointed; our store keeps the history."""
        with reaching(self.tracking_uri):
            self._client.set_registered_model_alias(model_name, alias, str(version))

    def alias(self, model_name: str, alias: str) -> int | None:
        """Return the version that an alias points at, or None when there is no such model or alias."""
        with reaching(self.tracking_uri):
            models = self._client.search_registered_models(f"name = '{_quotable(model_name)}'")
            version = models[0].aliases.get(alias) if models else None
        return None if version is None else int(version)

    def _open_experiment(self) -> str:
        """Return the experiment's id."""
        found = self._client.get_experiment_by_name(self.experiment)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(self.experiment, artifact_location=self.artifacts_dir.as_uri()))

    def _open_model(self, model_name: str) -> None:
        """Create the registered model when it is missing."""
        if not self._client.search_registered_models(f"name = '{_quotable(model_name)}'"):
            self._client.create_registered_model(model_name)

    def _run(self, name: str, key: str, tags: dict[str, str], at: datetime) -> tuple[str, bool]:
        """Return the run of a key, created when missing, and whether an earlier delivery finished it."""
        found = self._client.search_runs([self._experiment_id], f"tags.`{KEY_TAG}` = '{_quotable(key)}'", max_results=1)
        if found:
            return str(found[0].info.run_id), COMPLETE_TAG in found[0].data.tags
        run = self._client.create_run(self._experiment_id, start_time=_millis(at), tags={**tags, KEY_TAG: key}, run_name=name)
        return str(run.info.run_id), False

    def _write(self, run_id: str, params: Mapping[str, Any], points: list[tuple[str, float, int, int]]) -> None:
        """Write parameters and metric points; points that are already there are left alone by MLflow."""
        from mlflow.entities import Metric, Param  # noqa: PLC0415  # optional extra

        rows = [Metric(metric, float(value), millis, step) for metric, value, millis, step in points]
        for start in range(0, len(rows), 1000):  # mlflow refuses more than 1000 metrics in one batch
            self._client.log_batch(run_id, metrics=rows[start : start + 1000])
        texts = [Param(name, str(value)[:MAX_PARAM_CHARS]) for name, value in sorted(params.items())]
        for start in range(0, len(texts), 100):  # and more than 100 parameters
            self._client.log_batch(run_id, params=texts[start : start + 100])

    def _finish(self, run_id: str, at: datetime) -> None:
        """Mark a run complete; only now does a second delivery skip it."""
        self._client.set_tag(run_id, COMPLETE_TAG, "true")
        self._client.set_terminated(run_id, status="FINISHED", end_time=_millis(at))

    def _version_of(self, model_name: str, digest: str) -> int | None:
        """Return the version that carries a release digest."""
        with reaching(self.tracking_uri):
            versions = self._client.search_model_versions(f"name = '{_quotable(model_name)}'")
        return next((int(v.version) for v in versions if v.tags.get(DIGEST_TAG) == digest), None)

    def _log_descriptor(self, model_name: str, release: Release, at: datetime) -> tuple[str, str]:
        """Write the release descriptor as a run of its own; return the run id and the artifact URI."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "release.json"
            path.write_text(json.dumps(release.to_record(), indent=2, sort_keys=True) + "\n", encoding="utf-8")
            run_id = self.log_evaluation(
                f"release {release.name}",
                key=f"release:{model_name}:{release.digest}",
                at=at,
                params={"method": release.method or "plain", "num_speculative_tokens": release.num_speculative_tokens},
                metrics={},
                tags={"specops.kind": "release"} | release_tags(release),
                artifacts=[path],
            )
        return run_id, f"runs:/{run_id}/release.json"


def release_tags(release: Release) -> dict[str, str]:
    """Return the tags that identify a release in MLflow; absent parts are left out."""
    tags = {
        DIGEST_TAG: release.digest,
        "specops.release_id": release.id,
        "specops.release_name": release.name,
        "specops.target_digest": release.target,
        "specops.tokenizer_digest": release.tokenizer,
        "specops.draft_digest": release.draft,
        "specops.method": release.method or "plain",
        "specops.num_speculative_tokens": str(release.num_speculative_tokens),
    }
    return {name: value for name, value in tags.items() if value}


def open_client(tracking_uri: str) -> Any:  # noqa: ANN401  # a class of an optional package
    """Import MLflow without telemetry and progress noise and return a client of one database."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    try:
        from mlflow import MlflowClient  # noqa: PLC0415  # optional extra, 4 to 7 s
    except ModuleNotFoundError as exc:
        if exc.name != "mlflow":
            raise
        raise MissingExtra("mlflow", "mlflow") from exc
    for name in ("mlflow", "alembic"):  # one line per migration otherwise
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)


@contextlib.contextmanager
def reaching(uri: str) -> Iterator[None]:
    """Translate what MLflow raises: its refusals are the caller's, the rest may work later."""
    try:
        yield
    except OSError as exc:
        raise Unavailable(f"mlflow at {uri} failed: {exc}; check the disk and retry", retry_after_s=RETRY_AFTER_S) from exc
    except Exception as exc:
        code = getattr(exc, "error_code", None)
        if code is None and not type(exc).__module__.startswith("sqlalchemy"):
            raise
        if code in {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"}:
            raise InvalidInput(f"mlflow at {uri} refuses: {exc}; correct the name or value") from exc
        message = f"mlflow at {uri} failed: {exc}; retry, or run `mlflow db upgrade`"
        raise Unavailable(message, retry_after_s=RETRY_AFTER_S) from exc


def _points(metrics: Mapping[str, MetricValue], at: datetime) -> list[tuple[str, float, int, int]]:
    """Return (name, value, milliseconds, step) for each number."""
    stamp = _millis(at)
    series = {name: [(0, value)] if isinstance(value, int | float) else list(value) for name, value in metrics.items()}
    return [(name, float(value), stamp, step) for name, pairs in sorted(series.items()) for step, value in pairs]


def _millis(at: datetime) -> int:
    """Return Unix milliseconds."""
    return int(at.timestamp() * 1000)


def _quotable(text: str) -> str:
    """Return a text that is safe between single quotes in an MLflow filter."""
    if "'" in text or "\\" in text:
        raise InvalidInput(f"{text!r} cannot be searched in mlflow; use names and keys without quotes and backslashes")
    return text
