"""What a change of something in the lineage does to what is known: which evidence loses validity, and why.

Called by `control.lineage.impact` with what depends on the changed thing. A retrained draft is another artifact; so this
answers "if X changes (or turns out to be wrong), what has to be looked at again"; it marks nothing as invalid.
Exact speculative decoding keeps the target's output law whatever the draft is (Leviathan et al. 2023, arXiv 2211.17192): a
changed draft leaves the evidence about output valid and takes that about speed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from specops.core.lineage import Effect
from specops.core.lineage_diff import effect_of, join
from specops.core.release import ArtifactKind, Release

_NOT_JUDGEMENT = frozenset({"endpoints", "report", "route"})  # where it listened, what was written: true whatever changes
_SPEED_ONLY = "speed figures; equality of outputs stays, acceptance is exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """What a change does to one release: the components it reaches, what it can change there, and why."""

    release: Release
    components: tuple[str, ...]
    can_change: Effect
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a piece of evidence loses: `all`, `speed`, `basis` (it was measured on the changed thing), or `nothing`."""

    loses: str
    why: str


def touch(release: Release, origin: ArtifactKind | None, is_reached: Callable[[str], bool]) -> Touched:
    """Say what a change that reached the digests of `is_reached` does to a release.

    Args:
        release: one that depends on what changed.
        origin: the kind of the thing that changed; None for a pair or release.
        is_reached: whether a digest is the changed thing or depends on it.
    """
    fields = {
        "target": release.target,
        "tokenizer": release.tokenizer,
        "draft": release.draft,
        "draft_tokenizer": release.draft_tokenizer,
        "chat_template": release.chat_template,
        "generation_config": release.generation_config,
        "pair": release.pair,
    }
    hit = [name for name, digest in fields.items() if digest and is_reached(digest)]
    hit += ["prompts" for digest in release.prompts[:1] if any(map(is_reached, release.prompts))]
    effects = {name: _field_effect(name) for name in hit if name != "pair"}
    if effects:
        can = join(effect for effect, _ in effects.values())
        return Touched(release=release, components=tuple(hit), can_change=can, why="; ".join(_whys(effects)))
    effect, why = effect_of(origin) if origin else (Effect.OUTPUT_AND_SPEED, "a part of it changes")
    return Touched(release=release, components=tuple(hit), can_change=effect, why=why)


def lose(touched: Touched, kind: str, origin: ArtifactKind | None) -> Loss:
    """Say what evidence of a kind loses when the release changes like this."""
    if kind in _NOT_JUDGEMENT:
        return Loss(loses="nothing", why="it records what was, it judges nothing")
    if origin is ArtifactKind.EVALUATION_SET:
        return Loss(loses="basis", why="it was measured on this evaluation set or another; measure again on the new one")
    if touched.can_change is Effect.NEITHER:
        return Loss(loses="nothing", why=touched.why)
    if touched.can_change is Effect.SPEED:
        return Loss(loses="speed", why=_SPEED_ONLY)
    return Loss(loses="all", why=touched.why)


def _field_effect(name: str) -> tuple[Effect, str]:
    kind = {"draft_tokenizer": ArtifactKind.TOKENIZER, "prompts": ArtifactKind.PROMPT}.get(name)
    return effect_of(kind or ArtifactKind(name))


def _whys(effects: dict[str, tuple[Effect, str]]) -> list[str]:
    return list(dict.fromkeys(f"{name}: {why}" for name, (_, why) in effects.items()))
