"""Requests that share forwards: each gets what it gets alone, whoever joins, leaves or ends beside it."""

from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specops.decoding.batch import Batch, DynamicK
from specops.decoding.draft import ModelDraft
from specops.decoding.lookup import NgramDraft
from specops.decoding.loop import generate
from specops.decoding.request import Request
from specops.errors import EngineUnavailable, InvalidInput

SLOTS = 3


def alone(target, draft, request):
    """Return the tokens and the ending of a request that runs by itself."""
    steps = list(generate(target, draft, request))
    return tuple(chain(*(s.tokens for s in steps))), steps[-1].finish


class Run:
    """A batch driven to its end, with what each row got."""

    def __init__(self, target, draft, **options):
        self.batch = Batch(target=target, draft=draft, slots=SLOTS, **options)
        self.got = {}

    def join(self, request):
        """Let a request join."""
        row = self.batch.join(request)
        self.got[row] = ([], None)
        return row

    def round(self):
        """Advance everybody once and check that each cache is where its text is."""
        for row, step in self.batch.round():
            assert not isinstance(step, Exception), step
            tokens, _ = self.got[row]
            self.got[row] = (tokens + list(step.tokens), step.finish)
        for row in self.batch.rows:
            assert row.speculation.cache.length == len(row.speculation.committed) - 1
        slots = [row.speculation.cache.slot for row in self.batch.rows]
        assert len(set(slots)) == len(slots)

    def to_end(self):
        """Run until nobody is left."""
        while self.batch.rows:
            self.round()


requests = st.builds(
    Request,
    prompt_ids=st.lists(st.integers(0, 47), min_size=1, max_size=12).map(tuple),
    max_tokens=st.integers(1, 24),
    temperature=st.sampled_from([0.0, 0.0, 0.8]),
    seed=st.integers(0, 1000),
    stop_ids=st.sampled_from([(), (7, 9, 11)]),
    k=st.sampled_from([None, 0, 1, 2, 6]),
    ignore_eos=st.booleans(),
)
histories = st.lists(st.one_of(requests, st.just("round"), st.tuples(st.just("leave"), st.integers(0, 2))), max_size=14)


def check(pair, history, kind):
    """Play a history and compare every request with its run alone; one that was cancelled with a prefix of it."""
    target, small = pair
    draft = {"model": ModelDraft(small, 3), "lookup": NgramDraft(3, 3, 1), "plain": None}[kind]
    run, asked, cancelled = Run(target, draft), {}, set()
    for event in history:
        if isinstance(event, Request):
            while not run.batch.free:
                run.round()
            asked[run.join(event)] = event
        elif event == "round":
            run.round()
        elif event[1] < len(run.batch.rows):
            row = run.batch.rows[event[1]]
            cancelled.add(row)
            run.batch.leave(row)
    run.to_end()

    for row, request in asked.items():
        tokens, finish = run.got[row]
        expected, ending = alone(target, draft, request)
        assert tuple(tokens) == expected[: len(tokens)]
        assert row in cancelled or (len(tokens), finish) == (len(expected), ending)
    assert run.batch.free == SLOTS


KINDS = st.sampled_from(["model", "lookup", "plain"])
FIXTURE_IS_READ_ONLY = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)


@given(history=histories, kind=KINDS)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=FIXTURE_IS_READ_ONLY)
def test_any_history_equals_requests_alone(pair, history, kind):
    """Join, cancel, stop inside a block, another k, the length limit: nobody sees a neighbour."""
    check(pair, history, kind)


@pytest.mark.exhaustive
@given(history=histories, kind=KINDS)
@settings(max_examples=10_000, deadline=None, derandomize=True, suppress_health_check=FIXTURE_IS_READ_ONLY)
def test_ten_thousand_histories_equal_requests_alone(pair, history, kind):
    """The same law, at length."""
    check(pair, history, kind)


@pytest.mark.parametrize("dynamic", [DynamicK(by_batch=((1, 4), (2, 1))), DynamicK(by_acceptance=True)])
def test_a_dynamic_k_changes_no_token(pair, dynamic):
    """At temperature 0 the number of proposals is a matter of speed."""
    target, small = pair
    run = Run(target, ModelDraft(small, 4), dynamic=dynamic)
    asked = {run.join(r): r for r in (Request(prompt_ids=(3, 1, i), max_tokens=20, ignore_eos=True) for i in range(3))}

    run.to_end()

    for row, request in asked.items():
        assert tuple(run.got[row][0]) == alone(target, None, request)[0]


def test_k_follows_the_size_of_the_batch():
    """Each size has its k; beyond the table nothing is drafted; without a table nothing is limited."""
    rule = DynamicK(by_batch=((1, 4), (4, 2)))

    assert [rule.most(n) for n in (1, 2, 4, 5)] == [4, 2, 2, 0]
    assert DynamicK().most(99) is None


@pytest.mark.parametrize("table", [((4, 2), (1, 4)), ((1, 2), (1, 3)), ((0, 1),), ((1, -1),)])
def test_a_table_out_of_order_is_refused(table):
    """It would be read wrongly without a sign."""
    with pytest.raises(InvalidInput, match="expected rising batch sizes"):
        DynamicK(by_batch=table)


def test_a_full_batch_and_a_bad_prompt_take_no_slot(pair):
    """Both are refused, and the next request finds its slot."""
    run = Run(pair[0], None)
    with pytest.raises(InvalidInput, match="token ids"):
        run.batch.join(Request(prompt_ids=(999,), max_tokens=1))
    for i in range(SLOTS):
        run.join(Request(prompt_ids=(i,), max_tokens=2))

    with pytest.raises(EngineUnavailable, match="all 3 slots are taken"):
        run.batch.join(Request(prompt_ids=(1,), max_tokens=1))


def test_the_error_of_one_row_ends_only_that_row(pair):
    """The others' tokens are unchanged."""
    target, small = pair
    run = Run(target, ModelDraft(small, 3))
    request = Request(prompt_ids=(4, 2), max_tokens=10, ignore_eos=True, temperature=1.0)
    bad, good = run.join(request), run.join(request)
    run.round()

    def fail(*_args):
        raise RuntimeError("broken rule")

    bad.speculation.accept = fail
    results = dict(run.batch.round())

    assert isinstance(results[bad], RuntimeError)
    assert run.batch.rows == [good]
    assert results[good].tokens
