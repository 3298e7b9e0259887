"""The control loop: outcomes in, traffic moved. Load -> fold -> judge -> advance -> save -> act; no policy lives here.

Called by `specops control serve` for one rollout at a time. Evidence, cursor, verdict, rollout, audit entry and outbox commit
in one transaction; only then is the route put. So a kill at any point loses nothing and repeats nothing: the next control
process reads the evidence and the cursor, puts the route that the stored rollout implies, and goes on.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from specops.control.alarms import owe_route, route_in_force, settle
from specops.control.amend import read_policy
from specops.control.ports import Batch, Gateway, Store, Unit
from specops.control.record import PRODUCTION, TAGS, record_action, return_alias
from specops.core.judge import glance, judge
from specops.core.outcome import Outcome
from specops.core.policy import Policy
from specops.core.rollout import Action, ActionKind, Rollout, State, advance, may_move, roll_back
from specops.core.route import Route
from specops.core.verdict import Result, Verdict
from specops.core.window import Window, fold
from specops.errors import GatewayUnavailable, IllegalTransition, StoreUnavailable

__all__ = ["PRODUCTION", "TAGS", "Controller", "Endpoints", "record_action", "return_alias", "route_of"]
LEASE_S = 5.0
SILENT_S = 10.0  # a gateway that restarts is away for a second or two, and nobody is called for that
Check = Callable[[tuple[Outcome, ...], datetime], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Where the two arms of a rollout listen."""

    baseline_url: str
    candidate_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folded:
    """What one pass made of its outcomes: `taken` were consumed, `mine` belong to the rollout, `decided` moves it."""

    window: Window
    mine: tuple[Outcome, ...]
    taken: int
    verdict: Verdict | None
    decided: Action | None


@dataclass(slots=True, kw_only=True)
class Controller:
    """Judges one rollout and moves its traffic.

    `clock` returns UTC now; `check` returns data errors of a batch (empty: usable); `read_policy` parses the text of a policy
    that takes the place of `policy` by amendment.
    """

    store: Store
    gateway: Gateway
    policy: Policy
    endpoints: Endpoints
    rollout_id: str
    holder: str
    actor: str
    clock: Callable[[], datetime]
    check: Check
    verdict_every: int = 10
    read_policy: Callable[[str], Policy] = read_policy
    _window: Window = field(init=False)
    _epoch: str | None = field(init=False, default=None)
    _cursor: int = field(init=False, default=0)
    _rollout: Rollout = field(init=False)
    _last: Result | None = field(init=False, default=None)
    _silent_since: datetime | None = field(init=False, default=None)
    _routed: int = field(init=False, default=0)  # version of the rollout that the gateway was last told
    _owed_since: datetime | None = field(init=False, default=None)  # when the route was decided that is not in force yet

    @property
    def rollout(self) -> Rollout:
        """The rollout as last stored."""
        return self._rollout

    def resume(self) -> Rollout:
        """Take the lease, load rollout and evidence, and put the route they imply; safe to call at any time.

        Raises:
            StoreUnavailable: another control plane holds the lease.
            GatewayUnavailable: the gateway did not answer.
        """
        with self.store.begin() as unit:
            self._take_lease(unit)
            self._rollout = unit.rollouts.get(self.rollout_id)
            self._follow_policy(unit)
            stored = unit.windows.load(self.rollout_id)
            revision = unit.next_revision()
        self._window = Window.empty(self.policy)
        if stored is None:
            self._begin_after_history()
        else:
            record, self._epoch, self._cursor = stored
            self._window = Window.from_record(record)
        if self._rollout.is_terminal or self.gateway.status().get("tripped") is None:
            self._put(revision)  # a gateway that fell back is not armed again; the first pass rolls back
        return self._rollout

    def _follow_policy(self, unit: Unit) -> None:
        if self._rollout.policy_digest != self.policy.digest:
            self.policy = self.read_policy(unit.policies.get(self._rollout.policy_digest))

    def _begin_after_history(self) -> None:
        """Pass over what the gateway holds from before this rollout: a trial is judged on its own data only (M13)."""
        batch = self.gateway.poll(0, None, 0.0)
        while batch.outcomes:
            batch = self.gateway.poll(batch.next, batch.epoch, 0.0)
        self._epoch, self._cursor = batch.epoch, batch.next
        with self.store.begin() as unit:
            unit.windows.save(self.rollout_id, self._window.to_record(), batch.epoch, batch.next)

    def pass_once(self, *, wait_s: float = 1.0) -> Action | None:
        """Poll once and deal with what came; return the last action that moved traffic, if any.

        Raises:
            StoreUnavailable: the lease was lost.
            GatewayUnavailable: the gateway did not answer; nothing was changed but an alarm.
        """
        try:
            batch = self.gateway.poll(self._cursor, self._epoch, wait_s)
        except GatewayUnavailable as exc:
            self._hear_nothing(f"the gateway does not answer: {exc}")
            raise
        self._silent_since = None
        now = self.clock()
        faults = self.check(batch.outcomes, now)
        moved: Action | None = None
        start = 0
        while start < len(batch.outcomes) or (start == 0 and not batch.outcomes):
            start, action = self._take(batch, start, faults, now)
            moved = action or moved
            if not batch.outcomes:
                break
        return moved

    def _hear_nothing(self, source: str) -> None:
        """Judge without outcomes: a broken source is ERROR, which holds and alerts once, until it works again."""
        now = self.clock()
        self._silent_since = self._silent_since or now
        if (now - self._silent_since).total_seconds() < SILENT_S:
            return
        with self.store.begin() as unit:
            self._take_lease(unit)
            current = self._follow(unit)
            if current.is_terminal:
                return
            verdict = self._judge(self._window, (), (source,), now)
            if verdict.result is not self._last:
                unit.verdicts.add(self.rollout_id, verdict)
            settle(unit, current, now, verdict=verdict, plain=self._window.plain)
        self._last = verdict.result

    def _take(self, batch: Batch, start: int, faults: tuple[str, ...], now: datetime) -> tuple[int, Action | None]:
        """Fold from `start` until an action moves the rollout or the batch ends; commit; then put the route.

        A batch with `faults` is passed over whole: it never becomes evidence, its verdict is ERROR, and the log says why.
        """
        first = batch.next - len(batch.outcomes)
        lost = (f"gateway dropped {batch.dropped} outcomes before control read them",) if batch.dropped else ()
        with self.store.begin() as unit:
            self._take_lease(unit)
            current = self._follow(unit)
            found = unit.evidence.of(self.rollout_id)
            usable = () if faults else batch.outcomes[start:]
            folded = self._fold(usable, (*faults, *_suite_errors(found)), lost, now)
            position = len(batch.outcomes) if faults else start + folded.taken
            decided = folded.decided
            if batch.tripped and not current.is_terminal and (decided is None or not decided.rollout.is_terminal):
                folded = replace(folded, decided=None)  # a trip outranks whatever would arm the gateway again
                decided = roll_back(current, reason=f"the gateway fell back on its own: {batch.tripped}")
            plain = folded.window.plain
            if decided is not None and decided.rollout.evidence != current.evidence:
                folded = replace(folded, window=Window.empty(self.policy, plain=plain))  # decided on new outcomes only
            revision = self._save(unit, folded, decided, batch.epoch, first + position, now)
            if folded.verdict is not None:
                rows = found if decided is None else None  # a decision has opened and closed alarms of its own
                settle(unit, decided.rollout if decided else current, now, rows=rows, verdict=folded.verdict, plain=plain)
            if faults:
                payload = {"outcomes": len(batch.outcomes), "errors": list(faults)}
                unit.audit.append(
                    tag="outcomes:batch:refused", actor=self.actor, subject=self.rollout_id, payload=payload, at=now
                )
            has_restarted = self._epoch not in {None, batch.epoch}  # the gateway, perhaps without the route it had
            if revision is None and (has_restarted or current.version != self._routed):  # changed by hand, or the put failed
                revision = unit.next_revision()
        self._window, self._epoch, self._cursor = folded.window, batch.epoch, first + position
        if folded.verdict is not None:
            self._last = folded.verdict.result
        if decided is not None:
            self._rollout = decided.rollout
        if revision is not None:
            self._owed_since = self._owed_since or now
            self._put(revision)
        return position, decided

    def _follow(self, unit: Unit) -> Rollout:
        """Load the rollout, which a person may have changed, and drop evidence and policy that it left behind."""
        known = self._rollout
        current = self._rollout = unit.rollouts.get(self.rollout_id)
        self._follow_policy(unit)
        if current.evidence != known.evidence:
            self._window, self._last = Window.empty(self.policy, plain=self._window.plain), None
        return current

    def _fold(self, outcomes: tuple[Outcome, ...], errors: tuple[str, ...], sources: tuple[str, ...], now: datetime) -> _Folded:
        """Fold outcomes up to the first that moves the rollout, and judge there, or at the end.

        After each outcome a glance tells whether it could; the verdict in words, with its intervals, is made only then.
        """
        current, window = self._rollout, self._window
        taken, mine = 0, list[Outcome]()

        def folded(verdict: Verdict | None, action: Action | None) -> _Folded:
            decided = action if action and action.kind is not ActionKind.HOLD else None
            return _Folded(window=window, mine=tuple(mine), taken=taken, verdict=verdict, decided=decided)

        for outcome in outcomes:
            taken += 1
            if outcome.release_id not in (current.baseline, current.candidate):
                continue  # traffic of an earlier route, still in flight when this rollout began
            mine.append(outcome)
            if not current.counts(outcome):
                continue  # on record, but from before the evidence in use began
            window = fold(window, outcome, self.policy, promoted=current.state is State.PROMOTED)
            if current.is_terminal:
                continue  # recorded for the report; there is nothing left to decide
            result = self._glance(window, errors, sources, now)
            if may_move(current, result, candidate_outcomes=window.candidate_outcomes):
                verdict = self._judge(window, errors, sources, now)
                action = advance(current, verdict, candidate_outcomes=window.candidate_outcomes)
                if action.kind is not ActionKind.HOLD:
                    return folded(verdict, action)
        if current.is_terminal:
            return folded(None, None)
        verdict = self._judge(window, errors, sources, now)
        return folded(verdict, advance(current, verdict, candidate_outcomes=window.candidate_outcomes))

    def _glance(self, window: Window, errors: tuple[str, ...], sources: tuple[str, ...], now: datetime) -> Result:
        return glance(self.policy, window, terms=self._rollout.terms, now=now, data_errors=errors, sources=sources)

    def _judge(self, window: Window, errors: tuple[str, ...], sources: tuple[str, ...], now: datetime) -> Verdict:
        return judge(self.policy, window, terms=self._rollout.terms, now=now, data_errors=errors, sources=sources)

    def _save(self, unit: Unit, folded: _Folded, decided: Action | None, epoch: str, cursor: int, now: datetime) -> int | None:
        window, verdict, mine = folded.window, folded.verdict, folded.mine
        unit.windows.save(self.rollout_id, window.to_record(), epoch, cursor)
        if mine:
            unit.outcomes.append(self.rollout_id, mine)
        due = bool(mine) and window.outcomes // self.verdict_every != self._window.outcomes // self.verdict_every
        if verdict is not None and (decided or verdict.result is not self._last or due):
            unit.verdicts.add(self.rollout_id, verdict)
        if decided is None:
            return None
        unit.rollouts.save(decided.rollout)
        judged = verdict if folded.decided is not None else None  # a trip is not the policy's word
        record_action(
            unit, decided, before=self._rollout, actor=self.actor, at=now, verdict=judged, deciding=mine[-1] if mine else None
        )
        return unit.next_revision()

    def _put(self, revision: int) -> None:
        """Put the route, read back what the gateway made of it, and keep how long that took after the decision."""
        rollout = self._rollout
        try:
            try:
                self.gateway.put_route(self._route(revision))
            except IllegalTransition:  # somebody put a route by hand with a higher revision; ours follows it
                beyond = int(self.gateway.status()["route"]["revision"])
                with self.store.begin() as unit:
                    revision = unit.next_revision(beyond=beyond)
                self.gateway.put_route(self._route(revision))
            status = self.gateway.status()
        except GatewayUnavailable as exc:
            with self.store.begin() as unit:
                owe_route(unit, rollout, str(exc), self.clock())
            raise
        now = self.clock()
        since, self._owed_since = self._owed_since, None
        self._routed = rollout.version
        with self.store.begin() as unit:
            route_in_force(unit, rollout, now)
            if since is not None:
                took = {"decided_at": since.isoformat(), "in_force_after_s": (now - since).total_seconds()}
                seen = {"revision": revision, "version": rollout.version, "weight": status.get("effective_weight")}
                unit.evidence.add(rollout.id, "route", seen | took, now)

    def _route(self, revision: int) -> Route:
        limits = [max(n, 1) for n in (self.policy.speculate_below, self._rollout.shed_below) if n is not None]
        return route_of(self._rollout, self.endpoints, revision, speculate_below=min(limits, default=None))

    def _take_lease(self, unit: Unit) -> None:
        if unit.leases.take("control", self.holder, self.clock(), LEASE_S) is None:
            raise StoreUnavailable(
                "another control plane holds the lease; it ends within 5 s of that process dying", retry_after_s=LEASE_S
            )


def route_of(rollout: Rollout, endpoints: Endpoints, revision: int, *, speculate_below: int | None = None) -> Route:
    """Return the route that a rollout's state implies, and the load below which its policy lets the candidate serve."""
    return Route(
        revision=revision,
        baseline_url=endpoints.baseline_url,
        baseline_release=rollout.baseline,
        candidate_url=endpoints.candidate_url,
        candidate_release=rollout.candidate,
        rollout_id=rollout.id,
        weight=rollout.weight,
        mirror=rollout.mirror,
        speculate_below=speculate_below,
    )


def _suite_errors(found: list[dict[str, Any]]) -> list[str]:
    suites = [e for e in found if e["kind"] == "data_suite"]
    return list(suites[-1]["payload"]["errors"]) if suites else []
