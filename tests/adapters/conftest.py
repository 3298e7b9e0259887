"""One MLflow database for all tests of this folder: opening a new one takes seconds."""

import pytest

from specops.adapters.mlflow_tracking import MlflowTracking


@pytest.fixture(scope="session")
def tracking(tmp_path_factory):
    """Return the projection onto a database of this session."""
    pytest.importorskip("mlflow")
    folder = tmp_path_factory.mktemp("mlflow")
    return MlflowTracking(f"sqlite:///{folder}/mlflow.db", folder / "artifacts")
