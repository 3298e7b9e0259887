"""A cheap way to make frozen values in innermost loops, where a dataclass's own `__init__` costs more than the arithmetic.

Used by the evidence that `core.window` folds for every outcome. A frozen dataclass writes each field through
`object.__setattr__`; here the same fields are written plainly, and only then does the value become the frozen class. What comes
out is that class in every respect, and as immutable.
"""

from dataclasses import MISSING, Field, field, fields, make_dataclass
from typing import Any, TypeVar

T = TypeVar("T")


def trusted(cls: type[T]) -> type[T]:
    """Return a constructor of `cls` for valid arguments: same signature, half the cost or less, and no `__post_init__`.

    Args:
        cls: a frozen dataclass with slots, all of whose fields are arguments.
    """

    def close(self: Any) -> None:  # noqa: ANN401  # changes its type
        self.__class__ = cls  # same slots in the same order, so Python allows it

    open_fields = [(one.name, Any, _copied(one)) for one in fields(cls)]  # type: ignore[arg-type]  # T is a dataclass
    maker: type[T] = make_dataclass(
        cls.__name__, open_fields, slots=True, eq=False, repr=False, namespace={"__post_init__": close}
    )
    return maker


def _copied(one: Field[Any]) -> Any:  # noqa: ANN401  # what `field` returns
    if one.default_factory is not MISSING:
        return field(default_factory=one.default_factory, kw_only=bool(one.kw_only))
    return field(default=one.default, kw_only=bool(one.kw_only))
