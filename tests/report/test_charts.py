"""Drawings: right places, no data no drawing."""

import itertools
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from specops.report import charts
from specops.report.lineage_chart import lineage_chart
from specops.report.model import LineageEdge, LineageNode, WeightPoint
from specops.report.svg import Frame, linear_ticks, log_ticks, steps

SVG = "{http://www.w3.org/2000/svg}"


def drawings(data):
    """Every chart of a report."""
    return [
        charts.acceptance_chart(data),
        charts.latency_chart(data),
        charts.weight_chart(data.weights),
        charts.decision_chart(data.decisions),
        lineage_chart(data.nodes, data.edges),
    ]


def test_every_drawing_is_well_formed_and_stays_inside(report_data):
    """XML parses, and no text begins outside the view box."""
    for drawing in drawings(report_data):
        root = ET.fromstring(drawing)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        places = [(float(t.attrib["x"]), float(t.attrib["y"])) for t in root.iter(f"{SVG}text")]
        assert places
        assert all(0 <= x <= width and 0 <= y <= height for x, y in places)


def test_without_data_there_is_no_drawing(empty_data):
    """An empty series is not an empty chart."""
    assert set(drawings(empty_data)) == {""}


def test_the_acceptance_chart_marks_shift_and_detection(report_data):
    """Both markers are named, with the delay between them."""
    drawing = charts.acceptance_chart(report_data)

    assert "traffic shifts, request 240" in drawing
    assert "detected, request 271 (+31)" in drawing
    assert "limit 55.0%" in drawing
    assert drawing.count('class="dot-candidate"') == len(report_data.acceptance)


def test_too_many_dots_are_thinned_and_said_so(report_data):
    """The legend tells how many are drawn."""
    many = tuple(replace(report_data.acceptance[0], index=i) for i in range(2000))

    drawing = charts.acceptance_chart(replace(report_data, acceptance=many))

    assert drawing.count('class="dot-candidate"') <= charts.MAX_DOTS
    assert "every 3th drawn" not in drawing
    assert "one in 3 drawn" in drawing


def test_close_changes_get_readable_numbers_inside_the_drawing():
    """Badges of changes within a second move apart, also at the right edge."""
    assert charts._spread([0, 1, 50, 99, 100], gap=10, right=100) == [0, 10, 50, 90, 100]


def test_a_weight_holds_until_the_next_change():
    """A step line, not a slope."""
    assert steps([(0, 1), (5, 2)], 9) == [(0, 1), (5, 1), (5, 2), (9, 2)]
    assert charts.weight_chart([WeightPoint(t_s=0, weight=0.5, mirror=0, label="one")])


@pytest.mark.parametrize(
    ("better", "low", "high", "cls"),
    [
        ("lower", 0.6, 0.7, "good"),
        ("lower", 1.1, 1.3, "bad"),
        ("lower", 0.9, 1.1, "open"),
        ("higher", 1.1, 1.3, "good"),
        ("higher", 0.6, 0.7, "bad"),
    ],
)
def test_a_ratio_is_coloured_only_when_its_interval_decides(report_data, better, low, high, cls):
    """An interval over 1 says neither better nor worse."""
    line = replace(report_data.evaluation[0], better=better, low=low, high=high, ratio=(low + high) / 2)

    assert f'class="fill-{cls}"' in charts.ratio_bar(line, charts.ratio_span([line]))


def test_lineage_runs_from_ingredients_to_what_was_made():
    """A node stands right of everything it came from; nothing covers another."""
    chain = ["corpus", "tokenizer", "target", "draft"]
    nodes = [LineageNode(id=i, label=i, kind=i) for i in chain]
    edges = [LineageEdge(source=b, kind="uses", target=a) for a, b in itertools.pairwise(chain)]
    edges.append(LineageEdge(source="draft", kind="trained_on", target="corpus"))

    root = ET.fromstring(lineage_chart(nodes, edges))

    lefts = {g.find(f"{SVG}text").text: float(g.find(f"{SVG}rect").attrib["x"]) for g in root.iter(f"{SVG}g")}
    assert sorted(chain, key=lefts.get) == chain
    assert len([p for p in root.iter(f"{SVG}path") if p.attrib.get("class") == "edge"]) == 4


def test_a_cycle_or_an_unknown_node_does_not_break_the_drawing():
    """A broken store is shown as far as it goes."""
    nodes = [LineageNode(id=i, label=i, kind="draft") for i in "ab"]
    edges = [LineageEdge(source=s, kind="uses", target=t) for s, t in ("ab", "ba", "ac", "aa")]

    assert re.findall('class="edge"', lineage_chart(nodes, edges)) == ['class="edge"']


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 290), (3.2, 3.9), (0, 0.00012), (5, 5)])
def test_ticks_are_few_round_and_inside(low, high):
    """Between one and nine, none outside."""
    ticks = linear_ticks(low, high, 8)

    assert 1 <= len(ticks) <= 9
    assert all(low <= t <= high for t in ticks)


def test_log_ticks_and_places():
    """Decades split 1-2-5, and equal ratios have equal distances."""
    frame = Frame(left=0, top=0, width=100, height=10, x_range=(1, 100), is_log=True)

    assert log_ticks(0.9, 11) == [1, 2, 5, 10]
    assert (frame.x(10), frame.y(1.0), frame.y(0.0)) == (50.0, 0.0, 10.0)
