"""Twenty and more bad policies, each with another fault, each refused in its own words; good ones pass in silence."""

import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.core import policy_fields
from specops.core.check import Against, By, Estimand, Metric, OnNoData
from specops.core.ladder import Rung
from specops.core.policy import parse_policy
from specops.core.policy_lint import Severity, lint
from specops.core.policy_schema import policy_schema
from specops.errors import PolicyError

SHIPPED = sorted((Path(__file__).parents[2] / "policies").glob("*.yaml"))
VALIDATOR = jsonschema.Draft202012Validator(policy_schema())
OWNED = {"owner": "oncall", "source": "measured", "max_wait": "72h"}
RATE = {"name": "acceptance", "metric": "acceptance_rate", "at_least": 0.5, "pass_at": 0.45} | OWNED
ERRORS = {"name": "errors", "metric": "error", "at_most": 0.02, "pass_at": 0.1} | OWNED
TTFT = {"name": "ttft", "metric": "ttft_s", "at_most": {"limit_s": 2.0, "share": 0.05}, "pass_at": 0.15} | OWNED
E2E = {"name": "e2e", "metric": "e2e_s", "at_most": {"limit_s": 1.0, "share": 0.05}, "pass_at": 0.15} | OWNED


def policy_of(*checks, **top):
    """Return a policy mapping of these checks."""
    return {"name": "p", "alpha": 0.01, "arl_requests": 1_000_000, "checks": list(checks)} | top


def without(rule, *keys):
    """Return a rule that lacks some keys."""
    return {k: v for k, v in rule.items() if k not in keys}


# fault: (mapping, where, what it says, does the schema see it too)
STRUCTURAL = {
    "unknown key": (policy_of(RATE | {"at_leest": 0.5}), "checks[0]", "did you mean 'at_least'", True),
    "no owner": (policy_of(without(RATE, "owner")), "checks[0]", "needs a text under 'owner'", True),
    "empty owner": (policy_of(RATE | {"owner": " "}), "checks[0]", "needs a text under 'owner'", True),
    "no checks": (policy_of(), "policy", "nothing could ever fail", True),
    "nobody emits it": (policy_of(RATE | {"metric": "perplexity"}), "checks[0]", "nobody emits another", True),
    "same name": (policy_of(RATE, ERRORS | {"name": "acceptance"}), "policy", "checks of the same name", False),
    "weights": (policy_of(RATE | {"weight": 0.8}, ERRORS | {"weight": 0.8}), "policy", "sum to 1.6", False),
    "only precursors": (policy_of(RATE | {"precursor": True}), "policy", "no result could fail it", False),
    "no load": (policy_of(RATE | {"only": {"in_flight_above": 9, "in_flight_at_most": 4}}), "checks[0]", "sees nothing", False),
    "falling edges": (policy_of(RATE | {"strata": {"by": "in_flight", "edges": [9, 4]}}), "checks[0]", "must rise", False),
    "reversed": (policy_of(RATE | {"pass_at": 0.6}), "checks[0]", "stricter than the limit", False),
    "ratio of sums": (policy_of(RATE | {"estimand": "ratio_of_sums"}), "checks[0]", "no test that holds at every look", False),
    "no such rung": (policy_of(RATE | {"on_fail": "restart"}), "checks[0]", "on_fail must be one of", True),
    "alpha of 1": (policy_of(RATE, alpha=1.0), "policy", "alpha must be a number above 0", True),
    "unknown class": (policy_of(RATE, fatal={"segfault": 1}), "policy", "unknown key 'segfault'", True),
    "no mapping": (["acceptance"], "policy", "must be a mapping", True),
}
UNWISE = {
    "nobody": (policy_of(RATE | {"owner": "TBD"}), None, "checks[0].owner", "whom nobody can call"),
    "budget": (policy_of(RATE | {"alpha": 0.05}), None, "checks", "the policy promises 0.01"),
    "run length": (policy_of(RATE | {"arl_requests": 1000}), None, "checks", "checks alarm falsely every 1e+03"),
    "absurd count": (policy_of(RATE, fatal={"timeout": 5000}), None, "fatal.timeout", "5000 of timeout"),
    "pinned by chance": (policy_of(RATE, fatal={"acceptance_pinned_high": 1}), None,
                         "fatal.acceptance_pinned_high", "1 in a row"),
    "milliseconds": (policy_of(TTFT | {"at_most": {"limit_s": 2000, "share": 0.05}}), None, "checks[0].at_most.limit_s",
                     "look like milliseconds"),
    "last before first": (policy_of(TTFT, E2E), None, "checks", "limits are reversed"),
    "twins": (policy_of(RATE, RATE | {"name": "again", "at_least": 0.48}), None, "checks[1]", "asks the same as acceptance"),
    "late precursor": (policy_of(RATE, RATE | {"name": "early", "precursor": True, "at_least": 0.48, "alpha": 0.001}), None,
                       "checks[1]", "cannot speak before acceptance"),
    "nothing watches": (policy_of({"name": "s", "metric": "speedup", "at_least": 1.1, "pass_at": 1.0} | OWNED), None, "checks",
                        "nothing watches after promotion"),
    "lost edges": (policy_of(RATE | {"only": {"in_flight_at_most": 8}, "strata": {"by": "in_flight", "edges": [4, 16]}}), None,
                   "checks[0].strata.edges", "beyond its edges [16]"),
    "beyond the draft": (policy_of(RATE | {"only": {"in_flight_above": 16}}, speculate={"below_in_flight": 16}), None,
                         "checks[0].only", "where nothing speculates"),
    "never pays": (policy_of(RATE, speculate={"below_in_flight": 1}), None, "speculate", "pays at no load"),
    "vacuous": (policy_of(ERRORS | {"at_most": 0.9, "pass_at": 0.95}), None, "checks[0]", "hardly any candidate could fail"),
    "no proof": (policy_of(without(RATE, "pass_at") | {"at_least": 0.999999999, "pass_at": 0.999999998}), None,
                 "checks[0].pass_at", "no candidate could prove"),
    "no failure": (policy_of(ERRORS | {"alpha": 5e-324, "weight": 1.0}), None, "checks[0].alpha", "clearly bad requests fail"),
    "short wait": (policy_of(ERRORS | {"max_wait": "1h"}), 10, "checks[0].max_wait",
                   "needs 49 requests to pass, 4.9 h at 10 per hour"),
    "no wait, no traffic": (policy_of(without(ERRORS, "max_wait")), 0.05, "checks[0].alpha", "and has 720.0 h"),
    "late alarm": (policy_of(RATE, arl_requests=1e9), 0.3, "checks[0].arl_requests", "notices a collapse after"),
}  # fmt: skip


@pytest.mark.parametrize("fault", STRUCTURAL)
def test_a_policy_that_cannot_be_read_is_refused_where_it_is_wrong(fault):
    """In the parser's own words, with the place; an editor with the schema sees the plain ones while typing."""
    mapping, path, says, is_seen = STRUCTURAL[fault]

    complaints = lint(mapping)

    assert [c.path for c in complaints] == [path]
    assert says in f"{complaints[0].message}; {complaints[0].way_out}"
    assert complaints[0].severity is Severity.ERROR
    assert VALIDATOR.is_valid(mapping) is not is_seen
    with pytest.raises(PolicyError):
        parse_policy(mapping)


@pytest.mark.parametrize("fault", UNWISE)
def test_a_policy_that_parses_and_is_unwise_is_refused(fault):
    """Each fault has one place, one message and a way out."""
    mapping, traffic, path, says = UNWISE[fault]

    errors = [c for c in lint(mapping, traffic) if c.severity is Severity.ERROR]

    assert (path, True) in [(c.path, says in c.message) for c in errors]
    assert all(c.way_out for c in errors)
    assert VALIDATOR.is_valid(mapping)


def test_each_fault_has_its_own_message():
    """More than twenty policies, as many different complaints."""
    first = [lint(mapping)[0] for mapping, *_ in STRUCTURAL.values()]
    worst = [next(c for c in lint(m, t) if says in c.message) for m, t, _, says in UNWISE.values()]

    messages = {f"{c.path}{c.message}{c.way_out}" for c in (*first, *worst)}

    assert len(messages) == len(STRUCTURAL) + len(UNWISE) >= 20


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_a_shipped_policy_is_sound(path):
    """Not a warning, with 600 candidate requests an hour; and the schema fits it."""
    mapping = yaml.safe_load(path.read_text(encoding="utf-8"))

    assert lint(parse_policy(mapping), 600.0) == ()
    assert list(VALIDATOR.iter_errors(mapping)) == []


@pytest.mark.parametrize(
    ("mapping", "traffic", "says"),
    [
        (policy_of(RATE | {"source": ""}), None, "does not say where its threshold comes from"),
        (policy_of(RATE | {"weight": 0.5}), None, "50% of alpha is unused"),
        (policy_of(without(RATE, "max_wait")), None, "would hold a rollout for ever"),
        (policy_of(RATE, arl_requests=1000), 1000.0, "promises one false alarm in 1.0 h"),
    ],
)
def test_what_is_only_doubtful_is_a_warning(mapping, traffic, says):
    """It may be meant."""
    complaints = lint(mapping, traffic)

    assert [c.severity for c in complaints] == [Severity.WARNING]
    assert says in complaints[0].message


def test_rules_that_are_no_mappings_are_passed_over():
    """The policy's own message stands for them."""
    assert [c.path for c in lint({"name": "p", "checks": [1, RATE]})] == ["policy"]


def test_every_broken_check_is_named_at_once():
    """One run shows all faults, not the first."""
    complaints = lint(policy_of(RATE | {"at_least": 0}, ERRORS, TTFT | {"owner": ""}))

    assert [c.path for c in complaints] == ["checks[0]", "checks[2]"]


def test_sound_neighbours_are_not_confused():
    """An earlier precursor, a scope within the draft's load and edges within a scope are no faults."""
    early = RATE | {"name": "early", "precursor": True, "at_least": 0.6}
    scoped = TTFT | {"only": {"in_flight_above": 4, "in_flight_at_most": 12}, "strata": {"by": "in_flight", "edges": [8]}}
    mapped = TTFT | {"name": "kinds", "only": {"in_flight_above": 1}, "strata": {"by": "kind"}}

    assert lint(policy_of(RATE, early, scoped, mapped, ERRORS, speculate={"below_in_flight": 16})) == ()


def test_the_schema_is_one():
    """It is valid JSON Schema itself, and says a sentence per key."""
    schema = policy_schema()

    jsonschema.Draft202012Validator.check_schema(schema)
    assert all(field["description"] for field in schema["properties"].values())
    assert schema["required"] == ["name", "checks"]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from([*RATE, *TTFT, "strata", "only", "margin", "ratio", "against", "precursor", "on_fail"])


@settings(max_examples=150, deadline=None)
@given(
    rule=st.dictionaries(_KEYS, _VALUES, max_size=5),
    key=st.sampled_from(["fatal", "speculate", "alpha", "name"]),
    value=_VALUES,
)
def test_a_hostile_file_gets_complaints_and_no_traceback(rule, key, value):
    """Whatever stands under known keys, lint answers, and agrees with the parser."""
    mapping = policy_of(RATE | rule) | {key: value}

    complaints = lint(mapping, 100.0)

    try:
        parse_policy(mapping)
    except PolicyError:
        assert complaints


def test_the_reference_names_every_key_and_choice():
    """Keys of all tables, and every closed choice, in backticks."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "policy.md").read_text(encoding="utf-8")
    words = set(re.findall(r"[\w]+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    tables = [value for name, value in vars(policy_fields).items() if name.endswith("_FIELDS")]
    choices = [*Against, *By, *Metric, *OnNoData, *Rung, *Estimand, *policy_fields.FATAL]

    assert len(tables) == 9
    assert [key for table in tables for key in table if key not in words] == []
    assert [word for word in choices if word not in words] == []
