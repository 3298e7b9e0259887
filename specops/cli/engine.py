"""`specops engine`: serve a model in vLLM's HTTP dialect, and check that a pair belongs together."""

from pathlib import Path
from typing import Annotated

import typer

from specops.cli.render import emit_json, emit_table

app = typer.Typer(no_args_is_help=True, help="Serve a model in vLLM's HTTP dialect; check a pair.")


@app.command()
def serve(
    model: Annotated[Path, typer.Option(help="Folder of the target: config.json, tokenizer.json, *.safetensors.")],
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    host: Annotated[str, typer.Option(help="Address to bind.")] = "127.0.0.1",
    served_model_name: Annotated[
        str, typer.Option(help="Name that clients put into `model`; default: the folder's name.")
    ] = "",
    draft: Annotated[Path | None, typer.Option(help="Folder of the draft, for --method draft_model.")] = None,
    method: Annotated[str | None, typer.Option(help="draft_model or ngram; without it decoding is plain.")] = None,
    num_speculative_tokens: Annotated[int, typer.Option("--num-speculative-tokens", "-k", help="Draft tokens per round.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    max_running: Annotated[int, typer.Option(help="Requests decoded side by side.")] = 8,
    max_waiting: Annotated[int, typer.Option(help="Requests that may wait for a place; more are answered 503.")] = 256,
    per_request_spec_decode_metrics: Annotated[
        str, typer.Option(help="What an answer reports of its rounds: none, summary or detailed.")
    ] = "summary",
) -> None:
    """Serve until SIGTERM; running requests are finished first."""
    from specops.engines.config import ServerConfig  # noqa: PLC0415
    from specops.engines.server import serve as serve_engine  # noqa: PLC0415

    serve_engine(
        ServerConfig(
            model=model,
            port=port,
            host=host,
            served_model_name=served_model_name,
            draft=draft,
            method=method,
            num_speculative_tokens=num_speculative_tokens,
            threads=threads,
            max_running=max_running,
            max_waiting=max_waiting,
            per_request_spec_decode_metrics=per_request_spec_decode_metrics,
        )
    )


@app.command()
def check(
    target: Annotated[Path, typer.Argument(help="Folder of the target.")],
    draft: Annotated[Path | None, typer.Argument(help="Folder of the draft.")] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Check before any process starts: weights readable, tokenizers equal by content, context lengths. Exit 1 when refused."""
    from specops.engines.preflight import check_folders  # noqa: PLC0415

    findings = check_folders(target, draft)
    if json:
        emit_json(
            [
                {"severity": f.severity, "what": f.what, "got": f.got, "expected": f.expected, "way_out": f.way_out}
                for f in findings
            ]
        )
    else:
        emit_table(
            "preflight",
            ("", "what", "got", "expected", "way out"),
            [(f.severity, f.what, f.got, f.expected, f.way_out) for f in findings],
        )
    return int(any(f.severity == "refuse" for f in findings))
