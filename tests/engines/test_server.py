"""The server over real sockets: texts, bodies, counters, cancellation."""

import http.client
import json
import re
import socket
import urllib.parse

import pytest

from specops.core.outcome import Finish
from specops.engines.client import AsyncEngineClient
from specops.engines.server import bind
from specops.errors import InvalidInput

PROMPTS = ("def add(a, b):\n", "for name in", "the naïve café", "x = 日本語")


def post(client, path, body, headers=()):
    """Send a raw POST."""
    at = urllib.parse.urlsplit(client.base_url)
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=30)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, raw, dict(headers))
    answer = connection.getresponse()
    status, text = answer.status, answer.read().decode()
    connection.close()
    return status, text


def completion(client, **body):
    """Return the body of a whole answer."""
    status, text = post(client, "/v1/completions", {"temperature": 0, "max_tokens": 24, **body})
    assert status == 200, text
    return json.loads(text)


def sample(text, name):
    """Sum the samples of a metric."""
    found = re.findall(rf"^vllm:{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    return sum(float(value) for value in found)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_streaming_says_what_the_whole_answer_says(speculative, prompt):
    """Both ways of answering give the same text, ids, count and ending."""
    streamed = speculative.complete(prompt, max_tokens=40)

    whole = completion(speculative, prompt=prompt, max_tokens=40, return_token_ids=True)

    choice = whole["choices"][0]
    assert (streamed.text, list(streamed.token_ids)) == (choice["text"], choice["token_ids"])
    assert streamed.finish == choice["finish_reason"]
    assert streamed.completion_tokens == whole["usage"]["completion_tokens"] == len(choice["token_ids"])


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_text_does_not_depend_on_the_draft(plain, speculative, prompt):
    """Speculation changes speed, not text."""
    assert speculative.complete(prompt, max_tokens=60).token_ids == plain.complete(prompt, max_tokens=60).token_ids


def test_a_round_is_one_chunk_and_acceptance_adds_up(speculative):
    """Tokens after the first come from accepted drafts and one more per round, unless the limit cuts the last block."""
    answer = speculative.complete("def add", max_tokens=50)

    counts = answer.acceptance
    assert 0 < counts.accepted < counts.drafted
    assert sum(counts.histogram) == counts.rounds
    assert 0 <= 1 + counts.accepted + counts.rounds - answer.completion_tokens <= 3
    assert answer.ttft_s <= answer.e2e_s


def test_the_plain_engine_reports_no_speculation(plain):
    """No data is not zero: the object is null, and the client gives None."""
    assert completion(plain, prompt="def")["metrics"]["speculative_decoding"] is None
    assert plain.complete("def").acceptance is None


def test_one_token_answers_report_no_rounds(speculative):
    """VLLM sends zeros with length 1.0; the client reads them as no data."""
    assert completion(speculative, prompt="def")["metrics"]["speculative_decoding"]["per_step_accepted"] is None  # a summary
    reported = completion(speculative, prompt="def", max_tokens=1)["metrics"]["speculative_decoding"]

    assert (reported["num_spec_steps"], reported["mean_acceptance_length"]) == (0, 1.0)
    assert speculative.complete("def", max_tokens=1).acceptance is None


def test_counters_are_the_sums_of_the_requests(make_server, pair):
    """The counters of /metrics equal what the answers reported one by one."""
    client, _ = make_server(model=pair[0], draft=pair[1], method="draft_model", num_speculative_tokens=3)

    answers = [client.complete(prompt, max_tokens=20) for prompt in PROMPTS]

    text, counts = client.metrics(), [answer.acceptance for answer in answers]
    assert sample(text, "spec_decode_num_drafts_total") == sum(c.rounds for c in counts)
    assert sample(text, "spec_decode_num_draft_tokens_total") == sum(c.drafted for c in counts)
    assert sample(text, "spec_decode_num_accepted_tokens_total") == sum(c.accepted for c in counts)
    assert sample(text, "spec_decode_num_accepted_tokens_per_pos_total") == sum(c.accepted for c in counts)
    assert sample(text, "generation_tokens_total") == sum(a.completion_tokens for a in answers)
    assert sample(text, "prompt_tokens_total") == sum(a.prompt_tokens for a in answers)
    assert sample(text, "time_to_first_token_seconds_count") == sample(text, "request_success_total") == len(answers)


def test_the_plain_engine_exports_no_speculative_counters(plain):
    """A monitor must tell `off` from `zero`."""
    assert "spec_decode" not in plain.metrics()


@pytest.mark.parametrize("headers_first", [True, False])
def test_a_client_that_leaves_cancels_its_request(make_server, pair, headers_first):
    """Both a stream and a whole answer end at the next round and count as abort."""
    client, _ = make_server(model=pair[0])
    at = urllib.parse.urlsplit(client.base_url)
    body = json.dumps(
        {"prompt": "def", "max_tokens": 250, "ignore_eos": True, "stream": headers_first, "temperature": 1}
    ).encode()
    request = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    with socket.create_connection((at.hostname, at.port)) as sock:
        sock.sendall(request + body)
        if headers_first:
            sock.recv(100)

    answer = client.complete("def", max_tokens=250, ignore_eos=True)  # takes turns with the other until that is gone
    text = client.metrics()
    assert answer.finish is Finish.LENGTH
    assert 'finished_reason="abort"} 1' in text


def test_requests_take_turns(make_server, pair):
    """A short request that comes second ends before a long one that came first."""
    client, _ = make_server(model=pair[0])
    at = urllib.parse.urlsplit(client.base_url)
    long = http.client.HTTPConnection(at.hostname, at.port)
    body = {"prompt": "def", "max_tokens": 250, "ignore_eos": True, "stream": True, "temperature": 0}
    long.request("POST", "/v1/completions", json.dumps(body).encode())
    stream = long.getresponse()
    stream.read1(10)

    client.complete("for", max_tokens=2)

    assert sample(client.metrics(), "request_success_total") == 1  # only the short one has ended
    assert b"[DONE]" in stream.read()
    long.close()


def test_a_full_queue_answers_503(make_server, pair):
    """More requests than running plus waiting are refused, counted, and told to come back."""
    client, _ = make_server(model=pair[0], max_running=1, max_waiting=0)
    at = urllib.parse.urlsplit(client.base_url)
    first = http.client.HTTPConnection(at.hostname, at.port)
    body = {"prompt": "def", "max_tokens": 250, "ignore_eos": True, "stream": True}
    first.request("POST", "/v1/completions", json.dumps(body).encode())
    stream = first.getresponse()

    status, text = post(client, "/v1/completions", {"prompt": "def"})

    assert (status, json.loads(text)["error"]["code"]) == (503, 503)
    assert sample(client.metrics(), "admission_rejections_total") == 1
    stream.read()
    first.close()


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"prompt": "x", "model": "other"}, 404, "does not exist"),
        ({"prompt": [1] * 256}, 400, "maximum context length is 256"),
        ({"prompt": "x", "max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ({"prompt": "x", "max_tokens": 500}, 400, "maximum context length"),
        ({"prompt": "x", "n": 2, "temperature": 0}, 400, "n must be 1 when using greedy"),
        ({"prompt": "x", "n": 999}, 400, "999 answers"),
        ({"prompt": "x", "n": 0}, 400, "n must be at least 1"),
        ({"prompt": ""}, 400, "empty"),
        ({"prompt": [5, 99999]}, 400, "out of vocabulary"),
        ({"prompt": ["a", [5]]}, 400, "list of one kind"),
        ({"prompt": ["a"] * 265}, 400, "265 answers"),
        ({"prompt": [[]]}, 400, "empty"),
        ({"prompt": None}, 400, "prompt must be text"),
        ({"prompt": "half \ud800"}, 400, "surrogate"),
        ({"prompt": "x" * 2_000_000}, 400, "Please shorten it"),
        ({"prompt": "x", "temperature": -1}, 400, "temperature"),
        ({"prompt": "x", "temperature": float("nan")}, 400, "temperature"),
        ({"prompt": "x", "temperature": float("inf")}, 400, "temperature"),
        ({"prompt": "x", "temperature": 10**400}, 400, "temperature"),
        ({"prompt": "x", "temperature": "hot"}, 400, "temperature"),
        ({"prompt": "x", "top_p": 0}, 400, "top_p"),
        ({"prompt": "x", "top_k": -5}, 400, "top_k must be at least -1"),
        ({"prompt": "x", "top_k": 2.5}, 400, "top_k"),
        ({"prompt": "x", "min_p": 2}, 400, "min_p"),
        ({"prompt": "x", "repetition_penalty": 0}, 400, "greater than zero"),
        ({"prompt": "x", "presence_penalty": 3}, 400, "presence_penalty"),
        ({"prompt": "x", "frequency_penalty": -3}, 400, "frequency_penalty"),
        ({"prompt": "x", "logit_bias": {"999999": 1}}, 400, "out of vocabulary"),
        ({"prompt": "x", "logit_bias": {"a": 1}}, 400, "out of vocabulary"),
        ({"prompt": "x", "logit_bias": {"5": float("nan")}}, 400, "must be a number"),
        ({"prompt": "x", "logit_bias": {"5": 1, "05": 2}}, 400, "twice"),
        ({"prompt": "x", "logit_bias": [5]}, 400, "logit_bias"),
        ({"prompt": "x", "min_tokens": 9, "max_tokens": 4}, 400, "less than or equal to max_tokens=4, got 9"),
        ({"prompt": "x", "seed": 2**64}, 400, "seed"),
        ({"prompt": "x", "stop_token_ids": [10**9]}, 400, "out of vocabulary"),
        ({"prompt": "x", "stop": ["s"] * 10_000}, 400, "up to 16 strings"),
        ({"prompt": "x", "stop": ["s" * 5000]}, 400, "up to 1024 characters"),
        ({"prompt": "x", "stop": [5]}, 400, "stop"),
        ({"prompt": "x", "logprobs": -2}, 400, "logprobs"),
        ({"prompt": "x", "logprobs": True}, 400, "logprobs"),
        ({"prompt": [[5] * 250] * 20, "max_tokens": 1, "prompt_logprobs": -1}, 400, "ask for less depth"),
        ({"prompt": "x", "prompt_logprobs": 1, "stream": True}, 400, "not available when `stream=True`"),
        ({"prompt": "x", "stream_options": {"include_usage": True}}, 400, "only be defined when `stream=True`"),
        ({"prompt": "x", "stream": True, "stream_options": 5}, 400, "stream_options"),
        ({"prompt": "x", "tools": [{"type": "function"}]}, 400, "tools"),
        ({"prompt": "x", "response_format": {"type": "json_object"}}, 400, "response_format"),
        ({"prompt": "x", "suffix": "y" * 5000}, 400, "suffix"),
        ({"prompt": "x", "stop": ""}, 400, "stop"),
        ({"prompt": "x", "stream": "yes"}, 400, "true or false"),
        ([], 400, "object"),
        (b"{", 400, "not JSON"),
        (b"", 400, "not JSON"),
        (b"\xff\xfe\xfd", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"prompt": "x", "seed": ' + b"9" * 5000 + b"}", 400, "not JSON"),
        (b" " * (9 << 20), 413, "Too Large"),
    ],
)
def test_bad_requests_get_an_error_object(speculative, body, status, words):
    """The body has vLLM's shape and the message says what is wrong."""
    got, text = post(speculative, "/v1/completions", body)

    error = json.loads(text)["error"]
    assert (got, error["code"]) == (status, status)
    assert words in error["message"]
    assert error["type"] == {400: "BadRequestError", 404: "NotFoundError", 413: "RequestEntityTooLarge"}[status]
    assert len(text) < 500


def test_min_p_passes_when_greedy(speculative):
    """VLLM zeroes it at temperature 0, so it changes nothing there."""
    assert completion(speculative, prompt="x", min_p=0.1)["usage"]["completion_tokens"] == 24


def test_a_stop_string_cuts_inside_a_block(speculative, plain):
    """Text ends before the stop string, tokens with the one that completed it, on both arms alike."""
    full = plain.complete("def add", max_tokens=40)
    stop = full.text[len(full.text) // 2 :][:3]

    answers = [client.complete("def add", max_tokens=40, stop=[stop]) for client in (speculative, plain)]

    assert answers[0].text == answers[1].text == full.text[: full.text.index(stop)]
    assert answers[0].token_ids == answers[1].token_ids == full.token_ids[: len(answers[0].token_ids)]
    assert answers[0].finish is Finish.STOP


def test_a_stop_token_is_returned_but_is_not_text(plain):
    """The ending token counts as a token of the answer and adds no text."""
    full = plain.complete("def add", max_tokens=12)
    ender = full.token_ids[5]
    first = full.token_ids.index(ender)

    whole = completion(plain, prompt="def add", max_tokens=12, stop_token_ids=[ender], return_token_ids=True)

    choice = whole["choices"][0]
    assert choice["token_ids"] == list(full.token_ids[: first + 1])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", ender)
    assert full.text.startswith(choice["text"])


def test_streams_end_with_usage_then_done_only_when_asked(speculative):
    """The finish reason is on the last content chunk; usage and metrics come alone after it."""
    body = {"prompt": "def", "stream": True, "max_tokens": 9, "stream_options": {"include_usage": True}}
    _, asked = post(speculative, "/v1/completions", body)
    _, unasked = post(speculative, "/v1/completions", body | {"stream_options": None})

    events = [json.loads(line[6:]) for line in asked.split("\n\n")[:-2]]
    assert asked.endswith("data: [DONE]\n\n")
    assert events[-2]["choices"][0]["finish_reason"] in {"length", "stop"}
    assert events[-1]["choices"] == []
    assert events[-1]["metrics"]["speculative_decoding"]["num_spec_tokens"] == 3
    assert '"usage"' not in unasked


def test_chat_joins_messages_and_streams_deltas(plain):
    """A chat is the completion of its plain template."""
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    status, text = post(plain, "/v1/chat/completions", {"messages": messages, "max_tokens": 8, "temperature": 0})

    same = plain.complete("system: be brief\nuser: hi\nassistant:", max_tokens=8)
    assert (status, json.loads(text)["choices"][0]["message"]["content"]) == (200, same.text)
    _, stream = post(plain, "/v1/chat/completions", {"messages": messages, "max_tokens": 8, "temperature": 0, "stream": True})
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in stream.split("\n\n")[:-2]]
    assert (deltas[0]["role"], "".join(delta["content"] for delta in deltas)) == ("assistant", same.text)


def test_the_server_says_what_it_runs(speculative, pair):
    """Model list and server info name the context, the digests, the method and k."""
    facts = speculative.server_info()["specops"]

    assert speculative.models()[0] | {"created": 0} == {
        "id": "tiny", "object": "model", "created": 0, "owned_by": "specops", "root": str(pair[0]), "parent": None,
        "max_model_len": 256,
    }  # fmt: skip
    assert (facts["method"], facts["num_speculative_tokens"], facts["threads"]) == ("draft_model", 3, 1)
    assert facts["target"]["weights_sha256"] != facts["draft"]["weights_sha256"]
    assert {file["path"] for file in facts["target"]["files"]} == {"config.json", "model.safetensors", "tokenizer.json"}


def test_sampling_with_a_seed_can_be_repeated(speculative):
    """The same seed gives the same tokens; another one gives others."""
    first, again, other = (speculative.complete("def", temperature=1.0, seed=seed).token_ids for seed in (5, 5, 6))

    assert first == again != other


def test_ngram_speculates_without_weights(make_server, pair, plain):
    """Prompt lookup keeps the text and reports its rounds."""
    client, _ = make_server(model=pair[0], method="ngram", num_speculative_tokens=4)

    answer = client.complete("name name name name", max_tokens=40)

    assert answer.token_ids == plain.complete("name name name name", max_tokens=40).token_ids
    assert answer.acceptance is None or answer.acceptance.drafted > 0
    assert client.server_info()["specops"]["draft"] is None


async def test_the_asynchronous_client_reads_the_same(speculative):
    """Both clients fold the same stream."""
    async with AsyncEngineClient(speculative.base_url) as client:
        await client.health()
        answer = await client.complete("def", max_tokens=10)
        name = (await client.models())[0]["id"]

    same = speculative.complete("def", max_tokens=10)
    assert (name, answer.token_ids, answer.acceptance) == ("tiny", same.token_ids, same.acceptance)


def test_tokenize_and_back(plain):
    """Ids of a text give the text again."""
    ids = plain.tokenize("def add(a)")

    _, text = post(plain, "/detokenize", {"tokens": ids})

    assert json.loads(text)["prompt"] == "def add(a)"
    assert post(plain, "/tokenize", {"prompt": 5})[0] == 400
    assert plain.tokenize("") == []


def test_a_busy_port_is_one_line_with_the_way_out():
    """The message names the port and the option."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"port {port} is already in use.*pass --port"):
            bind("127.0.0.1", port)


def test_the_client_turns_refusals_into_invalid_input(speculative):
    """HTTP 4xx is the caller's to fix."""
    with pytest.raises(InvalidInput, match="answered 404: The model `x` does not exist"):
        speculative.complete("def", model="x")


def test_other_paths_and_methods_get_the_error_object_too(speculative):
    """A client library can always read the error."""
    status, text = post(speculative, "/v1/nothing", {})

    assert (status, json.loads(text)["error"]["code"]) == (404, 404)
    assert post(speculative, "/v1/models", {})[0] == 405


def test_requests_are_counted_by_route_and_class(make_server, pair):
    """Made-up paths are one label, so a hostile client cannot fill the memory; probes are not counted."""
    client, _ = make_server(model=pair[0])

    client.complete("def", max_tokens=2)
    for path in ("/a", "/b"):
        post(client, path, {})
    post(client, "/v1/completions", {"prompt": 5})
    client.health()

    counts = re.findall(r"^http_requests_total{(.*)} (\d+)$", client.metrics(), re.MULTILINE)
    assert counts == [
        ('handler="/v1/completions",method="POST",status="2xx"', "1"),
        ('handler="/v1/completions",method="POST",status="4xx"', "1"),
        ('handler="none",method="POST",status="4xx"', "2"),
    ]


def test_a_detailed_server_reports_every_round(make_server, pair):
    """Sums of the rounds are the counts of the summary; whole and streamed answers report the same."""
    client, _ = make_server(
        model=pair[0], draft=pair[1], method="draft_model", num_speculative_tokens=3, per_request_spec_decode_metrics="detailed"
    )

    answer = client.complete("def add", max_tokens=30)

    whole = completion(client, prompt="def add", max_tokens=30)["metrics"]["speculative_decoding"]
    counts = answer.acceptance
    assert len(answer.per_round) == counts.rounds > 1
    assert tuple(map(sum, zip(*answer.per_round, strict=True))) == (counts.drafted, counts.accepted)
    assert list(answer.per_round) == list(zip(whole["per_step_drafted"], whole["per_step_accepted"], strict=True))


def test_a_server_can_be_told_to_report_no_rounds(make_server, pair):
    """The object is null, as on an engine that does not speculate."""
    client, _ = make_server(model=pair[0], method="ngram", num_speculative_tokens=2, per_request_spec_decode_metrics="none")

    assert completion(client, prompt="name name name")["metrics"]["speculative_decoding"] is None


def test_several_answers_have_no_metrics_and_one_usage(speculative):
    """As in vLLM: rounds of different answers are not added up."""
    whole = completion(speculative, prompt=["def", "for"], n=2, temperature=1, max_tokens=5, ignore_eos=True)

    prompted = sum(len(speculative.tokenize(prompt)) for prompt in ("def", "for"))
    assert whole["metrics"] is None
    assert whole["usage"] == {"prompt_tokens": prompted, "completion_tokens": 20, "total_tokens": prompted + 20}


def test_a_call_that_does_not_fit_leaves_nothing_behind(make_server, pair):
    """When the queue has no place for all answers, those already queued are cancelled."""
    client, _ = make_server(model=pair[0], max_running=1, max_waiting=2)
    at = urllib.parse.urlsplit(client.base_url)
    first = http.client.HTTPConnection(at.hostname, at.port)
    body = {"prompt": "def", "max_tokens": 250, "ignore_eos": True, "stream": True}
    first.request("POST", "/v1/completions", json.dumps(body).encode())
    stream = first.getresponse()

    status, _ = post(client, "/v1/completions", {"prompt": ["def"] * 3})

    assert status == 503
    assert b"[DONE]" in stream.read()
    first.close()
    assert client.complete("def", max_tokens=2).completion_tokens == 2  # comes after those that were queued
    assert 'finished_reason="abort"} 2' in client.metrics()


def test_a_reader_that_never_reads_does_not_stop_the_others(make_server, pair):
    """Its answers wait in its own buffer; a second client is served meanwhile."""
    client, _ = make_server(model=pair[0])
    at = urllib.parse.urlsplit(client.base_url)
    fields = {"prompt": ["def"] * 7, "max_tokens": 250, "ignore_eos": True, "stream": True, "logprobs": 5}
    body = json.dumps(fields).encode()

    with socket.create_connection((at.hostname, at.port)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = client.complete("def", max_tokens=3)

    assert answer.completion_tokens == 3
    client.health()


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n{",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + b"X-Y: " + b"z" * 70_000 + b"\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_broken_http_leaves_the_server_alive(plain, raw):
    """Whatever bytes come, the next client is answered."""
    at = urllib.parse.urlsplit(plain.base_url)

    with socket.create_connection((at.hostname, at.port)) as sock:
        sock.sendall(raw)

    assert plain.complete("def", max_tokens=2).completion_tokens == 2


def test_strings_that_end_an_answer_wait_for_enough_tokens(plain):
    """`min_tokens` holds for stop strings too."""
    full = plain.complete("def add", max_tokens=30)
    stop = full.text[:2]

    answer = plain.complete("def add", max_tokens=30, stop=[stop], min_tokens=8, ignore_eos=True)

    assert answer.completion_tokens >= 8
    assert answer.text.startswith(stop)


def test_tokenize_takes_chats_and_names_tokens(plain):
    """Messages pass through the template, and ids can be shown as the vocabulary writes them."""
    _, text = post(plain, "/tokenize", {"messages": [{"role": "user", "content": "hi"}], "return_token_strs": True})

    answer = json.loads(text)
    assert answer["tokens"] == plain.tokenize("user: hi\nassistant:")
    assert (answer["count"], len(answer["token_strs"])) == (len(answer["tokens"]),) * 2


@pytest.mark.parametrize("arm", ["plain", "speculative"])
def test_sampling_settings_act_on_both_arms(request, arm):
    """Bias, penalties, min-p and the least length hold at every token, drafted or not."""
    client = request.getfixturevalue(arm)
    ask = {"max_tokens": 16, "ignore_eos": True}

    biased = client.complete("def add", logit_bias={"42": 100}, **ask)
    fresh = client.complete("def add", frequency_penalty=2, presence_penalty=2, repetition_penalty=50, **ask)
    sure = client.complete("def add", temperature=1, min_p=1, seed=3, **ask)
    long = client.complete("def add", max_tokens=16, min_tokens=16, logit_bias={"0": 50})

    assert set(biased.token_ids) == {42}
    assert len(set(fresh.token_ids)) > len(set(client.complete("def add", **ask).token_ids))
    assert sure.token_ids == client.complete("def add", **ask).token_ids
    assert 0 not in long.token_ids[:15]


def test_streamed_log_probabilities_end_where_a_stop_string_cuts(speculative):
    """Every token that is returned has its entry, and no other."""
    full = speculative.complete("def add", max_tokens=24, ignore_eos=True)
    stops = [full.text[at : at + 2] for at in range(0, len(full.text) - 8, 3)]

    answers = [
        speculative.complete("def add", max_tokens=24, ignore_eos=True, stop=[stop], logprobs=1) for stop in stops
    ]  # fmt: skip

    assert {answer.finish for answer in answers} == {Finish.STOP}
    for answer in answers:
        assert len(answer.logprobs) == len(answer.top_logprobs) == len(answer.token_ids) <= 24


def test_an_echo_has_the_log_probabilities_of_the_prompt(plain):
    """The way to score a text in one call; its first token has none."""
    choice = completion(plain, prompt="def add(a)", echo=True, logprobs=1, max_tokens=0, return_token_ids=True)["choices"][0]

    ids = plain.tokenize("def add(a)")
    (scores,) = plain.score([ids], top=1)
    assert (choice["token_ids"], choice["text"]) == (ids, "def add(a)")
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx([score.logprob for score in scores])
