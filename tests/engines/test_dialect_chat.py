"""Chat templates: the model folder's own, in a sandbox; messages in, one prompt out."""

import json

import pytest

from specops.engines.chat import read_chat_template
from specops.engines.preflight import Severity, check_folders
from specops.errors import InvalidInput

CHATML = (
    "{{ bos_token }}{% for message in messages %}\n"
    "    {%- if message['role'] not in ['system', 'user', 'assistant'] %}{{ raise_exception('unknown role') }}{% endif %}\n"
    "<|{{ message['role'] }}|>{{ message['content'] | trim }}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}\n"
    "<|assistant|>{% endif %}"
)
HI = [{"role": "user", "content": "hi"}]


def template_of(folder, source=None, **settings):
    """Write the files of a model folder and read its template."""
    if source is not None:
        (folder / "chat_template.jinja").write_text(source, "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return read_chat_template(folder)


def test_a_folder_without_a_template_gets_the_plain_one(tmp_path):
    """One line per message, then the assistant's turn; it has no digest."""
    template = read_chat_template(tmp_path)

    assert template.render([{"role": "system", "content": "be brief"}, *HI]) == "system: be brief\nuser: hi\nassistant:"
    assert template.render(HI, opens_answer=False) == "user: hi\n"
    assert template.sha256 is None


@pytest.mark.parametrize("place", ["setting", "named", "file"])
def test_the_template_is_found_where_models_keep_it(tmp_path, place):
    """In tokenizer_config.json, alone or named, or in its own file, which wins."""
    named = [{"name": "tools", "template": "no"}, {"name": "default", "template": CHATML}]
    settings = {"setting": {"chat_template": CHATML}, "named": {"chat_template": named}, "file": {"chat_template": "no"}}[place]

    template = template_of(tmp_path, CHATML if place == "file" else None, bos_token={"content": "<s>"}, **settings)

    assert template.render(HI) == "<s><|user|>hi\n<|assistant|>"


def test_the_last_message_can_be_continued(tmp_path):
    """The prompt ends inside the assistant's own words."""
    template = template_of(tmp_path, CHATML, bos_token="<s>")

    text = template.render([*HI, {"role": "assistant", "content": "Well, "}], opens_answer=False, continues=True)

    assert text == "<s><|user|>hi\n<|assistant|>Well,"


def test_names_that_templates_use_are_there(tmp_path):
    """Loop controls, tojson without HTML escapes, the date, generation marks, and variables of the request."""
    source = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m | tojson }}{% endfor %}"
        "{% generation %}{{ strftime_now('%Y') | length }}{% endgeneration %}{{ mood }}"
    )

    text = template_of(tmp_path, source).render([{"role": "user", "content": "<é>"}] * 2, variables={"mood": "calm"})

    assert text == '{"role": "user", "content": "<é>"}4calm'


def test_a_request_cannot_replace_the_messages(tmp_path):
    """Variables of a request do not shadow the template's own names."""
    text = read_chat_template(tmp_path).render(HI, variables={"messages": [], "add_generation_prompt": False})

    assert text == "user: hi\nassistant:"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% include '/etc/passwd' %}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ raise_exception('no') }}",
        "{{ 1 / 0 }}",
        "{{ messages[9].content.x }}",
    ],
)
def test_a_template_that_fails_or_breaks_out_is_an_error_of_the_request(tmp_path, source):
    """The sandbox holds, and whatever a template raises is one kind of error."""
    with pytest.raises(InvalidInput, match="chat template"):
        template_of(tmp_path, source).render(HI)


@pytest.mark.parametrize(
    ("settings", "words"),
    [("{", "not JSON"), ("[]", "must be an object"), ('{"chat_template": 5}', "must be text"), (b"\xff", "cannot read")],
)
def test_broken_files_are_named(tmp_path, settings, words):
    """The message says which file and what is wrong."""
    (tmp_path / "tokenizer_config.json").write_bytes(settings if isinstance(settings, bytes) else settings.encode())

    with pytest.raises(InvalidInput, match=words):
        read_chat_template(tmp_path)


def test_preflight_refuses_a_template_that_is_not_jinja(fresh_pair):
    """Found before the process starts."""
    (fresh_pair[0] / "chat_template.jinja").write_text("{% for %}", "utf-8")

    found = [finding for finding in check_folders(*fresh_pair) if finding.severity is Severity.REFUSE]

    assert [finding.what for finding in found] == ["chat template"]
    assert "not Jinja" in found[0].got
