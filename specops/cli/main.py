"""The `specops` command: one file per noun, heavy imports inside the commands, one place where errors become exit codes.

Exit codes: 0 done, 1 a verdict is FAIL or a rule is broken, 2 wrong usage or input, 3 something outside is unavailable.
"""

import json
import sys

import typer

from specops.cli import (  # noqa: F401  # some only add their commands
    audit,
    demo,
    engine,
    lineage,
    lineage_add,
    lineage_export,
    lineage_import,
    policy,
    release,
    report,
    rollout,
    samples,
    serve,
    trace,
    trace_read,
    verify,
)
from specops.errors import EXIT_DONE, EXIT_USAGE, EXTRA_OF, MissingExtra, SpecopsError, exit_code

app = typer.Typer(
    name="specops",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    help=(
        "Release manager for speculative decoding: lineage, shadow and canary beside plain decoding,"
        " monitors that fall back, audit.\n\n"
        "Start with `specops quickstart`: it plays the whole story on this machine with a small trained pair.\n\n"
        "At 3 a.m.: `specops rollout status` says what is served and why;"
        " `specops rollout abort ID --reason ...` sends all traffic to plain decoding.\n\n"
        "Exit codes: 0 done; 1 a verdict is FAIL or a rule is broken; 2 wrong usage or input;"
        " 3 something outside is unavailable."
    ),
)
app.command("quickstart")(demo.quickstart)
app.command("up")(serve.up)
app.command("doctor")(serve.doctor)
app.command("verify")(verify.verify)
app.add_typer(engine.app, name="engine")
app.add_typer(serve.gateway_app, name="gateway")
app.add_typer(serve.control_app, name="control")
app.add_typer(lineage.app, name="lineage")
app.add_typer(release.app, name="release")
app.add_typer(rollout.app, name="rollout")
app.add_typer(policy.app, name="policy")
app.add_typer(report.app, name="report")
app.add_typer(audit.app, name="audit")
app.add_typer(samples.app, name="samples")
app.add_typer(trace.app, name="trace")
app.add_typer(demo.app, name="demo")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with the documented exit code.

    With --json an error is also a JSON object on stdout, so that whoever parses the answer can parse a refusal too.
    """
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(arguments, standalone_mode=False)
    except SpecopsError as error:
        _say(error, str(error), as_json=as_json)
        sys.exit(exit_code(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in EXTRA_OF:
            raise
        missing = MissingExtra(package, EXTRA_OF[package])
        _say(missing, str(missing), as_json=as_json)
        sys.exit(exit_code(missing))
    except typer.Abort:
        typer.echo("aborted", err=True)
        sys.exit(EXIT_USAGE)
    except Exception as error:
        if type(error).__module__.split(".")[0] in ("click", "typer") and hasattr(error, "show"):
            error.show()
            if as_json:
                _emit(error, str(error))
            sys.exit(EXIT_USAGE)
        raise
    sys.exit(code if isinstance(code, int) else EXIT_DONE)


def _say(error: Exception, message: str, *, as_json: bool) -> None:
    typer.echo(f"error: {message}", err=True)
    if as_json:
        _emit(error, message)


def _emit(error: Exception, message: str) -> None:
    typer.echo(json.dumps({"error": message, "class": type(error).__name__}))


if __name__ == "__main__":
    main()
