"""Our clients: what they make of answers, good and broken."""

import json
import math

import pytest

from specops.engines.client import EngineClient, StreamReader, completion_body, read_scores, score_body
from specops.errors import EngineUnavailable, InvalidInput


def folded(*events):
    """Fold events as a stream."""
    reader = StreamReader(url="here")
    for event in (*(json.dumps(event) for event in events), "[DONE]"):
        reader.feed(f"data: {event}\n".encode())
    return reader.completion()


def test_log_probabilities_and_rounds_are_read_from_a_stream():
    """Ids come from the names, the likeliest in falling order, rounds from the detailed form."""
    logprobs = {"token_logprobs": [-1.0], "top_logprobs": [{"token_id:5": -1.0, "token_id:9": -0.5}], "tokens": ["token_id:5"]}
    speculation = {
        "num_spec_steps": 2, "num_draft_tokens": 5, "num_accepted_draft_tokens": 3, "acceptance_histogram": [0, 1, 1, 0],
        "per_step_accepted": [1, 2], "per_step_drafted": [3, 2],
    }  # fmt: skip

    answer = folded(
        {"choices": [{"index": 0, "text": "a", "token_ids": [5], "logprobs": logprobs, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"completion_tokens": 1}, "metrics": {"speculative_decoding": speculation}},
    )

    assert (answer.logprobs, answer.top_logprobs) == ((-1.0,), (((9, -0.5), (5, -1.0)),))
    assert answer.per_round == ((3, 1), (2, 2))


def test_tokens_are_asked_by_id_only_with_log_probabilities():
    """Other servers need not know the name."""
    assert "return_tokens_as_token_ids" not in completion_body("x", {})
    assert completion_body("x", {"logprobs": 0})["return_tokens_as_token_ids"] is True


def test_scores_are_read_by_index_and_rank():
    """Choices in any order; the token's own entry, and the likeliest without it unless it is one of them."""
    first = {"7": {"logprob": -3.0, "rank": 12}, "4": {"logprob": -0.1, "rank": 1}}
    second = {"8": {"logprob": -0.2, "rank": 1}}
    body = {"choices": [{"index": 1, "prompt_logprobs": [None, second]}, {"index": 0, "prompt_logprobs": [None, first]}]}

    (((a,)), ((b,))) = read_scores(body, [[1, 7], [1, 8]], top=1)

    assert (a.token, a.logprob, a.rank, a.top) == (7, -3.0, 12, ((4, -0.1),))
    assert (b.token, b.rank, b.top) == (8, 1, ((8, -0.2),))
    assert score_body([(1, 7)], 1, {"model": "m"})["prompt"] == [[1, 7]]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": [{"index": 0}]},
        {"choices": [{"index": 0, "prompt_logprobs": None}]},
        {"choices": [{"index": 0, "prompt_logprobs": [None]}]},
        {"choices": [{"index": 0, "prompt_logprobs": [None, {"9": {"logprob": -1, "rank": 1}}]}]},
        {"choices": [{"index": 0, "prompt_logprobs": [None, {"7": {"logprob": "x", "rank": 1}}]}]},
    ],
)
def test_scores_that_do_not_fit_the_tokens_are_an_error(body):
    """A missing position or another token is never taken for the right one."""
    with pytest.raises(EngineUnavailable, match="cannot be read"):
        read_scores(body, [[1, 7]], top=0)


def test_scoring_refuses_what_the_server_refuses(plain):
    """An unknown token is HTTP 400."""
    with pytest.raises(InvalidInput, match="out of vocabulary"):
        plain.score([[5, 10**6]])


def test_addresses_without_http_are_refused():
    """One line with the form that is expected."""
    with pytest.raises(InvalidInput, match="http://host:port"):
        EngineClient("localhost:8000")


def test_scores_are_the_log_probabilities_of_the_decoded_tokens(plain, speculative):
    """Scoring an answer on the plain server gives what both servers said while they made it; batches change nothing."""
    prompt = plain.tokenize("def add(a")
    answers = [client.complete(prompt, max_tokens=12, logprobs=3, ignore_eos=True) for client in (plain, speculative)]
    ids = [*prompt, *answers[0].token_ids]

    alone, again, _ = plain.score([ids, ids, ids[:5]], top=3, batch=2)

    scored = alone[len(prompt) - 1 :]
    assert again == alone
    assert len(alone) == len(ids) - 1
    assert [entry.token for entry in scored] == list(answers[0].token_ids)
    assert [entry.rank for entry in scored] == [1] * 12
    for answer in answers:
        assert [entry.logprob for entry in scored] == pytest.approx(answer.logprobs, abs=1e-4)
        assert [dict(entry.top) for entry in scored] == [pytest.approx(dict(top), abs=1e-4) for top in answer.top_logprobs]


def test_the_whole_law_can_be_asked_for(plain):
    """Depth -1 reports the vocabulary, and its masses sum to 1."""
    ((entry,),) = plain.score([[5, 6]], top=-1)

    assert len(entry.top) == plain.server_info()["specops"]["vocab_size"]
    assert sum(math.exp(value) for _, value in entry.top) == pytest.approx(1, abs=1e-5)
