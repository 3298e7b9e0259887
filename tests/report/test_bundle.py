"""The report as JSON."""

import json
import math
from dataclasses import replace

from specops.report.bundle import to_json


def test_the_bundle_holds_the_data_and_the_answers(report_data):
    """Another program finds every section by its name."""
    bundle = json.loads(to_json(report_data))

    assert bundle["schema"] == "specops.report/1"
    assert bundle["created_at"] == "2026-11-28T09:02:00+00:00"
    assert len(bundle["acceptance"]) == len(report_data.acceptance)
    assert [a["topic"] for a in bundle["adoption"]][-1] == "recovery"


def test_numbers_that_json_cannot_say_become_null(report_data):
    """An infinite e-value does not make the file unreadable."""
    last = replace(report_data.decisions[-1], e_value=math.inf)

    text = to_json(replace(report_data, decisions=(last,)))

    assert "Infinity" not in text
    assert json.loads(text)["decisions"][0]["e_value"] is None
