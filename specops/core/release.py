"""Artifacts and releases: immutable, named by the digest of what they are.

A file set's identity binds each path, size and SHA-256 (the bytes alone would let two shards be swapped). A release pins the
whole serving configuration: target, draft or a method without weights, tokenizer, speculative configuration, engine. Names
and aliases are events elsewhere, never part of identity.
"""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from specops.core.canonical import digest_of
from specops.errors import InvalidRecord


class ArtifactKind(StrEnum):
    """What a file set is (M12)."""

    TARGET = "target"
    DRAFT = "draft"
    TOKENIZER = "tokenizer"
    CORPUS = "corpus"
    EVALUATION_SET = "evaluation_set"
    POLICY = "policy"
    RECIPE = "recipe"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigest:
    """One file of an artifact: relative POSIX path, bytes, SHA-256 as hex."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A hashed file set. `location` is where it was seen, a hint that is not part of the identity."""

    kind: ArtifactKind
    name: str
    files: tuple[FileDigest, ...]
    facts: dict[str, Any] = field(default_factory=dict)
    location: str = ""

    def __post_init__(self) -> None:
        """Check that paths are unique and sorted."""
        paths = [f.path for f in self.files]
        if not paths or paths != sorted(set(paths)):
            raise InvalidRecord(f"artifact {self.name} needs at least one file, each path once and in order; got {paths}")

    @property
    def digest(self) -> str:
        """SHA-256 over kind, every path, size and file digest, and the recorded facts."""
        return digest_of({"kind": self.kind, "files": [asdict(f) for f in self.files], "facts": self.facts})


class EdgeKind(StrEnum):
    """How one thing came from or belongs to another; acyclic."""

    DISTILLED_FROM = "distilled_from"
    TRAINED_ON = "trained_on"
    TOKENIZED_WITH = "tokenized_with"
    USES = "uses"
    EVALUATED_ON = "evaluated_on"
    REPLACES = "replaces"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """`source` --kind--> `target`, both digests: a draft is distilled_from its target."""

    source: str
    kind: EdgeKind
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A pinned serving configuration. `method` is vLLM's name (`draft_model`, `ngram`) or None for plain decoding.

    `tokenizer` is the digest of the tokenizer's content; `draft_tokenizer` the draft's own. `engine` holds name, version and
    arguments that can change text or speed.
    """

    name: str
    target: str
    tokenizer: str
    method: str | None = None
    draft: str | None = None
    draft_tokenizer: str | None = None
    num_speculative_tokens: int = 0
    speculative_config: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that method, draft and k fit together."""
        if self.method is None and (self.draft or self.num_speculative_tokens):
            raise InvalidRecord(
                f"release {self.name} has a draft or k but no method; set method, or drop both for plain decoding"
            )
        if self.method is not None and self.num_speculative_tokens < 1:
            raise InvalidRecord(f"release {self.name}: method {self.method} needs num_speculative_tokens >= 1")
        if self.method == "draft_model" and not self.draft:
            raise InvalidRecord(f"release {self.name}: method draft_model needs a draft")

    @property
    def digest(self) -> str:
        """SHA-256 of the descriptor, the name left out."""
        return digest_of({k: v for k, v in asdict(self).items() if k != "name"})

    @property
    def id(self) -> str:
        """Short handle: `rel-` and the first twelve digits of the digest."""
        return f"rel-{self.digest[:12]}"

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build a release from `to_record` values."""
        return cls(**record)
