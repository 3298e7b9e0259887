"""The report of a verification as one HTML file: verdict, evidence over tokens, calibration, controls, and what was not tested.

Called by `specops verify` with results; it reads nothing else, so the same results give the same page.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from specops.core.fidelity_report import BUCKETS, Calibration, Verification
from specops.report import svg
from specops.report.figures import number
from specops.report.page import write
from specops.report.svg import Frame

_LEFT, _WIDTH = 64.0, svg.WIDTH - 88.0


def build(results: Sequence[Verification], path: Path, rejected: Sequence[str] = ()) -> None:
    """Write the page; `rejected` are the endpoints that e-BH rejects, where there are several.

    Raises:
        OSError: the folder cannot be written.
    """
    write(render(results, rejected), path)


def render(results: Sequence[Verification], rejected: Sequence[str] = ()) -> str:
    """Return the page as HTML text. Every text of a result is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("fidelity.html.j2").render(
        results=results,
        rejected=rejected,
        paths=[Markup(_path_chart(one)) for one in results],  # noqa: S704  # svg escapes all text
        calibrations=[Markup(_calibration_chart(one.calibration)) for one in results],  # noqa: S704
    )


def _path_chart(result: Verification) -> str:
    if not result.path:
        return ""
    bar = math.log10(2 / result.alpha)
    heights = [(at, log_e / math.log(10)) for at, log_e in result.path]
    values = [height for _, height in heights]
    span = (min(-1.0, *values), max(bar * 1.2, *values))
    frame = Frame(left=_LEFT, top=40, width=_WIDTH, height=220, x_range=(0, result.tokens), y_range=span)
    parts = [
        frame.axes("tokens", "log10 of the e-value", number, lambda value: f"{value:g}"),
        svg.line(frame.at(0, bar), frame.at(result.tokens, bar), "line-limit", f"rejected above 10^{bar:.1f}"),
        svg.polyline([frame.at(0, 0), *(frame.at(at, height) for at, height in heights)], "line-candidate"),
        svg.legend(_LEFT + 180, 16, [("line-candidate", "mixture of all alternatives"), ("line-limit", "rejected above")]),
    ]
    return svg.drawing(310, parts, "Evidence over tokens")


def _calibration_chart(found: Calibration) -> str:
    if not sum(found.tokens):
        return ""
    frame = Frame(left=_LEFT, top=40, width=_WIDTH, height=240, x_range=(0, 1))
    parts = [
        frame.axes("probability of the most likely token", "share emitted", lambda v: f"{v:.0%}", lambda v: f"{v:.0%}"),
        svg.line(frame.at(0, 0), frame.at(1, 1), "line-limit"),
    ]
    for at in range(BUCKETS):
        if (tokens := found.tokens[at]) > 0:
            expected, emitted = found.expected[at] / tokens, found.emitted[at] / tokens
            room = 2 * math.sqrt(expected * (1 - expected) / tokens)
            low, high = max(emitted - room, 0.0), min(emitted + room, 1.0)
            parts.append(svg.line(frame.at(expected, low), frame.at(expected, high), "axis"))
            tip = f"{tokens} tokens: {expected:.1%} expected, {emitted:.1%} emitted"
            parts.append(svg.dot(frame.at(expected, emitted), 4.0, "dot-candidate", tip))
    return svg.drawing(330, parts, "Calibration of the most likely token")
