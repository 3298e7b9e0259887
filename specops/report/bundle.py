"""The report as data, for whoever wants to compute with it; the same record as the page, and the derived answers."""

import json
import math
from dataclasses import asdict
from datetime import datetime
from typing import Any

from specops.report.adoption import adoption_answers
from specops.report.model import ReportData

SCHEMA = "specops.report/1"


def to_json(data: ReportData) -> str:
    """Return the report's data and the seven answers as JSON text: sorted keys, times as ISO 8601.

    A number that is not finite becomes null, because JSON has no other way to say it.
    """
    answers = [asdict(answer) for answer in adoption_answers(data)]
    record = _plain({"schema": SCHEMA, **asdict(data), "adoption": answers})
    return json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Return JSON-ready values."""
    match value:
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case datetime():
            return value.isoformat()
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
