"""The report's charts over requests and time: acceptance, latency, traffic, decisions, ratios. Each returns SVG text.

They draw what they are given and decide nothing. An empty series gives an empty string; the page then says that it was not
measured.
"""

import itertools
import math
from collections.abc import Sequence
from datetime import datetime

from specops.core.outcome import Arm
from specops.core.rollout import ActionKind
from specops.core.verdict import Result
from specops.report import svg
from specops.report.figures import LATENCIES, QUANTILES, latencies, number, quantile, seconds, share
from specops.report.model import AcceptancePoint, DecisionLine, EvaluationLine, ReportData, WeightPoint
from specops.report.svg import Frame

MAX_DOTS = 800  # beyond this, dots overlap and only make the file large; the legend says how many are drawn
ROLLING = 20  # requests in the moving mean
LEFT, RIGHT_EDGE = 64.0, svg.WIDTH - 24.0


def acceptance_chart(data: ReportData) -> str:
    """Draw acceptance per request, its moving mean, the confidence band, the limit, the shift and its detection."""
    points = sorted(data.acceptance, key=lambda p: p.index)
    if not points:
        return ""
    first, last = points[0].index, max(points[-1].index, data.detection_index or 0)
    frame = Frame(left=LEFT, top=64, width=RIGHT_EDGE - LEFT, height=260, x_range=(first, max(last, first + 1)))
    stride = math.ceil(len(points) / MAX_DOTS)
    parts = [
        _phases(frame, points),
        frame.axes("request of the candidate (in order)", "acceptance rate", number, share_tick),
        _band(frame, points),
        *(
            svg.dot(frame.at(p.index, p.rate), 2.2, "dot-candidate", f"request {p.index}: {share(p.rate)} ({p.phase})")
            for p in points[::stride]
        ),
        svg.polyline([frame.at(x, y) for x, y in _moving_mean(points)], "line-candidate"),
        _limit(frame, data.acceptance_limit),
        _markers(frame, data),
    ]
    dots = "one request" if stride == 1 else f"one request (one in {stride} drawn)"
    entries = [("legend-dot", dots), ("line-candidate", f"mean of {ROLLING} requests"), ("legend-band", "confidence sequence")]
    parts.append(svg.legend(LEFT, 16, [*entries, ("line-limit", "limit")]))
    return svg.drawing(376, parts, "Acceptance rate over requests")


def latency_chart(data: ReportData) -> str:
    """Draw each latency's distribution per arm as ECDF over a logarithmic axis, with p50, p95 and p99 marked."""
    if not data.latencies:
        return ""
    panels = []
    width = (svg.WIDTH - LEFT - 24 - 2 * 62) / 3
    for place, (metric, words) in enumerate(LATENCIES):
        series = {arm: sorted(v for v in latencies(data, metric, arm) if v > 0) for arm in Arm}
        everything = [v for values in series.values() for v in values]
        if not everything:
            continue
        span = (min(everything) * 0.9, max(everything) * 1.1)
        frame = Frame(left=LEFT + place * (width + 62), top=64, width=width, height=210, x_range=span, is_log=True)
        panels.append(frame.axes(f"{words} (log scale)", "share of requests", seconds, share_tick))
        panels += [_ecdf(frame, arm, values) for arm, values in series.items() if values]
    panels.append(svg.legend(LEFT, 16, [(f"line-{arm}", str(arm)) for arm in Arm]))
    panels.append(svg.text(LEFT + 260, 16, "marks: p50, p95, p99 where the sample is large enough", "legend"))
    return svg.drawing(326, panels, "Latency distributions per arm")


def weight_chart(points: Sequence[WeightPoint]) -> str:
    """Draw the candidate's live weight and mirrored share over time; each change carries the number of its caption."""
    if not points:
        return ""
    last = max(p.t_s for p in points)
    end = last + max(0.06 * (last - points[0].t_s), 1.0)
    frame = Frame(left=LEFT, top=88, width=RIGHT_EDGE - LEFT, height=190, x_range=(points[0].t_s, end))
    parts = [frame.axes("seconds since the rollout began", "share of requests", number, share_tick)]
    mirrors, weights = [(p.t_s, p.mirror) for p in points], [(p.t_s, p.weight) for p in points]
    for cls, series in (("line-mirror", mirrors), ("line-candidate", weights)):
        corners = [frame.at(x, y) for x, y in svg.steps(series, end)]
        if cls == "line-candidate":
            parts.append(svg.polygon([*corners, (corners[-1][0], frame.y(0)), (corners[0][0], frame.y(0))], "band"))
        parts.append(svg.polyline(corners, cls))
    badges = _spread([frame.x(p.t_s) for p in points], gap=19, right=RIGHT_EDGE)
    for place, (point, x) in enumerate(zip(points, badges, strict=True), 1):
        tip = f"{point.t_s:.1f} s: {point.label}, weight {share(point.weight)}, mirror {share(point.mirror)}"
        parts += [svg.line((frame.x(point.t_s), 61), (frame.x(point.t_s), 278), "marker-soft")]
        parts += [svg.dot((x, 52), 9, "badge", tip), svg.text(x, 56, str(place), "badge-text", "middle")]
    parts.append(svg.legend(LEFT, 16, [("line-candidate", "live weight of the candidate"), ("line-mirror", "mirrored share")]))
    return svg.drawing(326, parts, "Traffic weights over time")


def decision_chart(decisions: Sequence[DecisionLine]) -> str:
    """Draw every verdict on a lane of its result over time, and name the actions that moved traffic."""
    if not decisions:
        return ""
    began = decisions[0].at
    end = max((d.at - began).total_seconds() for d in decisions)
    frame = Frame(left=120, top=58, width=RIGHT_EDGE - 120, height=34.0 * len(Result), x_range=(0.0, (end or 1.0) * 1.03))
    lanes = {result: 58 + 34.0 * (rank + 0.5) for rank, result in enumerate(Result)}
    parts = [
        mark
        for result, y in lanes.items()
        for mark in (svg.line((120, y), (RIGHT_EDGE, y), "grid"), svg.text(108, y + 4, result, "tick", "end"))
    ]
    bottom = frame.top + frame.height
    for tick in svg.linear_ticks(*frame.x_range, 8):
        parts += [svg.line((frame.x(tick), bottom), (frame.x(tick), bottom + 5), "axis")]
        parts += [svg.text(frame.x(tick), bottom + 19, number(tick), "tick", "middle")]
    parts += [svg.line((120, bottom), (RIGHT_EDGE, bottom), "axis")]
    parts += [svg.text(120 + frame.width / 2, bottom + 38, "seconds since the first verdict", "label", "middle")]
    parts += [
        svg.dot((frame.x(_since(d, began)), lanes[d.result]), 3.4, f"fill-{d.result.lower()}", _tip(d)) for d in decisions
    ]
    parts += _flags(frame, decisions, lanes, began)
    return svg.drawing(bottom + 48, parts, "Verdicts and actions over time")


def ratio_bar(line: EvaluationLine, span: tuple[float, float]) -> str:
    """Draw one ratio with its interval beside the line of no difference, on a logarithmic axis shared by all rows."""
    if line.ratio is None or line.ratio <= 0:
        return ""
    frame = Frame(left=6, top=2, width=208, height=20, x_range=span, is_log=True)
    low, high = (line.ratio if v is None or v <= 0 else v for v in (line.low, line.high))
    is_good = low > 1 if line.better == "higher" else high < 1
    is_bad = high < 1 if line.better == "higher" else low > 1
    cls = "good" if is_good else "bad" if is_bad else "open"
    body = [
        svg.line((frame.x(1.0), 0), (frame.x(1.0), 24), "axis"),
        svg.line((frame.x(low), 12), (frame.x(high), 12), f"ratio-{cls}"),
        svg.dot(
            (frame.x(line.ratio), 12), 4, f"fill-{cls}", f"{line.metric}: {number(line.ratio)} [{number(low)}, {number(high)}]"
        ),
    ]
    return svg.element(
        "svg", "".join(body), viewBox="0 0 220 24", cls="ratio", role="img", aria_label=f"ratio of {line.metric}"
    )


def ratio_span(lines: Sequence[EvaluationLine]) -> tuple[float, float]:
    """Return the common axis of all ratios: symmetric about 1 and wide enough for every interval."""
    values = [v for line in lines for v in (line.ratio, line.low, line.high) if v is not None and v > 0]
    reach = max([1.25, *(max(v, 1 / v) for v in values)]) * 1.05
    return 1 / reach, reach


def share_tick(value: float) -> str:
    """Write a share on an axis."""
    return f"{value * 100:.0f}%"


def _spread(places: Sequence[float], *, gap: float, right: float) -> list[float]:
    """Move ascending places apart to at least `gap`, none beyond `right`, so that close changes stay readable."""
    moved: list[float] = []
    for x in places:
        moved.append(max(x, moved[-1] + gap) if moved else x)
    for i in range(len(moved) - 1, -1, -1):
        moved[i] = min(moved[i], right if i == len(moved) - 1 else moved[i + 1] - gap)
    return moved


def _phases(frame: Frame, points: Sequence[AcceptancePoint]) -> str:
    """Shade and name the phases along the top."""
    parts = []
    groups = [(phase, list(group)) for phase, group in itertools.groupby(points, key=lambda p: p.phase)]
    for place, (phase, group) in enumerate(groups):
        start = frame.x(group[0].index)
        stop = frame.x(groups[place + 1][1][0].index) if place + 1 < len(groups) else frame.left + frame.width
        cls = "phase-even" if place % 2 == 0 else "phase-odd"
        parts.append(svg.element("rect", x=start, y=frame.top, width=max(stop - start, 0.5), height=frame.height, cls=cls))
        if stop - start > 7 * len(phase):
            parts.append(svg.text((start + stop) / 2, frame.top + frame.height - 8, phase, "phase", "middle"))
    return "".join(parts)


def _band(frame: Frame, points: Sequence[AcceptancePoint]) -> str:
    """Fill between the confidence limits; a gap in the limits is a gap in the band."""
    parts = []
    for known, group in itertools.groupby(points, key=lambda p: p.low is not None and p.high is not None):
        run = list(group)
        if known and len(run) > 1:
            upper = [frame.at(p.index, p.high or 0.0) for p in run]
            lower = [frame.at(p.index, p.low or 0.0) for p in reversed(run)]
            parts.append(svg.polygon([*upper, *lower], "band"))
    return "".join(parts)


def _moving_mean(points: Sequence[AcceptancePoint]) -> list[svg.Point]:
    """Return the mean of the last `ROLLING` rates at each request that has that many before it."""
    rates = [p.rate for p in points]
    return [(points[i].index, sum(rates[i - ROLLING + 1 : i + 1]) / ROLLING) for i in range(ROLLING - 1, len(points))]


def _limit(frame: Frame, limit: float | None) -> str:
    """Draw the limit line."""
    if limit is None:
        return ""
    y, right = frame.y(limit), frame.left + frame.width
    mark = svg.line((frame.left, y), (right, y), "line-limit", f"limit {share(limit)}")
    return mark + svg.text(frame.left + 8, y + 15, f"limit {share(limit)}", "note-limit")


def _markers(frame: Frame, data: ReportData) -> str:
    """Draw where traffic shifted and where the policy noticed."""
    parts = []
    shift, found = data.shift_index, data.detection_index
    if shift is not None:
        parts += [
            svg.line((frame.x(shift), 50), (frame.x(shift), frame.top + frame.height), "marker-shift", f"shift at {shift}")
        ]
        parts += [svg.text(frame.x(shift) - 6, 58, f"traffic shifts, request {shift}", "note-shift", "end")]
    if found is not None:
        late = f" (+{found - shift})" if shift is not None else ""
        words = f"detected, request {found}{late}"
        parts += [svg.line((frame.x(found), 32), (frame.x(found), frame.top + frame.height), "marker-found", words)]
        is_far = frame.x(found) > frame.left + frame.width * 0.75  # keep the words inside the drawing
        parts += [svg.text(frame.x(found) + (-6 if is_far else 6), 40, words, "note-found", "end" if is_far else "start")]
    return "".join(parts)


def _ecdf(frame: Frame, arm: Arm, values: Sequence[float]) -> str:
    """Draw one arm's distribution and its quantiles."""
    n = len(values)
    stride = max(1, n // 400)  # a step of 1/400 is below one pixel
    ranks = sorted({*range(0, n, stride), n - 1})
    points = [(frame.x_range[0], 0.0), *((values[i], (i + 1) / n) for i in ranks)]
    parts = [svg.polyline([frame.at(x, y) for x, y in svg.steps(points, frame.x_range[1])], f"line-{arm}")]
    for q in QUANTILES:
        value = quantile(values, q)
        if value is not None:
            tip = f"{arm} p{q * 100:.0f}: {seconds(value)} (n = {n})"
            parts.append(svg.dot(frame.at(value, q), 4.2, f"mark-{arm}", tip))
    return "".join(parts)


def _flags(frame: Frame, decisions: Sequence[DecisionLine], lanes: dict[Result, float], began: datetime) -> list[str]:
    """Name each action that moved traffic, in two rows so that neighbours stay readable."""
    parts: list[str] = []
    moves = [d for d in decisions if d.action is not ActionKind.HOLD]
    ends = [-math.inf, -math.inf]
    for decision in moves:
        x = frame.x(_since(decision, began))
        words = f"{decision.action.replace('_', ' ').lower()}"
        half = 3.6 * len(words)
        row = 0 if ends[0] < x - half else 1
        ends[row] = x + half
        y = 44.0 - 20 * row
        anchor = "end" if x + half > RIGHT_EDGE else "middle"
        parts += [svg.line((x, y + 6), (x, lanes[decision.result]), "marker-soft"), svg.text(x, y, words, "flag", anchor)]
    return parts


def _since(decision: DecisionLine, began: datetime) -> float:
    """Return seconds from the first verdict."""
    return (decision.at - began).total_seconds()


def _tip(decision: DecisionLine) -> str:
    """Return a verdict's tooltip."""
    evidence = f", e-value {number(decision.e_value)} of {number(decision.threshold)}" if decision.e_value is not None else ""
    return f"{decision.result} → {decision.action} after {decision.n} outcomes{evidence}: {decision.reason}"
