"""The result of a verification as a value: verdict, figures, what it holds for and what was not tested.

Filled by `control.verify`, shown by the command and `report.fidelity_page`, kept as evidence. `scope` is the digest of all
that the result depends on: engine, dtype, hardware, sampling and weights. Evidence counts while the scope is the same.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from specops.core.canonical import digest_of
from specops.core.fidelity import Evidence, GreedyFinding, Verdict
from specops.core.fidelity_laws import Rows
from specops.core.lossless import described, plain
from specops.stats.multiple import e_bh

BUCKETS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How often the most likely token was emitted, by what the trusted path gave it: a bucket per tenth of probability."""

    tokens: tuple[int, ...] = (0,) * BUCKETS
    expected: tuple[float, ...] = (0.0,) * BUCKETS
    emitted: tuple[int, ...] = (0,) * BUCKETS

    def fold(self, rows: Rows) -> "Calibration":
        """Take in tokens whose law is known as a whole."""
        part = rows.pick(rows.is_whole)
        bucket = np.minimum((part.p[:, 0] * BUCKETS).astype(np.int64), BUCKETS - 1)
        add = [np.bincount(bucket, weights=w, minlength=BUCKETS) for w in (None, part.p[:, 0], (part.token == 0).astype(float))]
        return Calibration(
            tokens=tuple(int(a + b) for a, b in zip(self.tokens, add[0], strict=True)),
            expected=tuple(float(a + b) for a, b in zip(self.expected, add[1], strict=True)),
            emitted=tuple(int(a + b) for a, b in zip(self.emitted, add[2], strict=True)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Tokens whose log probability both servers reported, and how many differ by more than 1 nat."""

    compared: int = 0
    apart: int = 0

    @property
    def finding(self) -> str | None:
        """Words when the servers disagree on more than one token in a thousand."""
        if self.apart <= self.compared / 1000:
            return None
        return (
            f"the endpoint's own log probabilities differ from the trusted path's by more than 1 nat on {self.apart} of"
            f" {self.compared} tokens: what it reports cannot be trusted, whatever its tokens follow"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One endpoint's result. Times in seconds; `path` is (tokens, log e-value so far), `laws` log wealth by alternative.

    `sensitivity` says after how many of these very tokens a replayed bug was rejected, None if it was not.
    """

    endpoint: str
    target: str
    verdict: Verdict
    diagnosis: str | None
    position: int | None
    tokens: int
    log_e: float
    tv_bound: float
    tolerance: float
    alpha: float
    tokens_needed: int | None
    problems: tuple[str, ...]
    findings: tuple[str, ...]
    not_tested: tuple[str, ...]
    sampling: Mapping[str, Any]
    draft: str | None
    scope: str
    facts: Mapping[str, Any]
    path: tuple[tuple[int, float], ...] = ()
    laws: Mapping[str, float] | None = None
    sensitivity: Mapping[str, int | None] | None = None
    calibration: Calibration = Calibration()
    ranks: tuple[float, ...] = ()
    agreement: Agreement = Agreement()
    greedy: GreedyFinding | None = None
    greedy_plain: GreedyFinding | None = None
    plain_tokens: int = 0
    plain_log_e: float = 0.0
    mutant_tokens: int = 0
    mutant_log_e: float = 0.0
    whole_share: float = 1.0
    alarm_at: int | None = None
    wall_s: float = 0.0

    @property
    def words(self) -> str:
        """The verdict in one line."""
        where = "" if self.position is None else f", at position {self.position} in the block"
        shown = f" (e-value {_power(self.log_e)}, {self.tokens} tokens)" if self.tokens else ", before any token"
        said = {
            Verdict.NOT_LOSSLESS: f"NOT LOSSLESS: {self.diagnosis}{where}{shown}",
            Verdict.LOSSLESS_WITHIN: f"LOSSLESS WITHIN {self.tolerance:g} towards the {self.draft} ({self.tokens} tokens)",
            Verdict.INCONCLUSIVE: f"INCONCLUSIVE after {self.tokens} tokens (e-value {_power(self.log_e)}); {self._needed}",
            Verdict.ERROR: "ERROR: " + "; ".join(self.problems),
        }
        return said[self.verdict]

    @property
    def _needed(self) -> str:
        if self.draft is None:
            return "without a draft's law nothing can be bounded: give --draft, --ngram or --surrogate"
        if self.tokens_needed is None:
            return "no estimate of the tokens still needed"
        return f"about {self.tokens_needed} more would show that it is within {self.tolerance:g}"

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"words": self.words, "verdict": self.verdict.value}


def scope_of(facts: Mapping[str, Any], trusted: Mapping[str, Any], sampling: Mapping[str, Any]) -> str:
    """Return the digest of what a result holds for; another engine, dtype, hardware, sampling or weights give another."""
    parts = {"endpoint": facts, "trusted": trusted}
    said = {name: described(one) for name, one in parts.items()}
    return digest_of(said | {"sampling": plain(sampling)})


def is_current(payload: Mapping[str, Any], scope: str) -> bool:
    """Whether recorded evidence of a verification still holds: it says LOSSLESS WITHIN, and nothing in its scope changed."""
    return payload.get("scope") == scope and payload.get("verdict") == Verdict.LOSSLESS_WITHIN.value


def rejected_of(results: Sequence[Verification], alpha: float) -> tuple[str, ...]:
    """Return which endpoints are not lossless, with a false discovery rate of at most alpha; by the e-values at the end."""
    ends = [one.path[-1][1] if one.path else 0.0 for one in results]
    return tuple(results[at].endpoint for at in e_bh([math.exp(min(end, 700.0)) for end in ends], alpha))


def laws_of(evidence: Evidence) -> dict[str, float]:
    """Return the log wealth of each alternative over all tokens, largest first."""
    if evidence.wealth is None:
        return {}
    found = dict(zip(evidence.wealth.names, evidence.wealth.logs[0], strict=True))
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def _power(log_e: float) -> str:
    return f"10^{log_e / np.log(10):.1f}"
