"""`specops policy`: check a policy file and read it in plain words."""

from dataclasses import asdict
from typing import Annotated

import typer

from specops.cli.render import emit_json, emit_table

app = typer.Typer(no_args_is_help=True, help="Check policy files.")


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="Shipped name (default, quickstart) or path of a YAML file.")],
    *,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a policy: unknown keys, missing owners and policies that nothing could fail are refused with exit code 2."""
    from specops.wiring import load_policy  # noqa: PLC0415

    policy, _ = load_policy(name)
    if json:
        return emit_json({"name": policy.name, "digest": policy.digest, "checks": [asdict(c) for c in policy.checks]})
    return emit_table(
        f"{policy.name} ({policy.digest[:12]}): valid",
        ("check", "metric", "limit", "alpha", "run length", "owner"),
        [
            (
                c.name,
                c.metric,
                f"{'>=' if c.metric == 'acceptance_rate' else '<='} {c.limit:g} {c.unit}",
                c.alpha,
                c.arl_requests,
                c.owner,
            )
            for c in policy.checks
        ],
    )
