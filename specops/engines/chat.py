"""Messages to one prompt, by the Jinja template that a model folder brings.

Templates come with downloaded models, so they run in Jinja's immutable sandbox: no attribute tricks, no files, no Python.
A folder without one gets the plain template `role: text`, one a line (vLLM would refuse the chat).
Source: transformers 5 utils/chat_template_utils (names that templates may use) and tokenization files (where they are stored).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specops.errors import InvalidInput

MAX_BYTES = 4 << 20
_PLAIN = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; here it only shows its body."""

    tags = {"generation"}  # noqa: RUF012  # Jinja's own shape

    def parse(self, parser: Parser) -> Node | list[Node]:
        """Return the nodes of the body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """A compiled template.

    Attributes:
        sha256: of its source; None for the plain one.
        special: what `bos_token` and its like stand for.
    """

    template: jinja2.Template
    sha256: str | None
    special: Mapping[str, str]

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, opens_answer: bool = True, continues: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:  # fmt: skip
        """Return the prompt.

        Args:
            messages: each with a role and a content of text.
            opens_answer: end with the header of the assistant's turn (`add_generation_prompt`).
            continues: end inside the last message (`continue_final_message`).
            variables: more names for the template (`chat_template_kwargs`).

        Raises:
            InvalidInput: the template refuses the messages, or fails on them.
        """
        own = {"messages": messages, "add_generation_prompt": opens_answer, "tools": None, "documents": None}
        try:
            text = self.template.render({**(variables or {}), **self.special, **own})
        except Exception as exc:  # a template is a program: it may fail in any way
            raise InvalidInput(f"chat template: {str(exc)[:200]}; change the messages") from exc
        if not continues:
            return text
        last = str(messages[-1]["content"]).strip()
        at = text.rfind(last)
        if at < 0:
            raise InvalidInput("chat template changes the last message, so it cannot be continued; send a new turn instead")
        return text[: at + len(last)]


def read_chat_template(folder: Path) -> ChatTemplate:
    """Read and compile the template of a model folder: chat_template.jinja, else the one in tokenizer_config.json.

    Raises:
        InvalidInput: a file cannot be read, or the template is not Jinja.
    """
    settings = _settings(folder)
    source = _source(folder, settings.get("chat_template"))
    special = {name: text for name in _SPECIAL if (text := _content(settings.get(name))) is not None}
    digest = None if source is None else hashlib.sha256(source.encode()).hexdigest()
    try:
        template = _environment().from_string(_PLAIN if source is None else source)
    except jinja2.TemplateError as exc:
        raise InvalidInput(f"chat template of {folder} is not Jinja: {exc}; restore the file of the model") from exc
    return ChatTemplate(template=template, sha256=digest, special=special)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise, "strftime_now": _now}
    return environment


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:  # Jinja's call
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)  # Jinja's own escapes HTML


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def _settings(folder: Path) -> dict[str, Any]:
    text = _read(folder / "tokenizer_config.json")
    try:
        settings = json.loads(text) if text is not None else {}
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"{folder / 'tokenizer_config.json'} is not JSON: {exc}") from exc
    if not isinstance(settings, dict):
        raise InvalidInput(f"{folder / 'tokenizer_config.json'} must be an object, got {type(settings).__name__}")
    return settings


def _source(folder: Path, setting: object) -> str | None:
    own = _read(folder / "chat_template.jinja")
    if own is not None:
        return own
    if isinstance(setting, list):  # several named templates
        setting = next((t.get("template") for t in setting if isinstance(t, dict) and t.get("name") == "default"), None)
    if setting is not None and not isinstance(setting, str):
        raise InvalidInput(f"chat_template of {folder} must be text, got {type(setting).__name__}; restore the model's file")
    return setting


def _content(value: object) -> str | None:
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _read(path: Path) -> str | None:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInput(f"{path} has {path.stat().st_size} bytes, at most {MAX_BYTES} are read; this is no template")
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidInput(f"cannot read {path}: {exc}") from exc
