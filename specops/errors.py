"""The error tree: by whose move is next, not by where it happened.

    SpecopsError                 root, never raised itself
    ├── InvalidInput             the caller: fix what was passed
    │   ├── PolicyError          a policy or pipeline file
    │   ├── InvalidRecord        a noun whose invariants do not hold
    │   ├── InvalidWeights       a checkpoint that cannot be read safely
    │   ├── MissingExtra         an optional package that is not installed
    │   └── IncompatibleRelease  a pair that must not serve together
    ├── RuleViolation            the operator: the world broke a rule
    │   ├── LineageBroken        content is not what was registered
    │   ├── IllegalTransition    a rollout cannot do that now
    │   └── ChainBroken          the audit log was altered
    └── Unavailable              nobody: try again later
        ├── EngineUnavailable
        ├── GatewayUnavailable
        └── StoreUnavailable

`exit_code` is the one table from class to exit code and HTTP status; nothing else decides either.
"""


class SpecopsError(Exception):
    """Root of every error that specops raises on purpose."""


class InvalidInput(SpecopsError):
    """What was passed cannot be used; nothing was changed."""


class PolicyError(InvalidInput):
    """A policy or pipeline file is wrong."""


class InvalidRecord(InvalidInput):
    """A value breaks the invariants of its type."""


class InvalidWeights(InvalidInput):
    """A checkpoint is missing, corrupt, or in a format that is refused."""


class MissingExtra(InvalidInput):
    """A package of an optional extra is needed and absent."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; it comes with the extra {extra!r}: pip install 'specops[{extra}]'")


EXTRA_OF = {
    "torch": "torch",
    "safetensors": "torch",
    "tokenizers": "torch",
    "mlflow": "mlflow",
    "great_expectations": "expectations",
    "psycopg": "postgres",
    "model_signing": "signing",
}
"""Import name of each optional package, and the extra that brings it."""


class IncompatibleRelease(InvalidInput):
    """Target, draft, tokenizer or settings do not belong together."""


class RuleViolation(SpecopsError):
    """A rule of the house does not hold; a person has to look."""


class LineageBroken(RuleViolation):
    """Content on disk or in a server differs from what was registered."""


class IllegalTransition(RuleViolation):
    """The rollout's state does not allow the request."""


class ChainBroken(RuleViolation):
    """The audit log does not verify."""


class Unavailable(SpecopsError):
    """Something outside did not answer; the same call may work later."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineUnavailable(Unavailable):
    """An engine server did not answer, or died."""


class GatewayUnavailable(Unavailable):
    """The gateway's control endpoint did not answer."""


class StoreUnavailable(Unavailable):
    """The database did not answer."""


EXIT_DONE, EXIT_FAIL, EXIT_USAGE, EXIT_UNAVAILABLE = 0, 1, 2, 3
_TABLE: tuple[tuple[type[SpecopsError], int, int], ...] = (
    (InvalidInput, EXIT_USAGE, 400),
    (RuleViolation, EXIT_FAIL, 409),
    (Unavailable, EXIT_UNAVAILABLE, 503),
)


def exit_code(error: SpecopsError) -> int:
    """Return the process exit code for an error."""
    return next((code for kind, code, _ in _TABLE if isinstance(error, kind)), EXIT_FAIL)


def http_status(error: SpecopsError) -> int:
    """Return the HTTP status for an error."""
    return next((status for kind, _, status in _TABLE if isinstance(error, kind)), 500)
