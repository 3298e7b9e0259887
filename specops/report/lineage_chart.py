"""The lineage graph as a layered drawing: ingredients on the left, what was made from them on the right.

An arrow reads as the stored edge does: `draft distilled_from target`. Layout after Sugiyama: the longest path gives the column,
an edge over several columns gets a lane of its own in each between, and the mean place of the neighbours orders each column.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from specops.report import svg
from specops.report.figures import short
from specops.report.model import LineageEdge, LineageNode

BOX_WIDTH, BOX_HEIGHT, ROW, GAP = 124.0, 54.0, 70.0, 84.0  # user units; the gap holds the longest edge name
MAX_LABEL = 16  # characters that fit into a box
LINE = 13.0  # line height of an edge's name
SWEEPS = 6

Chain = tuple[LineageEdge, tuple[str, ...]]  # an edge, and the slots it runs through from source to target

ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" class="arrow"></path></marker></defs>'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Where each slot (a node, or a lane of a long edge) has its left upper corner, and the size of the whole."""

    places: dict[str, svg.Point]
    width: float
    height: float


def lineage_chart(nodes: Sequence[LineageNode], edges: Sequence[LineageEdge]) -> str:
    """Draw the graph. Edges that name an unknown node are left out; a cycle is cut where it closes."""
    if not nodes:
        return ""
    known = {node.id for node in nodes}
    drawn = [edge for edge in edges if edge.source in known and edge.target in known and edge.source != edge.target]
    depths = _depths([node.id for node in nodes], drawn)
    chains = [_chain(edge, depths) for edge in drawn if depths[edge.source] > depths[edge.target]]
    layout = _place(_columns(depths, chains))
    parts = [_edge(chain, layout.places) for chain in chains] + [_box(node, layout.places[node.id]) for node in nodes]
    return svg.drawing(layout.height, [ARROW, *parts, *_names(chains, layout.places)], "Lineage graph", width=layout.width)


def _depths(ids: Sequence[str], edges: Sequence[LineageEdge]) -> dict[str, int]:
    """Return each node's longest distance to a node that came from nothing."""
    sources: dict[str, list[str]] = {node: [e.target for e in edges if e.source == node] for node in ids}
    depths: dict[str, int] = {}

    def depth(node: str, path: frozenset[str]) -> int:
        if node not in depths:
            below = [depth(t, path | {node}) for t in sources[node] if t not in path]
            depths[node] = 1 + max(below, default=-1)
        return depths[node]

    for node in ids:
        depth(node, frozenset())
    return depths


def _chain(edge: LineageEdge, depths: dict[str, int]) -> Chain:
    """Return an edge with a lane in every column that it crosses."""
    between = range(depths[edge.source] - 1, depths[edge.target], -1)
    return edge, (edge.source, *(f"{edge.source}>{edge.kind}>{edge.target}@{depth}" for depth in between), edge.target)


def _columns(depths: dict[str, int], chains: Sequence[Chain]) -> list[list[str]]:
    """Return the slots by column, ordered so that edges cross little."""
    columns: list[list[str]] = [[] for _ in range(max(depths.values()) + 1)]
    for node, depth in depths.items():
        columns[depth].append(node)
    for edge, slots in chains:
        for step, lane in enumerate(slots[1:-1], 1):
            columns[depths[edge.source] - step].append(lane)
    around: dict[str, list[str]] = {slot: [] for column in columns for slot in column}
    for _, slots in chains:
        for a, b in itertools.pairwise(slots):
            around[a].append(b)
            around[b].append(a)
    for sweep in range(SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            _order(column, around, columns)
    return columns


def _order(column: list[str], around: dict[str, list[str]], columns: Sequence[Sequence[str]]) -> None:
    """Sort a column by the mean place of each slot's neighbours; places are centred, in rows."""
    place = {slot: row - (len(each) - 1) / 2 for each in columns for row, slot in enumerate(each)}
    means = {slot: sum(place[n] for n in around[slot]) / len(around[slot]) if around[slot] else place[slot] for slot in column}
    column.sort(key=means.__getitem__)


def _place(columns: Sequence[Sequence[str]]) -> _Layout:
    """Return the layout: columns are centred vertically and spread over at least the common chart width."""
    count, tallest = len(columns), max(map(len, columns))
    width = max(svg.WIDTH, 16 + count * BOX_WIDTH + (count - 1) * GAP)
    pitch = (width - 16 - BOX_WIDTH) / (count - 1) if count > 1 else 0.0
    places = {
        slot: (8 + pitch * c, 8 + ROW * (row + (tallest - len(column)) / 2))
        for c, column in enumerate(columns)
        for row, slot in enumerate(column)
    }
    return _Layout(places=places, width=width, height=8 + ROW * tallest)


def _edge(chain: Chain, places: dict[str, svg.Point]) -> str:
    """Draw an edge: a curve over each gap, straight through its lanes."""
    edge, slots = chain
    middle = BOX_HEIGHT / 2
    x, y = places[slots[0]]
    path = [f"M{x:.1f} {y + middle:.1f}"]
    for slot in slots[1:]:
        to_x, to_y = places[slot][0] + BOX_WIDTH, places[slot][1]
        bend = (x - to_x) / 2
        path.append(f"C{x - bend:.1f} {y + middle:.1f} {to_x + bend:.1f} {to_y + middle:.1f} {to_x:.1f} {to_y + middle:.1f}")
        if slot is not slots[-1]:
            path.append(f"H{to_x - BOX_WIDTH:.1f}")
        x, y = places[slot]
    tip = svg.title(f"{short(edge.source)} {edge.kind} {short(edge.target)}")
    return svg.element("path", tip, d=" ".join(path), cls="edge", marker_end="url(#arrow)")


def _names(chains: Sequence[Chain], places: dict[str, svg.Point]) -> list[str]:
    """Name the edges: in a lane where there is one, else in the gap; a name that would cover another moves down."""
    taken: list[svg.Point] = []
    parts = []
    for edge, slots in chains:
        x, y = _name_place(slots, places)
        while any(abs(x - other_x) < GAP * 0.9 and abs(y - other_y) < LINE for other_x, other_y in taken):
            y += 4
        taken.append((x, y))
        parts.append(svg.text(x, y, edge.kind.replace("_", " "), "edge-label", "middle"))
    return parts


def _name_place(slots: tuple[str, ...], places: dict[str, svg.Point]) -> svg.Point:
    """Return where an edge's name is best read."""
    lanes = slots[1:-1]
    if lanes:
        x, y = places[lanes[len(lanes) // 2]]
        return x + BOX_WIDTH / 2, y + BOX_HEIGHT / 2 + 4
    (from_x, from_y), (to_x, to_y) = places[slots[0]], places[slots[-1]]
    return (from_x + to_x + BOX_WIDTH) / 2, (from_y + to_y + BOX_HEIGHT) / 2 + 4


def _box(node: LineageNode, place: svg.Point) -> str:
    """Draw a node: its label, kind and short digest."""
    x, y = place
    label = node.label if len(node.label) <= MAX_LABEL else node.label[: MAX_LABEL - 1] + "…"
    family = "release" if node.kind == "release" else "artifact"
    body = [
        svg.title(f"{node.kind} {node.label}: {node.id}"),
        svg.element("rect", x=x, y=y, width=BOX_WIDTH, height=BOX_HEIGHT, rx=7, cls=f"node node-{family}"),
        svg.text(x + 10, y + 18, label, "node-label"),
        svg.text(x + 10, y + 32, node.kind.replace("_", " "), "node-kind"),
        svg.text(x + 10, y + 46, short(node.id), "node-kind mono"),
    ]
    return svg.element("g", "".join(body))
