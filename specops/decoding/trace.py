"""The record of one round, for people and for invariants: what each stage was given, what it decided, what it took.

A `Recorder` exists while `Request.trace` is set and never otherwise; it reads what the stages hand over and changes nothing.
The record itself is `specops.core.trace`: token ids, no text. Called by `loop`. Test: tests/decoding/test_trace.py.
"""

import hashlib
from array import array
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specops.core.trace import Alternative, Cap, Cut, Decided, Round, State
from specops.decoding.accept import Ruling
from specops.decoding.draft import Proposal
from specops.decoding.request import Ending
from specops.decoding.resample import excess
from specops.decoding.sampling import entropies_nats, shaped

if TYPE_CHECKING:
    from specops.decoding.loop import Speculation

DEPTH = 5  # alternatives per position
_CUTS = {Ending.STOP: Cut.STOP_TOKEN, Ending.LENGTH: Cut.LENGTH}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What stages 3 and 4 came to; `laws` is None at temperature 0, where none are built."""

    ruling: Ruling
    token: int
    laws: Tensor | None


class Recorder:
    """Records the rounds of one request."""

    def __init__(self) -> None:
        self._laps: list[float] = []
        self._last = 0.0
        self._before: State | None = None
        self._cap = Cap.NONE

    def begin(self, spec: "Speculation", most: int | None, room: int) -> None:
        """Note the state before a round, and what will have kept k where it is; start the clock."""
        self._before = self._state(spec)
        limits = ((room, Cap.ROOM), (spec.k if most is None else most, Cap.BATCH))
        least = min(spec.k, *(limit for limit, _ in limits))
        own = Cap.NONE if spec.request.k is None else Cap.REQUEST
        self._cap = own if least == spec.k else next(cap for limit, cap in limits if limit == least)
        self._laps = []
        self._last = perf_counter()

    def lap(self) -> None:
        """Note the end of a stage."""
        now = perf_counter()
        self._laps.append(now - self._last)
        self._last = now

    def round(
        self,
        spec: "Speculation",
        proposal: Proposal,
        logits: Tensor,
        verdict: Verdict,
        *,
        asked: int,
        emitted: tuple[int, ...],
        finish: Ending | None,
    ) -> Round:
        """Return the record of a round that is over.

        Args:
            spec: after the round.
            proposal: stage 1's.
            logits: stage 2's, [k + 1, vocab].
            verdict: stage 3's and 4's.
            asked: how many proposals the draft was asked for.
            emitted: what became final.
            finish: why the answer ended, if it did.
        """
        before, ruling, drafted = self._before, verdict.ruling, proposal.tokens
        if before is None:
            raise AssertionError("begin comes first")
        at, k = ruling.accepted, len(drafted)
        law = verdict.laws
        if law is None:  # a one-hot law says nothing of near-ties: the record has the law at temperature 1 instead
            text = [*spec.committed[: before.committed], *drafted]
            law = shaped(logits, spec.request, text, spec.stop_ids).softmax(-1, dtype=torch.float64)
        left = None if at == k else self._excess(proposal, verdict)
        mass = None if left is None else float(left.sum())
        is_warm = verdict.laws is not None
        return Round(
            drafted=drafted,
            is_one_hot=proposal.law is None,
            draft_probs=ruling.draft_probs,
            target_probs=ruling.target_probs,
            accept_probs=ruling.accept_probs,
            draft_entropies_nats=(0.0,) * k if proposal.law is None else _entropies(proposal.law),
            target_entropies_nats=entropies_nats(logits),
            alternatives=alternatives(law, proposal.law),
            coins=ruling.coins,
            last_coin=spec.chance.coin if is_warm else None,
            last_prob=self._last_prob(verdict, left),
            rule=ruling.rule,
            accepted=at,
            residual_mass=mass,
            decided=Decided.RECOVERED if at < k else Decided.BONUS if drafted else Decided.TARGET,
            emitted=emitted,
            cap=Cap.DRAFT if k < asked else self._cap,
            cut=None if finish is None else _CUTS[finish],
            stage_s=tuple(self._laps),
            stage_bytes=(
                _bytes(proposal.law) + _cached(spec.drafting, k),
                _bytes(logits) + _cached(spec, k + 1),
                16 * k,  # p and q of each proposal
                _bytes(left),
            ),
            before=before,
            after=self._state(spec),
        )

    @staticmethod
    def _excess(proposal: Proposal, verdict: Verdict) -> Tensor:
        at, laws = verdict.ruling.accepted, verdict.laws
        if laws is None:
            return torch.ones(1, dtype=torch.float64)  # p and q are one-hot on different tokens
        draft = proposal.tokens[at] if proposal.law is None else proposal.law[at]
        return excess(laws[at], draft, verdict.ruling.scale)

    @staticmethod
    def _last_prob(verdict: Verdict, left: Tensor | None) -> float:
        if verdict.laws is None:
            return 1.0
        row = verdict.laws[verdict.ruling.accepted]
        if left is not None and (mass := left.sum()) > 0:
            row = left / mass
        return float(row[verdict.token])

    @staticmethod
    def _state(spec: "Speculation") -> State:
        own = getattr(spec.drafting, "cache", None)
        return State(
            committed=len(spec.committed),
            target_cached=spec.cache.length,
            draft_cached=None if own is None else own.length,
            sha256=hashlib.sha256(array("i", spec.committed).tobytes()).hexdigest(),
        )


def alternatives(law: Tensor, draft_law: Tensor | None = None) -> tuple[tuple[Alternative, ...], ...]:
    """Return the likeliest tokens of each row of a law [positions, vocab], and what the draft's law [k, vocab] says of them."""
    probs, ids = law.topk(min(DEPTH, law.shape[-1]), dim=-1)
    known = 0 if draft_law is None else len(draft_law)
    off = [] if draft_law is None else draft_law.gather(-1, ids[:known]).tolist()
    return tuple(
        tuple(
            Alternative(token=token, target_prob=prob, draft_prob=off[i][j] if i < known else None)
            for j, (token, prob) in enumerate(zip(tokens, row, strict=True))
            if prob > 0
        )
        for i, (tokens, row) in enumerate(zip(ids.tolist(), probs.tolist(), strict=True))
    )


def _entropies(law: Tensor) -> tuple[float, ...]:
    return tuple(torch.special.entr(law).sum(-1).tolist())


def _bytes(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel() * tensor.element_size()


def _cached(owner: Any, positions: int) -> int:  # noqa: ANN401  # whoever may have a cache
    """Return the bytes of so many positions in the owner's cache; 0 for one without."""
    kv = getattr(getattr(owner, "cache", None), "kv", None)
    return 0 if kv is None else positions * _bytes(kv) // kv.shape[-2]
