"""From an outcome backward: every finding from a toy trace that has its cause, and none from one that has not."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specops.core.trace import Alternative, Cap, Control, Cut, Hand, Rule
from specops.core.trace_finding import Topic
from specops.core.trace_parting import gap_nats, place_of
from specops.core.trace_script import script_change, script_shares
from specops.core.trace_why import why
from tests.traces import make_trace, plain_trace

FINE = [3, 4, 2, 4, 3, 4, 3, 2, 4, 3, 4, 3]
FAST = (0.0005, 0.004, 0.0001, 0.0001)


def fine(**given):
    """Return a trace in which nothing stands out: it ended by a stop token."""
    return make_trace(FINE, **{"ended": Cut.STOP_TOKEN, "stage_s": FAST} | given)


def topics(found):
    """Return the topics of all findings, in order."""
    return [each.topic for each in found.findings]


def only(found, topic):
    """Return the one finding of a topic."""
    (one,) = [each for each in found.findings if each.topic is topic]
    return one


def greedy(trace, *, rounds=None):
    """Return the trace as if its rounds had been greedy, with a dtype."""
    lines = rounds or trace.rounds
    return replace(
        trace, engine={"dtype": "float32"}, rounds=tuple(replace(line, rule=Rule.GREEDY, is_one_hot=True) for line in lines)
    )


def test_nothing_stands_out_where_nothing_does():
    """High acceptance, little overhead, a natural end: no finding is made up."""
    found = why(fine(), text=lambda _: "word ")

    assert found.summary == "nothing stands out"
    assert found.ended == "ended by a stop token after 52 tokens"
    assert found.not_judged == ()


def test_three_rounds_are_too_few_to_blame_the_draft():
    """All were rejected, and it is said that this is not enough."""
    found = why(make_trace([0, 0, 0], ended=Cut.STOP_TOKEN))

    assert found.findings == ()
    assert found.not_judged[0] == "rejections: 3 rounds with proposals, 8 are needed"


def test_slow_from_a_token_on():
    """Twelve good rounds, then rejection at position 0: where, how often, with what entropy."""
    found = why(make_trace([3] * 12 + [0] * 14, draft_nats=[0.7] * 12 + [2.9] * 14, ended=Cut.STOP_TOKEN))

    rejected, entropy = only(found, Topic.REJECTION), only(found, Topic.ENTROPY)
    assert rejected.sentence == "100% of rounds rejected at position 0 from token 49 on (0% before)"
    assert rejected.rounds == entropy.rounds == (13, 26)
    assert rejected.evidence["p_value"] < 1e-5
    assert entropy.sentence == "draft entropy high there: 2.90 nats, 0.70 elsewhere"


def test_slow_until_a_token():
    """The other way round, the bad part is the first."""
    found = only(why(make_trace([0] * 14 + [3] * 12)), Topic.REJECTION)

    assert found.sentence == "100% of rounds rejected at position 0 up to token 14 (0% after)"
    assert found.rounds == (1, 14)


def test_slow_throughout():
    """Rejections without a change are one share; a draft that is sure of the wrong token is named."""
    found = why(make_trace([0, 0, 1] * 8, draft_nats=0.2))

    assert only(found, Topic.REJECTION).sentence == "67% of 24 rounds rejected at position 0, throughout"
    assert only(found, Topic.ENTROPY).sentence == "draft entropy low there, yet rejected: 0.20 nats"


def test_rounds_without_proposals_do_not_count_as_rejected():
    """Accepted 0 of 0 is no rejection."""
    found = why(make_trace(FINE + [0] * 12, k=[4] * 12 + [0] * 12, ended=Cut.STOP_TOKEN, stage_s=FAST))

    assert Topic.REJECTION not in topics(found)


def test_a_one_hot_draft_has_no_entropy_to_judge():
    """Greedy proposals have entropy 0 by definition; that is no confidence."""
    trace = make_trace([0] * 12)
    rounds = tuple(replace(line, is_one_hot=True, draft_entropies_nats=(0.0,) * 4) for line in trace.rounds)

    found = why(replace(trace, rounds=rounds))

    assert Topic.ENTROPY not in topics(found)
    assert "draft entropy: the draft chose without chance" in found.not_judged


def test_the_script_changes_where_rejections_begin():
    """Latin before, Cyrillic from there on."""
    trace = make_trace([3] * 12 + [0] * 14)
    text = lambda token: "word" if token < 149 else "слово"  # tokens are 100 + position in the text; 52 are known then

    found = only(why(trace, text=text), Topic.SCRIPT)

    assert "script changed from token 49 on: latin" in found.sentence
    assert found.sentence.endswith("cyrillic 100%")
    assert found.rounds == (13, 26)


def test_speed_is_measured_against_the_plain_request_where_there_is_one():
    """5 ms a plain token over 6 ms a round of one token."""
    trace = make_trace([0] * 12, ended=Cut.STOP_TOKEN)
    plain = plain_trace(trace.emitted[1:], stage_s=(0.0, 0.005, 0.0, 0.0))

    found = why(trace, plain)

    assert found.speedup == pytest.approx(5 / 6)
    assert only(found, Topic.SPEED).sentence.startswith("slow: 0.83 times the speed of plain decoding (measured on the plain")
    assert Topic.PLAIN not in topics(found)


def test_speed_without_a_plain_request_is_a_bound_or_from_own_rounds():
    """Scoring a block costs at least a plain pass; rounds without proposals are plain passes."""
    bound = why(make_trace([1] * 8))
    stage_s = [(0.002, 0.004, 0.0, 0.0)] * 8 + [(0.0, 0.003, 0.0, 0.0)] * 4
    own = why(make_trace([1] * 8 + [0] * 4, k=[4] * 8 + [0] * 4, stage_s=stage_s))

    assert (bound.speedup, bound.speedup_basis[:7]) == (pytest.approx(4 / 3), "at most")
    assert own.speedup == pytest.approx(0.003 / (0.060 / 20))
    assert own.speedup_basis == "from 4 rounds without proposals"
    assert why(plain_trace([5, 6])).speedup is None


def test_the_stage_that_takes_the_time_is_named():
    """A draft beyond half, bookkeeping beyond a fifth."""
    found = why(fine(stage_s=(0.006, 0.002, 0.001, 0.001)))

    words = [each.sentence for each in found.findings if each.topic is Topic.STAGE]
    assert words == ["the draft takes 60% of round time", "accept and resample take 20% of round time"]


def test_time_before_the_first_round_is_named():
    """Queue and prefill, as shares of the request."""
    found = why(fine(queue_s=0.4, prefill_s=0.6))

    assert only(found, Topic.QUEUE).sentence.startswith("waited in the queue for 0.4 s, ")
    assert only(found, Topic.PREFILL).evidence["share"] == pytest.approx(0.6 / 1.0564)


def test_caps_that_hold_proposals_down_are_counted():
    """Room at the end of an answer is no cap; a few rounds are none either."""
    found = only(why(fine(cap=[Cap.BATCH] * 4 + [Cap.NONE] * 7 + [Cap.ROOM])), Topic.CAP)

    assert found.sentence == "proposals held down in 4 of 12 rounds: 4 by the batch"
    assert found.rounds == (1, 4)
    assert Topic.CAP not in topics(why(fine(cap=[Cap.BATCH] * 2 + [Cap.ROOM] * 10)))


@pytest.mark.parametrize(
    ("ended", "text_tokens", "topic", "words"),
    [
        (Cut.LENGTH, 52, Topic.CUT, "cut by the length limit after 52 tokens"),
        (Cut.STOP_TEXT, 50, Topic.CUT, "cut by a stop text: 2 of 52 tokens never reached the client"),
        (Cut.ABORT, 52, Topic.BROKEN, "aborted after 52 tokens"),
        (Cut.ERROR, 52, Topic.BROKEN, "ended by an error after 52 tokens"),
    ],
)
def test_short_says_what_cut_it(ended, text_tokens, topic, words):
    """One finding for each end that leaves an answer short."""
    found = why(fine(ended=ended, text_tokens=text_tokens))

    assert topics(found) == [topic]
    assert found.summary == words


def test_a_running_request_says_so():
    """No end is no end."""
    assert why(fine(ended=None)).ended == "still running after 52 tokens"


def test_controls_of_software_and_people_are_named():
    """The algorithm's own are not."""
    controls = (
        Control(after_round=2, hand=Hand.HUMAN, what="k set to 1 by on-call"),
        Control(after_round=3, hand=Hand.ALGORITHM, what="ordinary"),
    )
    found = only(why(fine(controls=controls)), Topic.CONTROL)

    assert found.sentence == "controlled from outside: k set to 1 by on-call (human, behind round 2)"
    assert found.rounds == (2, 2)


def test_a_near_tie_explains_a_difference():
    """First at token 2, in round 1 at position 1: the two tokens' log probabilities differ by less than rounding."""
    trace = make_trace([2, 4])
    line, last = trace.rounds
    near = (Alternative(token=105, target_prob=0.4), Alternative(token=500, target_prob=0.39990))
    line = replace(line, alternatives=(line.alternatives[0], near, *line.alternatives[2:]))
    trace = greedy(trace, rounds=[line, last])
    plain = greedy(plain_trace([104, 500, 501]))

    found = only(why(trace, plain), Topic.PLAIN)

    assert found.sentence == (
        "differs from plain: first at token 2 (105, plain 500), near-tie, gap 0.00025 nats;"
        " chosen by accept at position 1 of round 1, after the prefill"
    )
    assert found.next_step.startswith("none")


def test_a_gap_beyond_rounding_is_a_defect():
    """The same place with a gap of half a nat."""
    trace, plain = greedy(make_trace([2, 4])), greedy(plain_trace([104, 800]))

    found = only(why(trace, plain), Topic.PLAIN)

    assert "no near-tie: gap 0.511 nats" in found.sentence
    assert "not lossless" in found.next_step


def test_unlisted_tokens_leave_nearness_open():
    """Nothing is claimed of a token that the trace does not list."""
    found = only(why(greedy(make_trace([2, 4])), greedy(plain_trace([104, 555]))), Topic.PLAIN)

    assert "nearness is unknown" in found.sentence
    assert found.evidence["gap_nats"] is None


def test_sampled_answers_may_differ():
    """A sampled difference is not called a defect."""
    found = only(why(make_trace([2, 4]), plain_trace([104, 800])), Topic.PLAIN)

    assert "both sampled, so they may differ (gap 0.511 nats)" in found.sentence


def test_other_differences_from_plain():
    """The prefill's token, an answer that ended, another prompt."""
    other_first = replace(greedy(plain_trace([])), first=(98,))
    found = only(why(greedy(make_trace([2])), other_first), Topic.PLAIN)
    assert found.sentence.endswith("chosen by the prefill")
    assert found.rounds == (0, 0)
    assert "no near-tie: gap 0.405" in found.sentence

    ended = only(why(greedy(make_trace([0])), greedy(plain_trace([104, 105]))), Topic.PLAIN)
    assert ended.sentence.endswith("(ended, plain 105), where one of them ended; this answer had ended")
    second = only(why(greedy(make_trace([0, 0])), greedy(plain_trace([104]))), Topic.PLAIN)
    assert "chosen by recovered at position 0 of round 2, after round 1" in second.sentence

    prompt = only(why(make_trace([2]), plain_trace([], prompt_ids=(1, 2, 9))), Topic.PLAIN)
    assert prompt.sentence == "cmpl-plain is another request: the prompts part at token 2"


@given(st.lists(st.integers(0, 4), max_size=12), st.data())
def test_every_token_has_its_place(accepted, data):
    """Place by place, the answer is the trace's rounds in order."""
    trace = make_trace(accepted)
    at = data.draw(st.integers(0, len(trace.emitted)))

    place = place_of(trace, at)

    if place is None:
        assert at == len(trace.emitted)
    elif place.round_number == 0:
        assert at == 0
    else:
        line = trace.rounds[place.round_number - 1]
        assert line.emitted[place.position] == trace.emitted[at]
        assert (place.decided_by == "accept") == (place.position < line.accepted)


def test_no_logarithm_of_nothing():
    """A probability of 0 at temperature 0 has no gap, nor has a token that is not listed."""
    listed = (Alternative(token=1, target_prob=1.0), Alternative(token=2, target_prob=0.0))

    assert gap_nats(listed, 1, 2) is None
    assert gap_nats(listed, 1, 3) is None
    assert gap_nats(listed, 1, None) is None


def test_scripts_are_counted_by_letters():
    """Digits, marks and blanks are no letters; a short text changes nothing."""
    assert script_shares("ab жя 12!") == {"LATIN": 0.5, "CYRILLIC": 0.5}
    assert script_change("word" * 9, "дом") is None
    assert script_change("word" * 9, "other" * 9) is None
    assert script_change("word" * 9, "дом" * 9).words == "latin 100% -> cyrillic 100%"


def test_an_explanation_is_json():
    """Every finding with its numbers."""
    record = json.loads(json.dumps(why(make_trace([3] * 12 + [0] * 14)).to_record()))

    assert record["findings"][0]["evidence"]
    assert record["summary"]


@given(st.lists(st.integers(0, 4), max_size=30), st.sampled_from([*Cut, None]))
def test_every_trace_can_be_explained(accepted, ended):
    """No trace makes it fail, and every finding's rounds exist."""
    trace = make_trace(accepted, ended=ended)
    found = why(trace, trace, text=chr)

    assert Topic.PLAIN not in topics(found)
    for each in found.findings:
        assert each.rounds is None or 0 <= each.rounds[0] <= each.rounds[1] <= len(accepted)
