"""The proof that target and draft belong together, from their content.

Called at registration and by `specops release prove-pair`, with what `adapters.pair_folder` read; reads nothing itself. A draft
that would propose the wrong thing is refused, with the entry or the sizes that do not fit; the rest becomes remarks.

Sources: vLLM 0.32 (`vllm/config/speculative.py`) for hidden sizes and auxiliary layers; vllm#52258 and vLLM 0.33 for contexts;
SafeAILab/EAGLE#98 for drafts of another teacher.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from specops.core.imports import Description, Role
from specops.core.pair import SPECIAL_KEYS, Need, Pair, Remark, Side, need_of
from specops.core.tokenizer import Tokenizer, shown
from specops.core.vocabulary import Relation, VocabularyRelation, compare, side_differences
from specops.errors import IncompatibleRelease


def prove(target: Side, draft: Side | None, *, method: str, teacher: str | None = None) -> Pair:
    """Prove that target and draft belong together.

    Args:
        target: the target's folder.
        draft: the draft's; None for a method without weights, or `mtp` layers inside the target.
        method: how the draft proposes.
        teacher: digest of the model that the draft was distilled from, where somebody vouches for it.

    Raises:
        IncompatibleRelease: says what does not fit, with the entry or the sizes.
        InvalidRecord: a config.json is not a configuration.
    """
    method, need = need_of(method)
    if need is Need.NOTHING and draft is not None:
        raise IncompatibleRelease(f"method {method} proposes without a model, but a draft is given; leave the draft out")
    if need is not Need.NOTHING and draft is None and method != "mtp":
        raise IncompatibleRelease(f"method {method} needs a draft; give its folder or digest")
    if target.tokenizer is None:
        raise IncompatibleRelease("the target has no tokenizer.json, so nothing can be proved; save it beside config.json")
    plain: dict[str, Any] = {
        "target": target.digest,
        "method": method,
        "target_tokenizer": target.tokenizer.digest,
        "vocabulary_sha256": target.tokenizer.vocabulary_sha256,
        "target_chat_template": target.chat_template,
        "target_hidden_size": target.about.properties.get("hidden_size"),
        "target_context": target.context,
    }
    if draft is None:
        vocabulary = compare(target.tokenizer, None, target_size=_rows(target.about, "target"))
        vocabulary.require_match()
        return Pair(**plain, vocabulary=vocabulary, teacher=teacher)
    return _prove_draft(plain, target, target.tokenizer, draft, need, teacher)


def _prove_draft(
    plain: dict[str, Any], target: Side, tokenizer: Tokenizer, draft: Side, need: Need, teacher: str | None
) -> Pair:
    """Prove what a draft with weights has to fulfil."""
    _check_role(plain["method"], need, draft.about.role)
    if need is Need.HEAD and not draft.is_head:
        raise IncompatibleRelease(
            f"method {plain['method']} needs a head, but the draft is a model of its own: neither its config.json nor its "
            "tensors show a head; set method draft_model, or give the head's folder"
        )
    vocabulary = _vocabulary(target, tokenizer, draft, need)
    vocabulary.require_match()
    reads = _reads(draft) if need is Need.HEAD else None
    layers = _aux_layers(draft.about) if need is Need.HEAD else ()
    if need is Need.HEAD:
        _check_head(target.about, reads, layers)
    own = draft.tokenizer
    pair = Pair(
        **plain,
        vocabulary=vocabulary,
        draft=draft.digest,
        draft_tokenizer=own.digest if own is not None else None,
        special_tokens_equal=target.special_tokens == draft.special_tokens if own is not None else None,
        draft_chat_template=draft.chat_template,
        draft_hidden_size=reads,
        aux_layers=layers,
        draft_context=draft.context,
        teacher=teacher,
    )
    return replace(pair, remarks=tuple(_remarks(pair, target, tokenizer, draft, need)))


def _check_role(method: str, need: Need, role: Role) -> None:
    """Refuse a head that is to run alone, or as another kind of head."""
    if role.is_head and need is Need.MODEL:
        raise IncompatibleRelease(f"the draft is a {role} head, which cannot run alone; set method {role}, not {method}")
    if role.is_head and need is Need.HEAD and role.value != method:
        raise IncompatibleRelease(f"the draft is a {role} head, the method is {method}; set method {role}")


def _vocabulary(target: Side, tokenizer: Tokenizer, draft: Side, need: Need) -> VocabularyRelation:
    """Compare the vocabularies; a head without a tokenizer reads the target's tokens."""
    if draft.tokenizer is None and need is Need.MODEL:
        raise IncompatibleRelease(
            "the draft has no tokenizer.json, so nothing can be proved; save the one it was trained with beside config.json"
        )
    rows = draft.about.properties.get("draft_vocab_size")
    if rows is None:
        rows = _rows(draft.about, "draft") if draft.mapping is None else len(draft.mapping.d2t)
    return compare(
        tokenizer, draft.tokenizer, target_size=_rows(target.about, "target"), draft_size=rows, mapping=draft.mapping
    )


def _rows(about: Description, who: str) -> int:
    rows = about.properties.get("vocab_size")
    if rows is None:
        raise IncompatibleRelease(f"the {who}'s config.json states no vocab_size; add it: the rows of its output")
    return int(rows)


def _reads(draft: Side) -> int | None:
    """Return the width of the hidden states that a head reads."""
    properties = draft.about.properties
    width = properties.get("target_hidden_size") or draft.config.get("emb_dim") or properties.get("hidden_size")
    return width if type(width) is int else None


def _aux_layers(about: Description) -> tuple[int, ...]:
    """Return the target's layers whose states a head reads."""
    found = about.properties.get("eagle_aux_hidden_state_layer_ids")
    if found is None:
        return ()
    if not isinstance(found, list) or not all(type(n) is int for n in found):
        raise IncompatibleRelease(f"the draft's auxiliary layers must be whole numbers, got {shown(found)}")
    return tuple(found)


def _check_head(target: Description, reads: int | None, layers: tuple[int, ...]) -> None:
    """Check that a head can read the target's hidden states. Layer n is the input of layer n, so the last is their count."""
    width, count = target.properties.get("hidden_size"), target.properties.get("num_hidden_layers")
    if width is not None and reads is not None and width != reads:
        raise IncompatibleRelease(
            f"the head reads hidden states of width {reads}, the target's have {width}; it was made for another target"
        )
    if len(set(layers)) < len(layers):
        raise IncompatibleRelease(f"the head names an auxiliary layer twice: {shown(list(layers))}; get its config.json again")
    if count is not None and (stray := [n for n in layers if not 0 <= n <= count]):
        raise IncompatibleRelease(
            f"the head reads layer {stray[0]}, the target has {count} layers; it was made for another target"
        )


def _remarks(pair: Pair, target: Side, tokenizer: Tokenizer, draft: Side, need: Need) -> Iterator[Remark]:
    """Say what does not make the pair wrong but may be seen."""
    yield from _vocabulary_remarks(pair.vocabulary)
    if draft.tokenizer is not None:
        yield from _token_remarks(target, tokenizer, draft, draft.tokenizer)
    if pair.chat_templates_equal is False:
        yield Remark(
            what="chat template", target=str(pair.target_chat_template)[:12], draft=str(pair.draft_chat_template)[:12],
            consequence="prompts are framed with the target's; a draft tuned on another frame is accepted less",
        )  # fmt: skip
    yield from _context_remarks(pair)
    if need is Need.HEAD and (pair.target_hidden_size is None or pair.draft_hidden_size is None):
        yield Remark(
            what="hidden size", target=_words(pair.target_hidden_size), draft=_words(pair.draft_hidden_size),
            consequence="not stated on both sides, so not checked; the engine fails at start if they differ",
        )  # fmt: skip
    if need is Need.HEAD and not draft.about.role.is_head:
        yield Remark(
            what="kind of draft", target=pair.method, draft="config.json names no head",
            consequence="the engine takes it for what the method says",
        )  # fmt: skip
    if pair.is_stale:
        yield Remark(
            what="teacher", target=pair.target[:12], draft=str(pair.teacher)[:12],
            consequence="the draft was distilled from another model; fewer of its tokens are accepted",
        )  # fmt: skip


def _vocabulary_remarks(vocabulary: VocabularyRelation) -> Iterator[Remark]:
    if vocabulary.kind is Relation.PADDED:
        yield Remark(
            what="padded vocabulary", target=f"{vocabulary.target_size} rows", draft=f"{vocabulary.draft_size} rows",
            consequence=f"the {vocabulary.real_size} real tokens are equal; ids from {vocabulary.real_size} on must never be "
            "proposed, and vLLM refuses unequal sizes for draft_model",
        )  # fmt: skip
    if vocabulary.beyond_real:
        yield Remark(
            what="mapped vocabulary", target=f"{vocabulary.real_size} tokens", draft=f"{vocabulary.beyond_real} ids beyond",
            consequence="these draft ids stand for padding and are wasted",
        )  # fmt: skip


def _token_remarks(target: Side, tokenizer: Tokenizer, draft: Side, own: Tokenizer) -> Iterator[Remark]:
    mine, yours = target.special_tokens, draft.special_tokens
    for key in SPECIAL_KEYS:
        if mine[key] != yours[key]:
            yield Remark(
                what=key, target=_words(mine[key]), draft=_words(yours[key]), consequence="the engine uses the target's"
            )
    for entry in side_differences(tokenizer, own):
        yield Remark(what=entry.what, target=entry.target, draft=entry.draft, consequence="the engine uses the target's")


def _context_remarks(pair: Pair) -> Iterator[Remark]:
    mine, yours = pair.target_context, pair.draft_context
    if mine is None or yours is None:
        yield Remark(
            what="context length", target=_words(mine), draft=_words(yours),
            consequence="not stated on both sides; look at max_model_len in /v1/models once it serves",
        )  # fmt: skip
    elif yours < mine:
        yield Remark(
            what="context length", target=f"{mine} tokens", draft=f"{yours} tokens",
            consequence=f"past {yours} tokens answers come without drafts; vLLM 0.33 cuts the target to {yours} instead "
            "and refuses longer requests: compare max_model_len in /v1/models",
        )  # fmt: skip


def _words(value: object) -> str:
    return "not stated" if value is None else shown(value)
