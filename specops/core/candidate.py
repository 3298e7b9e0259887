"""A release put together from two model folders and a serving configuration: proof, identity and edges in one go.

Called by `control.register.enroll`; reads nothing. What was read comes in as `Model`; what is to be stored goes out as `Built`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specops.core.imports import Imported
from specops.core.lossy import lossy_settings
from specops.core.pair import Pair, Side, need_of
from specops.core.pair_proof import prove
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, Release
from specops.core.tokenizer import shown
from specops.errors import IncompatibleRelease

ADDRESSES = frozenset({"host", "port", "url", "base_url", "served_model_name", "api_key", "log_level", "log_file"})
"""Arguments that say where an engine listens and writes, not what it computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One folder: its artifacts, weights first, and what its files say."""

    imported: Imported
    side: Side

    @property
    def weights(self) -> Artifact:
        """The artifact of the weights."""
        return self.imported.artifacts[0]

    def of(self, kind: ArtifactKind) -> str | None:
        """Return the digest of the folder's artifact of a kind, None where it has none."""
        return next((a.digest for a in self.imported.artifacts if a.kind is kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What a person wants to register. `method` None is plain decoding; `teacher` as for `prove`."""

    name: str
    target: Model
    draft: Model | None = None
    method: str | None = None
    num_speculative_tokens: int = 0
    speculative_config: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    teacher: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Everything to register; `pair` is None for plain decoding."""

    release: Release
    pair: Pair | None
    artifacts: tuple[Artifact, ...]
    edges: tuple[Edge, ...]


def build(candidate: Candidate) -> Built:
    """Prove the pair and pin the release.

    The release names the tokenizer by content, which is what an engine reports; the tokenizer's files, whose settings also
    frame a prompt, stand in `engine` as `tokenizer_files`.

    Raises:
        IncompatibleRelease: the two do not belong together, or the configuration contradicts itself.
        InvalidRecord: something read is not what it should be.
    """
    target, draft = candidate.target, candidate.draft
    if candidate.method is None and draft is not None:
        raise IncompatibleRelease(f"release {candidate.name} has a draft but no method; add --method, or leave the draft out")
    if target.side.tokenizer is None:
        raise IncompatibleRelease(f"release {candidate.name}: the target has no tokenizer.json; save it beside config.json")
    pair = None
    if candidate.method is not None:
        side = draft.side if draft is not None else None
        pair = prove(target.side, side, method=candidate.method, teacher=candidate.teacher)
    release = Release(
        name=candidate.name,
        target=target.weights.digest,
        tokenizer=target.side.tokenizer.digest,
        method=pair.method if pair is not None else None,
        draft=pair.draft if pair is not None else None,
        draft_tokenizer=pair.draft_tokenizer if pair is not None else None,
        num_speculative_tokens=candidate.num_speculative_tokens,
        speculative_config=_configuration(candidate, pair),
        engine=_engine(candidate),
        pair=pair.digest if pair is not None else None,
        chat_template=target.of(ArtifactKind.CHAT_TEMPLATE) or target.side.chat_template,
        generation_config=target.of(ArtifactKind.GENERATION_CONFIG),
    )
    release = replace(release, lossy=lossy_settings(release.method, release.speculative_config, release.engine))
    models = [target] if draft is None else [target, draft]
    return Built(
        release=release,
        pair=pair,
        artifacts=tuple({a.digest: a for m in models for a in m.imported.artifacts}.values()),
        edges=(*dict.fromkeys(e for m in models for e in m.imported.edges), *_files(release, target)),
    )


def _configuration(candidate: Candidate, pair: Pair | None) -> dict[str, Any]:
    """Return the speculative configuration with method and k in it; it must not say otherwise."""
    given = dict(candidate.speculative_config)
    if pair is None:
        if given or candidate.num_speculative_tokens:
            raise IncompatibleRelease(f"release {candidate.name} has a speculative configuration but no method; add --method")
        return {}
    meant = {"method": pair.method, "num_speculative_tokens": candidate.num_speculative_tokens}
    said = {key: given[key] for key in meant if key in given}
    if "method" in said:
        said["method"] = need_of(str(said["method"]))[0]
    for key, value in said.items():
        if value != meant[key]:
            raise IncompatibleRelease(
                f"release {candidate.name}: {key} is {meant[key]}, its speculative configuration says {shown(value)}; "
                "make them agree"
            )
    return {key: value for key, value in given.items() if key != "model"} | meant


def _engine(candidate: Candidate) -> dict[str, Any]:
    """Return the engine's settings without addresses: two replicas on two ports serve one release."""
    engine, arguments = dict(candidate.engine), candidate.engine.get("arguments")
    if isinstance(arguments, Mapping):
        engine["arguments"] = {key: value for key, value in arguments.items() if key not in ADDRESSES}
    files = candidate.target.of(ArtifactKind.TOKENIZER)
    return engine | ({"tokenizer_files": files} if files is not None else {})


def _files(release: Release, target: Model) -> list[Edge]:
    """Return the edge from the release to the tokenizer's files; its components get theirs at registration."""
    files = target.of(ArtifactKind.TOKENIZER)
    return [Edge(source=release.digest, kind=EdgeKind.USES, target=files)] if files is not None else []
