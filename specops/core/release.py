"""Artifacts, pairs and releases: immutable, named by the digest of what they are.

A file set's identity binds each path, size and SHA-256 (the bytes alone would let two shards be swapped). A release pins the
whole serving configuration: target, draft or a method without weights, tokenizer, speculative configuration, engine, prompts,
sampling. Names and aliases are events elsewhere, never part of identity. Hardware and environment are artifacts of their own:
evidence names them as its scope, so that the same release can have evidence for two machines.
"""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from specops.core.canonical import canonical, digest_of, sha256_hex
from specops.errors import InvalidRecord

MAX_NAME = 200  # characters; names are printed in tables, logs and file names
MAX_K = 128  # MAX_SPEC_LEN of vLLM's rejection sampler (vllm/v1/sample/rejection_sampler.py)


def _check_name(what: str, name: str) -> None:
    """Check that a name can be printed on one line, and found by typing it."""
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or not name.strip():
        shown = repr(name if len(name) <= 60 else f"{name[:60]}...")  # noqa: PLR2004  # what fits a line
        raise InvalidRecord(
            f"{what} name {shown} has {len(name)} characters, expected 1 to {MAX_NAME} printable ones; choose another name"
        )


class ArtifactKind(StrEnum):
    """What a file set is (M12, M16). `corpus` is training data of any kind, distillation data included."""

    TARGET = "target"
    DRAFT = "draft"
    TOKENIZER = "tokenizer"
    CHAT_TEMPLATE = "chat_template"
    GENERATION_CONFIG = "generation_config"
    ENGINE_CONFIG = "engine_config"
    PROMPT = "prompt"
    POLICY = "policy"
    CORPUS = "corpus"
    PREPROCESSING = "preprocessing"
    RETRIEVAL_INDEX = "retrieval_index"
    EVALUATION_SET = "evaluation_set"
    RECIPE = "recipe"
    HARDWARE = "hardware"
    ENVIRONMENT = "environment"
    SERVING_CODE = "serving_code"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigest:
    """One file of an artifact: relative POSIX path, bytes, SHA-256 as hex. `blake3` re-checks fast, identity ignores it."""

    path: str
    size: int
    sha256: str
    blake3: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDigest:
    """One tensor: the file it lies in, its type and shape, and a digest over type, shape and bytes.

    `digest` names its algorithm: `b3:` and the hex of BLAKE3. A second SHA-256 pass would double the time to hash a
    checkpoint; identity rests on the files' SHA-256. Equal tensors in other files, or under other names, have equal digests.
    """

    file: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A hashed file set.

    Identity: `kind`, the files' paths, sizes and SHA-256, and `facts`, what the registrar declares to belong to it (seed,
    licence, recipe). Not identity: `properties`, read from the content itself (vocabulary size, hidden size), so they can be
    read again; `claims`, what a file merely says about the world outside it (a base model's name, a verifier's path): shown,
    never believed; `tensors`; and `location`, where it was seen.
    """

    kind: ArtifactKind
    name: str
    files: tuple[FileDigest, ...]
    facts: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    tensors: tuple[TensorDigest, ...] = ()
    location: str = ""

    def __post_init__(self) -> None:
        """Check the name, that paths are unique and sorted, and that tensors lie in registered files."""
        _check_name("artifact", self.name)
        paths = [f.path for f in self.files]
        if not paths or paths != sorted(set(paths)):
            raise InvalidRecord(f"artifact {self.name} needs at least one file, each path once and in order; got {paths}")
        if stray := {t.file for t in self.tensors}.difference(paths):
            raise InvalidRecord(f"artifact {self.name} has tensors of {min(stray)}, which is none of its files")

    @property
    def digest(self) -> str:
        """SHA-256 over kind, every path, size and SHA-256, and the declared facts."""
        files = [{"path": f.path, "size": f.size, "sha256": f.sha256} for f in self.files]
        return digest_of({"kind": self.kind, "files": files, "facts": self.facts})

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(f.size for f in self.files)


def document(kind: ArtifactKind, name: str, content: dict[str, Any], *, path: str = "document.json") -> Artifact:
    """Return an artifact whose one file is the canonical JSON of `content`: a hardware profile, a command line, a prompt.

    Raises:
        InvalidRecord: the content is not canonical JSON (NaN, an integer of 2**53 or more).
    """
    try:
        raw = canonical(content)
    except ValueError as exc:
        raise InvalidRecord(f"{kind} {name} is not canonical JSON: {exc}; pass large numbers as text") from exc
    only = FileDigest(path=path, size=len(raw), sha256=sha256_hex(raw))
    return Artifact(kind=kind, name=name, files=(only,), properties=content)


class EdgeKind(StrEnum):
    """How `source` came from, belongs to or depends on `target`. All but `shares_tensors_with` are acyclic."""

    DISTILLED_FROM = "distilled_from"
    FINE_TUNED_FROM = "fine_tuned_from"
    QUANTIZED_FROM = "quantized_from"
    TRAINED_ON = "trained_on"
    TOKENIZED_WITH = "tokenized_with"
    CONDITIONED_ON = "conditioned_on"
    SHARES_TENSORS_WITH = "shares_tensors_with"
    MAPS_VOCAB_TO = "maps_vocab_to"
    USES = "uses"
    EVALUATED_ON = "evaluated_on"
    SERVED_BY = "served_by"
    REPLACES = "replaces"

    @property
    def is_symmetric(self) -> bool:
        """It says the same from both ends, so a circle of it means nothing bad."""
        return self is EdgeKind.SHARES_TENSORS_WITH

    @property
    def carries_change(self) -> bool:
        """When the edge's target changes, what is known about its source has to be looked at again."""
        return self not in (EdgeKind.SHARES_TENSORS_WITH, EdgeKind.REPLACES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """`source` --kind--> `target`, both digests of artifacts, pairs or releases: a draft is distilled_from its target."""

    source: str
    kind: EdgeKind
    target: str

    def __post_init__(self) -> None:
        """Check that the ends differ."""
        if self.source == self.target:
            raise InvalidRecord(f"{self.source[:16]} cannot be {self.kind} itself; give another target")


_LATER_FIELDS = ("pair", "chat_template", "generation_config", "prompts", "sampling", "lossy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A pinned serving configuration. `method` is vLLM's name (`draft_model`, `ngram`) or None for plain decoding.

    `tokenizer` is the digest of the tokenizer's content; `draft_tokenizer` the draft's own. `pair` is the digest of the proven
    pair (`core.pair`). `engine` holds name, version and arguments that can change text or speed. `prompts` are digests of
    system prompts and templates, `sampling` the defaults a request gets. `lossy` names the lossy acceptance settings that were
    allowed by name when it was registered; empty for an exact release.
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
    pair: str | None = None
    chat_template: str | None = None
    generation_config: str | None = None
    prompts: tuple[str, ...] = ()
    sampling: dict[str, Any] = field(default_factory=dict)
    lossy: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the name, and that method, draft and k fit together."""
        _check_name("release", self.name)
        if self.method is None and (self.draft or self.num_speculative_tokens):
            raise InvalidRecord(
                f"release {self.name} has a draft or k but no method; set method, or drop both for plain decoding"
            )
        if self.method is not None and not 1 <= self.num_speculative_tokens <= MAX_K:
            digits = str(self.num_speculative_tokens) if abs(self.num_speculative_tokens) < 10**12 else "a huge number"
            raise InvalidRecord(
                f"release {self.name}: method {self.method} needs 1 <= num_speculative_tokens <= {MAX_K}, got {digits}; set k"
            )
        if self.method == "draft_model" and not self.draft:
            raise InvalidRecord(f"release {self.name}: method draft_model needs a draft")

    @property
    def digest(self) -> str:
        """SHA-256 of the descriptor, the name left out, and later fields where they are empty: old digests stay valid."""
        fields = {name: getattr(self, name) for name in self.__slots__}  # shallow: asdict copies every level
        return digest_of({k: v for k, v in fields.items() if k != "name" and (v or k not in _LATER_FIELDS)})

    @property
    def id(self) -> str:
        """Short handle: `rel-` and the first twelve digits of the digest."""
        return f"rel-{self.digest[:12]}"

    @property
    def components(self) -> tuple[str, ...]:
        """Digests of everything that the release is made of, each once, in the order of its fields."""
        parts = (self.target, self.draft, self.tokenizer, self.draft_tokenizer, self.pair, self.chat_template)
        return tuple(dict.fromkeys(d for d in (*parts, self.generation_config, *self.prompts) if d))

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build a release from `to_record` values."""
        lists: dict[str, Any] = {name: tuple(record[name]) for name in ("prompts", "lossy") if name in record}
        return cls(**(record | lists))
