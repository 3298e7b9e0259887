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
from specops.errors import ChainBroken, GatewayUnavailable, InvalidInput, PolicyError, RuleViolation, StoreUnavailable
from specops.settings import Settings, load_settings

if TYPE_CHECKING:
    from specops.adapters.signing import Signer
    from specops.control.act import Controller
    from specops.control.deliver import Send
    from specops.control.ports import Gateway
    from specops.core.audit import CheckpointPlace
    from specops.core.policy_test_file import TestFile
    from specops.store.database import Store
    from specops.store.samples import SampleKeeper
    from specops.store.traces import TraceFolder
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


def load_policy_file(name: str) -> dict[str, Any]:
    """Return the mapping in a policy file, by path or by shipped name, whatever it says: for the linter.

    Raises:
        PolicyError: the file does not exist, or is no YAML mapping.
    """
    return _read_yaml(name, "policies")[1]


def load_policy_test(name: str) -> "tuple[TestFile, Policy]":
    """Load a file of policy tests by path or by the shipped policy's name; return it with the policy it names.

    A policy that is a path is looked for beside the test file.

    Raises:
        PolicyError: a file does not exist, is not YAML, or the policy is none.
    """
    from specops.core.policy_test_file import parse_test_file  # noqa: PLC0415

    mapping = _read_yaml(name, "policies/tests")[1]
    named = mapping.get("policy")
    if not isinstance(named, str) or not named:
        raise PolicyError(f"{name} names no policy; begin with: policy: default")
    policy, _ = load_policy(str(Path(name).parent / named) if Path(named).suffix and Path(name).suffix else named)
    return parse_test_file(mapping, tuple(check.name for check in policy.checks)), policy


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

    @property
    def keys(self) -> Path:
        """The folder of keys."""
        return self.settings.data_dir / "keys"

    def checkpoint(self) -> tuple[str, ...]:
        """Sign the audit log's head, write it inside and outside the database; return what a person should look at.

        That is a line when the file lacked checkpoints, which are written again, and one for each place that failed.
        """
        from specops.adapters.signing import KeyRing  # noqa: PLC0415
        from specops.store.checkpoints import mirror, refill  # noqa: PLC0415

        refilled = refill(self.store, self.settings.checkpoints, KeyRing.load(self.keys), actor=self.settings.who, now=now())
        self.store.checkpoint(self.signer, self.settings.checkpoints)
        return refilled + mirror(self.store, checkpoint_places(self.settings), actor=self.settings.who, now=now())

    def verify(self) -> "Verified":
        """Recompute the audit log and compare it with every signed checkpoint, wherever it is kept.

        Raises:
            ChainBroken: names the first bad entry, or the place that disagrees.
        """
        from specops.adapters.signing import KeyRing  # noqa: PLC0415
        from specops.store.verify import verify  # noqa: PLC0415

        return verify(self.store, self.settings.checkpoints, KeyRing.load(self.keys), checkpoint_places(self.settings))

    def prove(self, index: int) -> dict[str, Any]:
        """Return the portable proof that an entry is in the log, under the first checkpoint that covers it.

        Raises:
            InvalidInput: there is no such entry, or no checkpoint covers it yet.
            ChainBroken: the log is not the one that was signed.
        """
        from specops.adapters.signing import KeyRing  # noqa: PLC0415
        from specops.core.audit_proof import note_over, prove_inclusion  # noqa: PLC0415

        with self.store.read() as unit:
            raw, note = unit.audit.raw_at(index), note_over(unit.audit.notes(), index + 1)
            return prove_inclusion(raw, index, note, KeyRing.load(self.keys), lambda size: unit.audit.prove(index, size))

    def prove_consistency(self, old: int, new: int) -> dict[str, Any]:
        """Return the portable proof that the log only grew between the first checkpoints that cover `old` and `new` entries.

        Raises:
            InvalidInput: no checkpoint covers so many entries, or `old` is more than `new`.
            ChainBroken: the log was rewritten between the two.
        """
        from specops.adapters.signing import KeyRing  # noqa: PLC0415
        from specops.core.audit_proof import note_over, prove_consistency  # noqa: PLC0415

        if old > new:
            raise InvalidInput(f"the older log cannot have more entries than the newer one, got {old} and {new}; swap them")
        with self.store.read() as unit:
            notes = unit.audit.notes()
            older, newer = note_over(notes, old), note_over(notes, new)
            return prove_consistency(older, newer, KeyRing.load(self.keys), unit.audit.prove_consistency)

    def rotate_key(self) -> str:
        """Sign from now on with a new key; the entry that says so lies under the old one's last checkpoint. Returns its line.

        A process that runs goes on with the key that it has read; restart it.
        """
        from specops.adapters.signing import next_key, rotate  # noqa: PLC0415

        old, new = self.signer.public_key, next_key(self.keys).public_key
        payload = {"old": old.full_name, "new": new.full_name, "new_key": new.to_line()}
        with self.store.begin() as unit:
            unit.audit.append(
                tag="audit:key:rotated", actor=self.settings.who, subject=old.name, payload=payload, at=now()
            )
        self.checkpoint()
        return rotate(self.keys).to_line()

    def samples(self) -> "SampleKeeper":
        """Return the keeper of raw samples; its secret is made at first use. Whether to keep any is `settings.keep_samples`."""
        from specops.adapters.key_files import load_or_create_secret  # noqa: PLC0415
        from specops.store.samples import SampleKeeper  # noqa: PLC0415

        return SampleKeeper(secret=load_or_create_secret(self.keys), days=self.settings.samples_days)

    def expire_samples(self) -> int:
        """Erase the samples whose time is over, also when no more are kept; return how many parts there were."""
        with self.store.begin() as unit:
            return self.samples().expire(unit, actor=self.settings.who, now=now())


def trace_folder(place: Path | None = None) -> "TraceFolder":
    """Return the folder of traces: `place`, or the one of the settings."""
    from specops.store.traces import TraceFolder  # noqa: PLC0415

    return TraceFolder(place or load_settings().traces)


def checkpoint_places(settings: Settings) -> "tuple[CheckpointPlace, ...]":
    """Return the places beside the checkpoints file that the settings name."""
    from specops.adapters.checkpoint_places import GitNotePlace, MlflowPlace  # noqa: PLC0415
    from specops.store.checkpoints import FilePlace  # noqa: PLC0415

    places: list[CheckpointPlace] = []
    if settings.checkpoint_copy:
        places.append(FilePlace(path=Path(settings.checkpoint_copy)))
    if settings.checkpoint_git:
        places.append(GitNotePlace(repository=Path(settings.checkpoint_git)))
    if settings.checkpoint_mlflow:
        places.append(MlflowPlace(settings.mlflow_uri, settings.data_dir.resolve() / "mlflow-artifacts"))
    return tuple(places)


@contextmanager
def opened(settings: Settings | None = None) -> Iterator[House]:
    """Open the data folder (made at first use) and close it afterwards.

    Raises:
        RuleViolation: the signing key is gone though checkpoints were signed with it.
        StoreUnavailable: the folder cannot be made, or the database does not answer.
    """
    from specops.adapters.signing import load_or_create  # noqa: PLC0415
    from specops.store.database import open_store  # noqa: PLC0415

    settings = settings or load_settings()
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as exc:
        raise StoreUnavailable(f"cannot make the data folder {settings.data_dir}: {exc}; set SPECOPS_DATA_DIR") from exc
    store = open_store(settings.store_url, segments=settings.data_dir / "segments")
    try:
        lost = _lost_keys(settings, store)
        signer = load_or_create(settings.data_dir / "keys")
        if lost:
            new = signer.public_key
            payload = {"old": lost, "new": new.full_name, "new_key": new.to_line(), "lost": True}
            with store.begin() as unit:
                unit.audit.append(
                    tag="audit:key:rotated", actor=settings.who, subject=new.name, payload=payload, at=now()
                )
        yield House(settings=settings, store=store, signer=signer)
    finally:
        store.close()


def _lost_keys(settings: Settings, store: "Store") -> list[str]:
    """Return the names of the keys that signed before, when the private one is gone and a person says so; else none.

    A person says so by putting the old public half at `keys/audit-lost.pub`: what it signed still verifies beside a new key.

    Raises:
        RuleViolation: the key is gone, checkpoints were signed, and no `keys/audit-*.pub` opens them.
    """
    from specops.adapters.signing import KEY_FILE, KeyRing, PublicKey  # noqa: PLC0415
    from specops.store.checkpoints import read_notes  # noqa: PLC0415

    folder = settings.data_dir / "keys"
    if (folder / KEY_FILE).exists():
        return []
    with store.read() as unit:
        notes = {*unit.audit.notes(), *read_notes(settings.checkpoints)}
    if not notes or (folder / KEY_FILE).exists():  # a process that starts now made its key before its first note
        return []
    ring = KeyRing(keys=tuple(map(PublicKey.load, sorted(folder.glob("audit-*.pub")))))
    try:
        for note in notes:
            ring.open(note)
    except ChainBroken as exc:
        raise RuleViolation(
            f"the signing key {folder / KEY_FILE} is gone and {len(notes)} checkpoints were signed; restore {folder} from a "
            "backup; without one, put its public key there as audit-lost.pub and a new key is made (verify-the-audit-log.md)"
        ) from exc
    return [key.full_name for key in ring.keys]


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
            Job(name="checkpoint", every_s=30.0, run=lambda: _say(house.checkpoint())),
            Job(name="samples", every_s=3600.0, run=lambda: _discard(house.expire_samples())),
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


def _say(lines: tuple[str, ...]) -> None:
    """Print lines to the control plane's log."""
    for line in lines:
        print(line, flush=True)  # noqa: T201  # control logs to stdout


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
