"""The object graph: the only module that knows every package. Entry points ask it for finished parts."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from specops.core.pipeline import Pipeline, parse_pipeline
from specops.core.policy import Policy, parse_policy
from specops.errors import GatewayUnavailable, InvalidInput, PolicyError
from specops.settings import Settings, load_settings

if TYPE_CHECKING:
    from specops.adapters.signing import Signer
    from specops.control.act import Controller
    from specops.control.deliver import Send
    from specops.control.ports import Gateway
    from specops.store.database import Store
    from specops.store.verify import Verified


def now() -> datetime:
    """Return the time in UTC; the one clock that entry points hand down."""
    return datetime.now(UTC)


def shipped(folder: str) -> Path:
    """Return `policies`, `pipelines` or `migrations`: the checkout's, or the copy inside an installed package."""
    package = Path(__file__).parent
    checkout = package.parent / folder
    return checkout if checkout.is_dir() else package / "_shipped" / folder


def load_policy(name: str) -> tuple[Policy, str]:
    """Load a policy by path or by shipped name; return it with its text.

    Raises:
        PolicyError: the file does not exist, is not YAML, or is not a policy.
    """
    text, mapping = _read_yaml(name, "policies")
    return parse_policy(mapping), text


def load_pipeline(name: str) -> Pipeline:
    """Load a pipeline by path or by shipped name.

    Raises:
        PolicyError: the file does not exist, is not YAML, or is not a pipeline.
    """
    return parse_pipeline(_read_yaml(name, "pipelines")[1])


def _read_yaml(name: str, folder: str) -> tuple[str, dict[str, Any]]:
    path = Path(name)
    if not path.suffix:
        path = shipped(folder) / f"{name}.yaml"
    if not path.is_file():
        there = ", ".join(sorted(p.stem for p in shipped(folder).glob("*.yaml")))
        raise PolicyError(f"no file {path}; shipped {folder}: {there}")
    text = path.read_text(encoding="utf-8")
    try:
        mapping = yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise PolicyError(f"{path} is not valid YAML: {' '.join(str(exc).split())}") from exc
    if not isinstance(mapping, dict):
        raise PolicyError(f"{path} must hold a mapping, got {type(mapping).__name__}")
    return text, mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """An opened installation: settings, store and signing key."""

    settings: Settings
    store: "Store"
    signer: "Signer"

    def checkpoint(self) -> None:
        """Sign the audit log's head and write it inside and outside the database."""
        self.store.checkpoint(self.signer, self.settings.checkpoints)

    def verify(self) -> "Verified":
        """Recompute the audit log and compare it with every signed checkpoint.

        Raises:
            ChainBroken: names the first bad entry.
        """
        from specops.store.verify import verify  # noqa: PLC0415

        return verify(self.store, self.settings.checkpoints, self.signer.public_key)


@contextmanager
def opened(settings: Settings | None = None) -> Iterator[House]:
    """Open the data folder (made at first use) and close it afterwards."""
    from specops.adapters.signing import load_or_create  # noqa: PLC0415
    from specops.store.database import open_store  # noqa: PLC0415

    settings = settings or load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    signer = load_or_create(settings.data_dir / "keys")
    store = open_store(settings.store_url, segments=settings.data_dir / "segments")
    try:
        yield House(settings=settings, store=store, signer=signer)
    finally:
        store.close()


def controller(house: House, rollout_id: str, gateway: "Gateway") -> "Controller":
    """Build the control loop of a rollout from what is stored about it.

    Raises:
        InvalidInput: the rollout's endpoints were never recorded.
    """
    from specops.adapters.expectations import quick_check  # noqa: PLC0415
    from specops.control.act import Controller, Endpoints  # noqa: PLC0415

    with house.store.read() as unit:
        rollout = unit.rollouts.get(rollout_id)
        text = unit.policies.get(rollout.policy_digest)
        endpoints = [e["payload"] for e in unit.evidence.of(rollout_id) if e["kind"] == "endpoints"]
    if not endpoints:
        raise InvalidInput(f"rollout {rollout_id} has no recorded endpoints; start it with: specops rollout start")
    return Controller(
        store=house.store,
        gateway=gateway,
        policy=parse_policy(yaml.safe_load(text)),
        endpoints=Endpoints(**endpoints[-1]),
        rollout_id=rollout_id,
        holder=f"{socket.gethostname()}:{os.getpid()}",
        actor="control",
        clock=now,
        check=lambda outcomes, at: quick_check(outcomes, at, both_arms=False),
    )


def current_rollout(house: House) -> str | None:
    """Return the id of the rollout that is not over, if there is one."""
    with house.store.read() as unit:
        active = unit.rollouts.active()
    return active[0].id if active else None


def newest_rollout(house: House) -> str | None:
    """Return the id of the rollout that decides the route: the running one, or the last that ended (ids sort by time)."""
    with house.store.read() as unit:
        known = unit.rollouts.active() or unit.rollouts.all()
    return known[-1].id if known else None


def alert_sender(url: str) -> "Send":
    """Return a sender that posts roll-back alerts to an Alertmanager."""
    from specops.adapters.alerts import Alert, post  # noqa: PLC0415

    def send(_key: str, payload: dict[str, Any]) -> None:
        post(url, [Alert.from_record(payload)], timeout_s=5.0)

    return send


def projector(house: House) -> Callable[[], tuple[str, ...]]:
    """Return one round of the slow side: the data suite on new outcomes, then MLflow messages; each round says what it did."""
    from specops.adapters.expectations import validate  # noqa: PLC0415
    from specops.control.deliver import deliver  # noqa: PLC0415
    from specops.control.inspect import inspect_outcomes  # noqa: PLC0415

    tracking = mlflow_tracking(house.settings)

    def alias(_key: str, payload: dict[str, Any]) -> None:
        with house.store.read() as unit:
            release = unit.releases.get(payload["release"])
        version = tracking.register_release(MODEL, release, at=now())
        tracking.set_alias(MODEL, payload["alias"], version)

    def evaluation(key: str, payload: dict[str, Any]) -> None:
        tracking.log_evaluation(
            payload["name"],
            key=key,
            at=datetime.fromisoformat(payload["at"]),
            params=payload["params"],
            metrics=payload["metrics"],
            tags=payload["tags"],
        )

    def round_once() -> tuple[str, ...]:
        said = inspect_outcomes(
            house.store, lambda outcomes: validate(outcomes, now(), both_arms=True), actor="data-suite", clock=now
        )
        return said + deliver(house.store, {"mlflow_alias": alias, "mlflow_evaluation": evaluation}, clock=now)

    return round_once


MODEL = "specops-demo"


def mlflow_tracking(settings: Settings) -> Any:  # noqa: ANN401  # adapters.mlflow_tracking.MlflowTracking, imported late
    """Open the MLflow projection.

    Raises:
        MissingExtra: mlflow is not installed.
    """
    from specops.adapters.mlflow_tracking import MlflowTracking  # noqa: PLC0415

    return MlflowTracking(settings.mlflow_uri, settings.data_dir / "mlflow-artifacts")


def run_control(house: House, *, until: Callable[[], bool], deliver_alerts: bool = True) -> None:
    """Run the control loop of the current rollout until `until` says so.

    Without a rollout, gateway or lease it waits. Side effects run beside the loop, in `jobs`, so that a slow receiver never
    delays a decision.
    """
    import time  # noqa: PLC0415

    from specops.control.deliver import deliver  # noqa: PLC0415
    from specops.errors import Unavailable  # noqa: PLC0415
    from specops.jobs import Job, Jobs  # noqa: PLC0415

    senders = (
        {"alert": alert_sender(house.settings.alertmanager_url)} if deliver_alerts and house.settings.alertmanager_url else {}
    )
    jobs = Jobs(
        (
            Job(name="deliver", every_s=0.5, run=lambda: _discard(deliver(house.store, senders, clock=now))),
            Job(name="checkpoint", every_s=30.0, run=house.checkpoint),
        ),
        on_error=lambda name, error: print(f"job {name}: {error}", flush=True),  # noqa: T201  # control logs to stdout
    )
    jobs.start()
    gateway = gateway_of(house.settings)
    try:
        while not until():
            rollout_id = newest_rollout(house)  # an ended one too: the gateway may not have heard of its end
            if rollout_id is None:
                time.sleep(0.2)
                continue
            try:
                loop = controller(house, rollout_id, gateway)
                loop.resume()
                while not until() and not loop.rollout.is_terminal:
                    loop.pass_once()
                while not until() and current_rollout(house) is None:
                    loop.pass_once()  # keep folding what the baseline now answers, so that the report shows the recovery
            except Unavailable as error:
                print(f"waiting: {error}", flush=True)  # noqa: T201
                time.sleep(min(0.5, error.retry_after_s))
    finally:
        gateway.close()
        jobs.stop()


def _discard(_: object) -> None:
    """Forget a value: jobs return nothing."""


def gateway_of(settings: Settings) -> Any:  # noqa: ANN401  # gateway.client.GatewayClient, imported late
    """Return a client of the configured gateway."""
    from specops.gateway.client import GatewayClient  # noqa: PLC0415

    return GatewayClient(settings.gateway_url)


def gateway_status(settings: Settings) -> dict[str, Any] | None:
    """Return the gateway's status, or None when it does not answer."""
    try:
        with gateway_of(settings) as client:
            return dict(client.status())
    except GatewayUnavailable:
        return None
