"""Derived numbers."""

import math
from dataclasses import replace

import pytest

from specops.core.rollout import ActionKind
from specops.report.charts import decision_chart
from specops.report.figures import decision_runs, number, outcome, quantile, seconds


def test_a_quantile_is_a_real_sample():
    """Nearest rank on 1..100."""
    values = [float(v) for v in range(100, 0, -1)]

    assert [quantile(values, q) for q in (0.5, 0.95, 0.99)] == [50.0, 95.0, 99.0]


@pytest.mark.parametrize(
    ("n", "q", "known"), [(99, 0.99, False), (100, 0.99, True), (19, 0.95, False), (20, 0.95, True), (0, 0.5, False)]
)
def test_a_tail_is_withheld_from_a_small_sample(n, q, known):
    """A p99 of 99 samples would be their maximum."""
    assert (quantile([1.0] * n, q) is not None) == known


def test_holds_fold_and_actions_stand_alone(report_data):
    """37 verdicts become seven lines, none lost."""
    runs = decision_runs(report_data.decisions)

    assert sum(run.count for run in runs) == len(report_data.decisions)
    assert [run.first.action for run in runs if run.count == 1] == ["ADVANCE", "ADVANCE", "PROMOTE", "ROLL_BACK"]


def test_the_outcome_is_the_last_move(report_data, empty_data):
    """A rollout that was promoted and then rolled back is rolled back."""
    assert outcome(report_data) == ("rolled back", "fail")
    assert outcome(empty_data) == ("no decision", "pending")


@pytest.mark.parametrize("kind", [kind for kind in ActionKind if kind is not ActionKind.HOLD])
def test_every_move_can_be_the_outcome_and_is_drawn(report_data, kind):
    """No rung of the ladder leaves the report without words, or the chart without a flag."""
    last = replace(report_data.decisions[-1], action=kind)
    data = replace(report_data, decisions=(*report_data.decisions, last))

    words, colour = outcome(data)

    assert words
    assert colour in {"pass", "fail", "pending", "error"}
    assert kind.replace("_", " ").lower() in decision_chart(data.decisions)


@pytest.mark.parametrize(("value", "words"), [(None, "not measured"), (0.00002, "20 µs"), (0.0834, "83.4 ms"), (2.5, "2.5 s")])
def test_durations_have_readable_units(value, words):
    """Micro, milli, whole."""
    assert seconds(value) == words


@pytest.mark.parametrize(
    ("value", "words"), [(None, "–"), (math.nan, "–"), (math.inf, "∞"), (12345.6, "12,346"), (0.63412, "0.634")]
)
def test_numbers_stay_short(value, words):
    """Three significant digits, thousands grouped."""
    assert number(value) == words
