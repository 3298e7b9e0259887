"""`specops policy`: read, lint, explain and try a policy before anything depends on it, and replay what one decided."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from specops.cli.policy_lines import SIMULATED, backtest_lines, simulated_row, write_text
from specops.cli.render import emit_json, emit_table
from specops.errors import EXIT_FAIL

app = typer.Typer(no_args_is_help=True, help="Check, explain, test and replay policies.")
Name = Annotated[str, typer.Argument(help="Shipped name (default, strict, ...) or path of a YAML file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def check(name: Name, *, json: Json = False) -> None:
    """Check a policy: unknown keys, missing owners and policies that nothing could fail are refused with exit code 2."""
    from specops.wiring import load_policy  # noqa: PLC0415

    policy, _ = load_policy(name)
    if json:
        return emit_json({"name": policy.name, "digest": policy.digest, "checks": [asdict(c) for c in policy.checks]})
    return emit_table(
        f"{policy.name} ({policy.digest[:12]}): valid",
        ("check", "metric", "limit", "alpha", "run length", "owner"),
        [(c.name, c.metric, f"{c.null} {c.limit:g} {c.unit}", c.alpha, c.arl_requests, c.owner) for c in policy.checks],
    )


@app.command()
def lint(
    name: Name,
    *,
    per_hour: Annotated[float | None, typer.Option(min=0.001, help="Expected requests of the candidate per hour.")] = None,
    json: Json = False,
) -> int:
    """Say what is unwise: endless waits, alarms for nothing, checks that never speak. Exit code 1 if it must not be used."""
    from specops.core.policy_lint import Severity, lint  # noqa: PLC0415
    from specops.wiring import load_policy_file  # noqa: PLC0415

    found = lint(load_policy_file(name), per_hour)
    if json:
        emit_json([asdict(c) for c in found])
    else:
        for c in found:
            typer.echo(f"{c.severity}: {c.path}: {c.message}; {c.way_out}")
        typer.echo(f"{name}: {len(found)} complaints" if found else f"{name}: nothing to complain about")
    return EXIT_FAIL if any(c.severity is Severity.ERROR for c in found) else 0


@app.command()
def explain(name: Name, *, json: Json = False) -> None:
    """Read a policy aloud: one sentence per check."""
    from specops.core.policy_text import explain  # noqa: PLC0415
    from specops.wiring import load_policy  # noqa: PLC0415

    lines = explain(load_policy(name)[0])
    if json:
        return emit_json(list(lines))
    return typer.echo("\n".join(lines))


@app.command()
def schema() -> None:
    """Print the JSON Schema of policy files, for editors."""
    from specops.core.policy_schema import policy_schema  # noqa: PLC0415

    emit_json(policy_schema())


@app.command("test")
def run(
    files: Annotated[list[str], typer.Argument(help="Test files, or names of shipped policies (default, strict, ...).")],
    *,
    json: Json = False,
) -> int:
    """Run unit tests of policies: made-up rollouts and what the policy must say. Exit code 1 and a line per failure."""
    from specops.core.policy_test import run_tests  # noqa: PLC0415
    from specops.wiring import load_policy_test  # noqa: PLC0415

    reports = {name: run_tests(*load_policy_test(name)) for name in files}
    failures = [(name, f) for name, done in reports.items() for report in done for f in report.failures]
    if json:
        emit_json({name: [asdict(report) for report in done] for name, done in reports.items()})
    else:
        for name, f in failures:
            typer.echo(f"{name}: {f.text}")
        counted = sum(len(done) for done in reports.values())
        typer.echo(f"{counted} tests, {sum(1 for done in reports.values() for r in done if r.failures)} failed")
    return EXIT_FAIL if failures else 0


@app.command()
def simulate(
    name: Name,
    *,
    shift: Annotated[list[str] | None, typer.Option(help="METRIC=BEFORE:AFTER, such as acceptance_rate=0.70:0.60.")] = None,
    runs: Annotated[int, typer.Option(help="Made-up candidates per check.")] = 200,
    requests: Annotated[int, typer.Option(help="Requests of each; the shift comes after 100.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Write a chart of the delays (SVG) here.")] = None,
    json: Json = False,
) -> None:
    """Try each check on made-up candidates: false alarms at the limit, power and delay after a shift."""
    from specops.core.policy_simulate import parse_shift, simulate  # noqa: PLC0415
    from specops.report.simulation_chart import simulation_chart  # noqa: PLC0415
    from specops.wiring import load_policy  # noqa: PLC0415

    shifts = tuple(parse_shift(text) for text in shift or ())
    found = simulate(load_policy(name)[0], shifts=shifts, runs=runs, seed=seed, requests=requests)
    if out is not None:
        write_text(out, simulation_chart(found))
    if json:
        return emit_json([asdict(f) | {"power": f.power, "delay": f.delay, "monitor_delay": f.monitor_delay} for f in found])
    return emit_table(f"{name}: {runs} runs of {requests} requests, seed {seed}", SIMULATED, map(simulated_row, found))


@app.command()
def backtest(
    name: Name,
    *,
    rollout: Annotated[str, typer.Option(help="Rollout whose recorded outcomes are judged again.")],
    json: Json = False,
) -> None:
    """Judge the recorded outcomes of a rollout by another policy: the first verdict that differs, and what each had done."""
    from specops.control.replay import recorded  # noqa: PLC0415
    from specops.core.policy_backtest import backtest  # noqa: PLC0415
    from specops.wiring import load_policy, opened  # noqa: PLC0415

    policy, _ = load_policy(name)
    with opened() as house:
        plan, outcomes, before = recorded(house.store, rollout)
    done = backtest(plan, outcomes, before=before, after=policy)
    if json:
        return emit_json(asdict(done))
    return typer.echo("\n".join(backtest_lines(done, before.name, policy.name)))


@app.command()
def replay(rollout_id: Annotated[str, typer.Argument(help="Rollout to replay.")], *, json: Json = False) -> int:
    """Recompute every verdict and decision of a rollout from its outcomes; exit code 1 names the first difference."""
    from specops.control.replay import replay_rollout  # noqa: PLC0415
    from specops.wiring import opened  # noqa: PLC0415

    with opened() as house:
        done = replay_rollout(house.store, rollout_id)
    if json:
        emit_json(asdict(done))
    else:
        counts = f"{done.outcomes} outcomes, {done.verdicts} verdicts, {done.decisions} decisions"
        typer.echo(f"{rollout_id}: {counts}: " + (done.difference.text if done.difference else "replayed to the last bit"))
    return EXIT_FAIL if done.difference else 0
