"""The lineage as a picture of its own, readable at some hundred nodes: one SVG, or an HTML page around it, without any network.

Called by `specops lineage graph`. The report's small chart names each edge where it runs; that does not scale. Here a column
taller than `ROWS` is folded into several, edges carry a colour and a tooltip, and hovering over a box dims all that it is not
linked to, a click keeps that until the next (a few lines of script; the SVG alone has the tooltips).
"""

import html
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from specops.errors import InvalidInput
from specops.report import svg
from specops.report.figures import short
from specops.report.layers import layers

BOX_WIDTH, BOX_HEIGHT, ROW, GAP, FOLD_GAP = 150.0, 34.0, 42.0, 120.0, 26.0  # user units
ROWS = 40  # boxes in a column: one screen at 40% zoom, and text of 11 px on A3
TOP = 64.0  # room for the legend
MAX_LABEL = 21
EDGE_COLOURS = {
    "distilled_from": "#ea580c", "fine_tuned_from": "#a16207", "quantized_from": "#dc2626", "trained_on": "#4d7c0f",
    "tokenized_with": "#0f766e", "conditioned_on": "#0369a1", "shares_tensors_with": "#6b7280", "maps_vocab_to": "#0e7490",
    "uses": "#1d4ed8", "evaluated_on": "#7e22ce", "served_by": "#be185d", "replaces": "#0f172a",
}  # fmt: skip
NODE_COLOURS = {
    "release": "#bfdbfe", "pair": "#fbcfe8", "target": "#fde68a", "draft": "#fed7aa", "tokenizer": "#a7f3d0",
    "chat_template": "#bbf7d0", "corpus": "#d9f99d", "evaluation_set": "#e9d5ff", "hardware": "#e5e7eb",
    "environment": "#e5e7eb", "recipe": "#ecfccb",
}  # fmt: skip
OTHER = "#f1f5f9"

Node = tuple[str, str, str]  # digest, label, kind
Link = tuple[str, str, str]  # source, kind, target

_STYLE = """
svg { background: #fff; font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
.box rect { stroke: #64748b; stroke-width: 1; } .box text { font-size: 11px; fill: #0f172a; }
.box .kind { font-size: 9px; fill: #475569; }
.legend { font-size: 11px; fill: #334155; } .heading { font-size: 15px; fill: #0f172a; }
.link { fill: none; stroke-width: 1.1; opacity: .5; } .link:hover { stroke-width: 3; opacity: 1; }
.box:hover rect { stroke-width: 2.5; } .dim .link { opacity: .06; } .dim .box { opacity: .3; }
.dim .link.lit { opacity: 1; stroke-width: 2.2; } .dim .box.lit { opacity: 1; }
"""
_SCRIPT = """
const root = document.querySelector("svg");
let pinned = null;
for (const box of root.querySelectorAll(".box")) {
  const mine = `[data-a="${box.id}"],[data-b="${box.id}"]`;
  box.addEventListener("click", (event) => { pinned = pinned === box ? null : box; event.stopPropagation(); });
  box.addEventListener("mouseenter", () => {
    if (pinned) return;
    root.classList.add("dim"); box.classList.add("lit");
    for (const link of root.querySelectorAll(mine)) {
      link.classList.add("lit");
      for (const end of [link.dataset.a, link.dataset.b]) document.getElementById(end).classList.add("lit");
    }
  });
  box.addEventListener("mouseleave", clear);
}
document.addEventListener("click", () => { pinned = null; clear(); });
function clear() {
  if (pinned) return;
  root.classList.remove("dim");
  for (const lit of root.querySelectorAll(".lit")) lit.classList.remove("lit");
}
"""


def places(nodes: Sequence[Node], links: Sequence[Link]) -> tuple[dict[str, svg.Point], float, float]:
    """Return the left upper corner of each box by digest, and width and height of the whole, in user units.

    What came from nothing stands on the left; what has no edge at all stands in a column of its own at the right end.
    """
    known = {digest for digest, _, _ in nodes}
    drawn = [(s, t) for s, _, t in links if s in known and t in known and s != t]
    joined = {end for pair in drawn for end in pair}
    columns = layers([digest for digest, _, _ in nodes if digest in joined], drawn)
    alone = [digest for digest, _, _ in nodes if digest not in joined]
    columns += [alone] if alone else []
    tallest = max((min(len(c), ROWS) for c in columns), default=0)
    found: dict[str, svg.Point] = {}
    x = 16.0
    for column in columns:
        folds = -(-len(column) // ROWS)
        per = -(-len(column) // folds)
        for place, digest in enumerate(column):
            fold, row = divmod(place, per)
            shift = (tallest - min(per, len(column) - fold * per)) / 2
            found[digest] = (x + fold * (BOX_WIDTH + FOLD_GAP), TOP + ROW * (row + shift))
        x += folds * (BOX_WIDTH + FOLD_GAP) - FOLD_GAP + GAP
    return found, max(x - GAP + 16.0, svg.WIDTH), TOP + ROW * tallest + 16.0


def drawing(nodes: Sequence[Node], links: Sequence[Link], title: str) -> str:
    """Return the picture as SVG text; links that name an unknown node are left out. All text is escaped."""
    where, width, height = places(nodes, links)
    number = {digest: f"n{i}" for i, (digest, _, _) in enumerate(nodes)}
    label = {digest: name for digest, name, _ in nodes}
    drawn = [link for link in links if link[0] in where and link[2] in where and link[0] != link[2]]
    parts = [svg.element("style", _STYLE), svg.text(16, 22, title, "heading"), *_legend(drawn, nodes, width)]
    parts += [_link(link, where, number, label) for link in drawn]
    parts += [_box(node, where[node[0]], number[node[0]]) for node in nodes]
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    words = f'role="img" aria-label="{html.escape(title)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {words}>{"".join(parts)}</svg>'


def page(nodes: Sequence[Node], links: Sequence[Link], title: str) -> str:
    """Return the picture in an HTML page, where hovering over a box dims everything that it is not linked to."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title></head>'
        f'<body style="margin:0">{drawing(nodes, links, title)}<script>{_SCRIPT}</script></body></html>'
    )


def write(nodes: Sequence[Node], links: Sequence[Link], path: Path, *, title: str) -> None:
    """Write the picture, as SVG or HTML by the name of the file; a reader sees the old file or the whole new one.

    Raises:
        InvalidInput: the file is named otherwise, or its folder cannot be written.
    """
    form = {".svg": drawing, ".html": page, ".htm": page}.get(path.suffix.lower())
    if form is None:
        raise InvalidInput(f"{path} ends in {path.suffix or 'nothing'}; name a file .html or .svg")
    text = form(nodes, links, title)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as exc:
        raise InvalidInput(f"cannot write {path}: {exc}; give another --out") from exc


def _link(link: Link, where: dict[str, svg.Point], number: dict[str, str], label: dict[str, str]) -> str:
    """Draw a link as a curve from the source's left side to the target's right side; inside a column, an arc beside it."""
    source, kind, target = link
    (x1, y1), (x2, y2) = where[source], where[target]
    y1, y2 = y1 + BOX_HEIGHT / 2, y2 + BOX_HEIGHT / 2
    if x1 > x2 + BOX_WIDTH:
        x2 += BOX_WIDTH
        bend = max(24.0, (x1 - x2) / 2)
        path = f"M{x1:.1f} {y1:.1f} C{x1 - bend:.1f} {y1:.1f} {x2 + bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    else:
        path = f"M{x1:.1f} {y1:.1f} C{x1 - 60:.1f} {y1:.1f} {x2 - 60:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    tip = svg.title(f"{label[source]} {kind.replace('_', ' ')} {label[target]}")
    colour = EDGE_COLOURS.get(kind, "#6b7280")
    return svg.element("path", tip, d=path, cls="link", stroke=colour, data_a=number[source], data_b=number[target])


def _box(node: Node, place: svg.Point, number: str) -> str:
    digest, name, kind = node
    x, y = place
    label = name if len(name) <= MAX_LABEL else f"{name[:11]}…{name[11 - MAX_LABEL + 1 :]}"  # names often differ at the end
    body = [
        svg.title(f"{kind} {name}: {digest}"),
        svg.element("rect", x=x, y=y, width=BOX_WIDTH, height=BOX_HEIGHT, rx=5, fill=NODE_COLOURS.get(kind, OTHER)),
        svg.text(x + 8, y + 14, label, "name"),
        svg.text(x + 8, y + 27, f"{kind.replace('_', ' ')} {short(digest)}", "kind"),
    ]
    return svg.element("g", "".join(body), cls="box", id=number)


def _legend(links: Sequence[Link], nodes: Sequence[Node], width: float) -> list[str]:
    """Name the colours that occur; a line is broken where the picture ends."""
    parts, x = [], 16.0
    for kind in dict.fromkeys(kind for _, _, kind in nodes):
        words = kind.replace("_", " ")
        if x + 24 + 6.4 * len(words) < width:
            swatch = svg.element("rect", x=x, y=32.0, width=10, height=10, fill=NODE_COLOURS.get(kind, OTHER), stroke="#64748b")
            parts += [swatch, svg.text(x + 14, 41, words, "legend")]
        x += 30 + 6.4 * len(words)
    x = 16.0
    for kind in dict.fromkeys(kind for _, kind, _ in links):
        words = kind.replace("_", " ")
        if x + 34 + 6.4 * len(words) < width:
            colour = EDGE_COLOURS.get(kind, "#6b7280")
            parts += [
                svg.element("line", x1=x, y1=53.0, x2=x + 20, y2=53.0, stroke=colour, stroke_width=2),
                svg.text(x + 25, 57, words, "legend"),
            ]
        x += 41 + 6.4 * len(words)
    return parts
