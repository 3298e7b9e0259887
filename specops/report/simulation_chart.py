"""The chart of `specops policy simulate`: the share of made-up candidates that failed, by requests since the shift.

One SVG file that stands alone, so it carries its own few colours; everything else of it is drawn by `report.svg`.
"""

from collections.abc import Sequence

from specops.core.policy_simulate import BEFORE, Figures
from specops.report import svg
from specops.report.figures import number
from specops.report.svg import Frame

_COLOURS = ("#0b6bcb", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#0e7490", "#be123c", "#475569")  # 4.5:1 on white
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#333}.grid{stroke:#ddd}.axis{stroke:#333}"
    "polyline{fill:none;stroke-width:2}" + "".join(f".c{i}{{stroke:{colour}}}" for i, colour in enumerate(_COLOURS))
)


def simulation_chart(figures: Sequence[Figures]) -> str:
    """Return the chart as SVG text; empty without figures."""
    if not figures:
        return ""
    width = svg.WIDTH - 88.0
    rows = (len(figures) + 1) // 2
    frame = Frame(left=64, top=36.0 + 20 * rows, width=width, height=260, x_range=(0, figures[0].requests - BEFORE))
    words = [f"{f.check}: {f.before:.3g} to {f.after:.3g}" for f in figures]
    legends = [
        svg.legend(64.0 + 430 * (i % 2), 16.0 + 20 * (i // 2), [(_class(i), text)]) for i, text in enumerate(words)
    ]
    axes = frame.axes("requests since the shift", "", number, lambda share: f"{share:.0%}")
    curves = [svg.polyline(_curve(frame, f), _class(i)) for i, f in enumerate(figures)]
    paper = svg.element("rect", width="100%", height="100%", fill="#fff")  # it stands alone, in whatever viewer
    body = [svg.element("style", _STYLE), paper, *legends, axes, *curves]
    return svg.drawing(frame.top + 310, body, "Share of candidates failed, by requests since the shift")


def _class(place: int) -> str:
    return f"c{place % len(_COLOURS)}"


def _curve(frame: Frame, figures: Figures) -> list[svg.Point]:
    seen = [delay for delay in figures.trial_delays if delay is not None]
    shares = [(float(delay), (i + 1) / len(figures.trial_delays)) for i, delay in enumerate(seen)]
    return [frame.at(x, y) for x, y in svg.steps([(0.0, 0.0), *shares], figures.requests - BEFORE)]
