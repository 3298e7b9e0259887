"""One round of a draft model for all rows, as a program of fixed shapes that lives on the device.

Drafting, scoring, accepting, resampling and rewinding happen there: lengths are tensors, the verify width is always k + 1, and
rewinding is a smaller length. The host writes coins before a round and reads one tensor after it. On CUDA the program is
captured once per shape and replayed as a graph; elsewhere it runs as it stands, which is how it is tested.
A row drafts k tokens to its very end; what goes beyond its limit is cut by the host, so laws are kept and counts of the last
round are larger than `decoding.loop`'s. Called by `device.batch`. Test: tests/device/test_round.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specops.decoding.request import Request
from specops.device.laws import Settings, judge, judge_greedy, laws, pick
from specops.transformer.model import Model

MIN_REACH = 256  # positions; graphs exist for powers of two from here on, so that short texts do not pay for a long context
_WARM_UPS = 3  # runs before a capture, as torch's notes on CUDA graphs ask: lazy initialisation must not be captured


@dataclass(frozen=True, slots=True)
class Shape:
    """What a captured program is specialised to: rows, positions looked at, and which rules are compiled in."""

    rows: int
    reach: int
    is_greedy: bool
    has_filters: bool


class DeviceRound:
    """State of all rows on the device, and the round that moves it on.

    Attributes:
        k: proposals per round and row, always.
        spare: positions that a pool needs beyond the target's context.
    """

    def __init__(self, target: Model, draft: Model, k: int, pool: Tensor) -> None:
        """Take the target's pool, with `spare(k)` positions beyond its context, and allocate the draft's beside it."""
        self._target, self._draft, self.k = target, draft, k
        self._pool, slots, device = pool, pool.shape[1], target.device
        self.draft_pool = draft.new_pool(slots, pool.shape[-2])
        self._text = torch.zeros((slots, pool.shape[-2] + 1), dtype=torch.long, device=device)
        self._length = torch.full((slots,), 2, dtype=torch.long, device=device)
        self._runs = torch.zeros(slots, dtype=torch.bool, device=device)
        self._coins = torch.zeros((slots, 2 * k + 1), dtype=torch.float64, device=device)
        self._packed = torch.zeros((slots, k + 2), dtype=torch.long, device=device)
        self._settings = Settings.neutral(slots, device)
        self._rows: dict[int, Request] = {}
        self._lengths: dict[int, int] = {}
        self._ready: dict[Shape, Callable[[], None]] = {}
        self._memory = torch.cuda.graph_pool_handle() if device.type == "cuda" else None  # of all graphs together

    def put(self, slot: int, committed: Sequence[int], request: Request) -> None:
        """Start a row behind its prefill: both caches hold all committed tokens but the last; there are at least two."""
        self._text[slot, : len(committed)] = torch.tensor(committed, device=self._text.device)
        self._length[slot] = self._lengths[slot] = len(committed)
        self._settings.put(slot, request)
        self._runs[slot] = True
        self._rows[slot] = request

    def take(self, slot: int) -> None:
        """Stop a row; its slot is left as it is. No effect on one that does not run."""
        if self._rows.pop(slot, None):
            del self._lengths[slot]
            self._runs[slot] = False

    def run(self, coins: Mapping[int, Sequence[float]]) -> dict[int, tuple[int, tuple[int, ...]]]:
        """Advance every row by a round.

        Args:
            coins: for each slot that runs its 2 k + 1 uniform numbers: k draws, k decisions, the last draw. None of them are
                looked at for a row at temperature 0, which may have an empty sequence.

        Returns:
            For each slot the length of its accepted prefix, and that prefix with the round's last token.
        """
        shape = self._shape()
        if not shape.is_greedy:
            table = torch.zeros((shape.rows, 2 * self.k + 1), dtype=torch.float64)
            for slot, numbers in coins.items():
                if numbers:
                    table[slot] = torch.tensor(numbers, dtype=torch.float64)
            self._coins[: shape.rows].copy_(table, non_blocking=True)
        if shape not in self._ready:
            self._ready[shape] = self._prepare(shape)
        self._ready[shape]()
        found: list[list[int]] = self._packed[: shape.rows].tolist()  # the round's one read
        for slot in self._rows:
            self._lengths[slot] += found[slot][0] + 1
        return {slot: (found[slot][0], tuple(found[slot][1 : found[slot][0] + 2])) for slot in self._rows}

    def _shape(self) -> Shape:
        """Return the narrowest program that holds every row that runs."""
        rows, most = max(self._rows) + 1, max(self._lengths.values()) + self.k
        wide, reach = 1, MIN_REACH
        while wide < rows:
            wide *= 2
        while reach < most:
            reach *= 2
        warm = [request for request in self._rows.values() if request.temperature > 0]
        return Shape(
            rows=min(wide, len(self._runs)),
            reach=min(reach, self._pool.shape[-2]),
            is_greedy=not warm,
            has_filters=any(request.top_k or request.top_p < 1 or request.min_p for request in warm),
        )

    def _prepare(self, shape: Shape) -> Callable[[], None]:
        """Return what runs the program: itself, or on CUDA a replay of its capture."""

        def program() -> None:
            self._program(shape)

        if self._target.device.type != "cuda":
            return program
        runs = self._runs.clone()
        self._runs.zero_()  # rows that do not run leave no trace, so warming up changes nothing
        side = torch.cuda.Stream(self._target.device)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        side.wait_stream(torch.cuda.current_stream(self._target.device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                program()
        torch.cuda.current_stream(self._target.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            program()
        self._runs.copy_(runs)
        return graph.replay

    @torch.inference_mode()
    def _program(self, shape: Shape) -> None:
        """Draft, score, accept, resample, commit; every tensor it makes has a shape that `shape` and k fix."""
        rows, k, reach, far = shape.rows, self.k, shape.reach, self._pool.shape[-2]
        text, length, runs, coins = self._text[:rows], self._length[:rows], self._runs[:rows], self._coins[:rows]
        settings = self._settings.first(rows)
        # 1 draft. The last two tokens are fed: after a full accept the draft has not seen the last proposal, and otherwise
        # it computes once more what it had.
        ids = text.gather(1, length[:, None] - 2 + torch.arange(2, device=text.device))
        last, start = ids[:, 1:], torch.where(runs, length, far + 2)
        tokens, rules = [], []
        logits = self._draft.forward_fixed(ids, start - 2, self.draft_pool, reach)[:, -1:]
        for i in range(k):
            if shape.is_greedy:
                tokens.append(logits[:, 0].argmax(-1))
            else:
                rules.append(laws(logits, settings, has_filters=shape.has_filters))
                tokens.append(pick(rules[-1][:, 0], coins[:, i]))
            if i + 1 < k:
                logits = self._draft.forward_fixed(tokens[-1][:, None], start + i, self.draft_pool, reach)
        drafted = torch.stack(tokens, dim=1)
        # 2 score
        scored = self._target.forward_fixed(torch.cat((last, drafted), dim=1), start - 1, self._pool, reach)
        # 3 accept, 4 resample
        if shape.is_greedy:
            accepted, token = judge_greedy(drafted, scored.argmax(-1))
        else:
            target_law = laws(scored, settings, has_filters=shape.has_filters)
            accepted, token = judge(drafted, torch.cat(rules, dim=1), target_law, coins[:, k:])
        # 5 repeat: commit the block; what lies behind the new length is stale
        block = torch.cat((drafted, last), dim=1).scatter_(1, accepted[:, None], token[:, None])
        steps = torch.arange(k + 1, device=text.device)
        text.scatter_(1, torch.where(runs[:, None], length[:, None] + steps, far), block)
        length.add_(torch.where(runs, accepted + 1, 0))
        self._packed[:rows].copy_(torch.cat((accepted[:, None], block), dim=1))


def spare(k: int) -> int:
    """Return how many positions a pool needs beyond the context: a block over its end, and one for rows that do not run."""
    return k + 1
