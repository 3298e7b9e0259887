"""The mixture of likelihood ratios: exact means, laws of folding, refusal of what is no law."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.errors import InvalidInput
from specops.stats.mixture import BINS, SHARES, Detector, Leak, Region, Wealth, log_ratios, rank_bet

NULL = np.array([[0.5, 0.3, 0.2]])
STAKES = {"a": 1.0, "b": 2.0, "c": 1.0}
OTHER = np.array([[[0.1, 0.3, 0.6]], [[0.0, 1.0, 0.0]]])


def test_every_factor_has_mean_one_under_the_null():
    """Summed over all tokens with their probabilities, each alternative's ratio is exactly a fair bet."""
    ratios = np.stack([np.exp(log_ratios(NULL, OTHER, np.array([token])))[0] for token in range(3)])

    assert NULL[0] @ ratios == pytest.approx([1.0, 1.0], abs=1e-12)


def test_a_token_that_the_null_excludes_is_strong_evidence_and_finite():
    """Zero under the null, likely under the alternative: the floor keeps the ratio a number."""
    null, other = np.array([[1.0, 0.0]]), np.array([[[0.5, 0.5]]])

    assert 25 < log_ratios(null, other, np.array([1]))[0, 0] < 30


@given(st.integers(0, 10_000), st.lists(st.integers(0, 30), max_size=4))
def test_evidence_is_the_same_however_tokens_are_cut(seed, cuts):
    """Folding in pieces gives the same state and path, to the bit."""
    rng = np.random.default_rng(seed)
    ratios, position = rng.normal(size=(30, 3)), rng.integers(-1, 3, 30)
    ratio, far = rng.exponential(size=30), rng.random(30)
    whole, path = Wealth.new(STAKES, 2).fold(ratios, position)
    leak = Leak().fold(ratio, far, 0.05)

    state, paths, leaked = Wealth.new(STAKES, 2), [], Leak()
    edges = [0, *sorted(cuts), 30]
    for start, stop in pairwise(edges):
        state, part = state.fold(ratios[start:stop], position[start:stop])
        paths.append(part)
        leaked = leaked.fold(ratio[start:stop], far[start:stop], 0.05)

    assert state == whole
    assert leaked == leak
    assert np.array_equal(np.concatenate(paths), path)


def test_half_of_the_stake_rides_on_all_tokens_together():
    """With strata the pooled row holds one half, each position an equal part of the other."""
    wealth, path = Wealth.new({"a": 1.0}, 2).fold(np.array([[math.log(4.0)]]), np.array([1]))

    assert math.exp(path[-1]) == pytest.approx(0.5 * 4 + 0.25 * 1 + 0.25 * 4)
    assert wealth.winner == ("a", None)


def test_a_bug_at_one_position_is_located():
    """Losses elsewhere leave the stratum with the bug on top."""
    ratios = np.array([[0.5], [-1.0]] * 20)

    wealth, _ = Wealth.new({"a": 1.0}, 2).fold(ratios, np.array([1, 0] * 20))

    assert wealth.winner == ("a", 1)


def test_saved_evidence_is_read_back_to_the_bit():
    """Through JSON text."""
    wealth, _ = Wealth.new({"a": 3.0, "b": 1.0}, 1).fold(np.array([[0.1, -0.3]]), np.array([0]))

    assert Wealth.from_record(json.loads(json.dumps(wealth.to_record()))) == wealth


@pytest.mark.parametrize(
    "record", [{}, {"names": 3}, {"names": ["a"], "shares": [1.0], "logs": [[1.0, 2.0]], "tokens": 1, "peak": 0.0}]
)
def test_foreign_records_are_refused(record):
    """What is not saved evidence is no evidence."""
    with pytest.raises(InvalidInput, match="start the verification anew"):
        Wealth.from_record(record)


@pytest.mark.parametrize(
    ("null", "other", "token"),
    [
        (NULL, OTHER, np.array([3])),
        (NULL, OTHER, np.array([-1])),
        (NULL * 0.9, OTHER, np.array([0])),
        (NULL, OTHER * 1.1, np.array([0])),
        (NULL, -OTHER, np.array([0])),
        (NULL, OTHER, np.array([0, 1])),
        (NULL * np.nan, OTHER, np.array([0])),
        (NULL, OTHER * np.nan, np.array([0])),
    ],
)
def test_what_is_no_law_is_refused(null, other, token):
    """An alternative with mass above one would break the guarantee."""
    with pytest.raises(InvalidInput):
        log_ratios(null, other, token)


def test_folding_refuses_wrong_shapes_and_numbers():
    """Each with its reason."""
    wealth = Wealth.new({"a": 2.0})
    with pytest.raises(InvalidInput, match="for 1 alternatives"):
        wealth.fold(np.zeros((2, 3)))
    with pytest.raises(InvalidInput, match="not finite"):
        wealth.fold(np.array([[np.inf]]))
    with pytest.raises(InvalidInput, match="at least one"):
        Wealth.new({})
    with pytest.raises(InvalidInput, match="equal shapes"):
        Leak().fold(np.ones(2), np.ones(3), 0.05)


def test_a_leak_is_bounded_from_above_and_covered():
    """Two laws, a known share: the bound stays above it and comes near."""
    rng = np.random.default_rng(1)
    p, q, share = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.2, 0.7]), 0.05
    tokens = rng.choice(3, 20_000, p=(1 - share) * p + share * q)

    leak = Leak().fold((q / p)[tokens], np.full(20_000, 0.6), 0.01)

    assert share < leak.upper < 2 * share
    assert leak.tv_bound == pytest.approx(0.6 * leak.upper)


def test_tokens_needed_shrink_with_the_data_and_end_at_zero():
    """No data, no estimate; enough data, nothing needed; a real leak, no estimate."""
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.2, 0.7])
    tokens = np.random.default_rng(2).choice(3, 30_000, p=p)
    some = Leak().fold((q / p)[tokens[:100]], np.full(100, 0.6), 0.01)
    all_ = Leak().fold((q / p)[tokens], np.full(30_000, 0.6), 0.01)

    assert Leak().tokens_needed(0.01, 0.01) is None
    assert some.tokens_needed(0.02, 0.01) > 0
    assert all_.tokens_needed(0.02, 0.01) == 0
    assert Leak().fold(np.full(50, 5.0), np.ones(50), 0.01).tokens_needed(0.01, 0.01) is None
    assert SHARES[0] == 0


def test_stakes_weigh_the_alternatives():
    """Three quarters on the one that wins."""
    _, path = Wealth.new({"a": 3.0, "b": 1.0}).fold(np.log([[4.0, 0.5]]))

    assert math.exp(path[-1]) == pytest.approx(0.75 * 4 + 0.25 * 0.5)


@pytest.mark.parametrize("stakes", [{"a": 0.0}, {"a": -1.0}, {"a": math.inf}])
def test_a_stake_is_a_positive_number(stakes):
    """An alternative without stake cannot win."""
    with pytest.raises(InvalidInput, match="stakes are > 0"):
        Wealth.new(stakes)


@given(st.integers(0, 10_000), st.floats(0.1, 0.9))
def test_bets_where_p_is_known_up_to_a_factor_stay_fair(seed, factor):
    """Whatever the mass of the known atoms really is, no alternative gains on average, nor does the bet on ranks."""
    rng = np.random.default_rng(seed)
    said, laws = rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5), size=(3, 1))
    known, barred = np.array([[True, True, False, False, False]]), np.array([[False, False, False, False, True]])
    truth = np.array([factor * said[0], factor * said[1], 0.0, 0.0, 1e-4]) / (said[0] + said[1])
    truth[2] = 1 - truth.sum() if truth.sum() < 1 else 0.0
    truth /= truth.sum()
    region = Region(known=known, barred=barred, surprise=max(1e-4, truth[4]))

    means, rank = np.zeros(3), 0.0
    for token in range(5):
        means += truth[token] * np.exp(log_ratios(said[None], laws, np.array([token]), region)[0])
        rank += truth[token] * rank_bet(said[None], np.array([token]), tuple(np.arange(BINS) / 3), known)[0][0]

    assert (means <= 1 + 1e-9).all()
    assert rank == pytest.approx(1.0)


def test_a_barred_token_is_strong_evidence_but_no_proof():
    """One emission outside the filters may be rounding; the alternative that expects it gains its share over the surprise."""
    null, other = np.array([[1.0, 0.0]]), np.array([[[0.5, 0.5]]])
    region = Region(known=np.array([[True, False]]), barred=np.array([[False, True]]), surprise=1e-3)

    assert math.exp(log_ratios(null, other, np.array([1]), region)[0, 0]) == pytest.approx(500, rel=0.05)
    assert region.is_whole.all()


def test_the_bet_on_ranks_is_fair_and_learns():
    """Summed over all tokens with p, a bet has mean one; fed with one rank only, it grows."""
    counts = tuple(np.arange(BINS) / 3)
    means = sum(p * rank_bet(NULL, np.array([token]), counts)[0][0] for token, p in enumerate(NULL[0]))
    many, grown = rank_bet(np.repeat(NULL, 200, axis=0), np.zeros(200, int), (0.0,) * BINS)

    assert means == pytest.approx(1.0)
    assert many[0] == pytest.approx(1.0)
    assert 1.9 < many[-1] < 2.0
    assert sum(grown) == pytest.approx(200)


def test_the_bet_on_ranks_survives_a_token_of_probability_zero():
    """The place is then a point; the bet stays a number."""
    ratio, _ = rank_bet(np.array([[1.0, 0.0]]), np.array([1]), (0.0,) * BINS)

    assert ratio == pytest.approx([1.0])


@given(st.integers(0, 10_000), st.integers(0, 30))
def test_the_detector_is_the_same_however_tokens_are_cut(seed, cut):
    """And equals the sum over all starting times, with the strata of `Wealth`."""
    rng = np.random.default_rng(seed)
    ratios, position = rng.normal(size=(30, 3)), rng.integers(-1, 3, 30)
    whole, path = Detector.new(1e9, STAKES, 2).fold(ratios, position)
    half, first = Detector.new(1e9, STAKES, 2).fold(ratios[:cut], position[:cut])
    rest, second = half.fold(ratios[cut:], position[cut:])

    pooled, sums = Detector.new(1e9, {"a": 1.0}).fold(ratios[:, :1])
    assert rest == whole
    assert np.array_equal(np.concatenate([first, second]), path)
    assert math.exp(sums[-1]) == pytest.approx(sum(math.exp(ratios[start:, 0].sum()) for start in range(30)))
    assert pooled.winner == ("a", None)


def test_the_detector_finds_a_late_change_and_says_when():
    """After a thousand losing tokens a mixture needs as many to recover, the detector none."""
    ratios = np.concatenate([np.full((1_000, 1), -0.5), np.full((60, 1), 0.5)])

    detector, _ = Detector.new(1e6, {"a": 1.0}).fold(ratios)
    wealth, _ = Wealth.new({"a": 1.0}).fold(ratios)

    assert 1_020 < detector.alarm_at < 1_035
    assert wealth.peak == 0.0


def test_a_run_length_below_two_tokens_is_refused():
    """It would always alarm."""
    with pytest.raises(InvalidInput, match="run length"):
        Detector.new(1.0, {"a": 1.0})


@given(st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_a_saved_detector_is_the_detector(tokens, seed):
    """To the bit, also before its first token, when its sums are 0 and their logarithms no JSON numbers."""
    rng = np.random.default_rng(seed)
    detector, _ = Detector.new(20.0, {"a": 1.0, "b": 2.0}, 2).fold(rng.normal(size=(tokens, 2)), rng.integers(-1, 2, tokens))

    read = Detector.from_record(json.loads(json.dumps(detector.to_record(), allow_nan=False)))

    assert read == detector


@pytest.mark.parametrize(
    "changes", [{"logs": [[0.0]]}, {"logs": []}, {"logs": [[math.nan, 0.0]]}, {"names": None}, {"tokens": "many"}]
)
def test_a_saved_detector_of_another_form_is_refused(changes):
    """With the way out."""
    record = Detector.new(20.0, {"a": 1.0, "b": 2.0}).to_record() | changes

    with pytest.raises(InvalidInput, match="start the watch anew"):
        Detector.from_record(record)
