"""`specops rollout`: start, watch and steer a rollout."""

from typing import Annotated

import typer

from specops.cli.render import emit_json, emit_table

app = typer.Typer(no_args_is_help=True, help="Start, watch and steer a rollout.")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reason = Annotated[str, typer.Option(help="Why; it goes into the audit log.")]
Id = Annotated[str, typer.Argument(help="Rollout id, as in `specops rollout list`.")]


@app.command()
def start(
    candidate: Annotated[str, typer.Option(help="Release on trial: name or id.")],
    candidate_url: Annotated[str, typer.Option(help="Where its engine listens.")],
    baseline_url: Annotated[str, typer.Option(help="Where the plain engine listens.")],
    baseline: Annotated[str, typer.Option(help="Trusted release: name or id.")] = "plain",
    pipeline: Annotated[str, typer.Option(help="Pipeline: shipped name or path.")] = "canary",
    policy: Annotated[str | None, typer.Option(help="Policy: shipped name or path; default: the pipeline's.")] = None,
) -> None:
    """Start a rollout: the policy is registered before the first outcome, then `specops control serve` walks the steps."""
    import uuid  # noqa: PLC0415

    from specops.control.rollouts import Plan  # noqa: PLC0415
    from specops.control.rollouts import start as start_rollout  # noqa: PLC0415
    from specops.wiring import load_pipeline, load_policy, now, opened  # noqa: PLC0415

    plan_file = load_pipeline(pipeline)
    rules, text = load_policy(policy or plan_file.policy)
    with opened() as house:
        plan = Plan(
            rollout_id=f"ro-{now():%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}",  # sorts by time: the last one is the newest
            baseline=baseline,
            candidate=candidate,
            pipeline=plan_file.name,
            steps=plan_file.steps,
            policy=rules,
            policy_text=text,
            baseline_url=baseline_url,
            candidate_url=candidate_url,
        )
        typer.echo(start_rollout(house.store, plan, actor=house.settings.who, now=now()).id)


@app.command("list")
def list_(*, json: Json = False) -> None:
    """List all rollouts."""
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house, house.store.read() as unit:
        rollouts = unit.rollouts.all()
    if json:
        return emit_json([r.to_record() for r in rollouts])
    return emit_table(
        "rollouts",
        ("id", "candidate", "state", "step", "weight", "reason"),
        [(r.id, r.candidate, r.state, f"{r.step + 1}/{len(r.steps)} {r.current.kind}", r.weight, r.reason) for r in rollouts],
    )


@app.command()
def status(
    rollout_id: Annotated[str | None, typer.Argument(help="Rollout id; default: the newest.")] = None, *, json: Json = False
) -> int:
    """Say where a rollout stands, what the gateway really does, and the newest verdict. Exit 1 when it was rolled back."""
    from specops.wiring import gateway_status, newest_rollout, opened  # noqa: PLC0415

    with opened() as house:
        chosen = rollout_id or newest_rollout(house)
        with house.store.read() as unit:
            rollout = unit.rollouts.get(chosen) if chosen else None
            verdicts = unit.verdicts.of(rollout.id) if rollout else []
        gateway = gateway_status(house.settings)
    if rollout is None:
        typer.echo("no rollout yet; start one with: specops rollout start --help")
        return 0
    code = int(rollout.state == "rolled_back")
    if json:
        emit_json(
            {
                "rollout": rollout.to_record(),
                "weight": rollout.weight,
                "verdict": verdicts[-1] if verdicts else None,
                "gateway": gateway,
            }
        )
        return code
    typer.echo(
        f"{rollout.id}: {rollout.state}, step {rollout.step + 1} of {len(rollout.steps)} ({rollout.current.kind}), "
        f"candidate share {rollout.weight:.0%}"
    )
    if rollout.reason:
        typer.echo(f"reason: {rollout.reason}")
    typer.echo(
        "gateway: "
        + (
            "does not answer"
            if gateway is None
            else f"candidate share {gateway['effective_weight']:.0%}"
            + (f", TRIPPED: {gateway['tripped']}" if gateway.get("tripped") else "")
        )
    )
    if verdicts:
        typer.echo(f"newest verdict: {verdicts[-1]['result']} after {verdicts[-1]['outcomes']} outcomes")
        for finding in verdicts[-1]["findings"]:
            typer.echo(f"  {finding['result']:<12} {finding['check']}: {finding['reason']}")
    return code


@app.command()
def abort(rollout_id: Id, reason: Reason) -> None:
    """End a rollout; control sends all traffic to the baseline at its next pass (within a second)."""
    from specops.control.rollouts import abort_by_hand  # noqa: PLC0415
    from specops.wiring import now, opened  # noqa: PLC0415

    with opened() as house:
        typer.echo(f"{abort_by_hand(house.store, rollout_id, reason=reason, actor=house.settings.who, now=now()).id}: aborted")


@app.command()
def rollback(rollout_id: Id, reason: Reason) -> None:
    """Roll back by hand: as abort, and the alias moves back and the alert goes out."""
    from specops.control.rollouts import roll_back_by_hand  # noqa: PLC0415
    from specops.wiring import now, opened  # noqa: PLC0415

    with opened() as house:
        typer.echo(
            f"{roll_back_by_hand(house.store, rollout_id, reason=reason, actor=house.settings.who, now=now()).id}: rolled back"
        )


@app.command()
def approve(rollout_id: Id) -> None:
    """Approve the gate a rollout waits at; the requester may not approve itself."""
    from specops.control.rollouts import approve_by_hand  # noqa: PLC0415
    from specops.wiring import now, opened  # noqa: PLC0415

    with opened() as house:
        approved = approve_by_hand(house.store, rollout_id, actor=house.settings.who, now=now())
        typer.echo(f"{approved.id}: step {approved.step + 1} approved")
