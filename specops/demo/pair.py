"""The shipped pair: where its files are, and what lineage says about them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specops.errors import InvalidWeights

FOLDER = Path(__file__).parent / "weights"
LICENCE = "Apache-2.0 (weights); trained on text under PSF-2.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Folders of target, draft and stale draft, held-out prompts per domain, and the recipe's record."""

    target: Path
    draft: Path
    stale: Path
    prompts: dict[str, tuple[str, ...]]
    recipe: dict[str, Any]


def load_pair(folder: Path = FOLDER) -> Pair:
    """Find the shipped pair.

    Raises:
        InvalidWeights: a file is missing; the way out is to train it.
    """
    for name in (
        "target/model.safetensors",
        "draft/model.safetensors",
        "stale/model.safetensors",
        "prompts.json",
        "recipe.json",
    ):
        if not (folder / name).is_file():
            raise InvalidWeights(
                f"the demo pair lacks {folder / name}; reinstall specops, or train it: specops demo train {folder}"
            )
    prompts = json.loads((folder / "prompts.json").read_text(encoding="utf-8"))
    return Pair(
        target=folder / "target",
        draft=folder / "draft",
        stale=folder / "stale",
        prompts={k: tuple(v) for k, v in prompts.items()},
        recipe=json.loads((folder / "recipe.json").read_text(encoding="utf-8")),
    )
