"""A parsed `tokenizer.json` as a `Tokenizer`, entries checked one by one; a hostile or broken file is refused by name.

Called by `adapters.pair_folder` and preflight; reads nothing itself. It also finds the bytes of every entry: GPT-2's byte
alphabet for byte-level models, `<0xNN>` where bytes are a fallback, and the sign that stands for a space.

Sources: the file format of Hugging Face tokenizers (`tokenizer.json`, version 1.0); the byte alphabet of GPT-2's encoder.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specops.core.canonical import canonical
from specops.core.tokenizer import FLAGS, MAX_ID, RULES, AddedToken, Model, Tokenizer, shown
from specops.errors import InvalidRecord

MAX_MERGES = 1 << 23
MAX_TOKEN = 16_384  # characters of one token; runs of a few hundred spaces exist
MAX_NESTING = 24
MAX_NODES = 1 << 20  # values in all rules together
_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def parse_tokenizer(raw: object, where: str) -> Tokenizer:
    """Read a parsed `tokenizer.json`.

    Args:
        raw: the parsed file.
        where: its path, for messages.

    Raises:
        InvalidRecord: it is not a tokenizer, or an entry is broken; the message names the entry.
    """
    top = _mapping(raw, where)
    model = dict(_mapping(top.get("model"), f"{where}: model"))
    vocab, merges = model.pop("vocab", None), model.pop("merges", None)
    kind = _kind(model.get("type"), vocab, where)
    rules = {name: top.get(name) for name in RULES}
    _check_rules({"model": model, **rules}, where)
    entries, scores = _vocab(vocab, kind, where)
    added = _added(top.get("added_tokens"), where)
    spelling = _spelling(model, rules)
    tokens = entries | {token.id: token.content for token in added}
    raw_ids = {token.id for token in added}
    order = sorted(tokens)
    return Tokenizer(
        model=kind,
        tokens=tuple((number, tokens[number]) for number in order),
        pieces=tuple(_utf8(tokens[n], f"{where}: token {n}") if n in raw_ids else _piece(tokens[n], spelling) for n in order),
        merges=_merges(merges, where),
        scores=scores,
        added=added,
        settings=model,
        rules=rules,
    )


def _kind(named: object, vocab: object, where: str) -> Model:
    """Return the model's type; files of old versions leave it out."""
    if named is None:
        return Model.UNIGRAM if isinstance(vocab, list) else Model.BPE
    if named not in tuple(Model):
        raise InvalidRecord(f"{where}: model type {shown(named)} is not known; expected one of {', '.join(Model)}")
    return Model(str(named))


def _vocab(vocab: object, kind: Model, where: str) -> tuple[dict[int, str], tuple[float, ...]]:
    """Return spelling by id, and scores of a Unigram model."""
    if isinstance(vocab, list | Mapping) and len(vocab) > MAX_ID:
        raise InvalidRecord(f"{where}: {len(vocab)} tokens, at most {MAX_ID} are read; this is no tokenizer")
    if isinstance(vocab, list) and kind is Model.UNIGRAM:
        rows = [_scored(entry, f"{where}: vocab entry {number}") for number, entry in enumerate(vocab)]
        return dict(enumerate(text for text, _ in rows)), tuple(score for _, score in rows)
    if not isinstance(vocab, Mapping) or kind is Model.UNIGRAM:
        wanted = "list" if kind is Model.UNIGRAM else "object"
        raise InvalidRecord(f"{where}: vocab of a {kind} model must be a {wanted}, got {type(vocab).__name__}")
    entries: dict[int, str] = {}
    for text, number in vocab.items():
        at = _id(number, f"{where}: token {text[:60]!r}")
        if at in entries:
            raise InvalidRecord(f"{where}: id {at} stands for {entries[at][:60]!r} and for {text[:60]!r}; save it again")
        _utf8(text, f"{where}: token {at}")
        entries[at] = text
    return entries, ()


def _scored(entry: object, where: str) -> tuple[str, float]:
    if not isinstance(entry, list) or len(entry) != 2:  # noqa: PLR2004  # a pair
        raise InvalidRecord(f"{where} must be [token, score], got {shown(entry)}")
    text, score = entry
    if not isinstance(score, int | float) or isinstance(score, bool) or not abs(score) < 2**53:
        raise InvalidRecord(f"{where}: score must be a finite number, got {shown(score)}")
    _utf8(text, where)
    return text, float(score)


def _added(raw: object, where: str) -> tuple[AddedToken, ...]:
    """Return the added tokens in order of id, each id once."""
    if raw is None:
        return ()
    if not isinstance(raw, list) or len(raw) > MAX_ID:
        raise InvalidRecord(f"{where}: added_tokens must be a list of at most {MAX_ID}, got {type(raw).__name__}")
    found: dict[int, AddedToken] = {}
    for number, entry in enumerate(raw):
        here = f"{where}: added token {number}"
        token = _mapping(entry, here)
        at, content = _id(token.get("id"), here), token.get("content")
        _utf8(content, here)
        if at in found:
            raise InvalidRecord(f"{here}: id {at} is taken by {found[at].content[:60]!r}; save the tokenizer again")
        flags = {name: token.get(name) for name in FLAGS if name != "content"}
        if wrong := [name for name, value in flags.items() if not isinstance(value, bool | None)]:
            raise InvalidRecord(f"{here}: {wrong[0]} must be true or false, got {shown(flags[wrong[0]])}")
        found[at] = AddedToken(id=at, content=content, **flags)  # type: ignore[arg-type]  # _utf8 checked the content
    return tuple(found[at] for at in sorted(found))


def _merges(raw: object, where: str) -> tuple[tuple[str, str], ...]:
    """Return merges by rank; old files write "a b", new ones ["a", "b"]."""
    if raw is None:
        return ()
    if not isinstance(raw, list) or len(raw) > MAX_MERGES:
        raise InvalidRecord(f"{where}: merges must be a list of at most {MAX_MERGES}, got {type(raw).__name__}")
    out = []
    for rank, entry in enumerate(raw):
        pair = entry.split(" ") if isinstance(entry, str) else entry
        if not isinstance(pair, list) or len(pair) != 2:  # noqa: PLR2004  # a merge joins two
            raise InvalidRecord(f"{where}: merge {rank} must join two tokens, got {shown(entry)}")
        for half in pair:
            _utf8(half, f"{where}: merge {rank}")
        out.append((pair[0], pair[1]))
    return tuple(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spelling:
    """How the vocabulary writes bytes: GPT-2's alphabet, <0xNN> for single bytes, a sign for the space."""

    byte_level: bool
    fallback: bool
    space: str


def _spelling(model: Mapping[str, Any], rules: Mapping[str, Any]) -> _Spelling:
    steps = [step for name in ("pre_tokenizer", "decoder", "normalizer") for step in _steps(rules[name])]
    kinds = {str(step.get("type")) for step in steps}
    metaspace = next((step.get("replacement") for step in steps if step.get("type") == "Metaspace"), None)
    replaced = any(step.get("type") == "Replace" and "▁" in str(step) for step in steps)
    space = "▁" if replaced else ""
    if isinstance(metaspace, str) and len(metaspace) == 1:
        space = metaspace
    fallback = model.get("byte_fallback") is True or "ByteFallback" in kinds
    return _Spelling(byte_level="ByteLevel" in kinds, fallback=fallback, space=space)


def _steps(rule: object) -> Iterable[Mapping[str, Any]]:
    """Return every step of a rule, sequences opened; the nesting was checked."""
    waiting = [rule]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            if "type" in item:
                yield item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _alphabet() -> dict[str, int]:
    """Return GPT-2's byte alphabet: printable Latin-1 as it is, the other 68 bytes from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTES = _alphabet()


def _piece(token: str, spelling: _Spelling) -> bytes:
    """Return the bytes that a vocabulary entry stands for."""
    if spelling.byte_level:
        codes = [_BYTES.get(sign) for sign in token]
        return token.encode() if None in codes else bytes(codes)  # type: ignore[arg-type]  # no None left
    if spelling.fallback and (found := _FALLBACK.fullmatch(token)):
        return bytes([int(found[1], 16)])
    return (token.replace(spelling.space, " ") if spelling.space else token).encode()


def _check_rules(rules: Mapping[str, Any], where: str) -> None:
    """Check that settings and rules are small, flat enough and canonical JSON."""
    waiting: list[tuple[object, int]] = [(rules, 0)]
    for nodes, (item, depth) in enumerate(waiting):  # grows while it is walked
        if nodes > MAX_NODES or depth > MAX_NESTING:
            raise InvalidRecord(
                f"{where}: its rules are nested more than {MAX_NESTING} deep or hold more than {MAX_NODES} values; "
                "this is no tokenizer"
            )
        below = item.values() if isinstance(item, Mapping) else item if isinstance(item, list) else ()
        waiting += [(value, depth + 1) for value in below]
    try:
        canonical(rules)
    except ValueError as exc:
        raise InvalidRecord(f"{where}: its rules are not canonical JSON: {exc}; save it again") from exc


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidRecord(f"{where} must be a JSON object, got {type(value).__name__}; save it again with tokenizers")
    return value


def _id(value: object, where: str) -> int:
    if type(value) is not int or not 0 <= value < MAX_ID:
        raise InvalidRecord(f"{where} must have an id from 0 to {MAX_ID - 1}, got {shown(value)}")
    return value


def _utf8(value: object, where: str) -> bytes:
    """Return a text's UTF-8; half a surrogate pair is not text."""
    if not isinstance(value, str) or len(value) > MAX_TOKEN:
        raise InvalidRecord(f"{where} must be text of at most {MAX_TOKEN} characters, got {shown(value)}")
    try:
        return value.encode()
    except UnicodeEncodeError as exc:
        raise InvalidRecord(f"{where} is not valid Unicode: {ascii(value)[:60]}; save the tokenizer again") from exc
