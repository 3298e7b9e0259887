"""Kinds of value in a policy file: what each accepts, how it says no, and the same rule as JSON Schema.

Used by the table in `core.policy_fields`. A kind decides whether one value alone can be right. Values come from a file that
anyone may have written, so messages quote at most a line of them, and lists and counts have an end.
"""

import difflib
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from specops.errors import PolicyError

MAX_WAIT_S = 90 * 86_400.0  # a trial of a quarter is abandoned, not waiting
MAX_LIST = 16  # strata or load buckets; more than that and none of them gets its requests
MAX_COUNT = 10**9
MAX_TEXT = 2_000  # characters; names and reasons are repeated in every verdict
REQUIRED: Any = object()
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SHOWN = reprlib.Repr()  # nothing inside a value is read deeper than this, so aliases that repeat each other cost nothing
_SHOWN.maxlevel, _SHOWN.maxstring, _SHOWN.maxother = 1, 100, 100
_DURATION = r"^\d{1,9}(\.\d{1,9})?\s?[smhd]$"


class Kind(Protocol):
    """What one value must be."""

    def read(self, value: object, where: str, key: str) -> Any:  # noqa: ANN401  # each kind returns its own type
        """Return the value as the program wants it, or raise PolicyError."""

    def schema(self) -> dict[str, Any]:
        """Return the same rule as JSON Schema."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text; `is_needed` refuses an empty one."""

    is_needed: bool = False

    def read(self, value: object, where: str, key: str) -> str:
        """Return the text."""
        if not isinstance(value, str) or (self.is_needed and not value.strip()):
            raise PolicyError(f"{where} needs a text under {key!r}, got {shown(value)}")
        if len(value) > MAX_TEXT:
            raise PolicyError(f"{where}: {key} has {len(value)} characters, at most {MAX_TEXT} are read; shorten it")
        return value

    def schema(self) -> dict[str, Any]:
        """Return the rule as JSON Schema."""
        return {"type": "string", "maxLength": MAX_TEXT} | ({"pattern": r"\S"} if self.is_needed else {})


@dataclass(frozen=True, slots=True)
class Number:
    """A number in (low, high); an end belongs to it with `low_in` or `high_in`."""

    low: float = 0.0
    high: float = 1.0
    low_in: bool = False
    high_in: bool = False
    why: str = ""

    def read(self, value: object, where: str, key: str) -> float:
        """Return the number as a float."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            above = self.low <= value if self.low_in else self.low < value
            if above and (value <= self.high if self.high_in else value < self.high):
                return float(value)
        low, high = ("of at least" if self.low_in else "above"), ("at most" if self.high_in else "below")
        reason = f" ({self.why})" if self.why else ""
        raise PolicyError(
            f"{where}: {key} must be a number {low} {self.low:g} and {high} {self.high:g}, got {shown(value)}{reason}"
        )

    def schema(self) -> dict[str, Any]:
        """Return the rule as JSON Schema."""
        low, high = ("minimum" if self.low_in else "exclusiveMinimum"), ("maximum" if self.high_in else "exclusiveMaximum")
        return {"type": "number", low: self.low, high: self.high}


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `low` up."""

    low: int = 1

    def read(self, value: object, where: str, key: str) -> int:
        """Return the number."""
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= MAX_COUNT:
            raise PolicyError(f"{where}: {key} must be a whole number of at least {self.low}, got {shown(value)}")
        return value

    def schema(self) -> dict[str, Any]:
        """Return the rule as JSON Schema."""
        return {"type": "integer", "minimum": self.low, "maximum": MAX_COUNT}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a closed set of words."""

    options: tuple[str, ...]
    why: str = ""

    def read(self, value: object, where: str, key: str) -> str:
        """Return the word."""
        if not isinstance(value, str) or value not in self.options:
            near = difflib.get_close_matches(value, self.options, n=1) if isinstance(value, str) else []
            hint = f"; did you mean {str(near[0])!r}?" if near else ""
            reason = f" ({self.why})" if self.why else ""
            raise PolicyError(f"{where}: {key} must be one of {', '.join(self.options)}; got {shown(value)}{reason}{hint}")
        return str(value)

    def schema(self) -> dict[str, Any]:
        """Return the rule as JSON Schema."""
        return {"enum": [str(option) for option in self.options]}


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def read(self, value: object, where: str, key: str) -> bool:
        """Return the flag."""
        if not isinstance(value, bool):
            raise PolicyError(f"{where}: {key} must be true or false, got {shown(value)}")
        return value

    def schema(self) -> dict[str, Any]:
        """Return the rule as JSON Schema."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds as a number, or a text such as `90s`, `30m`, `24h` or `7d`."""

    is_zero_fine: bool = False

    def read(self, value: object, where: str, key: str) -> float:
        """Return seconds."""
        seconds: object = value
        if isinstance(value, str) and re.fullmatch(_DURATION, value):
            seconds = float(value[:-1]) * _SECONDS[value[-1]]
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            seconds = -1
        if 0 < seconds <= MAX_WAIT_S or (seconds == 0 and self.is_zero_fine):
            return float(seconds)
        raise PolicyError(f"{where}: {key} must be seconds or a text such as 30m, 24h or 7d, up to 90d; got {shown(value)}")

    def schema(self) -> dict[str, Any]:
        """Return the rule as JSON Schema."""
        number = {"type": "number", "minimum" if self.is_zero_fine else "exclusiveMinimum": 0, "maximum": MAX_WAIT_S}
        return {"anyOf": [number, {"type": "string", "pattern": _DURATION}]}


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of one kind, with at least one and at most 16 members."""

    member: Kind

    def read(self, value: object, where: str, key: str) -> tuple[Any, ...]:
        """Return the members."""
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_LIST:
            raise PolicyError(f"{where}: {key} must be a list of 1 to {MAX_LIST} members, got {shown(value)}")
        return tuple(self.member.read(one, where, f"{key}[{i}]") for i, one in enumerate(value))

    def schema(self) -> dict[str, Any]:
        """Return the rule as JSON Schema."""
        return {"type": "array", "minItems": 1, "maxItems": MAX_LIST, "items": self.member.schema()}


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping of known keys; `read` checks them and returns the values given, defaults filled in."""

    fields: Mapping[str, "Field"]

    def read(self, value: object, where: str, key: str) -> dict[str, Any]:
        """Return the values by key."""
        return read(value, self.fields, f"{where}: {key}")

    def schema(self) -> dict[str, Any]:
        """Return the rule as JSON Schema."""
        return table_schema(self.fields)


@dataclass(frozen=True, slots=True)
class ShareOrTime:
    """A share, or for a time a mapping of limit and share; which of the two is for the metric to say."""

    fields: Mapping[str, "Field"]

    def read(self, value: object, where: str, key: str) -> Any:  # noqa: ANN401  # the metric decides what is right
        """Return a mapping's values, or anything else as it is, to be read again by who knows the metric."""
        return Table(self.fields).read(value, where, key) if isinstance(value, Mapping) else value

    def schema(self) -> dict[str, Any]:
        """Return the rule as JSON Schema."""
        return {"anyOf": [SHARE.schema(), table_schema(self.fields)]}


@dataclass(frozen=True, slots=True)
class Field:
    """One key: what its value must be, what it is when left away (None: absent), and what it means, in one sentence."""

    kind: Kind
    default: Any
    meaning: str


def read(value: object, fields: Mapping[str, Field], where: str) -> dict[str, Any]:
    """Return a mapping's values by key, defaults filled in.

    Raises:
        PolicyError: not a mapping; an unknown or missing key; a value of the wrong kind or out of range.
    """
    mapping = require_mapping(value, where)
    require_known(mapping, tuple(fields), where)
    given = {}
    for key, field in fields.items():
        if key in mapping:
            given[key] = field.kind.read(mapping[key], where, key)
        elif field.default is REQUIRED:
            given[key] = field.kind.read(None, where, key)  # raises, with the kind's own words
        else:
            given[key] = field.default
    return given


def require_mapping(value: object, where: str) -> Mapping[str, Any]:
    """Return the value as a mapping.

    Raises:
        PolicyError: it is none.
    """
    if not isinstance(value, Mapping):
        raise PolicyError(f"{where} must be a mapping of keys to values, got {shown(value)}")
    return value


def require_known(mapping: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    """Refuse a key that nobody reads.

    Raises:
        PolicyError: with the nearest known key.
    """
    for key in mapping:
        if key not in keys:
            near = difflib.get_close_matches(shown(key).strip("'"), keys, n=1, cutoff=0.0)[0]
            raise PolicyError(f"{where} has unknown key {shown(key)}; did you mean {near!r}? known: {', '.join(keys)}")


def table_schema(fields: Mapping[str, Field]) -> dict[str, Any]:
    """Return the JSON Schema of a mapping with these keys and no others."""
    properties = {key: field.kind.schema() | {"description": field.meaning} for key, field in fields.items()}
    needed = [key for key, field in fields.items() if field.default is REQUIRED]
    return {"type": "object", "additionalProperties": False, "properties": properties} | (
        {"required": needed} if needed else {}
    )


def shown(value: object) -> str:
    """Return a value for a message, cut to about a line whatever it is: a hostile file must not fill the log or the memory."""
    try:
        return _SHOWN.repr(value)
    except ValueError:  # a whole number with thousands of digits has no decimal text
        return f"an enormous {type(value).__name__}"


SHARE = Number(why="at the ends no result could fail")
