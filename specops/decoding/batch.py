"""Several requests, one target forward a round. Owner: the slots.

Input: requests that join and leave at any time; output: for each running request its next step, or the error that ended it.
Invariants: a request has one slot of the pool from joining to its end, and no two share one; what a request gets depends on its
own tokens and chance only, so it is what it gets alone, up to the order of float additions. Prompts are prefilled one by one;
a request that joined is prefilled in the next round, while the others go on. Called by `engines.scheduler`; the rounds
themselves are `loop`'s. Test: tests/decoding/test_batch.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor

from specops.decoding.draft import Draft, Proposal
from specops.decoding.loop import Speculation
from specops.decoding.request import Request, Step
from specops.decoding.sampling import Chance
from specops.errors import EngineUnavailable, InvalidInput
from specops.transformer.model import KVCache, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicK:
    """How many tokens to draft at most; it looks at finished rounds only, so laws stay exact.

    Attributes:
        by_batch: (running requests, k) pairs in rising order: with up to that many requests, k at most; beyond the last, 0.
            Empty does not limit.
        by_acceptance: one more after a round that accepted everything, one less after any other, never below 1.
    """

    by_batch: tuple[tuple[int, int], ...] = ()
    by_acceptance: bool = False

    def __post_init__(self) -> None:
        """Check order and signs."""
        sizes = [size for size, _ in self.by_batch]
        if sizes != sorted(set(sizes)) or any(size < 1 or k < 0 for size, k in self.by_batch):
            raise InvalidInput(f"by_batch is {self.by_batch}, expected rising batch sizes >= 1 with k >= 0; sort the pairs")

    def most(self, running: int) -> int | None:
        """Return the largest k for a batch of this size; None does not limit."""
        return next((k for size, k in self.by_batch if running <= size), 0) if self.by_batch else None


@dataclass(eq=False, slots=True, kw_only=True)
class Row:
    """One request in the batch; `k` is what it drafts at most now."""

    speculation: Speculation
    k: int
    is_started: bool = False


@dataclass(slots=True, kw_only=True)
class Batch:
    """Up to `slots` requests at once, each with the target's whole context to itself.

    Attributes:
        target: shared by all.
        draft: what proposes; None decodes plainly.
        slots: most requests at once, >= 1.
        dynamic: limits k; the default does not.
        spare: positions of each slot beyond the context, for whoever shares the pool.
    """

    target: Model
    draft: Draft | None
    slots: int
    dynamic: DynamicK = DynamicK()
    spare: int = 0
    rows: list[Row] = field(default_factory=list, init=False)
    pool: Tensor = field(init=False)
    _caches: list[KVCache] = field(init=False)  # free ones, the lowest slot last: rows in low slots make narrow forwards

    def __post_init__(self) -> None:
        """Allocate the pool once."""
        if self.slots < 1:
            raise InvalidInput(f"slots is {self.slots}, expected >= 1; a batch holds at least one request")
        context = self.target.config.max_len
        self.pool = self.target.new_pool(self.slots, context + self.spare)
        self._caches = [KVCache(self.pool, slot, context) for slot in reversed(range(self.slots))]

    @property
    def free(self) -> int:
        """Requests that may join now."""
        return len(self._caches)

    def join(self, request: Request, *, chance: Chance | None = None) -> Row:
        """Give a request a slot; it is prefilled in the next round.

        Raises:
            InvalidInput: the prompt has an unknown token or leaves no room in the target's context.
            EngineUnavailable: no slot is free.
        """
        row = self.seat(request, self.draft, chance)
        self.rows.append(row)
        return row

    def seat(self, request: Request, draft: Draft | None, chance: Chance | None = None) -> Row:
        """Take a slot for a request whose rounds are somebody else's; otherwise as `join`."""
        if not self._caches:
            raise EngineUnavailable(f"all {self.slots} slots are taken; wait until a request ends")
        speculation = Speculation(self.target, draft, request, chance, self._caches[-1])
        self._caches.pop().rewind(0)
        return Row(speculation=speculation, k=speculation.k)

    def leave(self, row: Row) -> None:
        """Free a row's slot, whatever it was doing; no effect on a row that is gone."""
        if row in self.rows:
            self.rows.remove(row)
            self.free_seat(row)

    def free_seat(self, row: Row) -> None:
        """Give back what `seat` took."""
        self._caches.append(row.speculation.cache)
        self._caches.sort(key=lambda cache: -cache.slot)

    def round(self) -> Iterator[tuple[Row, Step | Exception]]:
        """Advance every row once and yield each with its step or error; a row that ended has left by then.

        Consume it to its end before the next call; a row may be made to leave in between.
        """
        proposals: list[tuple[Row, Proposal]] = []
        for row in tuple(self.rows):
            try:
                if row.is_started:
                    most = self.dynamic.most(len(self.rows))
                    proposals.append((row, row.speculation.draft(row.k if most is None else min(row.k, most))))
                else:
                    row.is_started = True
                    yield self._done(row, row.speculation.prefill())
            except Exception as exc:  # noqa: BLE001  # one broken request must not end the others
                yield self._done(row, exc)
        proposals = [(row, proposal) for row, proposal in proposals if row in self.rows]
        feeds = [((r.speculation.committed[-1], *p.tokens), r.speculation.cache) for r, p in proposals]
        scored = self.target.forward_rows(feeds) if feeds else ()
        for (row, proposal), logits in zip(proposals, scored, strict=True):
            if row not in self.rows:
                continue
            try:
                step = row.speculation.finish(proposal, logits)
            except Exception as exc:  # noqa: BLE001
                yield self._done(row, exc)
                continue
            if self.dynamic.by_acceptance and step.drafted:
                row.k = min(row.speculation.k, row.k + 1) if step.accepted == step.drafted else max(1, row.k - 1)
            yield self._done(row, step)

    def _done(self, row: Row, step: Step | Exception) -> tuple[Row, Step | Exception]:
        if isinstance(step, Exception) or step.finish is not None:
            self.leave(row)
        return row, step
