"""What is asked of the decoder and what it gives back round by round; no tensors, no state.

Built by engines and tests; read by `loop` and `plain`. Tokenising and detokenising are the engine's business.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from specops.core.trace import Alternative, Round, Rule
from specops.errors import InvalidInput

_MOST = 2  # of a penalty's size, as in vLLM and OpenAI's API


class Ending(StrEnum):
    """Why generation ended: a stop token, or the token or context limit (vLLM's words)."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One generation.

    Attributes:
        prompt_ids: at least one token id of the target's vocabulary.
        max_tokens: most tokens to generate, >= 1; the target's context may end it earlier.
        temperature: 0 is greedy; otherwise logits are divided by it.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: then keep the fewest tokens whose renormalised mass reaches top_p, in (0, 1].
        min_p: drop tokens less likely than min_p times the most likely one, in [0, 1]; 0 keeps all.
        repetition_penalty: divides positive and multiplies negative logits of tokens in prompt or answer, > 0; 1 is neutral.
        presence_penalty: subtracted from the logit of each token that the answer has, in [-2, 2].
        frequency_penalty: subtracted per occurrence of the token in the answer, in [-2, 2].
        logit_bias: (token id, added logit) pairs, each token once.
        min_tokens: stop tokens are excluded until the answer has this many tokens.
        logprobs: report the log probability of each emitted token and of this many most likely ones; None reports nothing.
        prompt_logprobs: the same for the prompt's tokens; None reports nothing.
        seed: of the request's own random source.
        stop_ids: token ids that end the answer beside the target's EOS ids; the stopping token is emitted last.
        k: proposals per round; None takes the draft's own number.
        rule: accept token by token or by block; at temperature 0 both are the greedy rule.
        trace: record every round (costs a few tensor reads per round).
        ignore_eos: do not stop at the target's EOS ids.
    """

    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    seed: int = 0
    stop_ids: tuple[int, ...] = ()
    k: int | None = None
    rule: Rule = Rule.TOKEN
    trace: bool = False
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        """Check ranges."""
        rules = (
            ("prompt_ids", len(self.prompt_ids), len(self.prompt_ids) >= 1, "at least one token"),
            ("max_tokens", self.max_tokens, self.max_tokens >= 1, ">= 1"),
            ("temperature", self.temperature, math.isfinite(self.temperature) and self.temperature >= 0, "finite and >= 0"),
            ("top_k", self.top_k, self.top_k >= 0, ">= 0, where 0 keeps all"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "in (0, 1]"),
            ("min_p", self.min_p, 0 <= self.min_p <= 1, "in [0, 1]"),
            ("repetition_penalty", self.repetition_penalty, 0 < self.repetition_penalty < math.inf, "finite and > 0"),
            ("presence_penalty", self.presence_penalty, abs(self.presence_penalty) <= _MOST, f"in [-{_MOST}, {_MOST}]"),
            ("frequency_penalty", self.frequency_penalty, abs(self.frequency_penalty) <= _MOST, f"in [-{_MOST}, {_MOST}]"),
            ("logit_bias", self.logit_bias, self._has_sound_bias, "finite numbers, each token id >= 0 and once"),
            ("min_tokens", self.min_tokens, 0 <= self.min_tokens <= self.max_tokens, f"in [0, {self.max_tokens}]"),
            *((name, depth, depth is None or depth >= 0, ">= 0, or nothing") for name, depth in self._depths),
            ("k", self.k, self.k is None or self.k >= 0, ">= 0, or nothing for the draft's own"),
        )
        for name, got, holds, expected in rules:
            if not holds:
                raise InvalidInput(f"{name} is {got}, expected {expected}; change the request")

    @property
    def has_penalties(self) -> bool:
        """The text so far changes the law."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def _depths(self) -> tuple[tuple[str, int | None], ...]:
        return ("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)

    @property
    def _has_sound_bias(self) -> bool:
        ids = [token for token, _ in self.logit_bias]
        return len(set(ids)) == len(ids) and min(ids, default=0) >= 0 and all(math.isfinite(b) for _, b in self.logit_bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """What the target's raw law (temperature 1, no filters: vLLM's `raw_logprobs`) says of one token.

    Attributes:
        token: its id.
        logprob: natural logarithm of its probability, <= 0.
        rank: 1 for the most likely token; tokens that tie count as equally likely.
        top: the most likely ids with their log probabilities, in falling order; as many as were asked for.
    """

    token: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Tokens that became final together: the prefill's one token, or those of one round.

    `logprobs` has one entry per emitted token if the request asks; `prompt_logprobs`, in the first step only, one per prompt
    token after the first. A traced request's first step has `first_alternatives`, what the target liked best there, and every
    later one its `trace`.
    `accepted` is what the rule accepted, before a stop token or the limit cut the block (vLLM counts so), so without a cut
    len(tokens) == accepted + 1.
    """

    tokens: tuple[int, ...]
    drafted: int = 0
    accepted: int = 0
    finish: Ending | None = None
    trace: Round | None = None
    first_alternatives: tuple[Alternative, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None


def cut(tokens: Sequence[int], stop_ids: Collection[int], room: int) -> tuple[tuple[int, ...], Ending | None]:
    """End a block at its first stop token, or at the limit, whichever comes first.

    Args:
        tokens: what the round would emit.
        stop_ids: ids that end the answer; the stopping token itself is kept.
        room: tokens that may still be emitted, >= 1.
    """
    for i, token in enumerate(tokens[:room]):
        if token in stop_ids:
            return tuple(tokens[: i + 1]), Ending.STOP
    return tuple(tokens[:room]), Ending.LENGTH if len(tokens) >= room else None
