"""A value made by the cheap constructor is the frozen class in every respect."""

import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from specops.stats.frozen import trusted


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A frozen value with a check, a default and a factory."""

    x: float
    y: float = 2.0
    tags: tuple[str, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        """Refuse what is below 0."""
        if self.x < 0:
            raise ValueError(self.x)


def test_a_trusted_value_is_the_frozen_class():
    """Same type, equality, hash, representation, copies; as little to be changed."""
    made, plain = trusted(Point)(x=1.0), Point(x=1.0)

    assert type(made) is Point
    assert (made, hash(made), repr(made)) == (plain, hash(plain), repr(plain))
    assert replace(made, x=3.0) == Point(x=3.0)
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(FrozenInstanceError):
        made.x = 2.0


def test_arguments_are_trusted_and_named_as_before():
    """The check is skipped; a missing or a positional argument is refused all the same."""
    make = trusted(Point)

    assert make(x=-1.0).x == -1.0
    with pytest.raises(TypeError):
        make()
    with pytest.raises(TypeError):
        make(1.0)
