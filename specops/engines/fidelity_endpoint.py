"""Any server of vLLM's dialect as an endpoint of a verification (`control.verify_ports.Endpoint`).

Answers are asked for side by side in threads. A server that returns no token ids is read by text, which it tokenises again
itself; one that has no `/server_info` has no facts.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from specops.core.fidelity_atoms import Scored
from specops.core.fidelity_sample import Ask, Sample
from specops.decoding.request import TokenLogprob
from specops.engines.client import Completion, EngineClient
from specops.errors import EngineUnavailable, InvalidInput

SCORE_BATCH = 8  # texts per scoring request


class HttpEndpoint:
    """One server; `url` as for `EngineClient`."""

    def __init__(self, url: str, *, timeout_s: float = 300.0) -> None:
        self._client = EngineClient(url, timeout_s=timeout_s)
        self.url = self._client.base_url
        self._texts: dict[tuple[int, ...], str] = {}
        self._reports_logs = True

    def facts(self) -> Mapping[str, Any]:
        """Return `/server_info`, of the reference engine its own part; empty when the server has none.

        vLLM describes itself as text, which leaves most of the speculative configuration out; that part is asked for as JSON.
        """
        try:
            said = self._client.server_info()
            whole = self._client.server_info(as_json=True) if isinstance(said.get("vllm_config"), str) else {}
            return dict(said.get("specops", said)) | _speculative(whole)
        except InvalidInput:  # a 404: vLLM shows it in development mode only
            return {}
        except EngineUnavailable:
            self._client.models()  # there, but without facts; or not there
            return {}

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the token ids that the server makes of a text."""
        ids = tuple(self._client.tokenize(text))
        self._texts[ids] = text
        return ids

    def sample(self, asks: Sequence[Ask], concurrency: int) -> list[Sample]:
        """Return an answer to each, so many side by side."""
        with ThreadPoolExecutor(concurrency) as threads:
            return list(threads.map(self._one, asks))

    def score(self, texts: Sequence[tuple[int, ...]], top: int, concurrency: int) -> list[Scored]:
        """Return the raw law at each token of each text after the first."""
        batches = [texts[at : at + SCORE_BATCH] for at in range(0, len(texts), SCORE_BATCH)]
        with ThreadPoolExecutor(concurrency) as threads:
            found = threads.map(lambda part: self._client.score(part, top=top, batch=SCORE_BATCH), batches)
            return [_scored(one, top) for part in found for one in part]

    def _one(self, ask: Ask) -> Sample:
        options: dict[str, Any] = {"temperature": 0.0} if ask.sampling is None else ask.sampling.to_record()
        options |= {"max_tokens": ask.max_tokens, "seed": ask.seed}
        answer = self._complete(list(ask.prompt_ids), options)
        ids, again = answer.token_ids, False
        if not ids and answer.text:
            again, whole = True, self._client.tokenize(self._texts.get(ask.prompt_ids, "") + answer.text)
            ids = tuple(whole[len(ask.prompt_ids) :])
        logs = answer.logprobs if len(answer.logprobs) == len(ids) else ()
        return Sample(
            prompt_ids=ask.prompt_ids, token_ids=ids, blocks=_blocks(answer), logs=logs, is_retokenised=again
        )  # fmt: skip

    def _complete(self, prompt: list[int], options: dict[str, Any]) -> Completion:
        if self._reports_logs:
            try:
                return self._client.complete(prompt, **options, logprobs=0)
            except InvalidInput as exc:
                if "logprob" not in str(exc):
                    raise
                self._reports_logs = False  # it reports none: nothing to compare
        return self._client.complete(prompt, **options)


def _speculative(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return vLLM's speculative configuration, without the configurations of both models that it repeats; empty for none."""
    config = said.get("vllm_config")
    found = config.get("speculative_config") if isinstance(config, Mapping) else None
    if not isinstance(found, Mapping):
        return {}
    return {"speculative_config": {key: value for key, value in found.items() if not isinstance(value, Mapping)}}


def _scored(entries: Sequence[TokenLogprob], top: int) -> Scored:
    ids = np.full((len(entries), top), -1, np.int64)
    logs = np.full((len(entries), top), -np.inf)
    for at, entry in enumerate(entries):
        best = entry.top[:top]
        ids[at, : len(best)] = [token for token, _ in best]
        logs[at, : len(best)] = [log for _, log in best]
    return Scored(ids=ids, logs=np.minimum(logs, 0.0), chosen=np.minimum([entry.logprob for entry in entries], 0.0))


def _blocks(answer: Completion) -> tuple[int, ...]:
    """Return the lengths of the pieces that became final together: the prefill's token, then each round; empty if unknown."""
    if not answer.per_round:
        return ()
    sizes, left = [], len(answer.token_ids)
    for size in (1, *(accepted + 1 for _, accepted in answer.per_round)):
        sizes.append(min(size, left))
        left -= sizes[-1]
    return tuple(size for size in (*sizes, *([1] if left == 1 else [])) if size) if left <= 1 else ()
