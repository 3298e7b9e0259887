"""The processes of the story: two engines, a gateway, a control plane and its projections, all real, all ended at the end."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from specops.cli.background import Background
from specops.demo.lineup import K
from specops.demo.pair import Pair
from specops.engines.config import ServerConfig
from specops.engines.process import EngineProcess, free_port, serve_command
from specops.gateway.process import GatewayProcess
from specops.settings import Settings


@dataclass(slots=True, kw_only=True)
class Stage:
    """Started processes by name; leave the `with` block and they are gone."""

    settings: Settings
    pair: Pair
    plain: EngineProcess = field(init=False)
    speculative: EngineProcess = field(init=False)
    gateway: GatewayProcess = field(init=False)
    _exits: ExitStack = field(default_factory=ExitStack)
    _children: dict[str, Background] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for name in list(self._children):
            self.end(name)
        self._exits.close()

    @property
    def logs(self) -> Path:
        """Folder of the log files."""
        return self.settings.data_dir / "logs"

    def start_engines(self) -> None:
        """Start both engine servers; they are not ready yet."""
        self.plain = self._engine("plain", ServerConfig(model=self.pair.target, port=free_port(), served_model_name="plain"))
        self.speculative = self._engine(
            "speculative",
            ServerConfig(
                model=self.pair.target,
                port=free_port(),
                served_model_name="speculative",
                method="draft_model",
                draft=self.pair.draft,
                num_speculative_tokens=K,
            ),
        )

    def start_gateway(self) -> None:
        """Start the gateway and wait until it answers."""
        self.gateway = GatewayProcess(
            port=self.settings.gateway_port, state_dir=self.settings.data_dir / "gateway", log_path=self.logs / "gateway.log"
        )
        self.gateway.start()
        self._exits.callback(self.gateway.stop, 5.0)
        self.gateway.wait_ready(60.0)

    def start(self, name: str, *words: str) -> int:
        """Start `specops WORDS...` in the background with a log of that name; return its process id."""
        child = Background(words=words, log=self.logs / f"{name}.log", environment=environment_of(self.settings)).start()
        self._children[name] = child
        assert child.pid is not None, "a started process has an id"
        return child.pid

    def is_alive(self, name: str) -> bool:
        """Say whether a process started by `start` still runs."""
        return name in self._children and self._children[name].is_alive

    def end(self, name: str, *, kill: bool = False, timeout_s: float = 15.0) -> None:
        """End a process started by `start`: SIGTERM, or SIGKILL."""
        if child := self._children.pop(name, None):
            child.end(kill=kill, timeout_s=timeout_s)

    def _engine(self, name: str, config: ServerConfig) -> EngineProcess:
        process = EngineProcess(
            command=serve_command(config),
            base_url=f"http://{config.host}:{config.port}",
            log=self.logs / f"engine-{name}.log",
            dies_with_parent=True,
        )
        process.start()
        self._exits.callback(process.stop)
        return process


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the variables that give a child process these settings, and keep numeric libraries to one thread."""
    return {
        "SPECOPS_DATA_DIR": str(settings.data_dir),
        "SPECOPS_GATEWAY_PORT": str(settings.gateway_port),
        "SPECOPS_GATEWAY_HOST": settings.gateway_host,
        "SPECOPS_ALERTMANAGER_URL": settings.alertmanager_url,
        "SPECOPS_DATABASE_URL": settings.store_url,
        "SPECOPS_MLFLOW_TRACKING_URI": settings.mlflow_uri,
        "OMP_NUM_THREADS": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
