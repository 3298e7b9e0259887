"""Reading answers on the side."""

import hashlib
import json

import pytest

from specops.gateway.observation import EventSplitter, Observation


def observe(*pieces):
    """Feed pieces, one per second, and end."""
    seen = Observation()
    passed = b"".join(seen.feed(piece, float(at)) for at, piece in enumerate(pieces, start=1))
    seen.end()
    return seen, passed


@pytest.mark.parametrize("blank", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_are_found_however_they_are_cut(blank, size):
    """Every terminator of the standard, at every cut; the bytes stay as they are."""
    whole = b"data: a\xc3\xa9" + blank + b": ping" + blank + b"data: b" + blank + b"data: half"
    splitter = EventSplitter()

    events = [e for at in range(0, len(whole), size) for e in splitter.feed(whole[at : at + size])]

    assert b"".join(events) + splitter.rest == whole
    assert [e.strip() for e in events if e.strip()] == [b"data: a\xc3\xa9", b": ping", b"data: b"]


def test_a_whole_stream_cut_into_bytes(whole_stream, counts):
    """Counts, usage, finish and the digest do not depend on how the network cuts."""
    seen, passed = observe(*(whole_stream[at : at + 1] for at in range(len(whole_stream))))

    assert passed == whole_stream
    assert seen.text_sha256 == hashlib.sha256("".join(f" w{n}é" for n in range(20)).encode()).hexdigest()
    assert (seen.done, seen.error, seen.finish_reason, seen.completion_tokens) == (True, None, "length", 20)
    assert (seen.acceptance.drafted, seen.acceptance.histogram) == (16, (1, 2, 3))
    assert seen.first_content_at == whole_stream.index(b"\n\n") + 2


@pytest.mark.parametrize(
    ("event", "error"),
    [(b'{"a": NaN}', "nan_text"), (b'{"a": "NaN", "b": Infinity}', "malformed_stream"), (b'{"a": NaN', "malformed_stream"),
     (b"[1]", "malformed_stream"),
     (b'{"usage": {"completion_tokens": -1}}', "malformed_stream"),
     (b'{"choices": [{"text": 5}]}', "malformed_stream"), (b'{"error": {"code": 500}}', "broken_stream")],
)  # fmt: skip
def test_what_is_no_answer_is_named(event, error):
    """Broken JSON, values of the wrong type, and errors inside the stream."""
    seen, _ = observe(b"data: " + event + b"\n\ndata: [DONE]\n\n")

    assert (seen.error, seen.done) == (error, True)


@pytest.mark.parametrize(
    ("texts", "error"),
    [(["!" * 40, "!" * 24], "nan_text"), (["!" * 63], None), (["Wow", "!" * 99], None), (["!" * 50, "\\n", "!" * 50], None),
     (["-" * 99], None), ([" " * 99], None)],
)  # fmt: skip
def test_an_answer_of_token_zero_alone_is_no_text(texts, error):
    """What the argmax of NaN reads as; rules, indentation and enthusiasm are text."""
    events = [b'data: {"choices": [{"text": "%s"}]}\n\n' % text.encode() for text in texts]

    assert observe(*events, b"data: [DONE]\n\n")[0].error == error


def test_a_stream_without_done_is_broken():
    """A clean end of the connection is not the end of the answer."""
    seen, _ = observe(b'data: {"choices": [{"text": "a"}]}\n\n')

    assert (seen.error, seen.has_token) == ("broken_stream", True)


def test_roles_are_no_content_but_tool_calls_are():
    """The first chat chunk holds only the role; a tool call is content without text."""
    role = b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
    call = b'data: {"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}\n\n'

    assert observe(role)[0].has_token is False
    assert observe(role, call)[0].first_content_at == 2.0


def test_contradicting_counts_are_left_out_and_told(counts):
    """The text is good; counts that do not add up are no evidence."""
    body = {"choices": [{"text": "a"}], "metrics": {"speculative_decoding": counts | {"num_draft_tokens": 1}}}
    seen = Observation()

    seen.read_whole(json.dumps(body).encode(), 1.0)

    assert (seen.acceptance, seen.has_bad_counts, seen.error) == (None, True, None)


def test_plain_engines_have_no_counts():
    """Null is no data, not zero."""
    seen = Observation()

    seen.read_whole(b'{"choices": [{"message": {"content": "a"}}], "metrics": {"speculative_decoding": null}}', 1.0)

    assert (seen.acceptance, seen.has_token, seen.text_sha256) == (None, True, hashlib.sha256(b"a").hexdigest())
