"""Where things are: `specops.toml` in the working folder, overridden by SPECOPS_* variables.

The only reader of the environment. What is acceptable is never a setting; that is a policy.
"""

import difflib
import getpass
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from specops.errors import InvalidInput

FILE = "specops.toml"
PREFIX = "SPECOPS_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Places and addresses. A field `gateway_port` is `gateway_port` in the file and `SPECOPS_GATEWAY_PORT` outside it."""

    data_dir: Path = Path("specops-data")
    """Folder of everything specops writes."""
    database_url: str = ""
    """SQLAlchemy URL; empty: SQLite in the data folder."""
    gateway_host: str = "127.0.0.1"
    """Address that the gateway binds."""
    gateway_port: int = 8700
    """Port of the gateway, data and /-/ admin alike."""
    alertmanager_url: str = ""
    """Base URL of Alertmanager (v2); empty: alerts stay in the outbox, visible in `specops doctor`."""
    mlflow_tracking_uri: str = ""
    """MLflow tracking URI; empty: SQLite in the data folder."""
    actor: str = ""
    """Who acts, for the audit log; empty: the login name."""
    checkpoint_path: str = ""
    """Where signed audit checkpoints are also written; empty: beside the data folder's database. Put it on another disk."""
    checkpoint_copy: str = ""
    """A second file for signed checkpoints; empty: none."""
    checkpoint_git: str = ""
    """A git repository whose notes (refs/notes/specops) also keep signed checkpoints; empty: none."""
    checkpoint_mlflow: bool = False
    """Whether MLflow also keeps signed checkpoints, as artifacts."""
    keep_samples: bool = False
    """Whether prompts and outputs of offline evaluations are kept, erasable, under a keyed hash."""
    samples_days: int = 30
    """Days after which a kept sample is erased."""
    trace_dir: str = ""
    """Folder of traces; empty: `traces` in the data folder."""

    @property
    def store_url(self) -> str:
        """The database URL in force."""
        return self.database_url or f"sqlite:///{self.data_dir.resolve() / 'specops.db'}"

    @property
    def shown_store_url(self) -> str:
        """The database URL for people and logs: without user, password and options."""
        scheme, _, rest = self.store_url.partition("?")[0].partition("://")
        return self.store_url if scheme.startswith("sqlite") else f"{scheme}://{rest.rpartition('@')[2]}"

    @property
    def mlflow_uri(self) -> str:
        """The MLflow tracking URI in force."""
        return self.mlflow_tracking_uri or f"sqlite:///{self.data_dir.resolve() / 'mlflow.db'}"

    @property
    def checkpoints(self) -> Path:
        """The file of signed checkpoints outside the database."""
        return Path(self.checkpoint_path) if self.checkpoint_path else self.data_dir / "checkpoints.txt"

    @property
    def traces(self) -> Path:
        """The folder of traces in force."""
        return Path(self.trace_dir) if self.trace_dir else self.data_dir / "traces"

    @property
    def gateway_url(self) -> str:
        """Base URL of the gateway."""
        return f"http://{self.gateway_host}:{self.gateway_port}"

    @property
    def who(self) -> str:
        """The actor in force."""
        return self.actor or getpass.getuser()


def load_settings(folder: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read `specops.toml` in `folder` (default: the working folder), then the environment.

    Raises:
        InvalidInput: an unknown key, a value of the wrong type, or a file that is not TOML.
    """
    environ = os.environ if environ is None else environ
    path = (folder or Path.cwd()) / FILE
    try:
        values: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise InvalidInput(f"{path} is not valid TOML: {exc}") from exc
    known = {f.name: f.type for f in fields(Settings)}
    values |= {k.removeprefix(PREFIX).lower(): v for k, v in environ.items() if k.startswith(PREFIX)}
    typed: dict[str, object] = {}
    for name, value in values.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise InvalidInput(
                f"unknown setting {name!r}; did you mean {near[0]!r}?"
                if near
                else f"unknown setting {name!r}; known: {', '.join(known)}"
            )
        typed[name] = _typed(name, value, type(getattr(Settings(), name)))
    return Settings(**typed)  # type: ignore[arg-type]  # each value was converted to its field's type above


def _typed(name: str, value: object, kind: type) -> object:
    wanted = kind if kind in (int, bool) else str
    if isinstance(value, str) and wanted is bool:
        value = {"true": True, "1": True, "false": False, "0": False}.get(value.strip().lower(), value)
    if isinstance(value, str) and value.strip().isdecimal() and wanted is int:
        value = int(value)  # a variable of the environment is always text
    if type(value) is not wanted:  # not isinstance: true is no port
        raise InvalidInput(f"setting {name} must be {wanted.__name__}, got {value!r}")
    return Path(str(value)) if issubclass(kind, Path) else value
