"""The demo corpus: Python's own standard library, split into code and prose.

Code is the parse tree of each module printed again without docstrings or comments, so it holds no English sentence. Prose is
the docstrings and the language reference that `pydoc` ships. A target trained on both and a draft distilled on code alone then
differ for a reason that a reader can check. A module is held out whole, by a hash of its name, so that no held-out prompt was
seen in training. Called by `demo.train`; leaves tokenizing and training to it.

Source of the text: the running interpreter's standard library, licence PSF-2.0.
"""

import ast
import hashlib
import inspect
import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Tables of characters, jokes and generated text would drown the ordinary code.
EXCLUDED = ("encodings", "pydoc_data", "test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages")
HELD_OUT_SHARE = 0.10
MIN_PROSE_CHARS = 160
LICENCE = "PSF-2.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Text of both domains, each split into training and held-out documents."""

    code: tuple[str, ...]
    code_held_out: tuple[str, ...]
    prose: tuple[str, ...]
    prose_held_out: tuple[str, ...]

    def digest(self) -> str:
        """Return the SHA-256 of all documents in order, domains and splits bound by name."""
        hasher = hashlib.sha256()
        for name in ("code", "code_held_out", "prose", "prose_held_out"):
            for document in getattr(self, name):
                raw = document.encode()
                hasher.update(f"{name} {len(raw)}\n".encode() + raw)
        return hasher.hexdigest()

    def origin(self) -> dict[str, str]:
        """Say where the text came from: interpreter version, licence, digest."""
        return {"source": f"CPython {platform.python_version()} standard library", "licence": LICENCE, "sha256": self.digest()}


def is_held_out(name: str) -> bool:
    """Decide by a hash of the module's name, so that the split is the same on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") < HELD_OUT_SHARE * 2**32


def _modules(root: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if any(part in EXCLUDED or part.startswith("config-") for part in parts):
            continue
        try:
            yield "/".join(parts), ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):  # a few files are written to be broken
            continue


def _docstring_owners(tree: ast.Module) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node) is not None
        ):
            yield node


def _take_docstrings(tree: ast.Module) -> str:
    texts = []
    for node in _docstring_owners(tree):
        texts.append(inspect.cleandoc(ast.get_docstring(node) or ""))
        node.body = node.body[1:] or [ast.Pass()]
    prose = [t for t in texts if len(t) >= MIN_PROSE_CHARS and ">>>" not in t]
    return "\n\n".join(prose)


def _reference_topics() -> Iterator[tuple[str, str]]:
    from pydoc_data.topics import topics  # noqa: PLC0415  # 0.7 MB of text, wanted only here

    yield from sorted((f"topic/{name}", text) for name, text in topics.items())


def build(root: Path | None = None) -> Corpus:
    """Read the standard library under `root` (default: the running interpreter's) into a corpus."""
    split: dict[str, list[str]] = {"code": [], "code_held_out": [], "prose": [], "prose_held_out": []}
    for name, tree in _modules(root or Path(sysconfig.get_path("stdlib"))):
        suffix = "_held_out" if is_held_out(name) else ""
        prose = _take_docstrings(tree)
        if prose:
            split["prose" + suffix].append(prose)
        code = ast.unparse(tree)
        if len(code) > MIN_PROSE_CHARS:
            split["code" + suffix].append(code)
    for name, text in _reference_topics():
        split["prose" + ("_held_out" if is_held_out(name) else "")].append(text)
    return Corpus(**{name: tuple(documents) for name, documents in split.items()})
