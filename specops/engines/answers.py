"""vLLM's answer bodies as values: rounds become the JSON that vLLM would send. Pure: no sockets, no model.

Source: vLLM 0.32 entrypoints/openai (completion and chat serving, protocols) and
docs/features/speculative_decoding/acceptance_metrics.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specops.core.outcome import Acceptance, Finish
from specops.decoding.request import TokenLogprob
from specops.engines.dialect import Call

LEAST_LOGPROB = -9999.0  # stands for minus infinity, which JSON cannot say


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """One round as the client sees it; `finish` is set on the last one, `prompt_logprobs` on the first.

    `logprobs` has one entry per token, None for a token that has none: the first of an echoed prompt.
    """

    text: str
    token_ids: tuple[int, ...]
    finish: Finish | None = None
    stop_reason: str | int | None = None
    logprobs: tuple[TokenLogprob | None, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None


def merged(deltas: Sequence[Delta]) -> Delta:
    """Return consecutive rounds as one."""
    first, last = deltas[0], deltas[-1]
    return Delta(
        text="".join(delta.text for delta in deltas),
        token_ids=tuple(token for delta in deltas for token in delta.token_ids),
        finish=last.finish,
        stop_reason=last.stop_reason,
        logprobs=None if first.logprobs is None else tuple(entry for delta in deltas for entry in delta.logprobs or ()),
        prompt_logprobs=first.prompt_logprobs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of one ended request, in seconds. `ttft_s` counts from admission (vLLM's per-request meaning), not from arrival."""

    queue_s: float
    ttft_s: float
    decode_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Who is answering: the constant part of every body of one answer. `piece` gives the text of one token id."""

    id: str
    model: str
    created: int
    call: Call
    piece: Callable[[int], str]

    def whole(self, deltas: Sequence[Delta], *, usage: dict[str, int], metrics: dict[str, Any] | None) -> dict[str, Any]:
        """Return the body of an answer that is not streamed: one delta per choice."""
        choices = [self._choice(index, delta, is_first=True, is_chunk=False, offset=0) for index, delta in enumerate(deltas)]
        top: dict[str, Any] = {"choices": choices, "usage": usage, "metrics": metrics}
        if self.call.is_chat:
            top |= self._prompt(0, deltas[0], is_first=True)
        return self._head(is_chunk=False) | top

    def chunk(self, index: int, delta: Delta, *, is_first: bool, offset: int) -> dict[str, Any]:
        """Return the body of one streamed round of a choice whose text so far has `offset` characters."""
        top: dict[str, Any] = {"choices": [self._choice(index, delta, is_first=is_first, is_chunk=True, offset=offset)]}
        if self.call.is_chat:
            top |= self._prompt(index, delta, is_first=is_first)
        return self._head(is_chunk=True) | top

    def last(self, *, usage: dict[str, int], metrics: dict[str, Any] | None) -> dict[str, Any]:
        """Return the usage chunk: no choices; nulls of the metrics are dropped, as in vLLM."""
        body = self._head(is_chunk=True) | {"choices": [], "usage": usage}
        if metrics is None:
            return body
        kept = {key: value for key, value in metrics.items() if value is not None}
        if speculation := kept.get("speculative_decoding"):
            kept["speculative_decoding"] = {key: value for key, value in speculation.items() if value is not None}
        return body | {"metrics": kept}

    def _head(self, *, is_chunk: bool) -> dict[str, Any]:
        kind = "text_completion"
        if self.call.is_chat:
            kind = "chat.completion.chunk" if is_chunk else "chat.completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _choice(self, index: int, delta: Delta, *, is_first: bool, is_chunk: bool, offset: int) -> dict[str, Any]:
        text: dict[str, Any] = {"text": delta.text}
        if self.call.is_chat and is_chunk:
            text = {"delta": ({"role": "assistant"} if is_first else {}) | {"content": delta.text}}
        elif self.call.is_chat:
            text = {"message": {"role": "assistant", "content": delta.text}}
        logprobs = None
        if self.call.logprobs is not None and delta.logprobs is not None:
            logprobs = self._chat_logprobs(delta.logprobs) if self.call.is_chat else self._logprobs(delta, offset)
        ending = {"logprobs": logprobs, "finish_reason": delta.finish, "stop_reason": delta.stop_reason}
        ids = {"token_ids": list(delta.token_ids)} if self.call.return_token_ids else {}
        prompt = {} if self.call.is_chat else self._prompt(index, delta, is_first=is_first)
        return {"index": index, **text, **ending, **ids, **prompt}

    def _prompt(self, index: int, delta: Delta, *, is_first: bool) -> dict[str, Any]:
        """Return what is said of the prompt: in the choice of a completion, at the top of a chat."""
        said: dict[str, Any] = {}
        if is_first and self.call.return_token_ids:
            said["prompt_token_ids"] = list(self.call.requests[index // self.call.n].prompt_ids)
        if is_first and self.call.prompt_logprobs is not None and delta.prompt_logprobs is not None:
            said["prompt_logprobs"] = [None, *(self._prompt_entry(entry) for entry in delta.prompt_logprobs)]
        return said

    def _prompt_entry(self, entry: TokenLogprob) -> dict[str, Any]:
        assert self.call.prompt_logprobs is not None
        ranks = {entry.token: entry.rank} | {token: rank for rank, (token, _) in enumerate(entry.top, start=1)}
        return {
            str(token): {"logprob": _finite(value), "rank": ranks[token], "decoded_token": self.piece(token)}
            for token, value in _candidates(entry, self.call.prompt_logprobs).items()
        }

    def _name(self, token: int) -> str:
        return f"token_id:{token}" if self.call.names_ids else self.piece(token)

    def _logprobs(self, delta: Delta, offset: int) -> dict[str, Any]:
        assert self.call.logprobs is not None
        assert delta.logprobs is not None
        names = [self._name(token) for token in delta.token_ids]
        offsets = [offset]
        for name in names[:-1]:
            offsets.append(offsets[-1] + len(name))
        tops = [
            None if entry is None else {
                self._name(token): _finite(value) for token, value in _candidates(entry, self.call.logprobs).items()
            }
            for entry in delta.logprobs
        ]  # fmt: skip
        values = [None if entry is None else _finite(entry.logprob) for entry in delta.logprobs]
        return {"text_offset": offsets[: len(names)], "token_logprobs": values, "tokens": names, "top_logprobs": tops}

    def _chat_logprobs(self, entries: Sequence[TokenLogprob | None]) -> dict[str, Any]:
        assert self.call.logprobs is not None
        content = []
        for entry in entries:
            assert entry is not None  # a chat does not echo
            # The emitted token comes first and counts as one of the asked number.
            best = list(_candidates(entry, self.call.logprobs).items())[: self.call.logprobs]
            tops = [self._chat_entry(token, value) for token, value in best]
            content.append(self._chat_entry(entry.token, entry.logprob) | {"top_logprobs": tops})
        return {"content": content}

    def _chat_entry(self, token: int, value: float) -> dict[str, Any]:
        name = self._name(token)
        return {"token": name, "logprob": _finite(value), "bytes": list(name.encode("utf-8", "replace"))}


def _candidates(entry: TokenLogprob, depth: int) -> dict[int, float]:
    """Return the token and the likeliest ones by id, the token first."""
    return {entry.token: entry.logprob} | dict(entry.top[:depth])


def _finite(value: float) -> float:
    return max(value, LEAST_LOGPROB)


def usage_of(*, prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Return the `usage` object."""
    total = prompt_tokens + completion_tokens
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}


def metrics_of(
    timing: Timing, *, completion_tokens: int, acceptance: Acceptance | None, k: int,
    per_round: Sequence[tuple[int, int]] | None,
) -> dict[str, Any]:  # fmt: skip
    """Return the per-request `metrics` object.

    Args:
        timing: of the request.
        completion_tokens: tokens of the answer.
        acceptance: None on an engine that does not speculate, or is told not to report.
        k: the engine's proposals per round.
        per_round: (drafted, accepted) of every round with drafts; None leaves them out (summary).
    """
    later = completion_tokens - 1
    return {
        "time_to_first_token_ms": timing.ttft_s * 1e3,
        "generation_time_ms": timing.decode_s * 1e3,
        "queue_time_ms": timing.queue_s * 1e3,
        "mean_itl_ms": timing.decode_s / later * 1e3 if later > 0 else None,
        "tokens_per_second": later / timing.decode_s if later > 0 and timing.decode_s > 0 else None,
        "speculative_decoding": None if acceptance is None else _speculation(acceptance, k, per_round or None),
    }


def _speculation(acceptance: Acceptance, k: int, per_round: Sequence[tuple[int, int]] | None) -> dict[str, Any]:
    # vLLM reports 1.0 and 0.0 when nothing was drafted; readers must look at num_spec_steps.
    return {
        "mean_acceptance_length": acceptance.length or 1.0,
        "draft_acceptance_rate": acceptance.rate or 0.0,
        "acceptance_histogram": list(acceptance.histogram),
        "num_spec_steps": acceptance.rounds,
        "num_accepted_draft_tokens": acceptance.accepted,
        "num_draft_tokens": acceptance.drafted,
        "num_spec_tokens": k,
        "per_step_accepted": None if per_round is None else [accepted for _, accepted in per_round],
        "per_step_drafted": None if per_round is None else [drafted for drafted, _ in per_round],
    }
