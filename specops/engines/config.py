"""What an engine server is started with: one frozen value, the same for the command line, a subprocess and a test."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from specops.engines.speculation import METHODS, Speculation
from specops.engines.tracing import TraceChoice
from specops.errors import InvalidInput

DEVICES = ("cpu", "cuda")
REPORTS = ("none", "summary", "detailed")
MAX_SPECULATIVE_TOKENS = 128  # vLLM's MAX_SPEC_LEN


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """One engine server: what it loads and where it listens.

    `port` 0 takes a free port. `weights_digest` and `draft_weights_digest` are what the operator expects (see
    `engines.weights.weights_digest`); other weights on disk refuse the start. `speculation` has what vLLM's
    --speculative-config has beyond method, draft and k. `device` is where the models run: cpu, or cuda with the rounds captured
    as CUDA graphs. `per_request_spec_decode_metrics` is how much of its rounds an answer reports: none, a summary, or detailed
    with every round (vLLM's flag). `trace` says which requests are traced, where the server is given a place for traces.
    `drain_s` bounds how long running requests may finish after SIGTERM.
    """

    model: Path
    served_model_name: str = ""
    host: str = "127.0.0.1"
    port: int = 8000
    method: str | None = None
    draft: Path | None = None
    num_speculative_tokens: int = 0
    speculation: Speculation = field(default_factory=Speculation)
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 1
    max_running: int = 8
    max_waiting: int = 256
    per_request_spec_decode_metrics: str = "summary"
    trace: TraceChoice = field(default_factory=TraceChoice)
    drain_s: float = 30.0
    weights_digest: str | None = None
    draft_weights_digest: str | None = None

    def __post_init__(self) -> None:
        """Check that method, draft and k fit together and that every number is in range."""
        self._check_method()
        if not 0 <= self.port <= 65535:  # noqa: PLR2004
            raise InvalidInput(f"port must be in 0..65535, got {self.port}")
        for name in ("threads", "max_running"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_waiting < 0 or self.drain_s < 0:
            raise InvalidInput(f"max_waiting and drain_s must not be negative, got {self.max_waiting} and {self.drain_s}")
        if self.per_request_spec_decode_metrics not in REPORTS:
            got, known = self.per_request_spec_decode_metrics, ", ".join(REPORTS)
            raise InvalidInput(f"per_request_spec_decode_metrics must be one of {known}, got {got!r}")
        if self.device not in DEVICES:
            raise InvalidInput(f"device is {self.device!r}, expected {' or '.join(DEVICES)}")

    def _check_method(self) -> None:
        if self.method is None:
            if self.draft is not None or self.num_speculative_tokens:
                raise InvalidInput("a draft or k is set but no method; pass --method draft_model, ngram or suffix")
            return
        if self.method not in METHODS:
            raise InvalidInput(f"method {self.method!r} is not known; this engine runs {', '.join(METHODS)}")
        if not 1 <= self.num_speculative_tokens <= MAX_SPECULATIVE_TOKENS:
            raise InvalidInput(f"k must be in 1..{MAX_SPECULATIVE_TOKENS}, got {self.num_speculative_tokens}; pass -k")
        if (self.method == "draft_model") != (self.draft is not None):
            raise InvalidInput(f"method {self.method} and draft {self.draft} disagree; --draft goes with --method draft_model")

    @property
    def name(self) -> str:
        """Name that clients put into `model`; the model's folder name unless set."""
        return self.served_model_name or self.model.name

    def to_record(self) -> dict[str, Any]:
        """Return JSON-ready values; `from_record` is the inverse."""
        texts = {"model": str(self.model), "draft": str(self.draft) if self.draft else None}
        return asdict(self) | texts | {"speculation": self.speculation.to_record()}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Build a config from `to_record` values.

        Raises:
            InvalidInput: an unknown or missing key, or a value out of range.
        """
        draft = record.get("draft")
        try:
            read = {"model": Path(record["model"]), "draft": Path(draft) if draft else None}
            return cls(
                **(
                    record
                    | read
                    | {
                        "speculation": Speculation.from_record(record.get("speculation", {})),
                        "trace": TraceChoice(**record.get("trace", {})),
                    }
                )
            )
        except (KeyError, TypeError) as exc:
            raise InvalidInput(f"not a server config: {exc}") from exc
