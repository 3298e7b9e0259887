"""The report as one HTML file: no network, no external asset, readable on screen, in dark mode and on paper.

Called by the report command with a filled `ReportData`; it reads nothing else, so the same data gives the same page.
"""

import os
import tempfile
from pathlib import Path

import jinja2
from markupsafe import Markup

from specops.core.outcome import Arm
from specops.report import charts, figures
from specops.report.adoption import adoption_answers
from specops.report.lineage_chart import lineage_chart
from specops.report.model import ReportData

TEMPLATE = "report.html.j2"


def build(data: ReportData, path: Path) -> None:
    """Write the report to a file; a reader sees the old file or the whole new one.

    Raises:
        OSError: the folder cannot be written.

    """
    write(render(data), path)


def write(page: str, path: Path) -> None:
    """Write a page to a file; a reader sees the old file or the whole new one.

    Raises:
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    fresh = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
        fresh.chmod(0o644)  # mkstemp makes it private; a report is to be read
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def render(data: ReportData) -> str:
    """Return the report as HTML text. Every text of `data` is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "seconds": figures.seconds,
        "number": figures.number,
        "share": figures.share,
        "short": figures.short,
    }
    words, tone = figures.outcome(data)
    return environment.get_template(TEMPLATE).render(
        data=data,
        answers=adoption_answers(data),
        outcome=words,
        tone=tone,
        key_figures=_key_figures(data),
        decision_runs=figures.decision_runs(data.decisions),
        latency_rows=_latency_rows(data),
        arms=list(Arm),
        not_measured=figures.NOT_MEASURED,
        **_drawings(data),
    )


def _drawings(data: ReportData) -> dict[str, object]:
    """Return each chart as trusted markup; `svg` has escaped the texts in it."""
    span = charts.ratio_span(data.evaluation)
    return {
        "acceptance_chart": Markup(charts.acceptance_chart(data)),  # noqa: S704  # escaped in svg.py
        "latency_chart": Markup(charts.latency_chart(data)),  # noqa: S704
        "weight_chart": Markup(charts.weight_chart(data.weights)),  # noqa: S704
        "decision_chart": Markup(charts.decision_chart(data.decisions)),  # noqa: S704
        "lineage_chart": Markup(lineage_chart(data.nodes, data.edges)),  # noqa: S704
        "ratio_bars": [Markup(charts.ratio_bar(line, span)) for line in data.evaluation],  # noqa: S704
    }


def _key_figures(data: ReportData) -> tuple[tuple[str, str, str], ...]:
    """Return the cards at the top: (name, value, small print)."""
    before, after = figures.mean_acceptance(data)
    equality, audit = data.equality, data.audit
    delay = None
    if data.shift_index is not None and data.detection_index is not None:
        delay = data.detection_index - data.shift_index
    shifted = "" if data.shift_index is None else f"{figures.share(after)} after the shift"
    return (
        ("Acceptance rate", figures.share(before), shifted or "candidate, all requests"),
        (
            "Output equality",
            figures.NOT_MEASURED if equality is None else f"{equality.equal} / {equality.compared}",
            "greedy texts equal to the target's own",
        ),
        ("Detection", figures.NOT_MEASURED if delay is None else figures.number(delay), "requests from shift to verdict FAIL"),
        ("Reaction", figures.seconds(data.reaction_s), "from deciding outcome to first request on plain"),
        ("Alerts", f"{sum(a.delivered for a in data.alerts)} of {len(data.alerts)}", "delivered to the receiver"),
        ("Audit entries", figures.NOT_MEASURED if audit is None else figures.number(audit.size), "under a signed checkpoint"),
    )


def _latency_rows(data: ReportData) -> list[tuple[str, Arm, int, list[str]]]:
    """Return the quantile table: metric, arm, samples, p50, p95 and p99 in words."""
    rows = []
    for metric, words in figures.LATENCIES:
        for arm in Arm:
            values = figures.latencies(data, metric, arm)
            cells = [figures.quantile(values, q) for q in figures.QUANTILES]
            rows.append((words, arm, len(values), ["n too small" if c is None else figures.seconds(c) for c in cells]))
    return rows
