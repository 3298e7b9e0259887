"""Acceptance by position, with requests as clusters."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.errors import InvalidInput, InvalidRecord
from specops.stats.acceptance import PositionSums, acceptance_length, conditional, positions

HISTOGRAM = st.lists(st.integers(0, 50), max_size=6)


def _sums(histograms):
    sums = PositionSums()
    for histogram in histograms:
        sums = sums.update(histogram)
    return sums


def test_positions_by_hand():
    """Of ten rounds two accepted none, three one, five two tokens."""
    histogram = [2, 3, 5]

    assert positions(histogram) == (0.8, 0.5)
    assert conditional(histogram) == (0.8, 5 / 8)
    assert acceptance_length(histogram) == pytest.approx(2.3)


@pytest.mark.parametrize("histogram", [[], [0, 0]])
def test_no_rounds_no_figures(histogram):
    """Nothing drafted is no data."""
    assert positions(histogram) == ()
    assert acceptance_length(histogram) is None
    assert _sums([histogram]) == PositionSums()


def test_a_position_nobody_reached_has_no_share():
    """Of no rounds that reached it, none were accepted: that is None, not 0."""
    assert conditional([4, 0, 0]) == (0.0, None)


@given(histograms=st.lists(HISTOGRAM, max_size=8))
def test_sums_give_the_pooled_shares(histograms):
    """The estimate per position is that of the histograms added up, whatever their lengths."""
    width = max((len(h) for h in histograms if sum(h)), default=0)
    pooled = [sum(h[a] for h in histograms if a < len(h)) for a in range(width)]

    found = [part.top / part.bottom for part in _sums(histograms).sums]

    assert found == pytest.approx(list(positions(pooled)))


@given(one=st.lists(HISTOGRAM, max_size=5), other=st.lists(HISTOGRAM, max_size=5))
def test_sums_merge(one, other):
    """Two replicas count together; counts are whole numbers, so exactly."""
    assert _sums(one).merge(_sums(other)) == _sums(one + other)


def test_clusters_widen_the_interval():
    """Requests that differ make the interval several times wider than rounds taken as independent would."""
    rng = np.random.default_rng(2)
    sums = PositionSums()
    for _ in range(300):
        hits = rng.binomial(40, rng.beta(5, 5))
        sums = sums.update([int(40 - hits), int(hits)])

    ((share, low, high),) = sums.intervals()

    assert low < share < high
    assert high - low > 2 * 2 * 1.96 * np.sqrt(share * (1 - share) / 12_000)
    assert PositionSums().update([1, 2]).intervals() == (None,)


@given(histograms=st.lists(HISTOGRAM, max_size=5))
def test_a_record_restores_everything(histograms):
    """Sums go through JSON unchanged."""
    sums = _sums(histograms)

    assert PositionSums.from_record(json.loads(json.dumps(sums.to_record()))) == sums


@pytest.mark.parametrize("record", [{}, {"every": {}, "sums": [{"nonsense": 1}]}, {"every": {}, "sums": 3}])
def test_a_spoilt_record_is_refused(record):
    """Missing and unknown fields are errors."""
    with pytest.raises(InvalidRecord, match="replay"):
        PositionSums.from_record(record)


@pytest.mark.parametrize("histogram", [[-1, 2], [1] * 66])
def test_a_histogram_that_cannot_be_is_refused(histogram):
    """Negative counts and absurd lengths are errors."""
    with pytest.raises(InvalidInput, match="histogram"):
        PositionSums().update(histogram)
