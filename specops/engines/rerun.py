"""Counterfactuals: decode a recorded request again with one assumption changed, and record that too.

The same prompt, settings and seed through the same stages, alone and without a server; unchanged it gives the recorded tokens,
up to the order of float additions in a batch. Called by `specops trace rerun`. Test: tests/engines/test_rerun.py.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tokenizers

from specops.core.outcome import Finish
from specops.core.trace import Rule, Trace
from specops.decoding.draft import Draft
from specops.decoding.loop import generate
from specops.decoding.request import Request
from specops.engines.speculation import Speculation
from specops.engines.tracing import Tracer
from specops.engines.weights import weights_digest
from specops.errors import InvalidInput
from specops.transformer.model import Model, load_model

_KINDS: Mapping[str, Callable[[str], Any]] = {
    "max_tokens": int, "temperature": float, "top_k": int, "top_p": float, "min_p": float, "repetition_penalty": float,
    "presence_penalty": float, "frequency_penalty": float, "min_tokens": int, "seed": int, "k": int, "rule": Rule,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is different in the second run.

    Attributes:
        settings: fields of the request with their new values.
        without_draft: decode plainly.
        drop: (start, end) of the prompt's tokens that are left out; None keeps all.
        most_rounds: end after so many rounds; None does not limit.
    """

    settings: Mapping[str, Any]
    without_draft: bool = False
    drop: tuple[int, int] | None = None
    most_rounds: int | None = None

    @property
    def words(self) -> str:
        """What a person reads; "nothing" without a change."""
        parts = [f"{name}={value}" for name, value in self.settings.items()]
        parts += ["draft=none"] if self.without_draft else []
        parts += ["drop={}:{}".format(*self.drop)] if self.drop else []
        parts += [f"rounds={self.most_rounds}"] if self.most_rounds is not None else []
        return ", ".join(parts) or "nothing"


def read_change(words: Sequence[str]) -> Change:
    """Read `name=value` words: a setting of the request, `draft=none`, `drop=START:END`, or `rounds=N`.

    Raises:
        InvalidInput: an unknown name, or a value of another kind.
    """
    settings: dict[str, Any] = {}
    more: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            if name in _KINDS:
                settings[name] = _KINDS[name](value)
            elif word == "draft=none":
                more["without_draft"] = True
            elif name == "drop":
                start, _, end = value.partition(":")
                more["drop"] = (int(start), int(end))
            elif name == "rounds":
                more["most_rounds"] = int(value)
            else:
                known = ", ".join((*_KINDS, "draft=none", "drop=START:END", "rounds=N"))
                raise InvalidInput(f"cannot change {word!r}; change one of {known}")
        except ValueError as exc:
            raise InvalidInput(f"{word!r} has no value of the right kind: {exc}") from exc
    return Change(settings=settings, **more)


def rerun(
    target: Model, draft: Draft | None, trace: Trace, change: Change, *, facts: Mapping[str, Any] | None = None
) -> Trace:
    """Decode a recorded request again.

    Args:
        target: the recorded target, or another.
        draft: what proposes; ignored with `change.without_draft`.
        trace: the recorded request.
        change: what is different.
        facts: of the engine, where they differ from the recorded ones.

    Raises:
        InvalidInput: the trace has no settings, or the change leaves no valid request.
    """
    request = _request(trace, change)
    known = {**trace.engine, "device": target.device.type, **(facts or {})}
    if change.without_draft or draft is None:
        known |= {"method": None, "num_speculative_tokens": 0, "draft_sha256": None}
        draft = None
    tracer = Tracer(request_id=f"{trace.request_id} with {change.words}", request=request, facts=known)
    finish, prefill_s, began_s = Finish.ABORT, 0.0, time.perf_counter()
    for step in generate(target, draft, request):
        prefill_s = prefill_s or time.perf_counter() - began_s
        tracer.add(step)
        if step.finish is not None:
            finish = Finish(step.finish)
        if change.most_rounds is not None and len(tracer.rounds) >= change.most_rounds:
            break
    tokens = len(tracer.first) + sum(len(each.emitted) for each in tracer.rounds)
    return tracer.end(finish, by_text=False, by_engine=True, text_tokens=tokens, queue_s=0.0, prefill_s=prefill_s)


def rerun_from_folders(trace: Trace, model: Path, draft: Path | None, words: Sequence[str]) -> Trace:
    """Load the models and decode a recorded request again.

    Args:
        trace: the recorded request.
        model: folder of the target.
        draft: folder of a draft model; None takes the recorded lookup, or nothing.
        words: as of `read_change`.

    Raises:
        InvalidInput: as of `rerun`, or the draft model's folder is missing.
        InvalidWeights: a folder cannot be loaded.
    """
    change, engine = read_change(words), trace.engine
    k, dtype, method = engine.get("num_speculative_tokens", 0), engine.get("dtype", "float32"), engine.get("method")
    target = load_model(model, dtype=dtype)
    small = load_model(draft, dtype=dtype) if draft else None
    if method == "draft_model" and small is None and not change.without_draft:
        raise InvalidInput("the request had a draft model; pass its folder with --draft, or --set draft=none")
    speculation = Speculation.from_record(engine.get("speculation", {}))
    proposer = None if change.without_draft else speculation.draft(method, max(k, 1), small)
    facts = {"target_sha256": weights_digest(model)} | ({"draft_sha256": weights_digest(draft)} if draft else {})
    return rerun(target, proposer, trace, change, facts=facts)


def token_texts(model: Path) -> Callable[[int], str]:
    """Return what gives the text of a token id, from a model's tokenizer.json."""
    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))

    def text(token: int) -> str:
        return str(tokenizer.decode([token], skip_special_tokens=False))

    return text


def _request(trace: Trace, change: Change) -> Request:
    names = {field.name for field in fields(Request)}
    given = {name: value for name, value in trace.settings.items() if name in names}
    if "max_tokens" not in given:
        raise InvalidInput(f"trace {trace.request_id} has no settings to run again; take one that an engine recorded")
    ids = trace.prompt_ids
    if change.drop:
        start, end = change.drop
        if not 0 <= start < end <= len(ids) or end - start == len(ids):
            raise InvalidInput(f"cannot drop tokens {start}:{end} of a prompt of {len(ids)}; leave at least one")
        ids = ids[:start] + ids[end:]
    tuples = {name: tuple(given.get(name, ())) for name in ("stop_ids", "logit_bias")}
    tuples["logit_bias"] = tuple((token, bias) for token, bias in tuples["logit_bias"])
    values = {**given, **tuples, "rule": Rule(given.get("rule", "token")), **change.settings}
    return Request(prompt_ids=ids, trace=True, **values)
