"""The policy: what is acceptable, declared in a file, parsed here into values that cannot be half right.

Called by the edge that has read the YAML and by whoever replays a verdict; reads no file itself. It refuses what it does not
know and what could never fail. How evidence is gathered is for `core.window`, what it means for `core.judge`, whether a policy
is wise for `core.policy_lint`.

Error budget: a healthy candidate fails some check with probability <= sum of alpha * weight (<= alpha, weights sum to <= 1).
After promotion the mean run between false alarms is >= arl_requests. Passing needs every check at level alpha (an
intersection-union test, Berger 1982), so the promotion side is not divided by weights. Precursors and split checks never end a
trial, so they stand outside the budget.
"""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from specops.core.canonical import digest_of
from specops.core.check import Against, By, Check, Metric, OnNoData, Scope, Strata
from specops.core.check_file import decides, read_check
from specops.core.ladder import Rung
from specops.core.lossless import Lossless
from specops.core.policy_fields import CHECK_FIELDS, ERROR_CLASSES, POLICY_FIELDS, SETTLE_S
from specops.core.policy_kinds import read, require_known, require_mapping, shown
from specops.core.speculate import speculation_limit
from specops.errors import PolicyError

__all__ = [
    "ERROR_CLASSES", "Against", "By", "Check", "Metric", "OnNoData", "Policy", "Rung", "Scope", "Strata", "parse_policy",
]  # fmt: skip

MAX_CHECKS = 64  # every outcome is folded into each; more is a mistake or an attack
_POLICY_KEYS = (*POLICY_FIELDS, "checks")
_CHECK_KEYS = tuple(CHECK_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Checks and fatal classes: (class, count at which it fails), sorted by class.

    `speculate_below`: speculate only below this many requests in flight; None without such a rule, 0 if it never pays.
    `allow_lossy`: names of lossy acceptance settings that a candidate may have; empty: it must be exact.
    `lossless`: what a verification of the candidate must have said for a rollout to start; None asks for none.
    `settle_s`: the longest usual answer in seconds. Answers are known when they end, the fast ones first, so for so long
    nothing is proven of a new trial, and arms are not compared after a change of the share.
    `has_pairs`: some check joins the two answers to one request. `has_rivals`: some check needs the baseline's live requests.
    """

    name: str
    version: int
    description: str
    fatal: tuple[tuple[str, int], ...]
    checks: tuple[Check, ...]
    digest: str
    speculate_below: int | None = None
    allow_lossy: tuple[str, ...] = ()
    lossless: Lossless | None = None
    alpha: float = 0.01
    arl_requests: float = 100_000.0
    settle_s: float = SETTLE_S
    has_pairs: bool = False
    has_rivals: bool = False


def parse_policy(mapping: Mapping[str, Any]) -> Policy:
    """Return the policy a mapping declares; see `policies/default.yaml` for every field explained.

    Raises:
        PolicyError: a key is unknown or missing, a value is of the wrong kind or out of range, or no result could ever fail.
    """
    raw = dict(require_mapping(mapping, "policy"))
    require_known(raw, _POLICY_KEYS, "policy")
    rules = _rules(raw.pop("checks", None), raw.get("name"))
    given = read(raw, POLICY_FIELDS, "policy")
    name, description = given["name"], given["description"]
    deciding = sum(decides(rule) for rule in rules)
    if not deciding:
        raise PolicyError(
            f"policy {name!r} has only precursors and split checks, so no result could fail it; let one check decide"
        )
    checks = tuple(read_check(rule, i + 1, given, 1.0 / deciding if decides(rule) else 1.0) for i, rule in enumerate(rules))
    _weights([rule for rule in rules if decides(rule)], [check for check in checks if not _is_aside(check)])
    names = [c.name for c in checks]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise PolicyError(f"policy {shown(name)} has checks of the same name, {shown(twice)}; a verdict must name one check")
    fatal = tuple(sorted((cls, count) for cls, count in (given["fatal"] or {}).items() if count is not None))
    below = speculation_limit(given["speculate"])
    content = {"name": name, "version": given["version"], "fatal": dict(fatal), "checks": [_content(c) for c in checks]}
    content |= {"description": description} | ({} if below is None else {"speculate_below": below})
    content |= {} if given["settle"] == SETTLE_S else {"settle_s": given["settle"]}
    content |= {"allow_lossy": list(given["allow_lossy"])} if given["allow_lossy"] else {}
    lossless = None if given["lossless"] is None else Lossless(**given["lossless"])
    content |= {} if lossless is None else {"lossless": asdict(lossless)}
    return Policy(
        name=name, version=given["version"], description=description, fatal=fatal, checks=checks, digest=digest_of(content),
        speculate_below=below, allow_lossy=given["allow_lossy"], lossless=lossless, alpha=given["alpha"],
        arl_requests=given["arl_requests"], settle_s=given["settle"],
        has_pairs=any(c.against is Against.PAIRS for c in checks), has_rivals=any(c.is_rival for c in checks),
    )  # fmt: skip


def _rules(value: object, name: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not value:
        raise PolicyError(
            f"policy {shown(name)} has no checks, so nothing could ever fail; add at least one under 'checks'"
        )
    if len(value) > MAX_CHECKS:
        raise PolicyError(
            f"policy {shown(name)} has {len(value)} checks, at most {MAX_CHECKS} are read; they share one alpha"
        )
    return [require_mapping(rule, f"check {i + 1}") for i, rule in enumerate(value)]


def _is_aside(check: Check) -> bool:
    return check.precursor or check.metric is Metric.SPLIT


def _weights(rules: list[Mapping[str, Any]], checks: list[Check]) -> None:
    given = sum("weight" in rule for rule in rules)
    if given not in {0, len(rules)}:
        raise PolicyError(f"{given} of {len(rules)} checks have a weight; give one to each, or to none for equal parts")
    total = sum(c.weight for c in checks)
    if total > 1.0 + 1e-9:  # rounding
        raise PolicyError(f"weights of checks sum to {total:g}, more than 1; false alarms would exceed alpha")


def _content(check: Check) -> dict[str, Any]:
    """Return what the digest covers.

    A field with a default came after the first version, and counts only where it is used: a rollout that runs through an
    upgrade keeps its policy's identity.
    """
    defaults = {field.name: field.default for field in fields(check)}
    return {k: v for k, v in asdict(check).items() if defaults[k] is MISSING or v != defaults[k]}
