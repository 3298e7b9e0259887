"""Series: what the notation means, that a seed repeats it, and that nonsense is refused with a way out."""

from random import Random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core.policy_series import MAX_VALUES, parse_series
from specops.errors import PolicyError


def drawn(text, length=0, seed=1):
    """Return the values of a series."""
    return parse_series(text, "input").values(Random(seed), length)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.7x3", [0.7, 0.7, 0.7]),
        ("0.7-0.1x3", [0.7, pytest.approx(0.6), pytest.approx(0.5)]),
        ("1+1x3 0", [1.0, 2.0, 3.0, 0.0]),
        ("_x2 1", [None, None, 1.0]),
        ("0 timeoutx2", [0.0, "timeout", "timeout"]),
        ("-1e-3x1", [-0.001]),
        ("bernoulli(1)x2", [1.0, 1.0]),
        ("lognormal(0.5, 0)x2", [0.5, 0.5]),
    ],
)
def test_the_notation_means_what_the_table_says(text, values):
    """One row per form."""
    assert drawn(text) == values


def test_one_value_without_a_count_never_ends():
    """Also where the file holds a plain number."""
    assert drawn("0.2", 4) == drawn(0.2, 4) == [0.2] * 4
    assert drawn("_", 2) == [None, None]


def test_restarts_are_places_and_no_values():
    """Between the values that they stand between."""
    series = parse_series("0x2 restart 0x3 restart", "input")

    assert (series.length, series.restarts, series.is_constant) == (5, (2, 5), False)


def test_a_beta_series_has_its_mean_and_deviation():
    """And stays in [0, 1]."""
    values = drawn("beta(0.70,0.12)x4000")

    assert fmean(values) == pytest.approx(0.70, abs=0.01)
    assert stdev(values) == pytest.approx(0.12, abs=0.01)
    assert 0.0 <= min(values) <= max(values) <= 1.0


@given(seed=st.integers(0, 2**32))
def test_a_seed_repeats_its_values(seed):
    """Whatever was drawn before."""
    text = "beta(0.5,0.2)x5 bernoulli(0.5)x5 lognormal(1,1)x5"

    assert drawn(text, seed=seed) == drawn(text, seed=seed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write 1 to"),
        ("restart", "write 1 to"),
        (f"0x{MAX_VALUES + 1}", "write 1 to"),
        ("0x999999999 0x999999999", "write 1 to"),
        ("0x", "is no part of a series"),
        ("hello", "is no part of a series"),
        ("gamma(1,2)x3", "is no part of a series"),
        ("0.7x-3", "is no part of a series"),
        ("beta(1.2,0.1)x3", "beta needs a mean"),
        ("beta(0.5,0.6)x3", "below 0.5"),
        ("beta(0.5)x3", "write beta(mean,sd)"),
        ("bernoulli(2)x3", "probability in [0, 1]"),
        ("bernoulli(0.1,0.2)x3", "probability in [0, 1]"),
        ("lognormal(0,1)x3", "median above 0"),
        (None, "must be a series"),
        (True, "must be a series"),
        (["0.7"], "must be a series"),
        ("0 " * 60_000, "must be a series"),
        (float("nan"), "is no part of a series"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_a_way_out(text, message):
    """In one line that names the place."""
    with pytest.raises(PolicyError) as refused:
        parse_series(text, "input.error")

    assert str(refused.value).startswith("input.error")
    assert message in str(refused.value)
    assert len(str(refused.value)) < 400


@given(st.text(alphabet="0123456789.x+-_e()betarnoulil, restart", max_size=40))
def test_any_text_is_read_or_refused(text):
    """Nothing else happens."""
    try:
        series = parse_series(text, "input")
    except PolicyError:
        return
    assert 0 < series.length <= MAX_VALUES
