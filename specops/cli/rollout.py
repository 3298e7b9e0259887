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
    from specops.engines.fidelity_endpoint import HttpEndpoint  # noqa: PLC0415
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
            candidate_facts=HttpEndpoint(candidate_url).facts() if rules.lossless else {},
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
    """Say where a rollout stands, what the gateway really does, and the newest verdict. Exit 1 if rolled back or stopped."""
    from specops.wiring import gateway_status, newest_rollout, opened  # noqa: PLC0415

    with opened() as house:
        chosen = rollout_id or newest_rollout(house)
        with house.store.read() as unit:
            rollout = unit.rollouts.get(chosen) if chosen else None
            verdicts = unit.verdicts.of(rollout.id) if rollout else []
            routes = [e["payload"] for e in unit.evidence.of(rollout.id) if e["kind"] == "route"] if rollout else []
        gateway = gateway_status(house.settings)
    if rollout is None:
        typer.echo("no rollout yet; start one with: specops rollout start --help")
        return 0
    code = int(rollout.state in {"rolled_back", "stopped"})
    if json:
        emit_json(
            {
                "rollout": rollout.to_record(),
                "weight": rollout.weight,
                "verdict": verdicts[-1] if verdicts else None,
                "gateway": gateway,
                "route": routes[-1] if routes else None,
            }
        )
        return code
    typer.echo(
        f"{rollout.id}: {rollout.state}, step {rollout.step + 1} of {len(rollout.steps)} ({rollout.current.kind}), "
        f"candidate share {rollout.weight:.0%}"
    )
    if rollout.reason:
        typer.echo(f"reason: {rollout.reason}")
    if rollout.amendment:
        typer.echo(f"proposed policy: {rollout.amendment[:12]} by {rollout.amendment_by}, waits for another person")
    typer.echo(
        "gateway: "
        + (
            "does not answer"
            if gateway is None
            else f"candidate share {gateway['effective_weight']:.0%}"
            + (f", TRIPPED: {gateway['tripped']}" if gateway.get("tripped") else "")
            + (f", in force {routes[-1]['in_force_after_s']:.3f} s after the decision" if routes else "")
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
def amend(
    rollout_id: Id, policy: Annotated[str, typer.Option(help="New policy: shipped name or path.")], reason: Reason
) -> None:
    """Propose another policy for a rollout; in force once another person approved it, judged on new outcomes only."""
    from specops.control.amend import propose_amendment  # noqa: PLC0415
    from specops.wiring import load_policy, now, opened  # noqa: PLC0415

    rules, text = load_policy(policy)
    with opened() as house:
        who = house.settings.who
        after = propose_amendment(
            house.store, rollout_id, policy=rules, policy_text=text, reason=reason, actor=who, now=now()
        )
    typer.echo(f"{after.id}: policy {rules.name} proposed; another person puts it in force with:")
    typer.echo(f"specops rollout approve {after.id} --amendment {rules.digest[:12]}")


@app.command()
def approve(
    rollout_id: Id,
    amendment: Annotated[str, typer.Option(help="Approve this proposed policy instead: 8 digits of its digest or more.")] = "",
) -> None:
    """Approve the gate a rollout waits at, or a proposed policy; who requested it may not approve it."""
    from specops.control.amend import approve_amendment  # noqa: PLC0415
    from specops.control.rollouts import approve_by_hand  # noqa: PLC0415
    from specops.wiring import now, opened  # noqa: PLC0415

    with opened() as house:
        who = house.settings.who
        if amendment:
            after = approve_amendment(house.store, rollout_id, digest=amendment, actor=who, now=now())
            typer.echo(f"{after.id}: policy {after.policy_digest[:12]} in force, evidence begins anew")
            return
        approved = approve_by_hand(house.store, rollout_id, actor=who, now=now())
        typer.echo(f"{approved.id}: step {approved.step + 1} approved")


@app.command()
def confirm(
    release: Annotated[str, typer.Argument(help="Release: name or id.")],
    evaluation_set: Annotated[str, typer.Option("--set", help="SHA-256 of the held-out evaluation set.")],
    result: Annotated[str, typer.Option(help="`passed` or `failed`, once the set was evaluated.")] = "",
    figure: Annotated[list[str] | None, typer.Option(help="With --result: NAME=NUMBER, can be repeated.")] = None,
) -> None:
    """Use a held-out set for a release, before its results are seen; with --result, record them. Each set confirms once."""
    from specops.control.confirm import begin_confirmation, read_figures, read_result, record_confirmation  # noqa: PLC0415
    from specops.wiring import now, opened  # noqa: PLC0415

    with opened() as house:
        who = house.settings.who
        if result:
            passed, figures = read_result(result), read_figures(figure or [])
            record_confirmation(
                house.store, release, evaluation_set, passed=passed, figures=figures, actor=who, now=now()
            )
            typer.echo(f"{release}: {result} on set {evaluation_set[:12]}, recorded")
            return
        use = begin_confirmation(house.store, release, evaluation_set, actor=who, now=now())
        typer.echo(f"{use.release_id}: set {evaluation_set[:12]} is used up now (use {use.uses} of this set); evaluate, then")
        typer.echo(f"specops rollout confirm {release} --set {evaluation_set} --result passed --figure NAME=NUMBER")


@app.command()
def pause(rollout_id: Id, reason: Reason) -> None:
    """Hold a running rollout at its step; it keeps its shares, and a FAIL still acts."""
    _steer(rollout_id, "PAUSE", reason)


@app.command()
def resume(rollout_id: Id, reason: Reason) -> None:
    """Let a paused rollout go on."""
    _steer(rollout_id, "RESUME", reason)


@app.command()
def retry(rollout_id: Id, reason: Reason) -> None:
    """Begin a fallen-back or paused rollout again at its first step, on new evidence."""
    _steer(rollout_id, "RETRY", reason)


@app.command()
def finish(rollout_id: Id, reason: Reason) -> None:
    """End a promoted rollout well: everybody and the alias stay on the candidate."""
    _steer(rollout_id, "FINISH", reason)


@app.command()
def clear(rollout_id: Id, reason: Reason) -> None:
    """Allow new rollouts of the candidate of a stopped rollout."""
    _steer(rollout_id, "CLEAR", reason)


def _steer(rollout_id: str, how: str, reason: str) -> None:
    from specops.control.rollouts import Steer, steer  # noqa: PLC0415
    from specops.wiring import now, opened  # noqa: PLC0415

    with opened() as house:
        after = steer(house.store, rollout_id, Steer[how], reason=reason, actor=house.settings.who, now=now())
        typer.echo(f"{after.id}: {after.state}, step {after.step + 1}")
