"""Model versions and runs of a real MLflow, hashed by content."""

import pytest

from specops.adapters.mlflow_import import import_mlflow
from specops.adapters.mlflow_tracking import open_client
from specops.core.release import ArtifactKind
from specops.errors import InvalidInput
from tests import folders

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tracking, tmp_path_factory):
    """Return a run with a Llama folder among its artifacts, and a version of it in the registry."""
    client = open_client(tracking.tracking_uri)
    folder = folders.write_llama(tmp_path_factory.mktemp("model"))
    run = client.create_run(client.create_experiment("imports", artifact_location=tracking.artifacts_dir.as_uri()))
    client.set_tag(run.info.run_id, "team", "inference")
    client.log_artifacts(run.info.run_id, str(folder), "model")
    client.create_registered_model("llama")
    client.create_model_version("llama", f"{run.info.artifact_uri}/model", run.info.run_id)
    client.set_registered_model_alias("llama", "production", "1")
    return run


def test_a_version_an_alias_and_its_run_hold_the_same_bytes(tracking, run):
    """Four references, one identity; what MLflow says about them is a claim."""
    references = ("models:/llama/1", "models:/llama@production", run.info.run_id, f"runs:/{run.info.run_id}/model")

    found = [import_mlflow(tracking.tracking_uri, reference, name="llama") for reference in references]

    assert len({f.artifacts[0].digest for f in found}) == 1
    assert found[0].artifacts[0].kind is ArtifactKind.TARGET
    assert found[0].artifacts[0].claims["mlflow"]["model"] == "llama"
    assert found[2].artifacts[0].claims["mlflow"]["tags"]["team"] == "inference"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("llama", "is no MLflow reference"),
        ("models:/absent/1", "mlflow"),
        ("0" * 32, "mlflow"),
        ("models:/llama@none", "mlflow"),
    ],
)
def test_what_mlflow_does_not_have_is_refused(tracking, run, reference, message):
    """The reference is named; nothing crashes."""
    with pytest.raises(InvalidInput, match=message):
        import_mlflow(tracking.tracking_uri, reference, name="x")


def test_files_that_are_not_on_this_disk_are_refused(tracking):
    """A run without files, and one whose files are in an object store."""
    client = open_client(tracking.tracking_uri)
    run = client.create_run("0")
    with pytest.raises(InvalidInput, match="does not exist here"):
        import_mlflow(tracking.tracking_uri, run.info.run_id, name="prompts")
    remote = client.create_run(client.create_experiment("remote", artifact_location="s3://bucket/x"))

    with pytest.raises(InvalidInput, match="not on this disk"):
        import_mlflow(tracking.tracking_uri, remote.info.run_id, name="x")


def test_an_evaluation_set_of_a_run_is_hashed_as_what_it_is_said_to_be(tracking, tmp_path):
    """With a kind, any files are taken."""
    client = open_client(tracking.tracking_uri)
    run = client.create_run(client.create_experiment("sets", artifact_location=tracking.artifacts_dir.as_uri()))
    (tmp_path / "prompts.json").write_text("[]")
    client.log_artifact(run.info.run_id, str(tmp_path / "prompts.json"))

    found = import_mlflow(tracking.tracking_uri, run.info.run_id, name="prompts", kind=ArtifactKind.EVALUATION_SET)

    assert [f.path for f in found.artifacts[0].files] == ["prompts.json"]
    with pytest.raises(InvalidInput, match="0 model folders"):
        import_mlflow(tracking.tracking_uri, run.info.run_id, name="prompts")
