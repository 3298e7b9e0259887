"""Stages 3 and 4 and the laws they need, for all rows at once and with no value read back to the host.

The same rules as `decoding.sampling`, `accept` and `resample`, whose comments say why; here every `if` about a value is a
`where`, so that a CUDA graph can hold them. Chance comes in as numbers: each decision has a coin of its own, used or not.
Called by `device.round`. Sources: as of the stages. Test: tests/device/test_laws.py, pointwise against the stages.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specops.decoding.request import Request


@dataclass(frozen=True, slots=True)
class Settings:
    """Sampling settings of all rows, each a tensor [rows]; temperature, top_p and min_p are float64, top_k is int64."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor

    @classmethod
    def neutral(cls, rows: int, device: torch.device) -> "Settings":
        """Return greedy settings for every row."""
        none = torch.zeros(rows, dtype=torch.float64, device=device)
        return cls(none, none.long(), torch.ones_like(none), none.clone())

    def put(self, row: int, request: Request) -> None:
        """Take over a request's settings."""
        self.temperature[row], self.top_k[row] = request.temperature, request.top_k
        self.top_p[row], self.min_p[row] = request.top_p, request.min_p

    def first(self, rows: int) -> "Settings":
        """Return a view of the first rows."""
        return Settings(self.temperature[:rows], self.top_k[:rows], self.top_p[:rows], self.min_p[:rows])


def laws(logits: Tensor, settings: Settings, *, has_filters: bool) -> Tensor:
    """Return each row's law at each position.

    Args:
        logits: float32 [rows, n, vocab].
        settings: one per row.
        has_filters: whether any row has a top_k, top_p or min_p; without, the sort is saved.

    Returns:
        float64 [rows, n, vocab]; one-hot at temperature 0.
    """
    heat = settings.temperature[:, None, None]
    best = torch.zeros_like(logits, dtype=torch.float64).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    scaled = logits.double() / torch.where(heat > 0, heat, 1.0)
    if not has_filters:
        return torch.where(heat > 0, scaled.softmax(-1), best)
    low = scaled.amax(-1, keepdim=True) + settings.min_p.log()[:, None, None]  # log 0 is -inf: drops nothing
    scaled = scaled.masked_fill(scaled < low, -torch.inf)
    vocab = logits.shape[-1]
    keep = torch.where((settings.top_k > 0) & (settings.top_k < vocab), settings.top_k, vocab)
    ordered = scaled.sort(dim=-1, descending=True).values
    floor = ordered.gather(-1, (keep - 1)[:, None, None].expand(-1, logits.shape[1], 1))
    probs = scaled.masked_fill(scaled < floor, -torch.inf).softmax(-1)
    top_p = settings.top_p[:, None, None]
    return torch.where(heat > 0, torch.where(top_p < 1, _nucleus(probs, top_p), probs), best)


def _nucleus(probs: Tensor, top_p: Tensor) -> Tensor:
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(probs).scatter_(-1, order, ordered.masked_fill(before >= top_p, 0.0))
    return kept / kept.sum(-1, keepdim=True)


def pick(law: Tensor, coin: Tensor) -> Tensor:
    """Draw one index per row by inverting its distribution function: law [rows, vocab], coin [rows] in [0, 1)."""
    edges = law.cumsum(-1)
    total = edges[:, -1:].contiguous()
    index = torch.searchsorted(edges, coin[:, None] * total, right=True)
    last = torch.searchsorted(edges, total)  # the last index with mass: the product may round up to the total
    return torch.minimum(index, last)[:, 0]


def judge(drafted: Tensor, draft_law: Tensor, target_law: Tensor, coins: Tensor) -> tuple[Tensor, Tensor]:
    """Accept a prefix by the token rule and draw the token behind it.

    Args:
        drafted: int64 [rows, k].
        draft_law: float64 [rows, k, vocab], what each was drawn from.
        target_law: float64 [rows, k + 1, vocab].
        coins: float64 [rows, k + 1] in [0, 1): one per proposal, the last for the draw.

    Returns:
        accepted [rows] in [0, k], and the last token [rows].
    """
    k = drafted.shape[1]
    p = target_law[:, :k].gather(-1, drafted[..., None])[..., 0]
    q = draft_law.gather(-1, drafted[..., None])[..., 0]
    accepted = (coins[:, :k] < p / q).long().cumprod(-1).sum(-1)
    at = accepted[:, None, None].expand(-1, 1, target_law.shape[-1])
    row = target_law.gather(1, at)[:, 0]
    nothing = torch.zeros_like(draft_law[:, :1])  # behind a full accept the excess is p itself: the bonus
    left = (row - torch.cat((draft_law, nothing), dim=1).gather(1, at)[:, 0]).clamp_(min=0.0)
    return accepted, pick(torch.where(left.sum(-1, keepdim=True) > 0, left, row), coins[:, k])


def judge_greedy(drafted: Tensor, choices: Tensor) -> tuple[Tensor, Tensor]:
    """Accept what equals the target's choices: drafted int64 [rows, k], choices int64 [rows, k + 1]."""
    accepted = (drafted == choices[:, :-1]).long().cumprod(-1).sum(-1)
    return accepted, choices.gather(1, accepted[:, None])[:, 0]
