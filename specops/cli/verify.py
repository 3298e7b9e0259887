"""`specops verify`: say whether the output of a speculative endpoint is still its target's."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specops.cli.render import emit_json
from specops.errors import EXIT_DONE, EXIT_FAIL, InvalidInput

if TYPE_CHECKING:
    from specops.control.verify import Progress, Task
    from specops.core.fidelity_report import Verification


def verify(  # one option for each thing a job can be told
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Speculative endpoints under test, http://host:port.")],
    target: Annotated[str, typer.Option(help="URL of the trusted path: the same model, speculation off.")],
    draft: Annotated[str | None, typer.Option(help="URL of the draft model, served plainly.")] = None,
    surrogate: Annotated[
        str | None, typer.Option(help="URL of any small model with the same tokens, in the draft's place.")
    ] = None,
    prompts: Annotated[Path | None, typer.Option(help="File with one prompt per line; default: two dozen built in.")] = None,
    temperature: Annotated[float, typer.Option(help="Production's temperature, above 0.")] = 1.0,
    top_p: Annotated[float, typer.Option(help="Production's top_p.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Production's top_k; 0 keeps all.")] = 0,
    min_p: Annotated[float, typer.Option(help="Production's min_p.")] = 0.0,
    budget: Annotated[int, typer.Option(help="Most tokens from each endpoint: 300 smoke, 6000 standard, 50000 deep.")] = 6_000,
    max_tokens: Annotated[int, typer.Option(help="Tokens per answer.")] = 128,
    alpha: Annotated[float, typer.Option(help="Level: half for NOT LOSSLESS, half for the bound.")] = 1e-3,
    tolerance: Annotated[float, typer.Option(help="Total variation per token that is allowed.")] = 0.01,
    positions: Annotated[int, typer.Option(help="Positions in the block tested apart, where blocks are reported.")] = 0,
    top: Annotated[int, typer.Option(help="Log probabilities per token to ask for; vLLM allows 20 by default.")] = 20,
    dtype: Annotated[
        str | None, typer.Option(help="The coarser dtype of both paths; default: what they say, or bfloat16.")
    ] = None,
    greedy_tokens: Annotated[int, typer.Option(help="Tokens at temperature 0; 0 leaves that part out.")] = 512,
    run_length: Annotated[
        float | None, typer.Option(help="Continuous mode: tokens to a false alarm on average; runs to the budget or an alarm.")
    ] = None,
    speculative_config: Annotated[
        str | None, typer.Option(help="The endpoint's speculative configuration as JSON, where it does not tell.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the first request.")] = 0,
    save: Annotated[Path | None, typer.Option(help="File that keeps the job; one that is there is resumed.")] = None,
    out: Annotated[Path | None, typer.Option(help="HTML report to write.")] = None,
    release: Annotated[str | None, typer.Option(help="Keep the result as evidence about this release.")] = None,
    *,
    ngram: Annotated[bool, typer.Option("--ngram", help="The draft is prompt lookup: recompute it.")] = False,
    draft_greedy: Annotated[
        bool, typer.Option("--draft-greedy", help="The draft is greedy at any temperature, if it does not tell.")
    ] = False,
    gate: Annotated[bool, typer.Option(help="Stop at a lossy setting before any statistics.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON; progress goes to stderr.")] = False,
) -> int:
    """Test whether a speculative endpoint keeps its target's distribution, and name the bug when it does not.

    Exit 0 only for LOSSLESS WITHIN on every endpoint; 1 for NOT LOSSLESS, INCONCLUSIVE and ERROR.
    """
    from specops.control.verify import Task  # noqa: PLC0415
    from specops.core.fidelity import Plan  # noqa: PLC0415
    from specops.core.fidelity_atoms import Sampling  # noqa: PLC0415
    from specops.core.fidelity_gate import dtype_of, speculation  # noqa: PLC0415
    from specops.core.fidelity_report import rejected_of  # noqa: PLC0415
    from specops.engines.fidelity_endpoint import HttpEndpoint  # noqa: PLC0415

    if (kinds := sum(map(bool, (draft, surrogate, ngram)))) > 1:
        raise InvalidInput(f"{kinds} of --draft, --surrogate and --ngram are given; a leak is bounded towards one law")
    if release and len(urls) > 1:
        raise InvalidInput(f"--release with {len(urls)} endpoints; verify the endpoint of that release alone")
    servers = {url: HttpEndpoint(url) for url in (*urls, target, draft, surrogate) if url}
    facts = [dict(servers[url].facts()) for url in (*urls, target)]
    task = Task(
        prompts=_prompts(prompts),
        plan=Plan(alpha=alpha, tolerance=tolerance, positions=positions),
        sampling=Sampling(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p),
        budget=budget,
        max_tokens=max_tokens,
        seed=seed,
        top=top,
        dtype=dtype or _coarsest([dtype_of(one) for one in facts]),
        greedy_tokens=greedy_tokens,
        draft="draft" if draft else "surrogate" if surrogate else "n-gram" if ngram else None,
        is_draft_greedy=draft_greedy or any((speculation(one) or {}).get("draft_sample_method") == "greedy" for one in facts),
        configuration=_configuration(speculative_config),
        is_gated=gate,
        run_length=run_length,
    )
    results = _run(task, urls, servers, target=target, draft=draft or surrogate, save=save)
    rejected = rejected_of(results, alpha)
    _keep(results, rejected, out=out, release=release)
    if json:
        emit_json([one.to_record() for one in results])
    else:
        for one in results:
            _show(one)
        if len(urls) > 1:
            typer.echo(f"at a false discovery rate of {alpha:g} over all endpoints: {', '.join(rejected) or 'none'} rejected")
    return EXIT_DONE if all(one.verdict == "LOSSLESS WITHIN" for one in results) else EXIT_FAIL


def _run(
    task: "Task", urls: list[str], servers: dict[str, Any], *, target: str, draft: str | None, save: Path | None
) -> "list[Verification]":
    import time  # noqa: PLC0415

    from specops.control.verify import estimate, verify  # noqa: PLC0415

    cost = estimate(task, servers[target], time.perf_counter)
    typer.echo(
        f"at most {len(urls) * cost.sampled:,} tokens to sample and {len(urls) * cost.scored:,} to score, about"
        f" {len(urls) * cost.wall_s:,.0f} s at one request at a time; less when it is decided earlier",
        err=True,
    )
    results = []
    for place, url in enumerate(urls):
        path = save if save is None or len(urls) == 1 else save.with_name(f"{save.stem}-{place + 1}{save.suffix}")
        results.append(
            verify(
                task,
                servers[url],
                servers[target],
                servers[draft] if draft else None,
                clock=time.perf_counter,
                report=_progress(url),
                save=_saver(path),
                saved=_saved(path),
            )
        )
    return results


def _keep(results: "list[Verification]", rejected: tuple[str, ...], *, out: Path | None, release: str | None) -> None:
    files = {}
    if out is not None:
        from specops.core.canonical import sha256_hex  # noqa: PLC0415
        from specops.report.fidelity_page import build  # noqa: PLC0415

        build(results, out, rejected)
        files = {out.name: sha256_hex(out.read_bytes())}
        typer.echo(f"written: {out.resolve()}", err=True)
    if release is not None:
        from specops.control.verify_record import record  # noqa: PLC0415
        from specops.wiring import now, opened  # noqa: PLC0415

        with opened() as house:
            record(house.store, release, results[0], files=files, actor=house.settings.who, now=now())


def _show(result: "Verification") -> None:
    typer.echo(f"{result.endpoint}: {result.words}")
    for finding in result.findings:
        typer.echo(f"  finding: {finding}")
    if result.draft and result.tokens and result.tv_bound < 1:
        typer.echo(f"  at most {result.tv_bound:.4f} of total variation per token leaks towards the {result.draft}")
    for name, greedy in (("endpoint", result.greedy), ("plain", result.greedy_plain)):
        if greedy:
            typer.echo(
                f"  greedy, {name}: {greedy.tokens} tokens, {len(greedy.beyond)} beyond {greedy.tau:g} nats of the argmax,"
                f" {greedy.flip_rate:.2%} flips within (numeric)"
            )
    for one in result.not_tested:
        typer.echo(f"  not tested: {one}")


def _progress(url: str) -> "Callable[[Progress], None]":
    def say(now: "Progress") -> None:
        log10 = now.evidence.wealth.log_e / 2.302585 if now.evidence.wealth else 0.0
        bound = f", leak within {now.evidence.leak.tv_bound:.4f}" if now.evidence.leak.tokens else ""
        typer.echo(f"{url}: {now.tokens} tokens, e-value 10^{log10:.1f}{bound}", err=True)

    return say


def _saver(path: Path | None) -> "Callable[[dict[str, Any]], None]":
    from json import dumps  # noqa: PLC0415

    from specops.report.page import write  # noqa: PLC0415

    return (lambda _: None) if path is None else lambda record: write(dumps(record), path)


def _saved(path: Path | None) -> Any:  # noqa: ANN401  # any JSON value
    from specops.adapters.documents import read_json  # noqa: PLC0415

    if path is None or not path.exists():
        return None
    found = read_json(path)
    if not isinstance(found, dict):
        raise InvalidInput(f"{path} holds no saved job; remove it, or give another file to --save")
    return found


def _prompts(path: Path | None) -> tuple[str, ...]:
    from specops.control.verify_prompts import PROMPTS  # noqa: PLC0415

    if path is None:
        return PROMPTS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as exc:
        raise InvalidInput(f"cannot read prompts from {path}: {exc}; give a UTF-8 text file with one prompt per line") from exc
    return tuple(line for line in lines if line.strip())


def _configuration(text: str | None) -> dict[str, Any] | None:
    from json import loads  # noqa: PLC0415

    if text is None:
        return None
    try:
        found = loads(text)
    except ValueError as exc:
        raise InvalidInput(f"--speculative-config is no JSON: {exc}; give it as the server was given it") from exc
    if not isinstance(found, dict):
        raise InvalidInput(f"--speculative-config is {text[:80]}; give an object, as the server was given it")
    return found


def _coarsest(said: list[str | None]) -> str:
    """Return the coarsest dtype that the servers name; bfloat16 where one names none, or one that is not known."""
    order = ("bfloat16", "float16", "float32")
    return min((one if one in order else order[0] for one in said), key=order.index)
