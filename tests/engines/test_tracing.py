"""Traces of a real server: who is traced, what is recorded, and that a broken disk costs traces only."""

import json
import time

import openai
import pytest

from specops.core.trace import Cut, Hand, Rule, Trace
from specops.engines.config import ServerConfig
from specops.engines.exposition import EngineMetrics
from specops.engines.process import serve_command
from specops.engines.tracing import TraceChoice, TraceWriter
from specops.errors import InvalidInput
from tests.engines.conftest import served

ASK = {"model": "tiny", "prompt": "one two three one two", "max_tokens": 12, "seed": 5}


@pytest.fixture
def traced(pair):
    """Return a function that starts a speculative server and gives an OpenAI client, and the list that it traces into."""
    import contextlib  # noqa: PLC0415

    with contextlib.ExitStack() as stack:

        def start(mode="off", share=0.01, sink=None):
            traces = []
            config = ServerConfig(
                model=pair[0], draft=pair[1], method="draft_model", num_speculative_tokens=3, served_model_name="tiny",
                drain_s=1, trace=TraceChoice(mode=mode, share=share),
            )  # fmt: skip
            url, engine = stack.enter_context(served(config, sink=sink or traces.append))
            client = stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0))
            return client, traces, engine

        yield start


def eventually(condition):
    """Wait until something holds; the writer is another thread."""
    for _ in range(400):
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_a_full_trace_tells_the_answer(traced):
    """Ids, settings, digests, rounds and the end; the same tokens as the client got, and JSON there and back."""
    client, traces, engine = traced("full")

    answer = client.completions.create(**ASK, temperature=1.0, extra_body={"ignore_eos": True, "return_token_ids": True})

    assert eventually(lambda: traces)
    (trace,) = traces
    assert trace.request_id == answer.id
    assert list(trace.emitted) == answer.choices[0].token_ids
    assert trace.text_tokens == answer.usage.completion_tokens == 12
    assert trace.ended is Cut.LENGTH
    assert trace.settings["seed"] == 5
    assert trace.settings["rule"] == Rule.TOKEN
    assert trace.engine["target_sha256"] == engine.facts["target"]["weights_sha256"]
    assert trace.engine["draft_sha256"] == engine.facts["draft"]["weights_sha256"]
    assert sum(each.accepted for each in trace.rounds) == trace.accepted > 0
    assert trace.prefill_s > 0
    assert Trace.from_record(json.loads(json.dumps(trace.to_record()))) == trace
    assert "specops_trace_written_total" in engine.metrics.render(running=0, waiting=0)


def test_a_request_decides_for_itself(traced):
    """Against the mode, both ways; each of several answers has a trace of its own."""
    client, traces, _ = traced("off")

    client.completions.create(**ASK)
    answer = client.completions.create(**ASK, temperature=1.0, n=2, extra_body={"specops_trace": True})
    assert eventually(lambda: len(traces) == 2)
    assert {each.request_id for each in traces} == {f"{answer.id}-0", f"{answer.id}-1"}
    with pytest.raises(openai.BadRequestError, match="specops_trace must be true or false"):
        client.completions.create(**ASK, extra_body={"specops_trace": "yes"})

    client, traces, _ = traced("full")
    client.completions.create(**ASK, extra_body={"specops_trace": False})
    client.completions.create(**ASK)
    assert eventually(lambda: traces)
    assert len(traces) == 1


def test_a_stop_string_and_a_client_that_leaves_are_told_apart(traced):
    """Who ended the answer is in the record."""
    client, traces, _ = traced("full")
    whole = client.completions.create(**ASK).choices[0].text
    assert eventually(lambda: len(traces) == 1)

    client.completions.create(**ASK, stop=[whole[2:4]])
    with client.completions.create(**ASK | {"max_tokens": 220}, stream=True, extra_body={"ignore_eos": True}) as stream:
        next(iter(stream))

    assert eventually(lambda: len(traces) == 3)
    assert traces[1].ended is Cut.STOP_TEXT
    assert traces[1].text_tokens <= len(traces[1].emitted)
    assert traces[2].ended is Cut.ABORT
    assert traces[2].controls[-1].hand is Hand.HUMAN


def test_a_sink_that_fails_costs_traces_only(traced):
    """The request is answered, the loss is counted."""

    def broken(trace):
        raise OSError("disk full")

    client, _, engine = traced("full", sink=broken)

    assert client.completions.create(**ASK).usage.completion_tokens > 0
    lost = 'specops_trace_failed_total{model_name="tiny",engine="0"} 1'
    assert eventually(lambda: lost in engine.metrics.render(running=0, waiting=0))


def test_a_writer_that_is_too_slow_drops_and_counts(monkeypatch):
    """Nothing waits for it."""
    import threading  # noqa: PLC0415

    from specops.engines import tracing  # noqa: PLC0415

    monkeypatch.setattr(tracing, "MOST_WAITING", 1)
    metrics, gate = EngineMetrics(model_name="m", num_speculative_tokens=0, max_model_len=8), threading.Event()
    writer = TraceWriter(lambda trace: gate.wait(10), metrics)
    line = type("Line", (), {"request_id": "a"})()
    for _ in range(4):
        writer.put(line)
    gate.set()
    writer.close()

    text = metrics.render(running=0, waiting=0)
    written = int(text.split('specops_trace_written_total{model_name="m",engine="0"} ')[1].split()[0])
    failed = int(text.split('specops_trace_failed_total{model_name="m",engine="0"} ')[1].split()[0])
    assert written + failed == 4
    assert failed >= 2


def test_a_sample_depends_on_the_id_alone():
    """About its share, the same again each time, and a smaller share takes of the same."""
    ids = [f"cmpl-{i}" for i in range(4_000)]
    tenth, half = TraceChoice(mode="sampled", share=0.1), TraceChoice(mode="sampled", share=0.5)

    taken = [each for each in ids if tenth.takes(each, None)]

    assert 300 < len(taken) < 500
    assert all(half.takes(each, None) for each in taken)
    assert not TraceChoice().takes("a", None)
    assert TraceChoice(mode="full").takes("a", None)
    assert TraceChoice().takes("a", True)


@pytest.mark.parametrize("fields", [{"mode": "loud"}, {"share": 0.0}, {"share": 1.5}])
def test_a_choice_that_makes_no_sense_is_refused(fields):
    """Before anything is loaded."""
    with pytest.raises(InvalidInput, match=r"expected one of|in \(0, 1\]"):
        TraceChoice(**fields)


def test_the_command_line_and_the_record_keep_the_choice(pair):
    """Nothing is lost on the way to a subprocess."""
    config = ServerConfig(model=pair[0], trace=TraceChoice(mode="sampled", share=0.25))

    assert "--trace sampled --trace-sample 0.25" in " ".join(serve_command(config))
    assert ServerConfig.from_record(json.loads(json.dumps(config.to_record()))) == config
