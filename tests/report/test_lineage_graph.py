"""The lineage picture stays readable at 200 nodes, and writes no foreign markup."""

import itertools
import random
import re
from xml.etree import ElementTree as ET

import pytest

from specops.errors import InvalidInput
from specops.report.layers import layers
from specops.report.lineage_graph import BOX_HEIGHT, BOX_WIDTH, ROWS, TOP, drawing, page, places, write


def family(count=200, seed=3):
    """Return a lineage like a real one: tokenizers, targets, drafts, releases."""
    rng = random.Random(seed)
    kinds = ["tokenizer"] * 5 + ["target"] * 30 + ["draft"] * 75 + ["release"] * count
    nodes = [(f"{i:064x}", f"{kind} {i}", kind) for i, kind in enumerate(kinds[:count])]
    links = []
    for i, (digest, _, kind) in enumerate(nodes):
        below = {"target": (0, 5), "draft": (5, 35), "release": (35, 110)}.get(kind)
        if below:
            parents = sorted({rng.randrange(*below) for _ in range(2)})
            links += [(digest, rng.choice(["uses", "distilled_from"]), nodes[j][0]) for j in parents]
        if kind == "target" and i > 10 and rng.random() < 0.3:
            links.append((digest, "fine_tuned_from", nodes[i - 5][0]))
    return nodes, links


def test_no_box_covers_another_and_all_lie_inside():
    """At 200 nodes, checked in numbers."""
    nodes, links = family()

    where, width, height = places(nodes, links)

    assert len(where) == 200
    for (x1, y1), (x2, y2) in itertools.combinations(where.values(), 2):
        assert abs(x1 - x2) >= BOX_WIDTH or abs(y1 - y2) >= BOX_HEIGHT
    assert all(0 <= x <= width - BOX_WIDTH and TOP <= y <= height - BOX_HEIGHT for x, y in where.values())


def test_links_run_from_right_to_left_and_columns_are_folded():
    """What a thing came from stands left of it; no column is taller than a screen."""
    nodes, links = family()

    where, _, height = places(nodes, links)

    assert all(where[source][0] >= where[target][0] + BOX_WIDTH for source, _, target in links)
    assert height <= TOP + ROWS * 42 + 16


def test_ordering_removes_crossings():
    """The sweeps leave fewer crossings than the given order."""
    nodes, links = family()
    edges = [(source, target) for source, _, target in links]
    columns = layers([n[0] for n in nodes], edges)
    given = [[n[0] for n in nodes if n[0] in set(column)] for column in columns]

    assert crossings(columns, edges) < 0.8 * crossings(given, edges)


def crossings(columns, edges):
    """Count pairs of edges between the same two columns that cross."""
    at = {node: (c, row) for c, column in enumerate(columns) for row, node in enumerate(column)}
    lines = [(at[s], at[t]) for s, t in edges]
    return sum(
        (a[1] - c[1]) * (b[1] - d[1]) < 0
        for (a, b), (c, d) in itertools.combinations(lines, 2) if a[0] == c[0] and b[0] == d[0]
    )  # fmt: skip


def test_a_chain_of_thousands_and_a_circle_are_drawn():
    """No recursion, no endless loop."""
    chain = [(str(n + 1), str(n)) for n in range(3000)]
    assert len(layers([str(n) for n in range(3001)], chain)) == 3001
    circle = layers(["a", "b", "c"], [("a", "b"), ("b", "a"), ("c", "a")])
    assert sorted(itertools.chain(*circle)) == ["a", "b", "c"]
    assert layers([], []) == []


def test_the_picture_is_well_formed_and_escapes_every_name():
    """Both forms; the page needs no network."""
    nodes = [("a" * 64, "<script>&", "target"), ("b" * 64, "b" * 60, "odd_kind"), ("c" * 64, "lonely", "draft")]
    links = [("b" * 64, "uses", "a" * 64), ("b" * 64, "odd", "a" * 64), ("b" * 64, "uses", "f" * 64)]

    text = drawing(nodes, links, 'a "title" & more')

    root = ET.fromstring(text)
    boxes = [e for e in root.iter() if e.get("class") == "box"]
    assert (len(boxes), len([e for e in root.iter() if e.get("class") == "link"])) == (3, 2)
    assert "<script>&" not in text
    assert re.findall(r"https?://", page(nodes, links, "t").replace("http://www.w3.org/2000/svg", "")) == []


def test_links_inside_a_column_and_long_legends_are_drawn():
    """A circle puts both ends into one column; a legend that does not fit is cut."""
    nodes = [("a", "a", "k" * 80), ("b", "b", "l" * 80), ("c", "c", "m" * 80)]
    links = [("a", "x" * 90, "b"), ("b", "y" * 90, "a"), ("c", "z" * 90, "a")]

    assert ET.fromstring(drawing(nodes, links, "t")) is not None


def test_an_empty_lineage_is_an_empty_picture():
    """No node, no error."""
    assert ET.fromstring(drawing([], [], "nothing")).tag.endswith("svg")


def test_a_file_is_written_whole_by_its_ending(tmp_path):
    """Anything else is refused with a way out."""
    nodes, links = family(20)
    write(nodes, links, tmp_path / "new" / "g.svg", title="t")
    write(nodes, links, tmp_path / "g.html", title="t")

    assert (tmp_path / "g.html").read_text().startswith("<!doctype html>")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["g.svg"]
    with pytest.raises(InvalidInput, match=r"name a file \.html or \.svg"):
        write(nodes, links, tmp_path / "g.png", title="t")
    with pytest.raises(InvalidInput, match="cannot write"):
        write(nodes, links, tmp_path / "g.html" / "g.svg", title="t")


def test_a_long_name_keeps_its_end():
    """Quantized variants of one model differ there; the tooltip has the whole name."""
    names = [f"llama-3.1-8b-instruct-{form}" for form in ("awq-int4", "fp8")]
    shown = drawing([(str(index) * 64, name, "target") for index, name in enumerate(names)], [], "t")
    assert all(word in shown for word in ("llama-3.1-8…-awq-int4", "llama-3.1-8…truct-fp8", *names))
