"""One table turns errors into exit codes and HTTP statuses."""

import inspect

import pytest

from specops import errors
from specops.errors import (
    ChainBroken,
    GatewayUnavailable,
    IncompatibleRelease,
    MissingExtra,
    PolicyError,
    SpecopsError,
    exit_code,
    http_status,
)

EVERY = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, SpecopsError)]


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (PolicyError("x"), 2, 400),
        (IncompatibleRelease("x"), 2, 400),
        (MissingExtra("torch", "torch"), 2, 400),
        (ChainBroken("x"), 1, 409),
        (GatewayUnavailable("x"), 3, 503),
        (SpecopsError("x"), 1, 500),
    ],
)
def test_the_table(error, code, status):
    """Whose move is next decides code and status."""
    assert (exit_code(error), http_status(error)) == (code, status)


@pytest.mark.parametrize("kind", [c for c in EVERY if c is not SpecopsError], ids=lambda c: c.__name__)
def test_every_error_has_a_branch(kind):
    """No error class falls through the table."""
    assert issubclass(kind, errors.InvalidInput | errors.RuleViolation | errors.Unavailable)


def test_a_missing_extra_says_what_to_install():
    """The way out is a command."""
    assert "pip install 'specops[torch]'" in str(MissingExtra("torch", "torch"))


def test_unavailable_says_when_to_come_back():
    """The time is in seconds, a second if nothing better is known."""
    assert GatewayUnavailable("x").retry_after_s == 1.0
    assert GatewayUnavailable("x", retry_after_s=5.0).retry_after_s == 5.0
