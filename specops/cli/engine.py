"""`specops engine`: serve a model in vLLM's HTTP dialect, and check that a pair belongs together."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.render import emit_json, emit_table
from specops.errors import InvalidInput

if TYPE_CHECKING:
    from specops.engines.speculation import Speculation

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
    method: Annotated[str | None, typer.Option(help="draft_model, ngram or suffix; without it decoding is plain.")] = None,
    num_speculative_tokens: Annotated[int, typer.Option("--num-speculative-tokens", "-k", help="Draft tokens per round.")] = 0,
    speculative_config: Annotated[
        str, typer.Option("--speculative-config", "-sc", help="vLLM's JSON; what it says and an option says must agree.")
    ] = "",
    adaptive_k: Annotated[
        bool, typer.Option("--adaptive-k", help="Draft less after a rejection, more after a full accept.")
    ] = False,
    dtype: Annotated[str, typer.Option(help="What to compute in: float32, bfloat16 or float16.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    max_running: Annotated[int, typer.Option(help="Requests decoded side by side.")] = 8,
    max_waiting: Annotated[int, typer.Option(help="Requests that may wait for a place; more are answered 503.")] = 256,
    trace: Annotated[
        str, typer.Option(help="What is traced: off, sampled or full; a request may say otherwise.")
    ] = "off",
    trace_sample: Annotated[float, typer.Option(help="Share of the requests in a sample, in (0, 1].")] = 0.01,
    trace_dir: Annotated[Path | None, typer.Option(help="Folder for traces; default: the setting trace_dir.")] = None,
    per_request_spec_decode_metrics: Annotated[
        str, typer.Option(help="What an answer reports of its rounds: none, summary or detailed.")
    ] = "summary",
) -> None:
    """Serve until SIGTERM; running requests are finished first."""
    from specops.engines.config import ServerConfig  # noqa: PLC0415
    from specops.engines.server import serve as serve_engine  # noqa: PLC0415
    from specops.engines.tracing import TraceChoice  # noqa: PLC0415
    from specops.wiring import trace_folder  # noqa: PLC0415

    named = {"method": method, "draft": draft, "num_speculative_tokens": num_speculative_tokens or None}
    speculative, speculation = _speculation(speculative_config, named)
    serve_engine(
        ServerConfig(
            **speculative,
            speculation=replace(speculation, adaptive_k=adaptive_k or speculation.adaptive_k),
            model=model,
            port=port,
            host=host,
            served_model_name=served_model_name,
            dtype=dtype,
            device=device,
            threads=threads,
            max_running=max_running,
            max_waiting=max_waiting,
            per_request_spec_decode_metrics=per_request_spec_decode_metrics,
            trace=TraceChoice(mode=trace, share=trace_sample),
        ),
        sink=trace_folder(trace_dir).write,
    )


def _speculation(text: str, named: dict[str, Any]) -> "tuple[dict[str, Any], Speculation]":
    """Return what options and vLLM's JSON say together; a disagreement is refused."""
    from specops.engines.speculation import Speculation, read_speculative_config  # noqa: PLC0415

    options = {key: value for key, value in named.items() if value is not None}
    fields, speculation = read_speculative_config(text) if text else ({}, Speculation())
    for key in options.keys() & fields.keys():
        if options[key] != fields[key]:
            raise InvalidInput(f"{key} is {options[key]} as an option and {fields[key]} in --speculative-config; give it once")
    return fields | options, speculation


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
