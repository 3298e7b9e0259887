"""Requests of a draft model whose rounds run on the device, beside those that need the host in every round.

The same verbs as `decoding.batch.Batch`: join, leave, round. A request that asks for nothing that depends on the text so far,
nor for log probabilities, a trace, the block rule or a k of its own, goes to `DeviceRound`; every other one to the batch that
it wraps, in the same pool of slots. Which of the two a request meets changes its speed and, at temperature > 0, its random
numbers, never its law. Called by `engines.scheduler`. Test: tests/device/test_batch.py.
"""

from collections.abc import Iterator

from specops.core.trace import Rule
from specops.decoding.batch import Batch, Row
from specops.decoding.draft import ModelDraft
from specops.decoding.request import Request, Step, cut
from specops.decoding.sampling import Chance, Seeded
from specops.device.round import DeviceRound, spare
from specops.transformer.model import KVCache, Model


class DeviceBatch:
    """Up to `slots` requests at once; `k` proposals per round for those that run on the device."""

    def __init__(self, target: Model, draft: ModelDraft, slots: int) -> None:
        """Allocate both pools once."""
        self._draft = draft
        self._host = Batch(target=target, draft=draft, slots=slots, spare=spare(draft.k))
        self._device = DeviceRound(target, draft.model, draft.k, self._host.pool)
        self._context = min(target.config.max_len, draft.model.config.max_len)
        self._rows: dict[int, Row] = {}  # by slot: those on the device

    @property
    def free(self) -> int:
        """Requests that may join now."""
        return self._host.free

    @property
    def rows(self) -> tuple[Row, ...]:
        """Every request that runs."""
        return (*self._rows.values(), *self._host.rows)

    def suits(self, request: Request) -> bool:
        """Return whether a request's rounds need nothing from the host, and fit both models' contexts."""
        depends_on_text = request.has_penalties or request.logit_bias or request.min_tokens
        is_read = request.trace or request.logprobs is not None
        fits = len(request.prompt_ids) + request.max_tokens <= self._context
        own_law = request.temperature > 0 and (self._draft.greedy or request.rule is not Rule.TOKEN)
        own_rule = own_law or request.k not in {None, self._draft.k}
        return fits and not (depends_on_text or is_read or own_rule)

    def join(self, request: Request, *, chance: Chance | None = None) -> Row:
        """Give a request a slot; it is prefilled in the next round.

        Args:
            request: prompt, limits and sampling.
            chance: replaces the source seeded by the request; such a request runs on the host.

        Raises:
            InvalidInput: the prompt has an unknown token or leaves no room in the target's context.
            EngineUnavailable: no slot is free.
        """
        if chance is not None or not self.suits(request):
            return self._host.join(request, chance=chance)
        row = self._host.seat(request, None)
        self._rows[row.speculation.cache.slot] = row
        return row

    def leave(self, row: Row) -> None:
        """Free a row's slot, whatever it was doing; no effect on a row that is gone."""
        slot = row.speculation.cache.slot
        if self._rows.get(slot) is row:
            del self._rows[slot]
            self._device.take(slot)
            self._host.free_seat(row)
        else:
            self._host.leave(row)

    def round(self) -> Iterator[tuple[Row, Step | Exception]]:
        """Advance every row once and yield each with its step or error; a row that ended has left by then.

        Consume it to its end before the next call; a row may be made to leave in between.
        """
        running = {slot: row for slot, row in self._rows.items() if row.is_started}
        if running:
            blocks = self._device.run({slot: self._coins(row) for slot, row in running.items()})
            for slot, row in running.items():
                if self._rows.get(slot) is row:
                    yield self._done(row, self._commit(row, *blocks[slot]))
        for row in [row for row in self._rows.values() if not row.is_started]:  # behind the round, which they are not in
            row.is_started = True
            try:
                step: Step | Exception = self._prefill(row)
            except Exception as exc:  # noqa: BLE001  # one broken request must not end the others
                step = exc
            yield self._done(row, step)
        yield from self._host.round()

    def _prefill(self, row: Row) -> Step:
        """Commit the first token and bring both caches to it; it joins the rounds behind this one."""
        spec, slot = row.speculation, row.speculation.cache.slot
        step = spec.prefill()
        if step.finish is None:
            self._draft.model.forward(
                spec.request.prompt_ids, KVCache(self._device.draft_pool, slot, self._context), last_only=True
            )
            self._device.put(slot, spec.committed, spec.request)
        return step

    def _coins(self, row: Row) -> tuple[float, ...]:
        chance = row.speculation.chance
        if row.speculation.request.temperature == 0 or not isinstance(chance, Seeded):
            return ()
        return tuple(chance.uniform() for _ in range(2 * self._draft.k + 1))

    def _commit(self, row: Row, accepted: int, block: tuple[int, ...]) -> Step:
        spec = row.speculation
        tokens, finish = cut(block, spec.stop_ids, spec.limit - len(spec.committed))
        spec.committed += tokens
        spec.cache.length = len(spec.committed) - 1
        return Step(tokens=tokens, drafted=self._draft.k, accepted=accepted, finish=finish)

    def _done(self, row: Row, step: Step | Exception) -> tuple[Row, Step | Exception]:
        if isinstance(step, Exception) or step.finish is not None:
            self.leave(row)
        return row, step
