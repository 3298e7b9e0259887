"""The fidelity verdict: what it says of sound and broken engines, and when it must say nothing."""

import json
import math

import numpy as np
import pytest

from specops.core.fidelity import Controls, Evidence, Plan, Verdict, judge, judge_greedy, rejected
from specops.core.fidelity_laws import Rows, distance, laws_for
from specops.errors import InvalidInput
from tests.calibration.tokens import BROKEN, FINE, rows

PLAN = Plan(tolerance=0.5)
SOUND = Evidence(plan=PLAN).fold(rows(1, 400, FINE["speculative"]))[0]
MUTANT = Evidence(plan=PLAN).fold(rows(2, 400, BROKEN["always accept"][0]))[0]
GOOD = Controls(plain=SOUND, mutant=MUTANT)


def test_every_law_of_the_catalogue_is_a_law():
    """Non-negative and summing to one, on full rows and on rows with an empty last atom."""
    found = rows(3, 200, FINE["plain"], atoms=10)
    found = Rows(token=found.token, p=found.p, q=found.q, previous=found.previous, raw=found.previous)

    for name, law in laws_for(found).items():
        got = law(found)
        assert (got >= 0).all(), name
        assert got.sum(axis=1) == pytest.approx(1.0), name


def test_the_verified_law_of_an_honest_draft_is_the_target():
    """Algorithm 1 by its formula: what `_accept` returns for q itself is p."""
    from specops.core.fidelity_laws import _accept  # noqa: PLC0415  # the arithmetic all draft bugs share

    found = rows(4, 50, FINE["plain"])
    assert _accept(found, found.q) == pytest.approx(found.p, abs=1e-12)


def test_a_broken_engine_is_not_lossless_and_named():
    """Verdict, diagnosis, and an e-value over the bar."""
    finding = judge(MUTANT, GOOD)

    assert finding.verdict is Verdict.NOT_LOSSLESS
    assert finding.diagnosis == "always accept"
    assert finding.e_value >= 2 / PLAN.alpha


def test_a_sound_engine_is_lossless_within_a_wide_tolerance_and_else_needs_tokens():
    """The same tokens under two tolerances."""
    tight = Evidence(plan=Plan(tolerance=0.01)).fold(rows(1, 400, FINE["speculative"]))[0]

    assert judge(SOUND, GOOD).verdict is Verdict.LOSSLESS_WITHIN
    assert judge(tight, GOOD).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("controls", "reason"),
    [
        (Controls(mutant=MUTANT), "plain endpoint was not tested"),
        (Controls(plain=SOUND), "no mutant was replayed"),
        (Controls(plain=MUTANT, mutant=MUTANT), "rejected too"),
        (Controls(plain=SOUND, mutant=SOUND), "was not rejected"),
    ],
)
def test_without_both_controls_the_result_is_an_error(controls, reason):
    """Whatever the evidence says, and with the reason."""
    for evidence in (SOUND, MUTANT, Evidence(plan=PLAN)):
        finding = judge(evidence, controls)

        assert finding.verdict is Verdict.ERROR
        assert any(reason in problem for problem in finding.problems)


def test_no_tokens_are_inconclusive():
    """Nothing seen, nothing said."""
    assert judge(Evidence(plan=PLAN), GOOD).verdict is Verdict.INCONCLUSIVE


def test_evidence_survives_saving_and_cutting():
    """Half, save as JSON, resume: the same evidence and path."""
    found, plan = rows(5, 300, FINE["speculative"]), Plan()
    whole, path = Evidence(plan=plan).fold(found)

    half, first = Evidence(plan=plan).fold(found.cut(0, 137))
    resumed, second = Evidence.from_record(json.loads(json.dumps(half.to_record()))).fold(found.cut(137, 300))

    assert resumed == whole
    assert np.array_equal(np.concatenate([first, second]), path)


def test_a_draft_that_appears_in_the_middle_of_a_test_is_refused():
    """Alternatives are fixed before the first token."""
    found = rows(6, 10, FINE["plain"])
    started, _ = Evidence(plan=PLAN).fold(Rows(token=found.token, p=found.p))

    with pytest.raises(InvalidInput, match="changed in the middle"):
        started.fold(found)


@pytest.mark.parametrize("record", [{}, {"plan": {}, "leak": {"logs": [0.0]}, "wealth": None}])
def test_foreign_evidence_is_refused(record):
    """With the way out."""
    with pytest.raises(InvalidInput, match="start the verification anew"):
        Evidence.from_record(record)


def test_evidence_of_another_version_is_refused():
    """Other shares or bins: the numbers would be read as what they are not."""
    record = SOUND.to_record()

    with pytest.raises(InvalidInput, match="another version"):
        Evidence.from_record(record | {"ranks": [0.0]})


def test_of_several_endpoints_the_broken_one_is_rejected():
    """e-BH over the e-values now."""
    assert rejected([SOUND, MUTANT, Evidence(plan=PLAN)], 0.01) == (1,)


def test_the_distance_counts_the_rest_of_the_vocabulary_in_full():
    """On the last atom two laws may share no token."""
    found = Rows(token=np.array([0]), p=np.array([[0.6, 0.4]]), q=np.array([[0.5, 0.5]]))

    assert distance(found) == pytest.approx([0.1 + 0.4])
    with pytest.raises(InvalidInput, match="draft's law is needed"):
        distance(Rows(token=found.token, p=found.p))


@pytest.mark.parametrize("bad", [np.array([[0.6, 0.6]]), np.array([[1.2, -0.2]]), np.array([[np.nan, 1.0]]), np.array([[1.0]])])
def test_rows_that_are_no_laws_are_refused(bad):
    """Named, with what is expected."""
    with pytest.raises(InvalidInput, match="q "):
        Rows(token=np.array([0]), p=np.array([[0.5, 0.5]]), q=bad)
    with pytest.raises(InvalidInput, match="give p"):
        Rows(token=np.array([0, 1]), p=np.array([[0.5, 0.5]]))


@pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"alpha": 1.0}, {"tolerance": 0.0}, {"positions": -1}])
def test_a_plan_out_of_range_is_refused(wrong):
    """Levels lie between 0 and 1."""
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        Plan(**wrong)


def test_greedy_gaps_within_tau_are_numeric_and_beyond_it_named():
    """A flip of 0.2 nats is rounding in bfloat16 and a bug in float32."""
    best, chosen = np.array([-0.5, -0.5, -0.5]), np.array([-0.5, -0.7, -0.5])

    assert judge_greedy(chosen, best, "bfloat16").beyond == ()
    assert judge_greedy(chosen, best, "bfloat16").flip_rate == pytest.approx(1 / 3)
    assert judge_greedy(chosen, best, "float32").beyond == (1,)
    assert judge_greedy(np.array([-math.inf]), np.array([0.0]), "bfloat16").beyond == (0,)
    assert judge_greedy(np.zeros(0), np.zeros(0), "float32").flip_rate == 0
    with pytest.raises(InvalidInput, match="dtype 'int4'"):
        judge_greedy(chosen, best, "int4")
    with pytest.raises(InvalidInput, match="must have equal shapes"):
        judge_greedy(chosen, best[:1], "float32")
