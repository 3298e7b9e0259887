"""A recorded request as an MLflow trace: a span for the request, one for each round, one for each of its stages.

MLflow's tracing writes through the process's own tracking URI, so it is set for the call and put back. A request is sent once:
the tag `specops.request_key`, a hash of its id, finds it again; `specops.request_id` is for people to search. Called by
`specops trace mlflow`. Written for MLflow 3.17.2.
"""

import hashlib
import warnings
from datetime import timedelta
from typing import Any

from specops.adapters.mlflow_tracking import RETRY_AFTER_S, open_client, reaching
from specops.core.trace import STAGES, Round, Trace
from specops.errors import Unavailable

REQUEST_TAG, KEY_TAG = "specops.request_id", "specops.request_key"
_NO_OP = "MLFLOW_NO_OP_SPAN_TRACE_ID"  # mlflow.tracing.constant
_FIELDS = {  # of a round, by the stage whose hand-over they are
    "draft": ("drafted", "is_one_hot", "draft_probs", "draft_entropies_nats", "cap"),
    "score": ("target_probs", "target_entropies_nats"),
    "accept": ("rule", "accept_probs", "coins", "accepted"),
    "resample": ("residual_mass", "decided", "last_coin", "last_prob"),
}


def send_trace(trace: Trace, tracking_uri: str, experiment: str = "specops") -> str:
    """Write a trace and return MLflow's id of it; the id it already has if it was sent before.

    Args:
        trace: the request; a span's times are laid end to end from its arrival: queue, prefill, then each stage of each round.
        tracking_uri: of the MLflow server or database.
        experiment: its name; created when missing.

    Raises:
        MissingExtra: mlflow is not installed.
        Unavailable: the server or database cannot be reached, or does not take the trace.
    """
    with reaching(tracking_uri), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mlflow's own, about its own type hints
        client = open_client(tracking_uri)
        import mlflow  # noqa: PLC0415  # behind the check of the extra

        found = client.get_experiment_by_name(experiment)
        place = found.experiment_id if found else client.create_experiment(experiment)
        # a client may have chosen the id, quotes and all
        known = client.search_traces([place], filter_string=f"tags.`{KEY_TAG}` = '{_key(trace)}'", max_results=1)
        if known:
            return str(known[0].info.trace_id)
        before = mlflow.get_tracking_uri()
        mlflow.set_tracking_uri(tracking_uri)
        try:
            return _write(mlflow, trace, str(place))
        finally:
            mlflow.set_tracking_uri(before)


def _write(mlflow: Any, trace: Trace, experiment_id: str) -> str:  # noqa: ANN401  # the module
    clock = _ns(trace.at.timestamp())
    root = mlflow.start_span_no_context(
        "request", span_type="LLM", inputs={"prompt_ids": list(trace.prompt_ids), "settings": dict(trace.settings)},
        attributes={"engine": dict(trace.engine)}, tags={REQUEST_TAG: trace.request_id, KEY_TAG: _key(trace)},
        experiment_id=experiment_id, start_time_ns=clock,
    )  # fmt: skip
    if root.trace_id == _NO_OP:  # mlflow logs its own failures and goes on
        raise Unavailable("mlflow could not start a trace; its log says why", retry_after_s=RETRY_AFTER_S)
    for name, seconds in (("queue", trace.queue_s), ("prefill", trace.prefill_s)):
        span = mlflow.start_span_no_context(name, parent_span=root, start_time_ns=clock)
        clock += _ns(seconds)
        span.end(outputs={"tokens": list(trace.first)} if name == "prefill" else None, end_time_ns=clock)
    for number, each in enumerate(trace.rounds, 1):
        clock = _round(mlflow, root, number, each, clock)
    ended = None if trace.ended is None else trace.ended.value
    root.end(
        outputs={"token_ids": list(trace.emitted), "ended": ended},
        attributes={
            "drafted": trace.drafted, "accepted": trace.accepted, "rounds": len(trace.rounds),
            "controls": [f"{one.hand.value}: {one.what}" for one in trace.controls],
        },
        status="ERROR" if ended == "error" else "OK",
        end_time_ns=clock,
    )  # fmt: skip
    mlflow.flush_trace_async_logging()
    return str(root.trace_id)


def _round(mlflow: Any, root: Any, number: int, each: Round, clock: int) -> int:  # noqa: ANN401
    """Write a round and its stages; return the time behind it."""
    record: dict[str, Any] = {"drafted": list(each.drafted), "state": each.before.sha256}
    span = mlflow.start_span_no_context(f"round {number}", parent_span=root, inputs=record, start_time_ns=clock)
    for stage, seconds, size in zip(STAGES, each.stage_s, each.stage_bytes, strict=True):
        part = mlflow.start_span_no_context(stage, parent_span=span, start_time_ns=clock)
        clock += _ns(seconds)
        outputs = {name: getattr(each, name) for name in _FIELDS[stage]}
        part.end(outputs=outputs, attributes={"bytes": size}, end_time_ns=clock)
    cut = None if each.cut is None else each.cut.value
    outputs = {"emitted": list(each.emitted), "accepted": each.accepted, "cut": cut, "state": each.after.sha256}
    span.end(outputs=outputs, end_time_ns=clock)
    return clock


def _key(trace: Trace) -> str:
    return hashlib.sha256(f"{trace.request_id} {trace.at.isoformat()}".encode()).hexdigest()[:32]


def _ns(seconds: float) -> int:
    return timedelta(seconds=seconds) // timedelta(microseconds=1) * 1_000
