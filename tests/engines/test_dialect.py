"""Requests to calls and rounds to bodies, without a server."""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specops.core.outcome import Acceptance, Finish
from specops.decoding.request import TokenLogprob
from specops.engines.answers import Delta, Shape, Timing, merged, metrics_of, usage_of
from specops.engines.chat import ChatTemplate, read_chat_template
from specops.engines.dialect import Limits, Refused, parse

LIMITS = Limits(model_name="m", max_model_len=64, vocab_size=100, max_choices=8, max_prompt_chars=400)


@dataclass
class Letters:
    """One token per character."""

    template: ChatTemplate
    limits: Limits = LIMITS
    special_asked: list = field(default_factory=list)

    def encode(self, text, *, special=True):
        """Return code points modulo the vocabulary."""
        self.special_asked.append(special)
        return [ord(letter) % 100 for letter in text]


@pytest.fixture
def reader(tmp_path):
    """Give a reader with the plain template."""
    return Letters(template=read_chat_template(tmp_path))


def shape(call):
    """Name tokens by letters."""
    return Shape(id="cmpl-1", model="m", created=5, call=call, piece=lambda token: f"<{token}>")


def scored(token, logprob, rank, *top):
    """Abbreviate."""
    return TokenLogprob(token=token, logprob=logprob, rank=rank, top=top)


def test_every_sampling_field_reaches_the_decoder(reader):
    """Nothing that changes the law is lost on the way."""
    body = {
        "prompt": [5, 6], "temperature": 0.7, "top_p": 0.9, "top_k": 11, "min_p": 0.1, "repetition_penalty": 1.2,
        "presence_penalty": 0.3, "frequency_penalty": -0.4, "logit_bias": {"7": 3, "8": -500}, "min_tokens": 2,
        "max_tokens": 9, "stop_token_ids": [3], "ignore_eos": True, "seed": 4, "logprobs": 2, "prompt_logprobs": 1,
    }  # fmt: skip

    request = parse(body, is_chat=False, reader=reader).request(0, drawn_seed=99)

    assert (request.prompt_ids, request.max_tokens, request.seed, request.stop_ids) == ((5, 6), 9, 4, (3,))
    assert (request.temperature, request.top_p, request.top_k, request.min_p) == (0.7, 0.9, 11, 0.1)
    assert (request.repetition_penalty, request.presence_penalty, request.frequency_penalty) == (1.2, 0.3, -0.4)
    assert request.logit_bias == ((7, 3.0), (8, -100.0))
    assert (request.min_tokens, request.ignore_eos, request.logprobs, request.prompt_logprobs) == (2, True, 2, 1)


def test_filters_are_dropped_when_greedy(reader):
    """They keep the likeliest token, which is all that is asked for."""
    body = {"prompt": "x", "temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.9}

    request = parse(body, is_chat=False, reader=reader).requests[0]

    assert (request.top_p, request.top_k, request.min_p) == (1.0, 0, 0.0)


def test_answers_have_seeds_of_their_own(reader):
    """The i-th answer to each prompt has seed + i; without a seed each one is drawn."""
    seeded = parse({"prompt": ["a", "b"], "n": 3, "seed": 10}, is_chat=False, reader=reader)
    drawn = parse({"prompt": "a", "n": 2}, is_chat=False, reader=reader)

    requests = [seeded.request(index, drawn_seed=0) for index in range(seeded.choices)]
    assert [request.seed for request in requests] == [10, 11, 12, 10, 11, 12]
    assert [request.prompt_ids for request in requests] == [(97,)] * 3 + [(98,)] * 3
    assert drawn.request(1, drawn_seed=77).seed == 77


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("ab", [(97, 98)]), ([1, 2], [(1, 2)]), (["ab", "c"], [(97, 98), (99,)]), ([[1, 2], [3]], [(1, 2), (3,)]),
    ],
)  # fmt: skip
def test_a_prompt_is_text_ids_or_a_list_of_one_of_them(reader, prompt, ids):
    """All four of vLLM's forms."""
    call = parse({"prompt": prompt}, is_chat=False, reader=reader)

    assert [request.prompt_ids for request in call.requests] == ids
    assert call.prompt_tokens == sum(map(len, ids))


def test_a_long_prompt_can_be_cut_from_the_left(reader):
    """The last tokens stay; -1 keeps what fits beside one token of answer."""
    cut = parse({"prompt": "abcd", "truncate_prompt_tokens": 2}, is_chat=False, reader=reader)
    fitted = parse({"prompt": "a" * 90, "truncate_prompt_tokens": -1}, is_chat=False, reader=reader)

    assert cut.requests[0].prompt_ids == (99, 100 % 100)
    assert (fitted.prompt_tokens, fitted.requests[0].max_tokens) == (63, 1)


def test_special_tokens_are_added_once(reader, tmp_path):
    """A template writes its own; the plain one and a completion leave them to the tokenizer."""
    chat = {"messages": [{"role": "user", "content": "x"}]}
    parse(chat, is_chat=True, reader=reader)
    parse({"prompt": "x"}, is_chat=False, reader=reader)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    reader.template = read_chat_template(tmp_path)
    parse(chat, is_chat=True, reader=reader)
    parse({"prompt": "x", "add_special_tokens": False}, is_chat=False, reader=reader)

    assert reader.special_asked == [True, True, False, False]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "user"}]}, "content must be text"),
        ({"messages": [{"content": "x"}]}, "needs a role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text parts"),
        ({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 3}, "`logprobs` must be set"),
        ({"messages": [{"role": "user", "content": "x"}], "chat_template": "{{ 1 }}"}, "chat_template"),
        ({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": 5}, "must be an object"),
        (
            {"messages": [{"role": "user", "content": "x"}], "continue_final_message": True, "add_generation_prompt": True},
            "Cannot set both",
        ),
    ],
)
def test_chats_that_cannot_be_answered_are_refused(reader, body, words):
    """With a message that says what is wrong."""
    with pytest.raises(Refused, match=words):
        parse(body, is_chat=True, reader=reader)


def test_unknown_names_are_ignored(reader):
    """As in vLLM: clients send names of other servers."""
    assert parse({"prompt": "x", "user": "me", "metadata": {}, "cache_salt": "s"}, is_chat=False, reader=reader).choices == 1


def test_completion_log_probabilities_have_the_shape_of_vllm(reader):
    """The token first, then as many of the likeliest as were asked for; offsets count characters; no infinity in JSON."""
    call = parse({"prompt": "x", "logprobs": 2}, is_chat=False, reader=reader)
    entries = (scored(5, -0.5, 1, (5, -0.5), (6, -1.0), (7, -4.0)), scored(9, float("-inf"), 40, (7, -0.1), (8, -2.0)))
    delta = Delta(text="ab", token_ids=(5, 9), logprobs=entries)

    body = shape(call).chunk(0, delta, is_first=False, offset=4)["choices"][0]["logprobs"]

    assert body == {
        "text_offset": [4, 7], "tokens": ["<5>", "<9>"], "token_logprobs": [-0.5, -9999.0],
        "top_logprobs": [{"<5>": -0.5, "<6>": -1.0}, {"<9>": -9999.0, "<7>": -0.1, "<8>": -2.0}],
    }  # fmt: skip


def test_tokens_can_be_named_by_id(reader):
    """Texts of two tokens may be equal; ids are not."""
    call = parse({"prompt": "x", "logprobs": 1, "return_tokens_as_token_ids": True}, is_chat=False, reader=reader)
    delta = Delta(text="a", token_ids=(5,), logprobs=(scored(5, -2.0, 3, (6, -1.0)),))

    body = shape(call).chunk(0, delta, is_first=True, offset=0)["choices"][0]["logprobs"]

    assert body["top_logprobs"] == [{"token_id:5": -2.0, "token_id:6": -1.0}]


def test_chat_log_probabilities_have_the_shape_of_openai(reader):
    """Token, value and bytes; the emitted token is one of the asked number."""
    body = {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 2}
    delta = Delta(text="a", token_ids=(5,), logprobs=(scored(5, -2.0, 3, (6, -1.0), (7, -1.5)),), finish=Finish.LENGTH)
    call = parse(body, is_chat=True, reader=reader)

    choice = shape(call).whole([delta], usage={}, metrics=None)["choices"][0]

    (entry,) = choice["logprobs"]["content"]
    assert (entry["token"], entry["logprob"], entry["bytes"]) == ("<5>", -2.0, list(b"<5>"))
    assert [(top["token"], top["logprob"]) for top in entry["top_logprobs"]] == [("<5>", -2.0), ("<6>", -1.0)]
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize("is_chat", [True, False])
def test_the_prompt_is_told_where_vllm_tells_it(reader, is_chat):
    """Ids and log probabilities of the prompt: in the choice of a completion, at the top of a chat."""
    fields = {"return_token_ids": True, "prompt_logprobs": 1}
    fields |= {"messages": [{"role": "u", "content": "x"}]} if is_chat else {"prompt": [3, 4]}
    call = parse(fields, is_chat=is_chat, reader=reader)
    delta = Delta(text="a", token_ids=(5,), prompt_logprobs=(scored(4, -3.0, 9, (6, -0.2)),))

    body = shape(call).whole([delta], usage={}, metrics=None)

    place = body if is_chat else body["choices"][0]
    assert place["prompt_token_ids"] == list(call.requests[0].prompt_ids)
    assert place["prompt_logprobs"] == [
        None,
        {
            "4": {"logprob": -3.0, "rank": 9, "decoded_token": "<4>"},
            "6": {"logprob": -0.2, "rank": 1, "decoded_token": "<6>"},
        },
    ]
    assert body["choices"][0]["token_ids"] == [5]


def test_rounds_merge_in_order():
    """Text, ids and log probabilities are joined; the end comes from the last, the prompt from the first."""
    first = Delta(text="a", token_ids=(1,), logprobs=(None,), prompt_logprobs=())
    last = Delta(text="b", token_ids=(2, 3), logprobs=(None, None), finish=Finish.STOP, stop_reason="b")

    whole = merged([first, last])

    assert (whole.text, whole.token_ids, whole.logprobs) == ("ab", (1, 2, 3), (None,) * 3)
    assert (whole.finish, whole.stop_reason, whole.prompt_logprobs) == (Finish.STOP, "b", ())


def test_detailed_metrics_list_every_round():
    """The summary has nulls there; both have the same sums."""
    timing, counts = Timing(queue_s=0.1, ttft_s=0.2, decode_s=0.3), Acceptance(rounds=2, drafted=5, accepted=3)
    common = {"completion_tokens": 4, "acceptance": counts, "k": 3}

    detailed = metrics_of(timing, **common, per_round=((3, 1), (2, 2)))["speculative_decoding"]
    summary = metrics_of(timing, **common, per_round=None)["speculative_decoding"]

    assert (detailed["per_step_drafted"], detailed["per_step_accepted"]) == ([3, 2], [1, 2])
    assert summary == detailed | {"per_step_drafted": None, "per_step_accepted": None}
    assert usage_of(prompt_tokens=2, completion_tokens=3)["total_tokens"] == 5


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=6) | st.just("long" * 999),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = (
    "prompt", "messages", "model", "max_tokens", "max_completion_tokens", "min_tokens", "temperature", "top_p", "top_k",
    "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "seed", "n", "stop",
    "stop_token_ids", "stream", "stream_options", "logprobs",
    "top_logprobs", "prompt_logprobs", "echo", "truncate_prompt_tokens", "chat_template_kwargs",
    "add_generation_prompt", "continue_final_message", "tools", "best_of", "return_token_ids", "skip_special_tokens",
)  # fmt: skip
VALID = st.fixed_dictionaries(
    {"prompt": st.just("x"), "messages": st.just([{"role": "user", "content": "x"}])},
    optional={name: JSON for name in NAMES if name not in {"prompt", "messages"}},
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=JSON | st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4) | VALID, is_chat=st.booleans())
def test_any_json_is_a_call_or_a_refusal_with_a_short_message(reader, body, is_chat):
    """No value that a client can send ends in another error, and none is sent back at length."""
    try:
        call = parse(body, is_chat=is_chat, reader=reader)
    except Refused as exc:
        refused, call = exc, None

    if call is None:
        assert refused.status in {400, 404}
        assert len(str(refused)) < 400
        return
    for index in range(call.choices):
        request = call.request(index, drawn_seed=1)
        assert 0 < len(request.prompt_ids) < len(request.prompt_ids) + request.max_tokens <= LIMITS.max_model_len
        assert 0 <= request.temperature <= 2
        assert request.min_tokens <= request.max_tokens
