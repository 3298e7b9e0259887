"""OpenAI's own Python client against the server: what an application sees."""

import itertools

import openai
import pytest


@pytest.fixture
def client(speculative):
    """Connect OpenAI's client to the shared speculative server."""
    with openai.OpenAI(base_url=speculative.base_url + "/v1", api_key="none", max_retries=0) as client:
        yield client


MESSAGES = [{"role": "user", "content": "def add"}]
GREEDY = {"model": "tiny", "temperature": 0, "max_tokens": 12, "extra_body": {"ignore_eos": True}}


def test_completions_whole_and_streamed_say_the_same(client, speculative):
    """Text, ending and usage agree with each other and with our client."""
    whole = client.completions.create(prompt="def add", **GREEDY)
    chunks = list(client.completions.create(prompt="def add", stream=True, stream_options={"include_usage": True}, **GREEDY))

    text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert whole.choices[0].text == text == speculative.complete("def add", max_tokens=12, ignore_eos=True).text
    assert (whole.choices[0].finish_reason, whole.usage.completion_tokens) == ("length", 12)
    assert (chunks[-1].choices, chunks[-1].usage) == ([], whole.usage)


def test_chats_whole_and_streamed_say_the_same(client):
    """Roles, deltas and usage in every chunk when asked."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    whole = client.chat.completions.create(messages=MESSAGES, **GREEDY)
    chunks = list(client.chat.completions.create(messages=MESSAGES, stream=True, stream_options=options, **GREEDY))

    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert whole.choices[0].message.role == deltas[0].role == "assistant"
    assert whole.choices[0].message.content == "".join(delta.content for delta in deltas)
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == whole.usage.completion_tokens == 12


def test_several_answers_come_with_their_index(client):
    """`n` answers to each of two prompts, each the one that its own seed gives alone."""
    asked = {"model": "tiny", "temperature": 1.0, "max_tokens": 8}
    many = client.completions.create(prompt=["def", "for"], n=2, seed=5, **asked)
    streams = ["", "", "", ""]
    for chunk in client.completions.create(prompt=["def", "for"], n=2, seed=5, stream=True, **asked):
        streams[chunk.choices[0].index] += chunk.choices[0].text

    alone = [
        client.completions.create(prompt=prompt, seed=seed, **asked).choices[0].text
        for prompt in ("def", "for")
        for seed in (5, 6)
    ]
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in many.choices] == streams == alone
    assert len(set(alone)) == 4


def test_a_stop_string_ends_the_answer(client):
    """Its text is left out, or kept on demand."""
    full = client.completions.create(prompt="def add", **GREEDY).choices[0].text
    stop = full[len(full) // 2 :][:2]

    cut = client.completions.create(prompt="def add", stop=[stop], **GREEDY).choices[0]
    extra = {"extra_body": {"ignore_eos": True, "include_stop_str_in_output": True}}
    kept = client.completions.create(prompt="def add", stop=[stop], **(GREEDY | extra)).choices[0]

    assert (cut.text, cut.finish_reason) == (full[: full.index(stop)], "stop")
    assert kept.text == cut.text + stop


def test_an_echo_puts_the_prompt_first(client):
    """With max_tokens 0 the prompt is all there is."""
    full = client.completions.create(prompt="def add", **GREEDY).choices[0].text

    assert client.completions.create(prompt="def add", echo=True, **GREEDY).choices[0].text == "def add" + full
    assert client.completions.create(prompt="def add", echo=True, **(GREEDY | {"max_tokens": 0})).choices[0].text == "def add"


def test_models_and_errors_are_the_client_s_own_classes(client):
    """A list of models; a bad value is a BadRequestError, another model a NotFoundError."""
    assert [model.id for model in client.models.list()] == ["tiny"]
    with pytest.raises(openai.BadRequestError, match="temperature must be a number"):
        client.completions.create(prompt="x", model="tiny", temperature=-1)
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.completions.create(prompt="x", model="other")


def test_a_full_queue_is_the_client_s_server_error(make_server, pair):
    """503 with a message: InternalServerError in the client's words."""
    ours, _ = make_server(model=pair[0], max_running=1, max_waiting=0)
    with openai.OpenAI(base_url=ours.base_url + "/v1", api_key="none", max_retries=0) as client:
        body = {"model": "tiny", "prompt": "def", "max_tokens": 250, "extra_body": {"ignore_eos": True}}
        with client.completions.create(stream=True, **body) as stream:
            next(stream)
            with pytest.raises(openai.InternalServerError, match="try again later"):
                client.completions.create(prompt="x", model="tiny")


def test_log_probabilities_of_completions_and_chats_agree(client):
    """Two shapes, one law: streamed or whole, the values are those of the tokens of the answer."""
    whole = client.completions.create(prompt="user: def add\nassistant:", logprobs=3, **GREEDY).choices[0].logprobs
    asked = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 3, **GREEDY}
    chat = client.chat.completions.create(**asked).choices[0].logprobs.content
    chunks = client.chat.completions.create(stream=True, **asked)
    streamed = [entry for chunk in chunks for entry in chunk.choices[0].logprobs.content]

    assert [entry.logprob for entry in chat] == pytest.approx(whole.token_logprobs, abs=1e-4)
    assert [entry.token for entry in chat] == [entry.token for entry in streamed] == whole.tokens
    assert all(len(entry.top_logprobs) == 3 and entry.top_logprobs[0].token == entry.token for entry in chat)
    said = 0
    for chunk in client.completions.create(prompt="user: def add\nassistant:", logprobs=3, stream=True, **GREEDY):
        assert chunk.choices[0].logprobs.text_offset[0] == said
        said += len(chunk.choices[0].text)
    assert whole.text_offset[0] == 0
    assert whole.text_offset[1:] == list(itertools.accumulate(len(token) for token in whole.tokens))[:-1]
