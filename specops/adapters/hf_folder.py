"""A Hugging Face folder, taken apart: weights, tokenizer, chat template and generation defaults, each an artifact of its own.

Called by `specops lineage import hf`. A tokenizer that two models share becomes one artifact, whatever folders it lies in. What
config.json proves about these bytes becomes properties; names of other models stay claims until a person binds them to a
registered digest. What the fields mean is `core.imports`' business, hashing is `adapters.weights`'.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from specops.adapters.documents import load_yaml, read_json
from specops.adapters.weights import Progress, hash_artifact
from specops.core.imports import Description, Imported, bounded, describe_card, describe_config
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind
from specops.errors import InvalidInput, InvalidWeights

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "tokenizer.model", "vocab.txt", "spiece.model", "tekken.json",
)  # fmt: skip
TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
MAX_CARD_BYTES = 1 << 20
MAX_PREFIX = 170  # characters of a model's name that its parts' names begin with: names have at most 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What a person vouches for: digests of the model this one was made from, of its teacher, and of the target it serves."""

    base: str | None = None
    teacher: str | None = None
    target: str | None = None


def import_folder(
    folder: Path,
    *,
    name: str,
    kind: ArtifactKind | None = None,
    binding: Binding | None = None,
    tensors: bool = True,
    progress: Progress | None = None,
) -> Imported:
    """Hash a folder and describe what it holds; nothing is registered.

    Args:
        folder: holds config.json and safetensors files; pickles are refused.
        name: handle for people.
        kind: target or draft; None: a head is a draft, anything else a target.
        binding: what a person vouches for; without it no edge to another model is drawn.
        tensors: also record each tensor's digest.
        progress: called with (bytes done, bytes in all) of the weights.

    Raises:
        InvalidWeights: the folder, its weights or index are missing, broken or pickles.
        InvalidInput: config.json is absent, no JSON, or not a configuration.
    """
    config = read_json(folder / "config.json")
    about = describe_config(config, str(folder / "config.json"))
    kind = kind or (ArtifactKind.DRAFT if about.role.is_head else ArtifactKind.TARGET)
    weights = _weights(folder, name, kind, about, tensors, progress)
    others, edges = _companions(folder, name, weights)
    bound, notes = _bound(weights, about, binding or Binding())
    return Imported(artifacts=(weights, *others), edges=(*edges, *bound), notes=notes)


def _weights(
    folder: Path, name: str, kind: ArtifactKind, about: Description, tensors: bool, progress: Progress | None
) -> Artifact:
    """Hash config and weights; code that a loader would run (trust_remote_code) belongs to them."""
    files = sorted(p.name for p in folder.iterdir() if p.name.endswith((".safetensors", ".safetensors.index.json", ".py")))
    if not any(f.endswith(".safetensors") for f in files):
        found = ", ".join(sorted(p.name for p in folder.iterdir())[:5])
        raise InvalidWeights(f"{folder} has no safetensors file, only {found}; convert the weights to safetensors")
    artifact = hash_artifact(kind, name, folder, files=["config.json", *files], tensors=tensors, progress=progress)
    claims = about.claims | describe_card(_card(folder))
    k = {"made_for_k": about.num_speculative_tokens} if about.num_speculative_tokens else {}
    runs_code = {"runs_code": [f for f in files if f.endswith(".py")]} if any(f.endswith(".py") for f in files) else {}
    return replace(artifact, properties=about.properties | {"role": about.role.value} | k | runs_code, claims=claims)


def _companions(folder: Path, name: str, weights: Artifact) -> tuple[list[Artifact], list[Edge]]:
    """Hash tokenizer, chat template and generation defaults; the last two hold token ids, so they depend on the tokenizer."""
    artifacts: list[Artifact] = []
    edges: list[Edge] = []
    tokenizer = _some(folder, TOKENIZER_FILES, ArtifactKind.TOKENIZER, f"{name[:MAX_PREFIX]} tokenizer")
    if tokenizer is not None:
        artifacts.append(tokenizer)
        edges.append(Edge(source=weights.digest, kind=EdgeKind.TOKENIZED_WITH, target=tokenizer.digest))
    for files, kind, suffix in (
        (TEMPLATE_FILES, ArtifactKind.CHAT_TEMPLATE, "chat template"),
        (("generation_config.json",), ArtifactKind.GENERATION_CONFIG, "generation defaults"),
    ):
        found = _some(folder, files, kind, f"{name[:MAX_PREFIX]} {suffix}")
        if found is None:
            continue
        if kind is ArtifactKind.GENERATION_CONFIG:
            path = folder / "generation_config.json"
            found = replace(found, properties={"defaults": bounded(read_json(path, MAX_CARD_BYTES), str(path))})
        artifacts.append(found)
        if tokenizer is not None:
            edges.append(Edge(source=found.digest, kind=EdgeKind.USES, target=tokenizer.digest))
    return artifacts, edges


def _some(folder: Path, files: tuple[str, ...], kind: ArtifactKind, name: str) -> Artifact | None:
    there = [f for f in files if (folder / f).exists()]
    return hash_artifact(kind, name, folder, files=there) if there else None


def _bound(weights: Artifact, about: Description, binding: Binding) -> tuple[list[Edge], tuple[str, ...]]:
    """Draw the edges that a person vouches for; say which claims stay claims."""
    quantised = "quantization_config" in about.properties
    edges: list[Edge] = []

    def draw(kind: EdgeKind, target: str | None) -> None:
        if target is not None:
            edges.append(Edge(source=weights.digest, kind=kind, target=target))

    draw(EdgeKind.QUANTIZED_FROM if quantised else EdgeKind.FINE_TUNED_FROM, binding.base)
    draw(EdgeKind.DISTILLED_FROM, binding.teacher)
    if about.role.is_head:
        draw(EdgeKind.CONDITIONED_ON, binding.target)
    if about.properties.get("draft_vocab_size") or {t.name for t in weights.tensors} & {"d2t", "t2d"}:
        draw(EdgeKind.MAPS_VOCAB_TO, binding.target)
    options = {"base_model": ("--base", binding.base), "verifier": ("--target", binding.target)}
    notes = [
        f"{key} {weights.claims[key]!r} stays a claim; bind it to a registered digest with {option}"
        for key, (option, bound) in options.items()
        if key in weights.claims and bound is None
    ]
    if "runs_code" in weights.properties:
        notes.append(f"the folder holds code that a loader may run: {', '.join(weights.properties['runs_code'])}")
    return edges, tuple(notes)


def _card(folder: Path) -> object:
    """Return the YAML head of README.md; None where there is none or it cannot be read: a card only claims."""
    path = folder / "README.md"
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CARD_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return None
    if not text.startswith("---"):
        return None
    head = text[3:].partition("\n---")[0]
    try:
        return load_yaml(head, str(path))
    except InvalidInput:
        return None
