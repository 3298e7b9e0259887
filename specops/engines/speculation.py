"""How an engine speculates beyond method, draft and k, in the words of vLLM's `--speculative-config`.

A value that is not given here keeps this engine's default, which for `draft_sample_method` is not vLLM's: drafts are drawn from
their law, because a greedy draft is accepted less often at temperature > 0. Called by `engines.config` and `cli.engine`.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from specops.core.trace import Rule
from specops.decoding.batch import DynamicK
from specops.decoding.draft import Draft, ModelDraft
from specops.decoding.lookup import NgramDraft, SuffixDraft
from specops.errors import InvalidInput
from specops.transformer.model import Model

METHODS = ("draft_model", "ngram", "suffix")
_RULES = {"standard": Rule.TOKEN, "block": Rule.BLOCK}
_DRAWS = ("probabilistic", "greedy")
_OWN = ("method", "model", "num_speculative_tokens")  # of the JSON: options of their own here


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Settings of the rounds; none of them changes the law of the text.

    Attributes:
        rejection_sample_method: standard (token by token) or block.
        draft_sample_method: probabilistic or greedy, for a draft model at temperature > 0.
        prompt_lookup_max, prompt_lookup_min: longest and shortest n-gram of method ngram.
        suffix_decoding_max_tree_depth, suffix_decoding_max_spec_factor, suffix_decoding_min_token_prob: of method suffix.
        num_speculative_tokens_per_batch_size: (first, last, k) ranges of running requests, from 1 on; gaps and what lies beyond
            keep the k before, as in vLLM.
        adaptive_k: one token less after a rejection, one more after a full accept, between 1 and k; vLLM has no such setting.
    """

    rejection_sample_method: str = "standard"
    draft_sample_method: str = "probabilistic"
    prompt_lookup_max: int = 4
    prompt_lookup_min: int = 2
    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1
    num_speculative_tokens_per_batch_size: tuple[tuple[int, int, int], ...] = ()
    adaptive_k: bool = False

    def __post_init__(self) -> None:
        """Check every value; the drafts check theirs."""
        for name, known in (("rejection_sample_method", tuple(_RULES)), ("draft_sample_method", _DRAWS)):
            if getattr(self, name) not in known:
                raise InvalidInput(f"{name} is {getattr(self, name)!r}, this engine runs {' or '.join(known)}")
        self._ngram(1), self._suffix(1)  # their own checks
        first, table = 1, self.num_speculative_tokens_per_batch_size
        for start, end, k in table:
            if not first <= start <= end or (first == 1 and start != 1) or k < 0:
                raise InvalidInput(
                    f"num_speculative_tokens_per_batch_size is {table}, expected [first, last, k] ranges, the first from 1,"
                    " that rise and do not overlap, k >= 0; sort them"
                )
            first = end + 1

    @property
    def rule(self) -> Rule:
        """How prefixes are accepted at temperature > 0."""
        return _RULES[self.rejection_sample_method]

    @property
    def dynamic(self) -> DynamicK:
        """What limits k."""
        table = self.num_speculative_tokens_per_batch_size
        ends = [start - 1 for start, _, _ in table[1:]] + [sys.maxsize]
        by_batch = tuple((end, k) for end, (_, _, k) in zip(ends, table, strict=False))
        return DynamicK(by_batch=by_batch, by_acceptance=self.adaptive_k)

    def draft(self, method: str | None, k: int, model: Model | None) -> Draft | None:
        """Return what proposes, shared by all requests; None for plain decoding."""
        if model is not None:
            return ModelDraft(model, k, greedy=self.draft_sample_method == "greedy")
        return {None: lambda _: None, "ngram": self._ngram, "suffix": self._suffix}[method](k)

    def _ngram(self, k: int) -> NgramDraft:
        return NgramDraft(k, self.prompt_lookup_max, self.prompt_lookup_min)

    def _suffix(self, k: int) -> SuffixDraft:
        factor, least = self.suffix_decoding_max_spec_factor, self.suffix_decoding_min_token_prob
        return SuffixDraft(k, self.suffix_decoding_max_tree_depth, factor, least)

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values of everything that is not the default; `from_record` is the inverse."""
        return {name: value for name, value in asdict(self).items() if value != getattr(Speculation(), name)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Build from `to_record` values, or from vLLM's names.

        Raises:
            InvalidInput: an unknown name, or a value of the wrong kind or out of range.
        """
        known = {field.name for field in fields(cls)}
        if unknown := sorted(record.keys() - known):
            raise InvalidInput(f"{', '.join(unknown)} is not known to this engine; it reads {', '.join(sorted(known))}")
        name = "num_speculative_tokens_per_batch_size"
        try:
            ranges = tuple((int(start), int(end), int(k)) for start, end, k in record.get(name) or ())
            return cls(**{**record, name: ranges})
        except (TypeError, ValueError) as exc:
            raise InvalidInput(f"speculative settings {dict(record)} cannot be read: {exc}") from exc


def read_speculative_config(text: str) -> tuple[dict[str, Any], Speculation]:
    """Read vLLM's JSON.

    Returns:
        The server's own fields that it sets (`method`, `draft`, `num_speculative_tokens`), and the rest.

    Raises:
        InvalidInput: not a JSON object, or a name or value that this engine does not run.
    """
    try:
        given = json.loads(text)
    except ValueError as exc:
        raise InvalidInput(f"--speculative-config is not JSON: {exc}; pass an object as to vLLM") from exc
    if not isinstance(given, dict):
        raise InvalidInput(f"--speculative-config is {type(given).__name__}, expected a JSON object as vLLM takes it")
    own = {key: given.pop(key) for key in _OWN if key in given}
    if "model" in own:
        own["draft"] = Path(str(own.pop("model")))
        own.setdefault("method", "draft_model")
    return own, Speculation.from_record(given)
