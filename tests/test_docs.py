"""The documentation is complete, its links lead somewhere, and its Python compiles."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from specops import errors
from specops.cli import reference
from specops.control.act import TAGS
from specops.core import pipeline, policy
from specops.core.outcome import Acceptance, Finish, Kind, Outcome
from specops.core.rollout import Step, StepKind
from specops.core.route import Route
from specops.errors import SpecopsError
from specops.gateway.admin import Admin
from specops.gateway.exposition import Counters, render
from specops.gateway.ring import Ring
from specops.gateway.routing import Routing
from specops.settings import PREFIX, Settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md")))
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
TAG = re.compile(r'tag="([a-z0-9_]+(?::[a-z0-9_]+){2})"')
OWED = re.compile(r'outbox\.add\(\s*"([a-z_]+)"')


def name_of(page):
    """Return a page's path in the repository."""
    return str(page.relative_to(ROOT))


def missing(page, names):
    """Return the names that a reference page does not hold in backticks."""
    text = (DOCS / "reference" / page).read_text(encoding="utf-8")
    words = set(re.findall(r"[\w.:/-]+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    return [name for name in names if name not in words]


def sources():
    """Return all of our code as one text."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "specops").rglob("*.py")))


def test_every_setting_is_documented():
    """By its key and by its variable."""
    keys = [f.name for f in fields(Settings)]

    assert missing("settings.md", [*keys, *(PREFIX + key.upper() for key in keys)]) == []


def test_every_policy_key_is_documented():
    """Keys of the file, metrics, error classes, and what silence may mean."""
    words = [*policy._POLICY_KEYS, *policy._CHECK_KEYS, "limit_s", "share", *policy.ERROR_CLASSES]

    assert missing("policy.md", [*words, *policy.Metric, *policy.OnNoData]) == []


def test_every_pipeline_key_is_documented():
    """Keys of the file and of a step, and the kinds of step."""
    assert missing("pipeline.md", [*pipeline._TOP, *(f.name for f in fields(Step)), *StepKind]) == []


def test_every_error_class_is_documented():
    """The whole tree."""
    classes = [n for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, SpecopsError)]

    assert len(classes) > 10
    assert missing("errors.md", classes) == []


def test_every_gateway_metric_is_documented(tmp_path):
    """As the gateway itself announces them."""
    names = re.findall(r"^# HELP (\S+)", render(Counters(), Routing(tmp_path)), re.MULTILINE)

    assert len(names) > 5
    page = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_every_gateway_endpoint_and_route_field_is_documented(tmp_path):
    """The admin's own table, and what a route holds."""
    admin = Admin(routing=Routing(tmp_path), ring=Ring("epoch"), counters=Counters())

    assert missing("gateway-api.md", [r.path for r in admin.routes() if r.path != "/-/outcomes"]) == []
    assert "/-/outcomes?" in (DOCS / "reference" / "gateway-api.md").read_text(encoding="utf-8")
    assert missing("gateway-api.md", [f.name for f in fields(Route)]) == []


def test_every_audit_tag_is_documented():
    """Literal tags, those of actions, and one for each kind of side effect that is delivered."""
    text = sources()
    owed = [f"outbox:{kind}:delivered" for kind in OWED.findall(text)]

    assert len(owed) >= 3
    assert missing("audit-tags.md", [*TAG.findall(text), *TAGS.values(), *owed]) == []


def test_every_outcome_field_is_documented():
    """Fields and closed choices."""
    words = [f.name for kind in (Outcome, Acceptance) for f in fields(kind)]

    assert missing("outcome.md", [*words, *Finish, *Kind]) == []


def test_the_command_reference_is_the_command_tree():
    """Rewrite it with `make docs` after a change of the commands."""
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")

    assert text == reference.render()
    assert all(f"`{path}`" in text for path in reference.command_paths())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page):
    """To a file of the repository; links to the web are not followed."""
    targets = LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    inside = [t.partition("#")[0] for t in targets if "://" not in t and not t.startswith(("#", "mailto:"))]

    assert [t for t in inside if not (page.parent / t).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_in_the_documentation_compiles(page):
    """Every fence marked python."""
    for number, code in enumerate(PYTHON.findall(page.read_text(encoding="utf-8"))):
        compile(code, f"{page.name}:{number}", "exec")


def test_commands_in_the_documentation_exist():
    """Every `specops noun verb` in a page is a command; one with another verb has been renamed or never was."""
    known = set(reference.command_paths())
    groups = {path.split()[1] for path in known if len(path.split()) == 3}
    said = {
        (name_of(page), f"specops {noun} {verb}" if noun in groups and verb else f"specops {noun}")
        for page in PAGES
        for noun, verb in re.findall(
            r"(?:`|^ *|= |\$ )specops ([a-z]+)(?: ([a-z]+(?:-[a-z]+)*))?", page.read_text(encoding="utf-8"), re.MULTILINE
        )
    }

    assert len(said) > 20
    assert sorted(pair for pair in said if pair[1] not in known) == []


def test_the_index_leads_to_every_page():
    """No page is left for nobody to find."""
    linked = {(DOCS / target).resolve() for target in LINK.findall((DOCS / "index.md").read_text(encoding="utf-8"))}

    assert [name_of(page) for page in sorted(DOCS.rglob("*.md")) if page.name != "index.md" and page not in linked] == []


def test_the_readme_is_short():
    """At most 90 lines, so that it is read."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 90
