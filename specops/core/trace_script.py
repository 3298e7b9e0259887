"""Which scripts a text is written in, and whether two texts differ in it: a cheap sign that the language changed.

Letters only; a script is the first word of a letter's Unicode name (LATIN, CYRILLIC, CJK, ...). Two languages of one script
look alike here. Called by `core.trace_why`.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

MIN_LETTERS = 20  # on either side: a name or a formula changes nothing
DISTANCE = 0.3  # total variation between the shares of scripts


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptChange:
    """Two texts in other scripts: shares in [0, 1] by script, and their total variation distance."""

    before: Mapping[str, float]
    after: Mapping[str, float]
    distance: float

    @property
    def words(self) -> str:
        """Both sides' largest share."""
        return " -> ".join(_largest(shares) for shares in (self.before, self.after))


def script_shares(text: str) -> dict[str, float]:
    """Return the share of each script among the letters of a text, largest first; empty without letters."""
    counts = Counter(unicodedata.name(char, "UNKNOWN").split()[0] for char in text if char.isalpha())
    total = sum(counts.values())
    return {name: count / total for name, count in counts.most_common()}


def script_change(before: str, after: str) -> ScriptChange | None:
    """Return the change between two texts; None if either has too few letters, or the scripts are much the same."""
    if min(sum(map(str.isalpha, text)) for text in (before, after)) < MIN_LETTERS:
        return None
    first, second = script_shares(before), script_shares(after)
    distance = sum(abs(first.get(name, 0.0) - second.get(name, 0.0)) for name in first.keys() | second.keys()) / 2
    return ScriptChange(before=first, after=second, distance=distance) if distance >= DISTANCE else None


def _largest(shares: Mapping[str, float]) -> str:
    name, share = next(iter(shares.items()))
    return f"{name.lower()} {share:.0%}"
