"""Long-running commands: the gateway, the control plane, both together, and the doctor."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from specops.cli.background import Background
from specops.cli.render import emit_json, emit_table

gateway_app = typer.Typer(no_args_is_help=True, help="The data plane.")
control_app = typer.Typer(no_args_is_help=True, help="The control plane.")


def _until_signalled() -> Callable[[], bool]:
    stopped: list[int] = []
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda number, _: stopped.append(number))
    return lambda: bool(stopped)


@gateway_app.command("serve")
def gateway_serve(
    port: Annotated[int | None, typer.Option(help="Port; default: setting gateway_port.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to bind; default: setting gateway_host (loopback).")] = None,
    state_dir: Annotated[Path | None, typer.Option(help="Where the last route is kept; default: the data folder.")] = None,
) -> None:
    """Serve traffic by the last route; the control plane may come and go."""
    from specops.gateway.app import GatewayConfig, serve  # noqa: PLC0415
    from specops.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    serve(
        GatewayConfig(
            host=host or settings.gateway_host,
            port=port or settings.gateway_port,
            state_dir=state_dir or settings.data_dir / "gateway",
        )
    )


@control_app.command("serve")
def control_serve() -> None:
    """Judge outcomes and move traffic until SIGTERM; a restart resumes the rollout with its evidence."""
    from specops.wiring import opened, run_control  # noqa: PLC0415

    with opened() as house:
        typer.echo(f"control: database {house.settings.shown_store_url}, gateway {house.settings.gateway_url}")
        run_control(house, until=_until_signalled())


@control_app.command("project")
def control_project(
    every_s: Annotated[float, typer.Option(help="Seconds between rounds.")] = 2.0,
    *,
    once: Annotated[bool, typer.Option(help="One round, then exit.")] = False,
) -> None:
    """Carry state to MLflow and run the data suite (Great Expectations); apart from control, as both are slow."""
    import time  # noqa: PLC0415

    from specops.wiring import opened, projector  # noqa: PLC0415

    until = _until_signalled()
    with opened() as house:
        round_once = projector(house)
        while True:
            for line in round_once():
                typer.echo(line)
            if once or until():
                return
            time.sleep(every_s)


def up() -> None:
    """Run gateway, control plane and projections on this machine until Ctrl-C."""
    from specops.gateway.process import GatewayProcess  # noqa: PLC0415
    from specops.wiring import opened, run_control  # noqa: PLC0415

    until = _until_signalled()
    with opened() as house:
        settings = house.settings
        projections = Background(words=("control", "project"), log=settings.data_dir / "logs" / "project.log")
        gateway = GatewayProcess(
            port=settings.gateway_port,
            state_dir=settings.data_dir / "gateway",
            log_path=settings.data_dir / "logs" / "gateway.log",
        )
        projections.start()
        try:
            gateway.start()
            gateway.wait_ready(30.0)
            typer.echo(f"gateway {settings.gateway_url}, data {settings.data_dir.resolve()}; Ctrl-C stops all")
            run_control(house, until=until)
        finally:
            projections.end()
            gateway.stop()


def doctor(*, json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> int:
    """Say what is installed, what is reachable and what is stuck. Exit 1 when something is broken."""
    from specops.cli.examine import examine  # noqa: PLC0415

    lines = examine()
    if json:
        emit_json([{"what": x.what, "ok": x.ok, "found": x.found} for x in lines])
    else:
        emit_table(
            "doctor", ("", "what", "found"), [({True: "ok", False: "BROKEN", None: "-"}[x.ok], x.what, x.found) for x in lines]
        )
    return int(any(x.ok is False for x in lines))
