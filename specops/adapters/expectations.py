"""Is a batch of outcomes usable as evidence at all? The rules once as a Great Expectations suite, once in plain Python.

`validate` is for the validator job and the record it leaves; `quick_check` states the same rules for the control loop, because
Great Expectations takes 0.3 to 0.5 s a batch and 5 s and more to import. Both return the same sentences; the judge turns any
sentence into the verdict ERROR. Neither says whether the numbers are good, only whether they can be.
"""

import contextlib
import logging
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from specops.core.outcome import Arm, Outcome
from specops.errors import MissingExtra

Batch = Sequence[Outcome] | Sequence[Mapping[str, Any]]
IDENTITY = ("request_id", "arm", "kind", "retried")

# rule -> sentence; {n} is the number of rows that break it. One table, so both checkers speak with one voice.
SENTENCES = {
    "request_id": "outcomes without request_id: {n}",
    "at": "outcomes without a time with zone: {n}",
    "future": "outcomes that end in the future, after {now}: {n}",
    "duration": "outcomes without e2e_s: {n}",
    "negative": "outcomes with a negative e2e_s: {n}",
    "ttft": "outcomes with ttft_s greater than e2e_s: {n}",
    "accepted": "outcomes that accepted more tokens than were drafted: {n}",
    "unique": "outcomes that share request_id, arm, kind and retried with another: {n}",
    "arms": "an arm has no outcome; both baseline and candidate are needed",
}


def validate(outcomes: Batch, now: datetime, *, both_arms: bool) -> tuple[str, ...]:
    """Run the Great Expectations suite on a batch.

    Args:
        outcomes: outcomes, or their `to_record` values as read back from a file.
        now: no outcome may have ended after this time (with zone).
        both_arms: whether baseline and candidate must both be present.

    Returns:
        What is wrong in plain words, in the order of `SENTENCES`; empty when the batch is usable.

    Raises:
        MissingExtra: great_expectations is not installed.

    """
    rows = [_row(outcome) for outcome in outcomes]
    with _quiet():
        gx = _great_expectations()
        results = _run(gx, rows, _suite(gx, now, both_arms=both_arms))
    return _sentences(results, now)


def quick_check(outcomes: Batch, now: datetime, *, both_arms: bool) -> tuple[str, ...]:
    """State the same rules in plain Python; arguments and answer are those of `validate`."""
    rows = [_row(outcome) for outcome in outcomes]
    groups = Counter(tuple(row[name] for name in IDENTITY) for row in rows)
    counts = {
        "request_id": sum(row["request_id"] is None for row in rows),
        "at": sum(row["at_s"] is None for row in rows),
        "future": sum(_exceeds(row["at_s"], now.timestamp()) for row in rows),
        "duration": sum(row["e2e_s"] is None for row in rows),
        "negative": sum(_exceeds(0.0, row["e2e_s"]) for row in rows),
        "ttft": sum(_exceeds(row["ttft_s"], row["e2e_s"]) for row in rows),
        "accepted": sum(_exceeds(row["accepted"], row["drafted"]) for row in rows),
        "unique": sum(n for n in groups.values() if n > 1),
        "arms": int(both_arms and not {row["arm"] for row in rows} >= set(map(str, Arm))),
    }
    return _sentences(counts, now)


def _sentences(counts: Mapping[str, int], now: datetime) -> tuple[str, ...]:
    """Return one sentence for each rule that is broken."""
    return tuple(text.format(n=counts[rule], now=now.isoformat()) for rule, text in SENTENCES.items() if counts.get(rule))


def _exceeds(value: float | None, limit: float | None) -> bool:
    """Return whether value > limit; a missing side is another rule's matter."""
    return value is not None and limit is not None and value > limit


def _row(outcome: Outcome | Mapping[str, Any]) -> dict[str, Any]:
    """Flatten an outcome to the columns that the rules speak about."""
    record = outcome.to_record() if isinstance(outcome, Outcome) else outcome
    counts = record.get("acceptance") or {}
    return {
        "request_id": record.get("request_id") or None,
        "arm": str(record.get("arm")),
        "kind": str(record.get("kind")),
        "retried": bool(record.get("retried_on_baseline")),
        "at_s": _timestamp(record.get("at")),
        "e2e_s": _number(record.get("e2e_s")),
        "ttft_s": _number(record.get("ttft_s")),
        "drafted": _number(counts.get("drafted")),
        "accepted": _number(counts.get("accepted")),
    }


def _number(value: object) -> float | None:
    """Return a finite number, or None."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _timestamp(value: object) -> float | None:
    """Return Unix seconds of an ISO time with zone, or None."""
    with contextlib.suppress(TypeError, ValueError):
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
        return at.timestamp() if isinstance(at, datetime) and at.tzinfo is not None else None
    return None


def _great_expectations() -> Any:  # noqa: ANN401  # an optional package
    """Import Great Expectations."""
    try:
        import great_expectations as gx  # noqa: PLC0415  # optional extra, 5 s and more
    except ModuleNotFoundError as exc:
        if exc.name != "great_expectations":
            raise
        raise MissingExtra("great_expectations", "expectations") from exc
    return gx


def _suite(gx: Any, now: datetime, *, both_arms: bool) -> dict[str, Any]:  # noqa: ANN401
    """Return rule -> expectation."""
    that, either = gx.expectations, "either_value_is_missing"
    suite = {
        "request_id": that.ExpectColumnValuesToNotBeNull(column="request_id"),
        "at": that.ExpectColumnValuesToNotBeNull(column="at_s"),
        "future": that.ExpectColumnValuesToBeBetween(column="at_s", max_value=now.timestamp()),
        "duration": that.ExpectColumnValuesToNotBeNull(column="e2e_s"),
        "negative": that.ExpectColumnValuesToBeBetween(column="e2e_s", min_value=0.0),
        "ttft": that.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A="e2e_s",
            column_B="ttft_s",
            or_equal=True,
            ignore_row_if=either,
        ),
        "accepted": that.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A="drafted",
            column_B="accepted",
            or_equal=True,
            ignore_row_if=either,
        ),
        "unique": that.ExpectCompoundColumnsToBeUnique(column_list=list(IDENTITY), ignore_row_if="never"),
    }
    if both_arms:
        suite["arms"] = that.ExpectColumnDistinctValuesToContainSet(column="arm", value_set=[str(arm) for arm in Arm])
    return suite


def _run(gx: Any, rows: list[dict[str, Any]], suite: Mapping[str, Any]) -> dict[str, int]:  # noqa: ANN401
    """Validate rows in an ephemeral context; return rule -> rows that break it (1 for a rule about the whole batch)."""
    frame = _frame(rows)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("outcomes").add_dataframe_asset("batch")
    batch = asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": frame})
    answer = batch.validate(gx.ExpectationSuite(name="outcomes", expectations=list(suite.values())))
    return {rule: _broken_rows(rule, result) for rule, result in zip(suite, _in_order(suite, answer), strict=True)}


def _frame(rows: list[dict[str, Any]]) -> Any:  # noqa: ANN401
    """Return a DataFrame with fixed column types, also for an empty batch."""
    import pandas as pd  # noqa: PLC0415  # comes with great_expectations

    texts, numbers = ("request_id", "arm", "kind"), ("at_s", "e2e_s", "ttft_s", "drafted", "accepted")
    frame = pd.DataFrame(rows, columns=[*texts, "retried", *numbers])
    return frame.astype(dict.fromkeys(texts, "object") | dict.fromkeys(numbers, "float64") | {"retried": "bool"})


def _in_order(suite: Mapping[str, Any], answer: Any) -> list[Any]:  # noqa: ANN401
    """Return the results in the order of the suite; Great Expectations groups them by column."""

    def identity(kind: str, kwargs: Mapping[str, Any]) -> tuple[str, str]:
        return kind, repr(sorted((k, v) for k, v in kwargs.items() if k != "batch_id"))

    found = {identity(r.expectation_config.type, r.expectation_config.kwargs): r for r in answer.results}
    configs = (expectation.configuration for expectation in suite.values())
    return [found[identity(config.type, config.kwargs)] for config in configs]


def _broken_rows(rule: str, result: Any) -> int:  # noqa: ANN401
    """Return how many rows break a rule; an expectation that could not be computed is an error of ours, not of the data."""
    failed = (result.exception_info or {}).get("exception_message")
    if failed:
        raise RuntimeError(f"expectation {rule} could not be computed: {failed}")
    return 0 if result.success else max(1, int(result.result.get("unexpected_count") or 0))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Great Expectations' own deprecations and chatter out of the caller's output."""
    logger = logging.getLogger("great_expectations")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(great_expectations|altair|marshmallow|posthog)(\..*)?")
        try:
            yield
        finally:
            logger.setLevel(level)
