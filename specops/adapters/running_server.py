"""What a running server says about itself: models, version and, where it offers it, its whole configuration.

Called by `specops lineage import server`. All of it is a claim: a server reports names and settings, never the bytes that it
loaded; the draft's weights show nowhere. Bounded on every side: time, size, no redirects.

Source: vLLM 0.32 `/v1/models`, `/version` (always), `/server_info` (development mode only); facts gathered for this project.
"""

import http.client
import json
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from specops.adapters.vllm_command import secrets_in
from specops.core.imports import Imported, bounded
from specops.core.release import ArtifactKind, document
from specops.errors import EngineUnavailable, InvalidInput, InvalidRecord

MAX_BODY_BYTES = 4 << 20
PATHS = {"models": "/v1/models", "version": "/version", "server_info": "/server_info?config_format=json"}
UNSEEN = (
    "a server names what it loaded but never proves it: weights, tokenizer content and draft weights are not visible here; "
    "bind them by importing the folders"
)


def import_server(url: str, *, name: str, timeout_s: float = 5.0) -> Imported:
    """Ask a server about itself; nothing is registered.

    Args:
        url: base URL, http or https.
        name: handle for people.
        timeout_s: limit of each of the three requests.

    Raises:
        InvalidInput: not an http URL.
        EngineUnavailable: it does not answer, or answers something else than its dialect.
    """
    answers = {key: _get(url, path, timeout_s) for key, path in PATHS.items()}
    if answers["models"] is None:
        raise EngineUnavailable(f"{url} has no /v1/models, so it is no OpenAI-compatible server; check the address")
    absent = [PATHS[key].partition("?")[0] for key, answer in answers.items() if answer is None]
    missing = [f"{path} is not served (vLLM serves /server_info in development mode only)" for path in absent]
    try:
        said = _kept(bounded({key: answer for key, answer in answers.items() if answer is not None}, url))
    except InvalidRecord as exc:
        raise EngineUnavailable(f"{url} sent an answer that cannot be kept: {exc}") from exc
    artifact = document(ArtifactKind.ENGINE_CONFIG, name, {"server": said})
    return Imported(artifacts=(replace(artifact, properties={}, claims=said, location=url),), notes=(*missing, UNSEEN))


def _get(url: str, path: str, timeout_s: float) -> Any:  # noqa: ANN401  # any JSON value
    """Return a JSON answer, None for 404 and the like."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidInput(f"{url!r} is not the address of a server; expected http://host:port")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname, parts.port, timeout=timeout_s)
        try:
            connection.request("GET", parts.path.rstrip("/") + path, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            body = answer.read(MAX_BODY_BYTES + 1)
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException) as exc:
        raise EngineUnavailable(f"{url}{path} did not answer: {exc or type(exc).__name__}; is it running?") from exc
    if answer.status in {404, 405}:
        return None
    if answer.status != http.client.OK:
        raise EngineUnavailable(f"{url}{path} answered HTTP {answer.status}, expected 200; redirects are not followed")
    if len(body) > MAX_BODY_BYTES:
        raise EngineUnavailable(f"{url}{path} sent more than {MAX_BODY_BYTES} bytes; this is no server description")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise EngineUnavailable(f"{url}{path} sent no JSON: {body[:60]!r}; check the address") from exc


def _kept(value: Any) -> Any:  # noqa: ANN401
    """Drop secrets at any depth, and times and random ids: the same server gives the same bytes."""
    if isinstance(value, dict):
        hidden = {"created", "permission", *secrets_in(value)}
        return {key: _kept(item) for key, item in value.items() if key not in hidden}
    return [_kept(item) for item in value] if isinstance(value, list) else value
