"""Checks before traffic: do target and draft belong together, can their weights be opened, does the server run what it should.

Every check is a `Finding`, so a person sees all of them at once; `refuse` turns the worst into an error. Reads files and one
HTTP answer, loads no model. Called by the engine at start and by control before a rollout.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from specops.core.tokenizer import Tokenizer
from specops.core.vocabulary import compare, first_difference
from specops.engines.chat import read_chat_template
from specops.engines.client import EngineClient
from specops.engines.tokenizer import read_tokenizer
from specops.engines.weights import PICKLES, read_header, weight_files
from specops.errors import IncompatibleRelease, InvalidInput, InvalidWeights, SpecopsError

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length")


class Severity(StrEnum):
    """What a finding asks for: nothing, a look, or a stop."""

    OK = "ok"
    WARN = "warn"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check: what was looked at, what was found, what was expected, and the way out when they differ."""

    severity: Severity
    what: str
    got: str
    expected: str
    way_out: str = ""

    @property
    def message(self) -> str:
        """One line for a person."""
        tail = f"; {self.way_out}" if self.way_out else ""
        return f"{self.what}: got {self.got}, expected {self.expected}{tail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What an endpoint must run. Digests as in `weights_digest` and `tokenizer_digest`; a field left None is not compared,
    except `method` and `draft_weights`: None there means plain decoding and no draft.
    """  # noqa: D205

    target_weights: str | None = None
    draft_weights: str | None = None
    tokenizer: str | None = None
    method: str | None = None
    num_speculative_tokens: int = 0
    served_model_name: str | None = None


def refuse(findings: Iterable[Finding]) -> None:
    """Raise when any finding refuses.

    Raises:
        InvalidWeights: the weights cannot be opened.
        IncompatibleRelease: anything else that refuses; the message has all of them.
    """
    worst = [finding for finding in findings if finding.severity is Severity.REFUSE]
    if not worst:
        return
    kind = InvalidWeights if any(finding.what.endswith("weights") for finding in worst) else IncompatibleRelease
    raise kind(" | ".join(finding.message for finding in worst))


def check_folders(target: Path, draft: Path | None) -> tuple[Finding, ...]:
    """Check a target and, when there is one, its draft."""
    findings = [_weights("target weights", target), *_template(target)]
    if draft is None:
        return (*findings, _readable_tokenizer(target))
    findings.append(_weights("draft weights", draft))
    try:
        tokenizer, own = read_tokenizer(target), read_tokenizer(draft)
        findings.append(_tokenizers(tokenizer, own))
        mine, yours = _config(target), _config(draft)
        findings.extend([_vocabulary(tokenizer, mine, yours), _context(mine, yours)])
    except InvalidInput as exc:
        findings.append(_refusal("checkpoint files", str(exc), "config.json and tokenizer.json in both folders"))
    return tuple(findings)


def _refusal(what: str, got: str, expected: str, way_out: str = "") -> Finding:
    return Finding(severity=Severity.REFUSE, what=what, got=got, expected=expected, way_out=way_out)


def _fine(what: str, got: str, expected: str) -> Finding:
    return Finding(severity=Severity.OK, what=what, got=got, expected=expected)


def _weights(what: str, folder: Path) -> Finding:
    expected = "sound safetensors"
    try:
        files = weight_files(folder)
        count = sum(len(read_header(path)) for path in files)
    except InvalidWeights as exc:
        return _refusal(what, str(exc), expected)
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        got = f"safetensors beside pickle files ({', '.join(pickles[:3])})"
        return Finding(
            severity=Severity.WARN, what=what, got=got, expected=expected, way_out="remove the pickles; they are not read"
        )
    return _fine(what, f"{count} tensors in {len(files)} file(s)", expected)


def _readable_tokenizer(folder: Path) -> Finding:
    try:
        return _fine("tokenizer", f"digest {read_tokenizer(folder).digest[:12]}", "a readable tokenizer.json")
    except InvalidInput as exc:
        return _refusal("tokenizer", str(exc), "a readable tokenizer.json")


def _template(folder: Path) -> Iterable[Finding]:
    """Say something only of a template that is there: completions need none."""
    try:
        digest = read_chat_template(folder).sha256
    except InvalidInput as exc:
        yield _refusal("chat template", str(exc), "a readable template, or none")
        return
    if digest is not None:
        yield _fine("chat template", f"digest {digest[:12]}", "a readable template, or none")


def _tokenizers(target: Tokenizer, draft: Tokenizer) -> Finding:
    what, difference = "tokenizer identity", first_difference(target, draft)
    if difference is None:
        return _fine(what, f"digest {draft.digest[:12]}", f"digest {target.digest[:12]}")
    way_out = "use a draft trained with the target's tokenizer"
    return _refusal(what, f"{difference.what} {difference.draft} in the draft", f"{difference.target} in the target", way_out)


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except OSError as exc:
        raise InvalidInput(f"cannot read {path}: {exc.strerror}; a checkpoint needs its config.json") from exc
    except ValueError as exc:
        raise InvalidInput(f"{path} is not JSON: {exc}") from exc
    if not isinstance(config, dict):
        raise InvalidInput(f"{path} must be an object, got {type(config).__name__}")
    return config


def _vocabulary(tokenizer: Tokenizer, target: dict[str, Any], draft: dict[str, Any]) -> Finding:
    """Sizes must be equal: this engine, like vLLM's draft_model, does not mask the padding of the larger side."""
    mine, yours = target.get("vocab_size"), draft.get("vocab_size")
    what, got, expected = "vocabulary size", f"draft {yours}", f"target {mine}"
    if type(mine) is not int or type(yours) is not int:
        return _refusal(what, got, expected, "state vocab_size in both config.json")
    relation = compare(tokenizer, None, target_size=mine, draft_size=yours)
    if relation.entry is None and mine == yours:
        return _fine(what, got, expected)
    return _refusal(what, got, expected, f"{relation.message}; rebuild the draft with the target's vocabulary")


def _context(target: dict[str, Any], draft: dict[str, Any]) -> Finding:
    mine, yours = _context_of(target), _context_of(draft)
    what, got, expected = "context length", f"draft {yours}", f"at least target {mine}"
    if mine is None or yours is None:
        return Finding(severity=Severity.WARN, what=what, got=got, expected=expected, way_out="state it in config.json")
    if yours >= mine:
        return _fine(what, got, expected)
    way_out = "answers past the draft's context run without drafts; use a draft with the target's context"
    return Finding(severity=Severity.WARN, what=what, got=got, expected=expected, way_out=way_out)


def _context_of(config: dict[str, Any]) -> int | None:
    return next((config[key] for key in _CONTEXT_KEYS if type(config.get(key)) is int), None)


def check_endpoint(url: str, expected: Expected, *, timeout_s: float = 5.0) -> tuple[Finding, ...]:
    """Compare what a server says it runs with what the release says.

    A server that does not answer, or does not speak the specops extension of `/server_info`, is a finding that refuses.
    """
    client = EngineClient(url, timeout_s=timeout_s)
    try:
        client.health()
        facts = client.server_info().get("specops")
    except SpecopsError as exc:
        return (_refusal("endpoint", str(exc), f"an engine at {url}", "start it, or correct the address"),)
    if not isinstance(facts, dict):
        return (
            _refusal("endpoint", "no digests in /server_info", "the specops extension", "serve it with specops engine serve"),
        )
    return (_fine("endpoint", "healthy", f"an engine at {url}"), *_compare(facts, expected))


def _compare(facts: dict[str, Any], expected: Expected) -> Iterable[Finding]:
    rows: list[tuple[str, Any, Any]] = [
        ("running method", facts.get("method"), expected.method),
        ("running k", facts.get("num_speculative_tokens"), expected.num_speculative_tokens),
        ("running draft", (facts.get("draft") or {}).get("weights_sha256"), expected.draft_weights),
    ]
    optional = [
        ("running target", (facts.get("target") or {}).get("weights_sha256"), expected.target_weights),
        ("running tokenizer", facts.get("tokenizer"), expected.tokenizer),
        ("served model name", facts.get("served_model_name"), expected.served_model_name),
    ]
    for what, got, wanted in rows + [row for row in optional if row[2] is not None]:
        if got == wanted:
            yield _fine(what, str(got), str(wanted))
        else:
            yield _refusal(what, str(got), str(wanted), "restart the engine from the registered release")
