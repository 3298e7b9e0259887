"""What the story registers: artifacts of the shipped pair, their lineage, and two releases, plain and speculative."""

from dataclasses import dataclass
from pathlib import Path

from specops.adapters.weights import hash_artifact
from specops.core.release import Artifact, ArtifactKind, Edge, EdgeKind, Release
from specops.demo.pair import FOLDER, LICENCE, Pair
from specops.engines.tokenizer import tokenizer_digest
from specops.engines.weights import weights_digest

K = 4  # measured: README, "Figures"
MODEL_FILES = ("config.json", "model.safetensors")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineup:
    """Everything to register, and the two releases by role."""

    artifacts: tuple[Artifact, ...]
    edges: tuple[Edge, ...]
    plain: Release
    speculative: Release


def build_lineup(pair: Pair) -> Lineup:
    """Hash the pair's files and describe both releases."""
    recipe = hash_artifact(
        ArtifactKind.RECIPE,
        "recipe",
        FOLDER,
        files=["recipe.json"],
        facts={"corpus": pair.recipe["corpus"], "commit": pair.recipe["commit"]},
    )
    prompts = hash_artifact(
        ArtifactKind.EVALUATION_SET,
        "held-out prompts",
        FOLDER,
        files=["prompts.json"],
        facts={"licence": pair.recipe["corpus"]["licence"]},
    )
    target = _model(ArtifactKind.TARGET, "target", pair.target)
    draft = _model(ArtifactKind.DRAFT, "draft (code)", pair.draft)
    stale = _model(ArtifactKind.DRAFT, "stale draft (prose)", pair.stale)
    tokenizer = hash_artifact(
        ArtifactKind.TOKENIZER,
        "tokenizer",
        pair.target,
        files=list(TOKENIZER_FILES),
        facts={"content_sha256": tokenizer_digest(pair.target)},
    )
    edges = [
        Edge(source=model.digest, kind=EdgeKind.TOKENIZED_WITH, target=tokenizer.digest) for model in (target, draft, stale)
    ]
    edges += [Edge(source=model.digest, kind=EdgeKind.TRAINED_ON, target=recipe.digest) for model in (target, draft, stale)]
    edges += [Edge(source=model.digest, kind=EdgeKind.DISTILLED_FROM, target=target.digest) for model in (draft, stale)]
    edges += [Edge(source=target.digest, kind=EdgeKind.EVALUATED_ON, target=prompts.digest)]
    engine = _engine()
    plain = Release(name="plain", target=target.digest, tokenizer=tokenizer_digest(pair.target), engine=engine)
    speculative = Release(
        name="speculative",
        target=target.digest,
        tokenizer=tokenizer_digest(pair.target),
        draft=draft.digest,
        draft_tokenizer=tokenizer_digest(pair.draft),
        method="draft_model",
        num_speculative_tokens=K,
        engine=engine,
        speculative_config={
            "method": "draft_model",
            "num_speculative_tokens": K,
            "draft_sample_method": "probabilistic",
            "rejection_sample_method": "standard",
        },
    )
    return Lineup(
        artifacts=(recipe, prompts, target, draft, stale, tokenizer), edges=tuple(edges), plain=plain, speculative=speculative
    )


def _model(kind: ArtifactKind, name: str, folder: Path) -> Artifact:
    return hash_artifact(
        kind, name, folder, files=list(MODEL_FILES), facts={"licence": LICENCE, "weights_sha256": weights_digest(folder)}
    )


def _engine() -> dict[str, object]:
    import torch  # noqa: PLC0415

    return {
        "name": "specops-torch",
        "torch": torch.__version__.split("+")[0],
        "dtype": "float32",
        "threads": 1,
        "attention": "sdpa",
    }
