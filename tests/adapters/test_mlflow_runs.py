"""The tags of an MLflow run lead from it to a release."""

from datetime import UTC, datetime

from specops.adapters.mlflow_runs import run_tags


def test_what_is_no_run_id_is_not_asked_about():
    """MLflow is not even imported."""
    assert run_tags("sqlite:////nowhere/mlflow.db", "request-1") is None


def test_the_tags_of_a_run_are_read(tracking):
    """An unknown run has none."""
    at = datetime(2026, 11, 29, tzinfo=UTC)
    run = tracking.log_evaluation("e", key="h4", at=at, params={}, metrics={}, tags={"specops.release_digest": "d"})

    assert run_tags(tracking.tracking_uri, run)["specops.release_digest"] == "d"
    assert run_tags(tracking.tracking_uri, "0" * 32) is None
