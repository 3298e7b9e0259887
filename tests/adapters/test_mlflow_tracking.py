"""The MLflow projection, on a real SQLite database."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from specops.adapters.mlflow_tracking import TimelinePoint
from specops.core.release import Release
from specops.errors import InvalidInput

pytest.importorskip("mlflow")
pytestmark = pytest.mark.slow

AT = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
RELEASE = Release(
    name="draft-k4", target="a" * 64, tokenizer="b" * 64, method="draft_model", draft="c" * 64, num_speculative_tokens=4
)


@pytest.fixture
def client(tracking):
    """Return an MLflow client of our own, to look from outside."""
    from mlflow import MlflowClient  # noqa: PLC0415  # 4 to 7 s

    return MlflowClient(tracking_uri=tracking.tracking_uri, registry_uri=tracking.tracking_uri)


def test_an_evaluation_is_there_for_any_mlflow_client(tracking, client, tmp_path):
    """Parameters, metrics with steps, tags and files arrive as written."""
    file = tmp_path / "written" / "positions.json"
    file.parent.mkdir()
    file.write_text("[1, 2]")

    run_id = tracking.log_evaluation(
        "offline",
        key="eval-1",
        at=AT,
        params={"k": 4},
        tags={"arm": "candidate"},
        metrics={"ratio": 0.63, "acceptance": [(0, 0.5), (1, 0.7)]},
        artifacts=[file],
    )

    run = client.get_run(run_id)
    assert run.data.params == {"k": "4"}
    assert run.data.tags["arm"] == "candidate"
    assert run.data.metrics["ratio"] == 0.63
    assert [(m.step, m.value) for m in client.get_metric_history(run_id, "acceptance")] == [(0, 0.5), (1, 0.7)]
    assert Path(client.download_artifacts(run_id, "positions.json", str(tmp_path))).read_text() == "[1, 2]"
    assert run.info.status == "FINISHED"


def test_the_same_evaluation_delivered_twice_is_one_run(tracking, client):
    """The outbox delivers at least once; the key makes the second delivery a look-up."""
    first = tracking.log_evaluation("offline", key="eval-2", at=AT, params={"k": 4}, metrics={"x": 1.0})
    second = tracking.log_evaluation("offline", key="eval-2", at=AT, params={"k": 4}, metrics={"x": 1.0})

    assert first == second
    assert len(client.get_metric_history(first, "x")) == 1


def test_a_delivery_that_died_half_way_is_completed(tracking, client):
    """A run without its completion tag is written again, without doubling what is there."""
    run_id = tracking.log_evaluation("offline", key="eval-3", at=AT, params={"k": 4}, metrics={"x": 1.0})
    client.delete_tag(run_id, "specops.complete")

    again = tracking.log_evaluation("offline", key="eval-3", at=AT, params={"k": 4}, metrics={"x": 1.0, "y": 2.0})

    assert again == run_id
    assert client.get_run(run_id).data.metrics == {"x": 1.0, "y": 2.0}
    assert len(client.get_metric_history(run_id, "x")) == 1


def test_a_missing_artifact_is_refused_before_anything_is_written(tracking, client, tmp_path):
    """A file that is not there is the caller's mistake and leaves no run."""
    with pytest.raises(InvalidInput, match="no such artifact file"):
        tracking.log_evaluation("offline", key="eval-4", at=AT, params={}, metrics={}, artifacts=[tmp_path / "absent"])

    experiment = client.get_experiment_by_name("specops").experiment_id
    assert client.search_runs([experiment], "tags.`specops.key` = 'eval-4'") == []


def test_a_timeline_grows_without_repeating_points(tracking, client):
    """Logging the longer timeline again adds only what is new."""
    points = [TimelinePoint(at=AT + timedelta(seconds=i), weight=i / 2, mirror=0.0, label=f"step {i}") for i in range(3)]

    runs = {tracking.log_timeline("traffic", key="timeline-1", points=points[:n]) for n in (2, 3, 3)}

    assert len(runs) == 1
    assert [m.value for m in client.get_metric_history(runs.pop(), "weight")] == [0.0, 0.5, 1.0]


def test_a_release_is_one_version_with_its_digests(tracking, client, tmp_path):
    """The version's tags tie it to our store, and its source holds the descriptor."""
    versions = {tracking.register_release("story", RELEASE, {"team": "inference"}, at=AT) for _ in range(2)}

    version = client.get_model_version("story", str(*versions))
    assert version.tags["specops.release_digest"] == RELEASE.digest
    assert version.tags["specops.draft_digest"] == "c" * 64
    assert version.tags["team"] == "inference"
    saved = Path(client.download_artifacts(version.run_id, "release.json", str(tmp_path)))
    assert Release.from_record(json.loads(saved.read_text())) == RELEASE


def test_another_release_gets_another_version(tracking):
    """One changed setting is another digest and so another version."""
    first = tracking.register_release("story-2", RELEASE, at=AT)
    second = tracking.register_release("story-2", replace(RELEASE, num_speculative_tokens=5), at=AT)

    assert (first, second) == (1, 2)


def test_an_alias_moves_and_can_be_read(tracking):
    """An alias is None before it is set, and the last setting wins."""
    first = tracking.register_release("story-3", RELEASE, at=AT)
    second = tracking.register_release("story-3", replace(RELEASE, num_speculative_tokens=5), at=AT)
    seen = [tracking.alias("story-3", "serving"), tracking.alias("no-such-model", "serving")]

    for version in (first, second, second):
        tracking.set_alias("story-3", "serving", version)
        seen.append(tracking.alias("story-3", "serving"))

    assert seen == [None, None, 1, 2, 2]


def test_an_alias_on_an_unknown_version_is_refused(tracking):
    """MLflow's own refusal reaches the caller as invalid input."""
    tracking.register_release("story-4", RELEASE, at=AT)

    with pytest.raises(InvalidInput, match="refuses"):
        tracking.set_alias("story-4", "serving", 99)


def test_a_quote_cannot_leave_the_search_filter(tracking):
    """A key is data, never a part of MLflow's filter language."""
    with pytest.raises(InvalidInput, match="without quotes"):
        tracking.log_evaluation("offline", key="x' or '1", at=AT, params={}, metrics={})


def test_the_ui_command_names_this_database(tracking):
    """The line can be pasted into a shell."""
    assert tracking.ui_command().startswith(f"mlflow ui --backend-store-uri {tracking.tracking_uri} ")


def test_without_mlflow_the_extra_is_named(tmp_path):
    """A missing package tells how to get it."""
    code = (
        "import sys; sys.modules['mlflow'] = None; from pathlib import Path; from specops.adapters.mlflow_tracking import *; "
        f"MlflowTracking('sqlite:///absent.db', Path({str(tmp_path)!r}))"
    )

    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert "MissingExtra" in done.stderr
    assert "specops[mlflow]" in done.stderr
