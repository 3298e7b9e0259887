"""Evidence beyond fixed limits: pinned acceptance, strata, pairs, and two arms compared at the same time."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.core.guards import PINNED_HIGH, PINNED_LOW, Pinned
from specops.core.judge import glance, judge
from specops.core.ladder import Terms
from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.pairing import WAITING, Halves
from specops.core.policy import parse_policy
from specops.core.policy_fields import SETTLE_S
from specops.core.verdict import Result
from specops.core.window import Window, fold

SETTLE = timedelta(seconds=SETTLE_S)
T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OWNED = {"owner": "oncall", "min_requests": 8}
RICH = parse_policy({
    "name": "rich", "alpha": 0.05, "fatal": {"acceptance_pinned_low": 3, "acceptance_pinned_high": 4, "timeout": 40},
    "checks": [
        {"name": "rate", "metric": "acceptance_rate", "at_least": 0.5, "pass_margin": 0.2, "on_fail": "fallback",
         "strata": {"by": "in_flight", "edges": [4], "limits": [0.5, 0.4]}} | OWNED,
        {"name": "speedup", "metric": "speedup", "at_least": 1.2, "pass_at": 1.0, "max_wait": "1h"} | OWNED,
        {"name": "slower", "metric": "ttft_s", "against": "pairs", "at_most": {"limit_s": 1.0}, "pass_at": 0.3} | OWNED,
        {"name": "beside", "metric": "ttft_s", "against": "baseline", "at_most": {"limit_s": 1.0}, "pass_at": 0.3,
         "only": {"in_flight_at_most": 16}} | OWNED,
        {"name": "errors", "metric": "error", "against": "baseline", "ratio": 1.5, "pass_at": 0.3} | OWNED,
        {"name": "split", "metric": "split", "owner": "gateway"},
        {"name": "alone", "metric": "e2e_s", "at_most": {"limit_s": 5.0, "share": 0.2}, "on_fail": "stop",
         "only": {"in_flight_above": 2}} | OWNED,
        {"name": "early", "metric": "acceptance_rate", "at_least": 0.65, "precursor": True} | OWNED,
    ],
})  # fmt: skip
NAMES = [check.name for check in RICH.checks]


def lead_in(share, at=T0):
    """Return a request that measures nothing, as the first at its share, long enough before a moment to compare arms then."""
    began = {"at": at - SETTLE, "e2e_s": 0.0, "finish": Finish.ABORT, "share": share, "retried_on_baseline": True}
    return Outcome(request_id="first", arm=Arm.BASELINE, kind=Kind.LIVE, release_id="x", **began)


def feed(items, *, window=None, promoted=False, share=0.5, policy=RICH):
    """Fold outcomes, all at one share that has long been in force."""
    window = window or fold(Window.empty(policy), lead_in(share), policy, promoted=promoted)
    for outcome in items:
        window = fold(window, replace(outcome, share=share), policy, promoted=promoted)
    return window


def finding(window, name, *, policy=RICH, promoted=False, now=T0):
    """Return one check's finding."""
    verdict = judge(policy, window, terms=Terms(promoted=promoted), now=now)
    return next(f for f in verdict.findings if f.check == name)


@pytest.fixture
def make_pair(make_outcome):
    """Build the two answers to one mirrored request, `gain` times as fast per token on the candidate."""

    def make(name, gain=1.5, **changes):
        base = make_outcome(None, request_id=name, arm=Arm.BASELINE, e2e_s=0.2 + 0.8 * gain)
        return base, make_outcome(request_id=name, kind=Kind.SHADOW, **changes)

    return make


# pinned acceptance


def test_a_run_of_nothing_accepted_is_fatal_and_sticks(make_outcome):
    """Three in a row fail; a good request afterwards does not talk it back."""
    window = feed([make_outcome(0.0)] * 3 + [make_outcome(0.7)])

    verdict = judge(RICH, window, terms=Terms(), now=T0)

    assert verdict.result is Result.FAIL
    assert f"3 requests of the candidate in a row had nothing accepted ({PINNED_LOW})" in verdict.reason
    pinned = judge(RICH, feed([make_outcome(1.0)] * 4), terms=Terms(promoted=True), now=T0)
    assert "in a row had everything accepted" in pinned.reason


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [((0, 8), 2, 0), ((8, 8), 0, 1), ((0, 7), 1, 0), ((4, 8), 0, 0)],
    ids=["nothing", "everything", "too short", "some"],
)
def test_a_run_counts_requests_with_enough_drafted(counts, low, high):
    """A short answer neither extends a run nor ends it; any other value does."""
    accepted, drafted = counts

    pinned = Pinned(low=1, longest_low=1).update(Acceptance(rounds=2, drafted=drafted, accepted=accepted))

    assert (pinned.low, pinned.high) == (low, high)
    assert pinned.counts == {PINNED_LOW: max(1, low), PINNED_HIGH: high}
    assert Pinned.from_record(pinned.to_record()) == pinned


# strata


def test_a_change_of_mix_is_no_alarm_and_a_bad_stratum_is(make_outcome):
    """0.45 is fine at high load and bad at low load; each stratum has its own limit and its own figures."""
    low, high = {"in_flight": 1}, {"in_flight": 9}
    fine = feed([make_outcome(0.75, **low)] * 20 + [make_outcome(0.45, **high)] * 200)
    bad = feed([make_outcome(0.45, **high)] * 100 + [make_outcome(0.25, **low)] * 60)

    good, worse = finding(fine, "rate"), finding(bad, "rate")

    assert good.result is Result.PASS
    assert worse.result is Result.FAIL
    assert [(s.label, s.n, s.limit) for s in good.strata] == [("in_flight <= 4", 20, 0.5), ("in_flight > 4", 200, 0.4)]
    assert good.strata[1].estimate == pytest.approx(0.45)


def test_a_stratum_without_enough_requests_is_not_claimed(make_outcome):
    """What is proven is proven where there was traffic, and the reason says where there was none."""
    one = finding(feed([make_outcome(0.8, in_flight=1)] * 30), "rate")
    none = finding(feed([make_outcome(0.8, in_flight=n % 2 * 8 + 1) for n in range(14)]), "rate")

    assert one.result is Result.PASS
    assert "in each stratum with 8 requests (not claimed: in_flight > 4)" in one.reason
    assert one.strata[1].estimate is None
    assert (none.result, none.pass_e_value) == (Result.PENDING, 0.0)


def test_strata_are_watched_after_promotion(make_outcome):
    """The detectors of all strata add up: a collapse in one of them is noticed."""
    window = feed([make_outcome(0.8)] * 10)
    quiet = feed([make_outcome(0.8, in_flight=9)] * 30, window=window, promoted=True)
    loud = feed([make_outcome(0.1, in_flight=9)] * 60, window=quiet, promoted=True)

    assert finding(quiet, "rate", promoted=True).result is Result.PASS
    assert finding(loud, "rate", promoted=True).result is Result.FAIL


# pairs


def test_a_speedup_is_proven_within_pairs_whichever_half_comes_first(make_pair):
    """1.5 times as fast: estimate and interval are ratios, the limit is 1.2."""
    window = feed([])
    for i in range(60):
        base, ours = make_pair(f"r{i}")
        window = feed([base, ours] if i % 2 else [ours, base], window=window)

    seen = finding(window, "speedup")

    assert (seen.result, seen.n, seen.limit) == (Result.PASS, 60, 1.2)
    assert seen.estimate == pytest.approx(1.5)
    assert 1.0 < seen.low < 1.5 < seen.high
    assert "above 1" in seen.reason
    assert window.halves == Halves()


def test_a_slowdown_fails_and_a_burst_that_slows_both_does_not(make_pair):
    """The other answer to the same request is the limit."""
    slow = {"ttft_s": 2.0, "e2e_s": 2.8}
    worse = burst = feed([])
    for i in range(60):
        base, ours = make_pair(f"r{i}", **slow)
        worse = feed([base, ours], window=worse)
        burst = feed([replace(base, ttft_s=3.0, e2e_s=4.2), ours], window=burst)

    assert finding(worse, "slower").result is Result.FAIL
    assert "is above 0" in finding(worse, "slower").reason
    assert (finding(burst, "slower").result, finding(burst, "slower").estimate) == (Result.PASS, 0.0)


def test_nothing_is_proven_before_slow_answers_can_have_ended(policy_mapping, make_outcome, make_pair):
    """The fast ones end first: they speak against a young trial and not for it; a pair is known when its slower half ends."""
    policy = parse_policy(policy_mapping | {"settle": "30s", "checks": [
        {"name": "rate", "metric": "acceptance_rate", "at_least": 0.45} | OWNED,
        {"name": "slower", "metric": "ttft_s", "against": "pairs", "at_most": {"limit_s": 1.0}, "pass_at": 0.3} | OWNED,
    ]})  # fmt: skip

    def after(seconds, rate):
        pairs = [half for i in range(60) for half in make_pair(f"r{i}")]
        first = [make_outcome(rate, at=T0)] * 60
        later = [replace(o, at=T0 + timedelta(seconds=seconds)) for o in [*[make_outcome(rate)] * 60, *pairs]]
        window = Window.empty(policy)
        for outcome in [*first, *later]:
            window = fold(window, outcome, policy, promoted=False)
        return {f.check: (f.result, f.n) for f in judge(policy, window, terms=Terms(), now=T0).findings}

    assert after(29.9, 0.8) == {"rate": (Result.PENDING, 180), "slower": (Result.PENDING, 0)}
    assert {result for result, _ in after(30.0, 0.8).values()} == {Result.PASS}
    assert after(29.9, 0.1)["rate"][0] is Result.FAIL


def test_halves_wait_in_a_short_queue(make_outcome):
    """The oldest goes first; a candidate's half that goes is a request without a value, a baseline's is not."""
    ours = [make_outcome(request_id=f"c{i}", kind=Kind.SHADOW) for i in range(WAITING + 3)]
    theirs = [make_outcome(None, request_id=f"b{i}", arm=Arm.BASELINE) for i in range(WAITING + 3)]

    mine, other = feed(ours), feed(theirs)

    assert (len(mine.halves.ids), mine.tracks[1].gap, mine.halves.ids[0]) == (WAITING, 3, "c3")
    assert (len(other.halves.ids), other.tracks[1].gap) == (WAITING, 0)


def test_halves_are_stored_without_what_has_its_default(make_outcome):
    """The queue is written with every pass; a restart still joins the same pairs, and reads what an older release wrote."""
    waiting = Halves().join(make_outcome(kind=Kind.SHADOW, text_sha256="a" * 64))[0].join(make_outcome(request_id="b"))[0]

    stored = json.loads(json.dumps(waiting.to_record()))

    assert "text_sha256" in stored[0]
    assert not {"error", "in_flight", "assigned", "text_sha256"} & set(stored[1])
    assert Halves.from_record(stored) == Halves.from_record([o.to_record() for o in waiting.outcomes]) == waiting


def test_a_slow_twin_is_joined_behind_many_that_were_never_mirrored(make_outcome, make_pair):
    """A thousand live requests end while one mirrored answer is on its way; the pair is a sample, and no gap."""
    base, ours = make_pair("slow")
    others = [replace(base, request_id=f"r{n}") for n in range(1_000)]

    window = feed([base, *others, ours])

    assert (window.tracks[1].moments.n, window.tracks[1].gap) == (1, 0)


def test_an_id_sent_twice_replaces_its_half(make_outcome):
    """Two answers of one arm are no pair."""
    once = make_outcome(None, request_id="r", arm=Arm.BASELINE)
    twice = replace(once, e2e_s=9.0)

    halves, twin, gone = Halves().join(once)[0].join(twice)
    mine = Halves().join(replace(once, arm=Arm.CANDIDATE))[0].join(replace(once, arm=Arm.CANDIDATE))

    assert (halves.outcomes, twin, gone) == ((twice,), None, None)
    assert mine[2] is not None


def test_a_pair_without_a_value_is_a_gap(make_pair):
    """One token has no time per token; an answer that failed has none either, and is no silence of the metric."""
    base, ours = make_pair("a", completion_tokens=1)
    failed = [replace(half, request_id="b") for half in (base, ours)]
    failed[1] = replace(failed[1], finish=Finish.ERROR)
    broken = [replace(base, request_id="c", finish=Finish.ERROR), replace(ours, request_id="c", completion_tokens=9)]

    window = feed([base, ours, *failed, *broken])

    assert [window.tracks[i].moments.n for i in (1, 2)] == [0, 1]
    assert [window.tracks[i].gap for i in (1, 2)] == [2, 1]


def test_pairs_outside_a_scope_are_left_out(make_pair, policy_mapping):
    """Neither a sample nor a gap, joined or given up."""
    rule = {"name": "s", "metric": "speedup", "at_least": 1.2, "only": {"in_flight_at_most": 4}, "owner": "o"}
    policy = parse_policy(policy_mapping | {"checks": [*policy_mapping["checks"], rule]})
    given_up = [make_pair(f"g{i}", in_flight=9)[1] for i in range(WAITING + 1)]

    window = feed([*make_pair("a", in_flight=9), *given_up], policy=policy)

    assert (window.tracks[3].moments.n, window.tracks[3].gap) == (0, 0)


# two arms at the same time


def test_errors_of_the_candidate_alone_fail_and_errors_of_both_do_not(make_outcome):
    """At half the traffic, errors that all come from one arm are no chance; an outage of both is."""
    ours = make_outcome(finish=Finish.ERROR, error="engine_5xx")
    theirs = make_outcome(None, arm=Arm.BASELINE, finish=Finish.ERROR, error="engine_5xx")

    alone, both = feed([ours] * 20), feed([ours, theirs] * 20)

    assert finding(alone, "errors").result is Result.FAIL
    assert "above 1.5 times the baseline's, by the arm of 20 bad requests" in finding(alone, "errors").reason
    assert finding(both, "errors").result is not Result.FAIL
    assert both.tracks[4].baseline.mean == 1.0


def test_slow_answers_are_compared_at_the_same_time(make_outcome):
    """Passing is proven on the candidate's own share; the reason shows the baseline's."""
    slow = {"ttft_s": 2.0, "e2e_s": 2.8}
    theirs = make_outcome(None, arm=Arm.BASELINE)

    good = finding(feed([make_outcome(), theirs] * 30), "beside")
    bad = finding(feed([make_outcome(**slow), theirs] * 30), "beside")

    assert (good.result, bad.result) == (Result.PASS, Result.FAIL)
    assert "is above the baseline's (0.00 at the same time)" in bad.reason
    assert "against the baseline e-value" in finding(feed([make_outcome(**slow)] * 4 + [make_outcome()] * 4), "beside").reason


@pytest.mark.parametrize(
    "changes",
    [{"share": None}, {"share": 0.0}, {"share": 1.0}, {"kind": Kind.SHADOW}],
    ids=["unknown share", "no live", "all live", "mirrored"],
)
def test_without_traffic_on_both_arms_nothing_is_learnt(make_outcome, changes):
    """A comparison needs a known share between 0 and 1, and live requests."""
    share = changes.get("share", 0.5)
    outcome = make_outcome(finish=Finish.ERROR, error="timeout", kind=changes.get("kind", Kind.LIVE))

    window = feed([outcome] * 10, share=share)

    assert [window.tracks[i].rival.n for i in (4, 5)] == [0, 0]
    assert "split" not in {f.check for f in judge(RICH, window, terms=Terms(), now=T0).findings}


def test_a_broken_split_is_an_error_and_no_fault_of_the_candidate(make_outcome):
    """Twice the weight's share, or half of it: comparisons are void, everything holds; a retry counts once."""
    ours, theirs = make_outcome(0.8), make_outcome(None, arm=Arm.BASELINE)
    retried = replace(theirs, assigned=Arm.CANDIDATE, retried_on_baseline=True)

    many, few = feed([ours] * 60, share=0.5), feed([theirs] * 300, share=0.2)
    right = feed([ours, theirs, retried] * 40)

    assert finding(many, "split").result is finding(few, "split").result is Result.ERROR
    assert "not split as the weight says" in finding(many, "split").reason
    assert "then: specops rollout pause ID, and rollout retry ID" in finding(many, "split").reason
    assert finding(right, "split").result is Result.PASS
    assert right.tracks[5].rival.n == 80


def test_a_change_of_the_share_is_no_evidence(make_outcome):
    """Answers of the slower arm come 20 s later: the first ones at a new share all end on the faster one, and prove nothing."""
    late = T0 + SETTLE
    fast = [make_outcome(None, arm=Arm.BASELINE, at=T0 + timedelta(seconds=n / 4)) for n in range(80)]
    slow = [make_outcome(e2e_s=20.0, at=T0 + timedelta(seconds=20 + n / 4)) for n in range(36)]
    both = [make_outcome(at=late), make_outcome(None, arm=Arm.BASELINE, at=late)] * 40
    straggler = make_outcome(e2e_s=25.0, at=T0 + timedelta(seconds=1), share=0.1)

    window = Window.empty(RICH)
    for outcome in [replace(o, share=0.5) for o in fast[:4]] + [straggler] + [replace(o, share=0.5) for o in fast[4:] + slow]:
        window = fold(window, outcome, RICH, promoted=False)
    settled = feed([replace(o, at=late + SETTLE) for o in both], window=window)

    assert (window.tracks[5].rival.n, window.share) == (0, 0.5)
    assert (settled.tracks[5].rival.n, finding(settled, "split").result) == (80, Result.PASS)


def test_a_new_share_settles_anew_and_a_straggler_does_not_turn_it_back(make_outcome):
    """What began before the change belongs to the old share; an answer without a length that makes sense stops nothing."""
    ends = lambda share, seconds, e2e_s=1.0: make_outcome(share=share, e2e_s=e2e_s, at=T0 + timedelta(seconds=seconds))
    moments = [ends(0.5, 0), ends(0.2, 40), ends(0.5, 41, 10.0), ends(0.2, 60), ends(0.2, 70), ends(0.7, 80, math.inf),
               ends(0.7, 81, math.nan)]  # fmt: skip

    window, seen = fold(Window.empty(RICH), lead_in(0.5), RICH, promoted=False), []
    for outcome in moments:
        window = fold(window, outcome, RICH, promoted=False)
        seen.append((window.share, window.tracks[5].rival.n))

    assert seen == [(0.5, 1), (0.2, 1), (0.2, 1), (0.2, 1), (0.2, 2), (0.2, 2), (0.2, 2)]
    assert window.share_since == T0 + timedelta(seconds=39)


def test_comparisons_end_with_promotion(make_outcome):
    """All traffic is the candidate's: only fixed limits speak."""
    window = feed([make_outcome(in_flight=3)] * 20, promoted=True, share=1.0)

    assert [f.check for f in judge(RICH, window, terms=Terms(promoted=True), now=T0).findings] == ["rate", "alone", "early"]


def test_pairs_that_still_come_are_watched_after_promotion(make_pair):
    """Probes may go on: the detector of a speed-up then speaks."""
    window = feed([])
    for i in range(80):
        window = feed(make_pair(f"r{i}", gain=0.4), window=window, promoted=True)

    assert finding(window, "speedup", promoted=True).result is Result.FAIL


def test_a_policy_that_is_silent_after_promotion_is_an_error(policy_mapping, make_outcome):
    """No data never passes: nothing to say is not PASS."""
    rule = {"name": "s", "metric": "speedup", "at_least": 1.2, "owner": "o"}
    policy = parse_policy(policy_mapping | {"checks": [rule]})

    verdict = judge(policy, feed([make_outcome()], policy=policy), terms=Terms(promoted=True), now=T0)

    assert verdict.result is glance(policy, Window.empty(policy), terms=Terms(promoted=True), now=T0) is Result.ERROR
    assert "has anything to say at this stage" in verdict.reason


# waits, precursors, actions, sources


def test_undecided_for_too_long_is_inconclusive(make_pair):
    """After an hour the speed-up check gives up; resumed by hand, its wait begins anew."""
    window = feed(make_pair("r0"))

    late = T0 + timedelta(hours=2)

    assert finding(window, "speedup").result is Result.PENDING
    assert finding(window, "speedup", now=late).result is Result.INCONCLUSIVE
    assert "waited 2.0 h of 1.0 h, a person must decide" in finding(window, "speedup", now=late).reason
    resumed = judge(RICH, window, terms=Terms(waiting_since=late), now=late)
    assert Result.INCONCLUSIVE not in {f.result for f in resumed.findings}


def test_a_precursor_alerts_and_decides_nothing(make_outcome):
    """0.6 is fine for the check and low for its precursor."""
    theirs = make_outcome(None, arm=Arm.BASELINE)
    window = feed([make_outcome(0.55), theirs] * 150)

    verdict = judge(RICH, window, terms=Terms(), now=T0)

    assert [f.check for f in verdict.precursors] == ["early"]
    assert verdict.result is not Result.FAIL
    assert (verdict.action, "early" in {f.check for f in verdict.deciding}) == (None, False)


def test_the_hardest_action_of_the_failing_checks_is_taken(make_outcome):
    """Acceptance asks for fallback, the time for stop: stop."""
    one = judge(RICH, feed([make_outcome(0.1)] * 40), terms=Terms(), now=T0)
    two = judge(RICH, feed([make_outcome(0.1, in_flight=3, e2e_s=9.0)] * 40), terms=Terms(), now=T0)

    assert (one.action, two.action) == ("fallback", "stop")
    assert json.loads(json.dumps(two.to_record()))["action"] == "stop"


def test_a_check_of_a_load_at_which_nothing_speculates_says_nothing(make_outcome):
    """Shed below 3 in flight, a check above 2 has nothing to look at; shed below 4, it has."""
    window = feed([make_outcome(0.8, in_flight=5)] * 9)

    def names(below):
        return {f.check for f in judge(RICH, window, terms=Terms(shed_below=below), now=T0).findings}

    assert names(4) - names(3) == {check.name for check in RICH.checks if check.only and check.only.above == 2}
    assert names(4) == names(None)


def test_a_broken_source_holds_never_hides_a_failure_and_recovers(make_outcome):
    """ERROR while the source is broken, whatever the evidence but FAIL; gone when it is back."""
    theirs = make_outcome(None, arm=Arm.BASELINE)
    good, bad = feed([make_outcome(0.8), theirs] * 60), feed([make_outcome(0.1)] * 40)
    broken = {"sources": ("scrape of http metrics failed",), "terms": Terms(), "now": T0}

    assert judge(RICH, good, **broken).result is Result.ERROR
    assert "the source of the data is broken" in judge(RICH, good, **broken).reason
    assert judge(RICH, bad, **broken).result is Result.FAIL
    assert judge(RICH, good, terms=Terms(), now=T0).result is not Result.ERROR


# laws

ITEM = st.builds(
    lambda arm, kind, finish, counts, ttft_s, e2e_s, in_flight, name, share, promoted: (
        Outcome(
            request_id=name, arm=arm, kind=kind, release_id="x", at=T0, finish=finish, ttft_s=ttft_s, e2e_s=ttft_s + e2e_s,
            completion_tokens=9, in_flight=in_flight, error="timeout" if finish is Finish.ERROR else None,
            acceptance=None if counts is None else Acceptance(rounds=5, drafted=20, accepted=counts),
        ),
        share,
        promoted,
    ),
    st.sampled_from(Arm), st.sampled_from(Kind), st.sampled_from(Finish), st.none() | st.integers(0, 20), st.floats(0, 2),
    st.floats(0, 9), st.integers(1, 20), st.sampled_from(["a", "b", "c", "d"]), st.sampled_from([None, 0.0, 0.1, 0.5, 1.0]),
    st.booleans(),
)  # fmt: skip


def _run(items, cuts=()):
    window, peaks = Window.empty(RICH), []
    for i, (outcome, share, promoted) in enumerate(items):
        at = T0 + timedelta(seconds=7 * i)  # so that shares settle now and then
        window = fold(window, replace(outcome, share=share, at=at), RICH, promoted=promoted)
        if i in cuts:
            window = Window.from_record(json.loads(json.dumps(window.to_record(), allow_nan=False)))
        peaks.append(glance(RICH, window, terms=Terms(), now=T0) is Result.FAIL)
    return window, peaks


@settings(max_examples=40, deadline=None)
@given(items=st.lists(ITEM, max_size=30), cuts=st.sets(st.integers(0, 30)))
def test_evidence_of_every_kind_is_the_same_however_it_is_cut(items, cuts):
    """A restart through JSON after any outcome changes no bit, pairs in waiting included."""
    assert _run(items, cuts)[0] == _run(items)[0]


@settings(max_examples=40, deadline=None)
@given(bad=st.integers(20, 40), items=st.lists(ITEM, max_size=15))
def test_a_failure_is_never_talked_back(bad, items):
    """Once FAIL, FAIL whatever comes: looking more rarely cannot hide it."""
    low = (Outcome(request_id="z", arm=Arm.CANDIDATE, kind=Kind.LIVE, release_id="x", at=T0, finish=Finish.STOP, e2e_s=1.0,
                   acceptance=Acceptance(rounds=5, drafted=20, accepted=0)), 0.5, False)  # fmt: skip

    _, failed = _run([low] * bad + items)

    first = failed.index(True)
    assert all(failed[first:])


@settings(max_examples=40, deadline=None)
@given(items=st.lists(ITEM, max_size=7), promoted=st.booleans(), hours=st.integers(0, 3))
def test_no_data_never_passes_and_a_glance_agrees_with_the_judge(items, promoted, hours):
    """Fewer requests than any check asks for: anything but PASS; the cheap result is the dear one's."""
    window, _ = _run([(o, s, False) for o, s, _ in items])
    at = T0 + timedelta(hours=hours)

    verdict = judge(RICH, window, terms=Terms(promoted=promoted), now=at)

    assert verdict.result is glance(RICH, window, terms=Terms(promoted=promoted), now=at)
    assert verdict.result is not Result.PASS


def test_a_glance_sees_broken_data_and_fatal_classes(make_outcome):
    """As the judge does."""
    window = feed([make_outcome(0.0)] * 3)

    assert glance(RICH, Window.empty(RICH), terms=Terms(), now=T0, data_errors=("x",)) is Result.ERROR
    assert glance(RICH, window, terms=Terms(), now=T0, sources=("x",)) is Result.FAIL


def test_a_record_of_the_first_version_loads(policy, make_outcome):
    """What it did not store has its first value; the evidence goes on from there."""
    window = feed([make_outcome(), make_outcome(0.4)], policy=policy)
    record = {k: v for k, v in window.to_record().items() if k not in {"began_at", "pinned", "halves", "share", "share_since"}}

    loaded = Window.from_record(json.loads(json.dumps(record)))

    assert replace(loaded, began_at=window.began_at) == window
    assert fold(loaded, make_outcome(), policy, promoted=False).began_at == T0
