"""The page as a whole: complete, self-contained, escaped, repeatable."""

import re
from html.parser import HTMLParser

import pytest

from specops.report.page import build, render

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Balance(HTMLParser):
    """Fails on a tag that is closed out of order; collects ids, links and text."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.targets, self.faults = [], [], [], []

    def handle_starttag(self, tag, attrs):
        """Collect what the tag says."""
        known = dict(attrs)
        self.ids += [known["id"]] if "id" in known else []
        self.targets += [known["href"]] if "href" in known else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        """Match it with the last open tag."""
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


def parsed(page):
    """Parse a page."""
    parser = Balance()
    parser.feed(page)
    return parser


def test_a_full_report_is_well_formed_and_links_only_into_itself(report_data):
    """Every tag closes, ids are unique, and each link has its target on the page."""
    parser = parsed(render(report_data))

    assert (parser.open, parser.faults) == ([], [])
    assert len(parser.ids) == len(set(parser.ids))
    assert parser.targets
    assert {t.removeprefix("#") for t in parser.targets} <= set(parser.ids)


def test_nothing_is_loaded_from_anywhere(report_data):
    """No script, no external style, image, font or import; the one URL is SVG's namespace, which is a name."""
    page = render(report_data).replace("http://www.w3.org/2000/svg", "")

    assert not re.search(r"https?://|<script|<link|<img|@import|src=", page)
    assert re.findall(r"url\((?!#)", page) == []


def test_every_chart_and_table_is_there(report_data):
    """A full report leaves nothing out."""
    page = render(report_data)

    labels = (
        "Acceptance rate over requests",
        "Latency distributions per arm",
        "Traffic weights over time",
        "Verdicts and actions over time",
        "Lineage graph",
    )
    assert all(f'aria-label="{label}"' in page for label in labels)
    assert "Not measured in this run" not in page
    assert all(text in page for text in (report_data.audit.root, report_data.policy.digest, "No GPU took part."))


def test_an_empty_report_says_what_was_not_measured(empty_data):
    """Nothing measured gives no chart and no number, and says so."""
    page = render(empty_data)

    assert parsed(page).faults == []
    assert 'class="chart"' not in page
    assert page.count("Not measured in this run.") == 6
    assert "No limit was stated" in page


def test_texts_cannot_become_markup(hostile_data):
    """Names come from files that others wrote."""
    page = render(hostile_data)

    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_building_twice_gives_the_same_bytes_and_no_leftovers(report_data, tmp_path):
    """The page depends on its data alone, and replaces the old one whole."""
    path = tmp_path / "deep" / "report.html"
    build(report_data, path)
    first = path.read_bytes()

    build(report_data, path)

    assert path.read_bytes() == first
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_a_failed_build_leaves_the_old_report(report_data, tmp_path):
    """A target that cannot be replaced stays, and the temporary file goes."""
    path = tmp_path / "report.html"
    path.mkdir()
    (path / "kept").touch()

    with pytest.raises(OSError, match=r"report\.html"):
        build(report_data, path)

    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
