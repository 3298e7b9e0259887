"""What `specops doctor` looks at: versions, device, database, audit log, gateway, outbox. Reads only."""

import importlib.metadata
import importlib.util
import platform
import shutil
import sqlite3
from dataclasses import dataclass

from specops.errors import EXTRA_OF, SpecopsError
from specops.settings import Settings, load_settings
from specops.wiring import gateway_status, now, opened


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing looked at; `ok` None: optional and absent, or for a person to judge."""

    what: str
    ok: bool | None
    found: str


def examine(settings: Settings | None = None) -> tuple[Line, ...]:
    """Look at everything once."""
    settings = settings or load_settings()
    return (*_versions(), *_device(), *_data(settings), *_gateway(settings))


def _versions() -> list[Line]:
    version = importlib.metadata.version("specops")
    lines = [
        Line(
            what="specops",
            ok=True,
            found=f"{version}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}",
        )
    ]
    for package, extra in sorted(EXTRA_OF.items()):
        try:
            lines.append(Line(what=package, ok=True, found=importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            lines.append(Line(what=package, ok=None, found=f"absent; pip install 'specops[{extra}]'"))
    vllm = importlib.util.find_spec("vllm")
    lines.append(
        Line(
            what="vllm",
            ok=True if vllm else None,
            found="found in this environment" if vllm else "not here; any vLLM server is reached by URL",
        )
    )
    return lines


def _device() -> list[Line]:
    tool = shutil.which("nvidia-smi")
    return [
        Line(what="GPU", ok=True if tool else None, found=f"nvidia-smi at {tool}" if tool else "none; engines run on the CPU")
    ]


def _data(settings: Settings) -> list[Line]:
    if not settings.data_dir.is_dir():
        return [Line(what="data folder", ok=None, found=f"{settings.data_dir} does not exist yet; specops quickstart makes it")]
    try:
        with opened(settings) as house:
            proof = house.verify()
            with house.store.read() as unit:
                due = unit.outbox.due(now())
    except SpecopsError as error:
        return [Line(what="database", ok=False, found=str(error))]
    return [
        Line(what="database", ok=True, found=settings.shown_store_url),
        Line(what="audit log", ok=True, found=f"{proof.size} entries, {proof.checkpoints} checkpoints agree"),
        *(Line(what="audit warning", ok=None, found=warning) for warning in proof.warnings),
        Line(
            what="outbox",
            ok=not any(m.attempts for m in due),
            found=f"{len(due)} waiting" + "".join(f"; {m.kind} tried {m.attempts}x" for m in due if m.attempts),
        ),
    ]


def _gateway(settings: Settings) -> list[Line]:
    status = gateway_status(settings)
    if status is None:
        return [Line(what="gateway", ok=None, found=f"nothing answers at {settings.gateway_url}")]
    return [
        Line(
            what="gateway",
            ok=not status.get("tripped"),
            found=f"candidate share {status['effective_weight']:.0%}; {status.get('tripped') or 'not tripped'}",
        )
    ]
