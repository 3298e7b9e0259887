"""What differs between two artifacts: files, tensors, keys of their configuration, tokenizer entries, and what that can do.

Called by `control.lineage` for two artifacts, and for each component in which two releases differ. Contents were hashed when
they were registered, so all but the tokenizer entries is compared without reading a weight; for those the caller brings both
files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from specops.core.canonical import canonical, sha256_hex
from specops.core.lineage import Difference, Effect
from specops.core.release import Artifact, ArtifactKind, TensorDigest

INDEX = ".safetensors.index.json"  # says which file holds which tensor
SHOWN = 5  # names that a line gives

_SERVED = "it is part of what computes the answer"
_EVIDENCE = "nothing of it is served; what was measured or trained with it has another basis"
_EFFECTS: dict[ArtifactKind, tuple[Effect, str]] = {
    ArtifactKind.TARGET: (Effect.OUTPUT_AND_SPEED, "the target's distribution is the output"),
    ArtifactKind.DRAFT: (Effect.SPEED, "exact acceptance keeps the target's output law whatever the draft proposes"),
    ArtifactKind.TOKENIZER: (Effect.OUTPUT_AND_SPEED, "the same text becomes other tokens"),
    ArtifactKind.CHAT_TEMPLATE: (Effect.OUTPUT_AND_SPEED, "the model reads another prompt"),
    ArtifactKind.PROMPT: (Effect.OUTPUT_AND_SPEED, "the model reads another prompt"),
    ArtifactKind.GENERATION_CONFIG: (Effect.OUTPUT_AND_SPEED, "requests that set nothing get other sampling defaults"),
    ArtifactKind.CORPUS: (Effect.NEITHER, _EVIDENCE),
    ArtifactKind.PREPROCESSING: (Effect.NEITHER, _EVIDENCE),
    ArtifactKind.EVALUATION_SET: (Effect.NEITHER, _EVIDENCE),
    ArtifactKind.RECIPE: (Effect.NEITHER, _EVIDENCE),
    ArtifactKind.POLICY: (Effect.NEITHER, "it judges, it does not compute"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """How the members of one kind compare (`files`, `tensors`): counts, and the first names of what differs.

    `moved` members have the same content under another name. `names` say what happened: `changed model.safetensors`.
    """

    component: str
    same: int
    changed: int
    moved: int
    only_left: int
    only_right: int
    names: tuple[str, ...]
    can_change: Effect
    why: str

    @property
    def differs(self) -> bool:
        """Something is not the same."""
        return bool(self.changed or self.moved or self.only_left or self.only_right)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactDiff:
    """Two artifacts compared: groups that differ or not, keys and tokenizer entries that differ, and what could not be seen."""

    left: str
    right: str
    groups: tuple[Group, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()

    @property
    def can_change(self) -> Effect:
        """What all differences together can change."""
        return join([g.can_change for g in self.groups if g.differs] + [d.can_change for d in self.differences])


def join(effects: Iterable[Effect]) -> Effect:
    """Return what several differences can change together."""
    found = frozenset(effects)
    both = Effect.OUTPUT_AND_SPEED in found or found >= {Effect.OUTPUT, Effect.SPEED}
    if both:
        return Effect.OUTPUT_AND_SPEED
    return Effect.OUTPUT if Effect.OUTPUT in found else Effect.SPEED if Effect.SPEED in found else Effect.NEITHER


def effect_of(kind: ArtifactKind) -> tuple[Effect, str]:
    """Return what another artifact of this kind can change in what is served, and why. Unknown kinds count as both."""
    return _EFFECTS.get(kind, (Effect.OUTPUT_AND_SPEED, _SERVED))


def diff_artifacts(
    left: Artifact,
    right: Artifact,
    *,
    tensors: tuple[Sequence[TensorDigest], Sequence[TensorDigest]] = ((), ()),
    tokenizers: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
) -> ArtifactDiff:
    """Compare two artifacts, down to tensors, configuration keys and tokenizer entries.

    Args:
        left: one artifact.
        right: the other.
        tensors: their tensors, empty where they were not hashed.
        tokenizers: both files `tokenizer.json`, parsed; None when they are not at hand.
    """
    effect, why = effect_of(right.kind)
    notes = []
    files = _group("files", {f.path: f.sha256 for f in left.files}, {f.path: f.sha256 for f in right.files}, effect, why)
    ours, theirs = ({t.name: t.digest for t in each} for each in tensors)
    groups = [files]
    if ours and theirs:
        groups.append(_group("tensors", ours, theirs, effect, why))
        if not groups[1].differs and files.differs:
            notes.append("every tensor is the same: the weights compute the same, only what lies around them differs")
            groups[0] = _around_tensors(files, left, right, frozenset(t.file for each in tensors for t in each))
    elif ours or theirs:
        notes.append(f"{(right if ours else left).name} was registered without tensor digests; only its files are compared")
    found = []
    for section in ("properties", "facts", "claims"):
        here, there = flat(getattr(left, section)), flat(getattr(right, section))
        can, because = (effect, why) if section == "properties" else (Effect.NEITHER, _SAID[section])
        found += [
            Difference(component=f"{section}.{key}", left=here.get(key), right=there.get(key), can_change=can, why=because)
            for key in dict.fromkeys([*here, *there])
            if here.get(key) != there.get(key)
        ]
    if tokenizers is not None:
        found += diff_tokenizers(*tokenizers)
    elif ArtifactKind.TOKENIZER in (left.kind, right.kind) and files.differs:
        notes.append("the files are not where they were registered, so tokenizer entries cannot be compared")
    if left.kind is not right.kind:
        other = "another kind of thing"
        found.append(Difference(component="kind", left=left.kind, right=right.kind, can_change=effect, why=other))
    return ArtifactDiff(
        left=left.digest, right=right.digest, groups=tuple(groups), differences=tuple(found), notes=tuple(notes)
    )


def _around_tensors(files: Group, left: Artifact, right: Artifact, holders: frozenset[str]) -> Group:
    """Return the group of files, all tensors being equal: files that hold nothing else, or their index, change nothing."""
    ours, theirs = ({f.path: f.sha256 for f in each.files} for each in (left, right))
    differing = {path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path)}
    if all(path in holders or path.endswith(INDEX) for path in differing):
        return replace(files, can_change=Effect.NEITHER, why="only how the same tensors lie in files differs")
    return files


_SAID = {
    "facts": "declared at registration; part of the identity, not of the computation",
    "claims": "a file only says so",
}


def _group(component: str, left: Mapping[str, str], right: Mapping[str, str], effect: Effect, why: str) -> Group:
    """Compare two mappings of name -> digest of the content."""
    changed = sorted(name for name in left.keys() & right.keys() if left[name] != right[name])
    gone, fresh = sorted(left.keys() - right.keys()), sorted(right.keys() - left.keys())
    moved = _moves(left, right, gone, fresh)
    lost = [name for name in gone if name not in moved]
    taken = set(moved.values())
    won = [name for name in fresh if name not in taken]
    words = [f"changed {n}" for n in changed] + [f"moved {a} -> {b}" for a, b in moved.items()]
    words += [f"only left {n}" for n in lost] + [f"only right {n}" for n in won]
    touched = bool(changed or lost or won or (moved and component == "files"))
    return Group(
        component=component,
        same=len(left.keys() & right.keys()) - len(changed),
        changed=len(changed),
        moved=len(moved),
        only_left=len(lost),
        only_right=len(won),
        names=tuple(words[:SHOWN]),
        can_change=effect if touched else Effect.NEITHER,
        why=why if touched else "the contents are the same",
    )


def _moves(left: Mapping[str, str], right: Mapping[str, str], gone: Sequence[str], fresh: Sequence[str]) -> dict[str, str]:
    """Pair names of the left alone with names of the right alone that hold the same content."""
    free: dict[str, list[str]] = {}
    for name in reversed(fresh):
        free.setdefault(right[name], []).append(name)
    return {name: free[left[name]].pop() for name in gone if free.get(left[name])}


def flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested mappings into dotted keys; a list stays one value."""
    out: dict[str, Any] = {}
    for key, value in record.items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
    return out


def diff_tokenizers(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Difference]:
    """Compare two parsed `tokenizer.json`: the first differing id, merge and added token, and the other stages."""
    can, why = _EFFECTS[ArtifactKind.TOKENIZER]
    found = []

    def differ(component: str, here: object, there: object, because: str = why) -> None:
        found.append(Difference(component=f"tokenizer.{component}", left=here, right=there, can_change=can, why=because))

    ours, theirs = _vocabulary(left), _vocabulary(right)
    wrong = [token for token in sorted(ours.keys() | theirs.keys()) if ours.get(token) != theirs.get(token)]
    if wrong:
        first = min(wrong, key=lambda token: (min(_id(ours, token), _id(theirs, token)), token))
        number = min(_id(ours, first), _id(theirs, first))
        here, there = ({i: t for t, i in each.items()}.get(number) for each in (ours, theirs))
        differ(f"vocabulary[{number}]", here, there, f"{why}; {len(wrong)} tokens differ, this is the first id")
    for name, pick in (("merges", _merges), ("added_tokens", _added)):
        pairs = list(zip_longest(pick(left), pick(right)))
        differing = [place for place, (here, there) in enumerate(pairs) if here != there]
        if differing:
            differ(f"{name}[{differing[0]}]", *pairs[differing[0]], f"{why}; {len(differing)} differ, this is the first")
    for stage in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        here, there = (sha256_hex(canonical(each.get(stage)))[:12] for each in (left, right))
        if here != there:
            differ(stage, here, there)
    return found


def _id(vocabulary: Mapping[str, int], token: str) -> int:
    return vocabulary.get(token, 1 << 62)


def _vocabulary(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Return token -> id, from a mapping or from Unigram's list; what is shaped otherwise is left out."""
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocabulary, Mapping):
        return {str(token): number for token, number in vocabulary.items() if type(number) is int}
    if isinstance(vocabulary, list):
        return {str(entry[0]): place for place, entry in enumerate(vocabulary) if isinstance(entry, list) and entry}
    return {}


def _merges(tokenizer: Mapping[str, Any]) -> list[str]:
    """Return the merges as text: newer files hold pairs, older ones both halves in one string."""
    model = tokenizer.get("model")
    merges = model.get("merges") if isinstance(model, Mapping) else None
    return [" ".join(map(str, m)) if isinstance(m, list) else str(m) for m in merges] if isinstance(merges, list) else []


def _added(tokenizer: Mapping[str, Any]) -> list[str]:
    """Return the added tokens as text: id, content, and whether special."""
    tokens = tokenizer.get("added_tokens")
    entries = [t for t in tokens if isinstance(t, Mapping)] if isinstance(tokens, list) else []
    return [f"{t.get('id')} {t.get('content')!r}{' special' if t.get('special') else ''}" for t in entries]
