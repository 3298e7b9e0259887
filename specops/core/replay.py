"""Replay: the same outcomes under the same policy give the same e-values and the same decisions, to the last bit.

Called by `control.replay`, which reads the store. What was decided is taken from nobody: outcomes are folded again from the
first, each stored verdict is judged again at its count of outcomes, each decision of the policy is made again by `advance`, and
what people did is done again in the order of the log. The first value that differs is named.

Taken as given, because outcomes don't hold it: the time of each verdict, complaints about data and sources (they are in the
verdict itself), and what people did. A retry by hand begins at the first outcome that ended after it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from specops.core.audit import AuditEntry
from specops.core.judge import judge
from specops.core.outcome import Outcome
from specops.core.plan import Rollout, State
from specops.core.policy import Policy
from specops.core.rollout import Action, abort, advance, approve, roll_back
from specops.core.steer import amend, clear, finish, pause, propose, resume, retry
from specops.core.verdict import METHOD, Verdict
from specops.core.window import Window, fold
from specops.errors import IllegalTransition, InvalidRecord

STARTED = "rollout:plan:started"
_DECIDED = ("action", "reason", "state", "step", "version", "evidence")  # of an audit entry, made again by `advance`
_Change = Callable[[Rollout, AuditEntry], Rollout]


def _by_reason(change: Callable[..., Rollout]) -> _Change:
    return lambda rollout, entry: change(rollout, reason=entry.payload["reason"])


_BY_HAND: Mapping[str, _Change] = {
    "rollout:gate:approved": lambda rollout, entry: approve(rollout, actor=entry.actor),
    "rollout:plan:aborted": _by_reason(abort),
    "rollout:release:rolled_back": lambda rollout, entry: roll_back(rollout, reason=entry.payload["reason"]).rollout,
    "rollout:state:held": _by_reason(pause),
    "rollout:state:resumed": _by_reason(resume),
    "rollout:state:retried": lambda rollout, entry: retry(rollout, reason=entry.payload["reason"], at=entry.at),
    "rollout:state:finished": _by_reason(finish),
    "rollout:state:cleared": _by_reason(clear),
    "rollout:policy:amendment_proposed": lambda rollout, entry: propose(
        rollout, digest=entry.payload["policy"], actor=entry.actor
    ),
    "rollout:policy:amended": lambda rollout, entry: amend(
        rollout, digest=entry.payload["policy"], actor=entry.actor, at=entry.at
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first value that came out otherwise: where it is, as stored, as replayed."""

    where: str
    stored: str
    replayed: str

    @property
    def text(self) -> str:
        """One line."""
        return f"{self.where}: stored {self.stored}, replayed {self.replayed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All that is stored about a rollout. `policies` by digest; `verdicts` and `window` as records; entries oldest first."""

    rollout: Rollout
    policies: Mapping[str, Policy]
    outcomes: Sequence[Outcome]
    verdicts: Sequence[Mapping[str, Any]]
    entries: Sequence[AuditEntry]
    window: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What was compared, and the first difference; None when all came out the same."""

    outcomes: int
    verdicts: int
    decisions: int
    difference: Difference | None


def replay(story: Story) -> Replayed:
    """Recompute evidence, verdicts and decisions of a rollout from its outcomes and compare each with what is stored.

    Raises:
        InvalidRecord: the log does not say how the rollout began, a policy is not there or reads otherwise, or a stored verdict
            or entry lacks what every one has.
    """
    started = next((e for e in story.entries if e.tag == STARTED), None)
    if started is None:
        raise InvalidRecord(f"rollout {story.rollout.id} has no {STARTED} entry in the audit log; verify the log first")
    try:
        player = _Player(story=story, rollout=_as_started(story.rollout, started))
        found = player.difference()
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise InvalidRecord(
            f"a verdict or entry of rollout {story.rollout.id} is no such record: {exc!r}; restore the database from a backup"
        ) from exc
    return Replayed(outcomes=player.position, verdicts=player.compared, decisions=player.decisions, difference=found)


def first_difference(stored: Any, replayed: Any, where: str) -> Difference | None:  # noqa: ANN401  # any JSON value
    """Return the first leaf in which two JSON values differ; what an older version did not store is not compared."""
    if isinstance(stored, Mapping) and isinstance(replayed, Mapping):
        pairs = [(f"{where}.{key}", value, replayed.get(key)) for key, value in stored.items()]
    elif isinstance(stored, list) and isinstance(replayed, list) and len(stored) == len(replayed):
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(stored, replayed, strict=True))]
    else:
        is_same = stored == replayed and isinstance(stored, bool) == isinstance(replayed, bool)
        return None if is_same else Difference(where=where, stored=_shown(stored), replayed=_shown(replayed))
    return next((d for path, a, b in pairs if (d := first_difference(a, b, path)) is not None), None)


@dataclass(slots=True, kw_only=True)
class _Player:
    """The replay as far as it has come; `position` and `compared` count consumed outcomes and verdicts."""

    story: Story
    rollout: Rollout
    position: int = 0
    compared: int = 0
    decisions: int = 0
    is_exact: bool = True  # every fold happened where it happened then; false where only a person's time is known
    window: Window = field(init=False)

    def __post_init__(self) -> None:
        self.window = Window.empty(self._policy)

    def difference(self) -> Difference | None:
        """Do everything again in the order in which it happened, up to the first difference."""
        for entry in self.story.entries:
            found = None
            if "verdict" in entry.payload:
                found = self._decide(entry)
            elif entry.tag in _BY_HAND:
                found = self._verdicts_before(entry) or self._steer(entry)
            if found is not None:
                return found
        while self.compared < len(self.story.verdicts):
            if (found := self._judge()[1]) is not None:
                return found
        return self._end()

    def _decide(self, entry: AuditEntry) -> Difference | None:
        """Judge up to the verdict that decided, then decide again."""
        where, said = f"entry {entry.index} {entry.tag}", entry.payload
        verdicts = self.story.verdicts
        ahead = range(self.compared, len(verdicts))
        at = next((i for i in ahead if (verdicts[i]["outcomes"], _at(verdicts[i])) == (said["outcomes"], entry.at)), None)
        if at is None:
            return Difference(where=where, stored=f"verdict {said['verdict']}", replayed="no such verdict is stored")
        while self.compared < at:
            if (found := self._judge()[1]) is not None:
                return found
        verdict, found = self._judge()
        if verdict is None or found is not None:
            return found
        action = advance(self.rollout, verdict, candidate_outcomes=self.window.candidate_outcomes)
        self.decisions += 1
        self._follow(action.rollout)
        return first_difference(_of(said, _DECIDED), _decided(action), where)

    def _verdicts_before(self, entry: AuditEntry) -> Difference | None:
        while self.compared < len(self.story.verdicts):
            record = self.story.verdicts[self.compared]
            begins_anew = record["outcomes"] < self.window.outcomes or record["policy_digest"] != self.rollout.policy_digest
            begins_anew |= record.get("pass_factor", 1.0) > self.rollout.pass_factor
            if _at(record) > entry.at or begins_anew or (record["outcomes"], _at(record)) in self._decisive:
                return None
            if (found := self._judge()[1]) is not None:
                return found
        return None

    def _steer(self, entry: AuditEntry) -> Difference | None:
        before = self.rollout
        try:
            after = _BY_HAND[entry.tag](before, entry)
        except IllegalTransition as exc:
            return Difference(where=f"entry {entry.index} {entry.tag}", stored=f"done by {entry.actor}", replayed=str(exc))
        if after.evidence != before.evidence:
            outcomes = self.story.outcomes
            while self.position < len(outcomes) and outcomes[self.position].at < entry.at:
                self.position += 1
        self.is_exact &= before.state is not State.PROMOTED or not after.is_terminal
        self._follow(after)
        return None

    def _judge(self) -> tuple[Verdict | None, Difference | None]:
        """Fold up to the next stored verdict and judge again; no verdict where there is no evidence to judge."""
        number, record = self.compared, self.story.verdicts[self.compared]
        where = f"verdict {number}"
        self.compared += 1
        while self.window.outcomes < record["outcomes"] and self.position < len(self.story.outcomes):
            self._fold()
        if self.window.outcomes != record["outcomes"]:
            stored, there = f"after {record['outcomes']} outcomes", f"{self.window.outcomes} outcomes there are"
            return None, Difference(where=where, stored=stored, replayed=there)
        at = _at(record)
        if record.get("method", 1) != METHOD:
            stored = f"method {record.get('method', 1)}: replay it with the version of specops that judged it"
            return None, Difference(where=where, stored=stored, replayed=f"method {METHOD}")
        if record["policy_digest"] != self.rollout.policy_digest:
            by, then = str(record["policy_digest"])[:12], self.rollout.policy_digest[:12]
            return None, Difference(where=f"{where}.policy_digest", stored=by, replayed=then)
        verdict = judge(
            self._policy, self.window, terms=self.rollout.terms, now=at,
            data_errors=_complaints(record, "data"), sources=_complaints(record, "source"),
        )  # fmt: skip
        return verdict, first_difference(record, _json(verdict.to_record()), where)

    def _fold(self) -> None:
        outcome = self.story.outcomes[self.position]
        self.position += 1
        if not self.rollout.counts(outcome):
            return
        self.window = fold(self.window, outcome, self._policy, promoted=self.rollout.state is State.PROMOTED)

    def _end(self) -> Difference | None:
        """Fold what came after the last verdict, and compare rollout and evidence with what is stored of them."""
        while self.position < len(self.story.outcomes):
            self._fold()
        kept = ("state", "step", "version", "evidence", "policy_digest")
        stored = _of(_json(self.story.rollout.to_record()), kept)
        found = first_difference(stored, _json(self.rollout.to_record()), "rollout")
        if found is not None or self.story.window is None or not self.is_exact:
            return found
        return first_difference(self.story.window, _json(self.window.to_record()), "evidence")

    def _follow(self, rollout: Rollout) -> None:
        before, self.rollout = self.rollout, rollout
        if rollout.evidence != before.evidence:
            self.window = Window.empty(self._policy, plain=self.window.plain)

    @property
    def _decisive(self) -> set[tuple[int, datetime]]:
        """Return which verdicts moved the rollout; the log, not their time, says when."""
        return {(e.payload["outcomes"], e.at) for e in self.story.entries if "verdict" in e.payload}

    @property
    def _policy(self) -> Policy:
        digest = self.rollout.policy_digest
        found = self.story.policies.get(digest)
        if found is None:
            raise InvalidRecord(f"policy {digest[:12]} of rollout {self.rollout.id} was not given; load it from the store")
        if found.digest != digest:
            raise InvalidRecord(
                f"the stored text of policy {digest[:12]} now reads as policy {found.digest[:12]}; "
                "replay with the version of specops that wrote it, or restore the text"
            )
        return found


def _as_started(rollout: Rollout, started: AuditEntry) -> Rollout:
    return Rollout(
        id=rollout.id, baseline=rollout.baseline, candidate=rollout.candidate, policy_digest=started.payload["policy"],
        pipeline=rollout.pipeline, steps=rollout.steps, requested_by=started.actor, max_falls=rollout.max_falls,
        cool_down_s=rollout.cool_down_s, started_at=started.at, trial=started.payload.get("trial", 1),
    )  # fmt: skip


def _decided(action: Action) -> dict[str, Any]:
    to = action.rollout
    made = {"action": action.kind.value, "reason": action.reason, "state": to.state.value, "step": to.step}
    return made | {"version": to.version, "evidence": to.evidence}


def _complaints(record: Mapping[str, Any], check: str) -> tuple[str, ...]:
    """Return the complaints that a stored verdict was given, from its own finding: their number and their joined text."""
    for found in record["findings"]:
        if found["check"] == check and found["metric"] == check:
            return tuple(found["reason"].partition(": ")[2].split("; ", found["n"] - 1))
    return ()


def _at(record: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(record["at"])


def _of(record: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: record[key] for key in keys if key in record}


def _json(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Return a value as it comes back from the store: tuples as lists, enums as their text, every float as it was."""
    return json.loads(json.dumps(value))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."  # noqa: PLR2004  # a line
