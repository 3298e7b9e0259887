"""A confirmation set: held out, named before its results are seen, used once for a release (M13).

Called by `specops rollout confirm`. A set that was looked at has become part of the search, and a second look at it proves
nothing; so beginning is what uses it up, whatever comes of it. Several releases that use one set share its luck: the count of
uses is kept, for a reader to judge. Evaluating is somebody else's work; only digests and figures come here.
Source: Dwork et al., Science 349 (2015), "The reusable holdout".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any

from specops.control.ports import Store, Unit
from specops.core.canonical import digest_of
from specops.errors import IllegalTransition, InvalidInput

BEGUN, RESULT = "confirmation", "confirmation_result"  # kinds of evidence
MAX_FIGURES = 64
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A use of a set. `uses`: how many releases have used it, this one included; each further one weakens what it proves."""

    release_id: str
    evaluation_set: str
    uses: int


def begin_confirmation(store: Store, release: str, evaluation_set: str, *, actor: str, now: datetime) -> Confirmation:
    """Use a set up for a release, before anybody has seen a result.

    Args:
        store: where releases and evidence are.
        release: id or name.
        evaluation_set: SHA-256 of the held-out set, 64 hex digits.
        actor: who asks.
        now: UTC.

    Raises:
        InvalidInput: that is no digest.
        IllegalTransition: the release has used this set; says who did, and when.
    """
    if not _DIGEST.fullmatch(evaluation_set):
        raise InvalidInput(
            f"evaluation set {evaluation_set[:80]!r} is no digest, expected 64 hex digits; sha256sum of the file gives them"
        )
    with store.begin() as unit:
        release_id = unit.releases.get(release).id
        used = [e for e in unit.evidence.of_kind(BEGUN) if e["payload"]["set"] == evaluation_set]
        for use in used:
            if use["subject"] == release_id:
                raise IllegalTransition(
                    f"evaluation set {evaluation_set[:12]} was used for release {release_id} by {use['payload']['actor']} at "
                    f"{use['at']}; it confirms once, so hold out another set"
                )
        uses = 1 + len({use["subject"] for use in used})
        payload = {"set": evaluation_set, "actor": actor, "uses": uses}
        unit.evidence.add(release_id, BEGUN, payload, now)
        unit.audit.append(tag="release:confirmation:begun", actor=actor, subject=release_id, payload=payload, at=now)
    return Confirmation(release_id=release_id, evaluation_set=evaluation_set, uses=uses)


def record_confirmation(
    store: Store,
    release: str,
    evaluation_set: str,
    *,
    passed: bool,
    figures: Mapping[str, int | float | str],
    actor: str,
    now: datetime,
) -> None:
    """Keep the result of a confirmation that was begun; there is one, and it stays.

    Args:
        store: where releases and evidence are.
        release: id or name.
        evaluation_set: digest of the set that was used.
        passed: whether the release is confirmed.
        figures: what was measured, at most 64 by name.
        actor: who reports.
        now: UTC.

    Raises:
        InvalidInput: too many figures, or one that is neither number nor text.
        IllegalTransition: no such confirmation was begun, or it has a result.
    """
    kept = _checked(figures)
    with store.begin() as unit:
        release_id = unit.releases.get(release).id
        if not _of(unit, release_id, BEGUN, evaluation_set):
            raise IllegalTransition(
                f"release {release_id} has begun no confirmation on set {evaluation_set[:12]!r}; begin it before the results "
                f"are seen: specops rollout confirm {release} --set DIGEST"
            )
        earlier = _of(unit, release_id, RESULT, evaluation_set)
        if earlier:
            raise IllegalTransition(
                f"release {release_id} has a result on set {evaluation_set[:12]} since {earlier[0]['at']}, by "
                f"{earlier[0]['payload']['actor']}; it stays, so hold out another set"
            )
        payload = {"set": evaluation_set, "actor": actor, "passed": passed, "figures": kept}
        unit.evidence.add(release_id, RESULT, payload, now)
        entry = {"set": evaluation_set, "passed": passed, "figures": digest_of(kept)}
        unit.audit.append(tag="release:confirmation:recorded", actor=actor, subject=release_id, payload=entry, at=now)


def read_result(word: str) -> bool:
    """Return whether a word says that the release is confirmed.

    Raises:
        InvalidInput: it is neither `passed` nor `failed`.
    """
    if word not in {"passed", "failed"}:
        raise InvalidInput(f"result {word[:80]!r} is unknown, expected passed or failed")
    return word == "passed"


def read_figures(texts: Sequence[str]) -> dict[str, int | float | str]:
    """Return the figures of texts like `acceptance=0.71`.

    Raises:
        InvalidInput: a text has no name, or its value is no finite number.
    """
    found: dict[str, int | float | str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            number = float(value)
        except ValueError as exc:
            raise InvalidInput(f"figure {text[:80]!r} is not NAME=NUMBER; write for example acceptance=0.71") from exc
        if not name or not isfinite(number):
            raise InvalidInput(f"figure {text[:80]!r} needs a name and a finite number; write for example acceptance=0.71")
        found[name] = number
    return found


def _of(unit: Unit, release_id: str, kind: str, evaluation_set: str) -> list[dict[str, Any]]:
    return [e for e in unit.evidence.of(release_id) if e["kind"] == kind and e["payload"]["set"] == evaluation_set]


def _checked(figures: Mapping[str, int | float | str]) -> dict[str, int | float | str]:
    if len(figures) > MAX_FIGURES:
        raise InvalidInput(f"{len(figures)} figures are too many, expected at most {MAX_FIGURES}; keep the rest in a file")
    for name, value in figures.items():
        if not (isinstance(value, str) or (type(value) in {int, float} and isfinite(value))):
            said = f"{type(value).__name__} {str(value)[:80]}"
            raise InvalidInput(f"figure {str(name)[:80]!r} is {said}, expected a finite number or a text; leave it out")
    return dict(figures)
