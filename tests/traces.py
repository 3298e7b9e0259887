"""Traces from toy numbers, consistent in themselves: states follow from tokens, sums from counts."""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from specops.core.trace import Alternative, Cap, Cut, Decided, Round, Rule, State, Trace

AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
PROMPT = (1, 2, 3)
STAGE_S = (0.001, 0.004, 0.0005, 0.0005)


def make_state(committed: Sequence[int], *, has_draft: bool = True) -> State:
    """Return the state in which all but the last token are cached."""
    digest = hashlib.sha256(struct.pack(f"<{len(committed)}i", *committed)).hexdigest()
    return State(
        committed=len(committed),
        target_cached=len(committed) - 1,
        draft_cached=len(committed) - 1 if has_draft else None,
        sha256=digest,
    )


def make_round(
    committed: Sequence[int],
    accepted: int,
    *,
    k: int = 4,
    draft_nats: float = 1.0,
    target_nats: float = 1.0,
    stage_s: tuple[float, ...] = STAGE_S,
    cap: Cap = Cap.NONE,
    tokens: Sequence[int] = (),
    most: int | None = None,
    cut: Cut | None = None,
) -> Round:
    """Return a sampled round behind `committed`; `tokens` are its block (the first of 100, 101, ... by position otherwise)."""
    start = len(committed)
    block = tuple(tokens) or tuple(100 + (start + i) % 800 for i in range(accepted + 1))
    drafted = (*block[:accepted], *(900 + i for i in range(k - accepted)))
    probs = tuple(0.5 if i < accepted else 0.05 for i in range(k))
    emitted = block if most is None else block[:most]
    decided = Decided.TARGET if k == 0 else Decided.BONUS if accepted == k else Decided.RECOVERED
    chosen = [*block[: accepted + 1], *([700] * (k - accepted))]
    return Round(
        drafted=drafted,
        is_one_hot=False,
        draft_probs=(0.5,) * k,
        target_probs=probs,
        accept_probs=tuple(min(1.0, p / 0.5) for p in probs),
        draft_entropies_nats=(draft_nats,) * k,
        target_entropies_nats=(target_nats,) * (k + 1),
        alternatives=tuple((Alternative(token=t, target_prob=0.5), Alternative(token=800, target_prob=0.3)) for t in chosen),
        coins=tuple(None if i < accepted else 0.9 if i == accepted else None for i in range(k)),
        last_coin=0.25,
        last_prob=0.5,
        rule=Rule.TOKEN,
        accepted=accepted,
        residual_mass=0.45 if accepted < k else None,
        decided=decided,
        emitted=emitted,
        cap=cap,
        cut=cut,
        stage_s=stage_s,
        stage_bytes=(4096, 8192, 64, 4096),
        before=make_state(committed, has_draft=k > 0),
        after=make_state((*committed, *emitted), has_draft=k > 0),
    )


def make_trace(
    accepted: Sequence[int], *, request_id: str = "cmpl-1", ended: Cut | None = Cut.LENGTH, **given: object
) -> Trace:
    """Return a trace with a round for each accepted count.

    Args:
        accepted: of each round.
        request_id: its id.
        ended: what ended the answer.
        given: fields of the trace, and arguments of `make_round`, for every round or, as a list, one for each.
    """
    own = {name: given.pop(name) for name in tuple(given) if name in Trace.__dataclass_fields__}
    committed = [*PROMPT, 99]
    rounds = []
    for i, count in enumerate(accepted):
        each = {name: value[i] if isinstance(value, list) else value for name, value in given.items()}
        rounds.append(make_round(committed, count, **each))
        committed += rounds[-1].emitted
    if rounds:
        rounds[-1] = replace(rounds[-1], cut=ended)
    emitted = len(committed) - len(PROMPT)
    return Trace(**{
        "request_id": request_id, "at": AT, "engine": {"method": "draft_model", "k": 4, "device": "cpu"},
        "settings": {"temperature": 1.0, "max_tokens": emitted, "seed": 7}, "prompt_ids": PROMPT, "first": (99,),
        "first_alternatives": (Alternative(token=99, target_prob=0.6), Alternative(token=98, target_prob=0.4)),
        "queue_s": 0.0005, "prefill_s": 0.01, "rounds": tuple(rounds), "ended": ended, "text_tokens": emitted,
    } | own)  # fmt: skip


def plain_trace(tokens: Sequence[int], **given: object) -> Trace:
    """Return the trace of a plain decoding that emitted 99 and then these tokens."""
    return make_trace([0] * len(tokens), k=0, tokens=[(token,) for token in tokens], **{"request_id": "cmpl-plain"} | given)
