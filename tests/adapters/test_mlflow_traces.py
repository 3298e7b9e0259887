"""A trace in a real MLflow database: spans per round and stage, found by request, sent once."""

from dataclasses import replace

import mlflow
import pytest

from specops.adapters.mlflow_traces import REQUEST_TAG, send_trace
from tests.core.test_trace_check import recorded


@pytest.mark.slow
def test_a_request_is_a_tree_of_spans_and_is_sent_once(tracking):
    """One root, a span a round, four stages each, times end to end; a second delivery finds the first."""
    trace = replace(recorded(seed=3), request_id="cmpl-it's", prefill_s=0.25)
    before = mlflow.get_tracking_uri()

    first = send_trace(trace, tracking.tracking_uri)
    second = send_trace(trace, tracking.tracking_uri)

    assert second == first
    assert mlflow.get_tracking_uri() == before
    client = mlflow.MlflowClient(tracking_uri=tracking.tracking_uri)
    found = client.get_trace(first)
    assert found.info.tags[REQUEST_TAG] == "cmpl-it's"
    spans = found.data.spans
    (root,) = [span for span in spans if span.parent_id is None]
    rounds = [span for span in spans if span.name.startswith("round ")]
    stages = [span for span in spans if span.name in {"draft", "score", "accept", "resample"}]
    assert len(rounds) == len(trace.rounds)
    assert len(stages) == 4 * len(rounds)
    assert {span.parent_id for span in rounds} == {root.span_id}
    assert root.outputs["token_ids"] == list(trace.emitted)
    assert rounds[0].outputs["accepted"] == trace.rounds[0].accepted
    assert root.end_time_ns - root.start_time_ns == pytest.approx(1e9 * (0.25 + sum(r.total_s for r in trace.rounds)), rel=0.05)
    other = send_trace(replace(trace, request_id="cmpl-2"), tracking.tracking_uri)
    assert other != first
