"""A vLLM command line, or its speculative configuration alone, as an engine configuration that can be registered.

Called by `specops lineage import vllm` and `... speculative-config`. It is read, never run: no shell expansion, and secrets are
dropped before anything is stored. Model names in it are claims, since a name can mean other bytes tomorrow.

Source: vLLM 0.32 `vllm serve --help` and `vllm/config/speculative.py`, through the facts gathered for this project.
"""

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specops.adapters.documents import load_yaml
from specops.core.imports import Imported, bounded
from specops.core.release import ArtifactKind, document
from specops.errors import InvalidInput

MAX_COMMAND = 1 << 20  # characters
_SECRET = re.compile(r"(api[-_]?key|token|password|secret|credential)s?$", re.IGNORECASE)
_NOT_SECRET = frozenset({"num_speculative_tokens", "max_num_batched_tokens", "max_tokens"})
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SPECULATIVE = ("speculative_config", "sc")
_MODULES = frozenset({"vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main"})
_SWITCHES = re.compile(r"(no_|enable_|disable_|use_|return_|skip_|calculate_)|(trust_remote_code|enforce_eager)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCommand:
    """What a command line sets. Keys have underscores; `speculative` is None for plain decoding."""

    model: str | None
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    speculative: dict[str, Any] | None = None
    dropped: tuple[str, ...] = ()

    def to_imported(self, name: str) -> Imported:
        """Return the engine configuration as an artifact with model names as claims."""
        content = {
            "engine": "vllm",
            "arguments": self.arguments,
            "environment": self.environment,
            "speculative_config": self.speculative,
        }
        artifact = document(ArtifactKind.ENGINE_CONFIG, name, bounded(content, "command line"))
        models = {"model": self.model, "draft_model": (self.speculative or {}).get("model")}
        artifact.claims.update({key: value for key, value in models.items() if value})
        notes = [f"{key} was dropped: secrets are never stored" for key in self.dropped]
        if self.speculative is not None and "method" not in self.speculative:
            notes.append("method is not set, so vLLM guesses it from the draft's folder name; set it, a rename changes it")
        return Imported(artifacts=(artifact,), notes=tuple(notes))


def parse_command(text: str, *, folder: Path | None = None) -> EngineCommand:
    """Read a `vllm serve ...` or `python -m vllm.entrypoints.openai.api_server ...` command line, as copied from a unit file.

    Args:
        text: the line; environment assignments in front and continued lines are fine.
        folder: where a relative `--config FILE` is looked up; None: the working folder.

    Raises:
        InvalidInput: it is no vLLM command, its quotes do not close, or its speculative configuration is no JSON object.
    """
    if len(text) > MAX_COMMAND:
        raise InvalidInput(f"the command has {len(text)} characters, at most {MAX_COMMAND} are read")
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as exc:
        raise InvalidInput(f"the command line cannot be split into words: {exc}; check its quotes") from exc
    environment: dict[str, str] = {}
    while words and (words[0] == "env" or _ASSIGNMENT.fullmatch(words[0])):
        if found := _ASSIGNMENT.fullmatch(words.pop(0)):
            environment[found[1]] = found[2]
    raw, positional = _options(_after_program(words))
    if isinstance(raw.get("config"), str):
        raw = _config_file((folder or Path()) / raw.pop("config")) | raw
    speculative = _speculative(raw)
    model = raw.pop("model", None) or raw.pop("model_tag", None) or (positional[0] if positional else None)
    dropped = [key for key in (*environment, *raw) if _is_secret(key)]
    return EngineCommand(
        model=str(model) if model else None,
        arguments={key: value for key, value in sorted(raw.items()) if not _is_secret(key)},
        environment={key: value for key, value in sorted(environment.items()) if not _is_secret(key)},
        speculative=speculative,
        dropped=tuple(dropped),
    )


def parse_speculative(text: str) -> EngineCommand:
    """Read a `--speculative-config` JSON value alone.

    Raises:
        InvalidInput: it is no JSON object.
    """
    return EngineCommand(model=None, speculative=_object(text))


def _after_program(words: list[str]) -> list[str]:
    """Drop what starts vLLM."""
    names = [Path(word).name for word in words[:3]]
    if names[:2] == ["vllm", "serve"]:
        return words[2:]
    if len(names) > 2 and names[0].startswith("python") and words[1] == "-m" and words[2] in _MODULES:  # noqa: PLR2004
        rest = words[3:]
        return rest[1:] if rest[:1] == ["serve"] else rest
    raise InvalidInput(
        f"not a vLLM command: it begins with {' '.join(words[:3])[:80]!r}; expected 'vllm serve MODEL ...' or "
        "'python -m vllm.entrypoints.openai.api_server ...'"
    )


def _options(words: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return options by key and positional words; `--a.b c` nests, an option without a value is true."""
    options: dict[str, Any] = {}
    positional: list[str] = []
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        key, has_value, value = word.lstrip("-").partition("=")
        key = key.replace("-", "_")
        values: list[str] = [value] if has_value else []
        if not has_value and not _SWITCHES.match(key):
            while at < len(words) and not _is_option(words[at]):
                values.append(words[at])
                at += 1
        _set(options, key.split("."), _value(values))
    return options, positional


def _is_option(word: str) -> bool:
    """Tell an option from a value; a negative number is a value."""
    return word.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", word)


def _value(values: list[str]) -> Any:  # noqa: ANN401  # any JSON value
    if not values:
        return True
    typed = [_typed(v) for v in values]
    return typed[0] if len(typed) == 1 else typed


def _typed(value: str) -> Any:  # noqa: ANN401
    """Numbers as numbers, so that 0.9 and 0.90 are the same setting; everything else as text."""
    if re.fullmatch(r"-?\d{1,15}", value):
        return int(value)
    if re.fullmatch(r"-?\d{1,15}\.\d{1,15}", value):
        return float(value)
    return value


def _set(options: dict[str, Any], path: list[str], value: object) -> None:
    """Set a dotted key; the JSON form of the same option is merged."""
    here = options
    for key in path[:-1]:
        below = here.get(key)
        if isinstance(below, str):
            below = _object(below)
        if not isinstance(below, dict):
            below = {}
        here[key] = below
        here = below
    here[path[-1]] = value


def _speculative(options: dict[str, Any]) -> dict[str, Any] | None:
    found: dict[str, Any] | None = None
    for key in _SPECULATIVE:
        value = options.pop(key, None)
        if value is None:
            continue
        if not isinstance(value, str | dict):
            raise InvalidInput(f"--speculative-config must be a JSON object, got {value!r}; quote it as one word")
        found = (found or {}) | (_object(value) if isinstance(value, str) else value)
    return found


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"speculative configuration is not JSON: {exc}, got {text[:80]!r}; quote it as one word") from exc
    if not isinstance(value, dict):
        raise InvalidInput(f"the speculative configuration must be a JSON object, got {type(value).__name__}")
    kept: dict[str, Any] = bounded(value, "speculative configuration")
    return {key: item for key, item in kept.items() if not _is_secret(key)}


def _config_file(path: Path) -> dict[str, Any]:
    """Read vLLM's YAML configuration file; the command line goes before it."""
    try:
        text = path.read_text(encoding="utf-8")[:MAX_COMMAND]
    except (OSError, ValueError) as exc:
        raise InvalidInput(f"cannot read --config {path}: {exc}; give its path") from exc
    content = load_yaml(text, f"--config {path}")
    if not isinstance(content, dict):
        raise InvalidInput(f"--config {path} must hold a mapping, got {type(content).__name__}")
    return {str(key).replace("-", "_"): value for key, value in content.items()}


def _is_secret(key: str) -> bool:
    return key not in _NOT_SECRET and _SECRET.search(key) is not None


def secrets_in(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the keys whose values must not be stored."""
    return tuple(key for key in keys if _is_secret(key))
