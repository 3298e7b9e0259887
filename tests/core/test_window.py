"""Folding is deterministic, restartable at any point, and counts what it should and nothing else."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.policy import parse_policy
from specops.core.window import RECENT, Window, fold
from specops.errors import InvalidRecord

POLICY = parse_policy({
    "name": "law",
    "checks": [
        {"name": "acceptance", "metric": "acceptance_rate", "at_least": 0.45, "owner": "o"},
        {"name": "tpot", "metric": "tpot_s", "at_most": {"limit_s": 0.1, "share": 0.05}, "owner": "o"},
        {"name": "e2e", "metric": "e2e_s", "at_most": {"limit_s": 5, "share": 0.05}, "owner": "o"},
        {"name": "errors", "metric": "error", "at_most": 0.05, "owner": "o"},
    ],
})  # fmt: skip


@st.composite
def outcomes(draw):
    """Draw any outcome at all."""
    histogram = tuple(draw(st.lists(st.integers(0, 9), max_size=6)))
    accepted = sum(i * n for i, n in enumerate(histogram))
    counts = Acceptance(
        rounds=sum(histogram), drafted=accepted + draw(st.integers(0, 40)), accepted=accepted, histogram=histogram
    )
    ttft_s = draw(st.none() | st.floats(0, 2))
    return Outcome(
        request_id="r", release_id="x", at=datetime(2026, 1, 1, tzinfo=UTC),
        arm=draw(st.sampled_from(Arm)), kind=draw(st.sampled_from(Kind)), finish=draw(st.sampled_from(Finish)),
        e2e_s=draw(st.floats(0, 10)), ttft_s=ttft_s, completion_tokens=draw(st.integers(0, 50)),
        acceptance=draw(st.none() | st.just(counts)), error=draw(st.none() | st.sampled_from(["timeout", "engine_5xx"])),
    )  # fmt: skip


def _fold_all(window, items):
    for outcome, promoted in items:
        window = fold(window, outcome, POLICY, promoted=promoted)
    return window


@settings(max_examples=60, deadline=None)
@given(items=st.lists(st.tuples(outcomes(), st.booleans()), max_size=25), cuts=st.sets(st.integers(0, 25)))
def test_evidence_is_the_same_however_batches_are_cut(items, cuts):
    """A restart through JSON after any outcome changes no bit of the evidence."""
    whole = _fold_all(Window.empty(POLICY), items)

    cut = Window.empty(POLICY)
    for i, item in enumerate(items):
        cut = _fold_all(cut, [item])
        if i in cuts:
            cut = Window.from_record(json.loads(json.dumps(cut.to_record(), allow_nan=False)))

    assert cut == whole


@settings(max_examples=60, deadline=None)
@given(items=st.lists(outcomes(), max_size=20))
def test_counts_never_exceed_outcomes(items):
    """Every outcome counts once; errors and samples are parts of the candidate's outcomes."""
    window = _fold_all(Window.empty(POLICY), [(o, False) for o in items])

    assert window.outcomes == len(items)
    assert window.candidate_outcomes == sum(n for _, n in window.finishes) <= window.outcomes
    assert sum(n for _, n in window.errors) <= window.candidate_outcomes
    assert all(t.moments.n + t.gap <= window.candidate_outcomes for t in window.tracks)


def test_shadow_counts_and_baseline_and_offline_do_not(policy, make_outcome):
    """Evidence is the candidate's live and mirrored requests; the rest is only counted."""
    window = Window.empty(policy)
    for changes in ({"kind": Kind.SHADOW}, {"arm": Arm.BASELINE}, {"kind": Kind.OFFLINE}):
        window = fold(window, make_outcome(**changes), policy, promoted=False)

    assert (window.outcomes, window.candidate_outcomes, window.tracks[0].moments.n) == (3, 1, 1)


@pytest.mark.parametrize(("finish", "samples"), [("stop", 1), ("length", 1), ("error", 1), ("abort", 0), ("rejected", 0)])
def test_rejected_and_aborted_requests_are_no_errors(policy, make_outcome, finish, samples):
    """A 4xx and a client that left say nothing about the model: neither error nor success."""
    window = fold(Window.empty(policy), make_outcome(finish=Finish(finish), error="timeout"), policy, promoted=False)

    moments = window.tracks[2].moments

    assert (moments.n, moments.total) == (samples, float(finish == "error"))
    assert window.errors == ((("timeout", 1),) if finish == "error" else ())


def test_an_error_without_a_class_is_unknown(policy, make_outcome):
    """An error is counted even if nobody named it."""
    window = fold(Window.empty(policy), make_outcome(finish=Finish.ERROR), policy, promoted=False)

    assert window.errors == (("unknown", 1),)


@pytest.mark.parametrize("acceptance", [None, Acceptance(rounds=1, drafted=0, accepted=0)])
def test_nothing_drafted_is_no_data(policy, make_outcome, acceptance):
    """A missing rate is a gap, never a zero; the next value ends the gap."""
    silent = fold(Window.empty(policy), make_outcome(acceptance=acceptance), policy, promoted=False)
    heard = fold(silent, make_outcome(), policy, promoted=False)

    assert (silent.tracks[0].moments.n, silent.tracks[0].gap, silent.coverage) == (0, 1, 0.0)
    assert (heard.tracks[0].moments.n, heard.tracks[0].gap, heard.coverage) == (1, 0, 0.5)


def test_the_monitor_begins_at_promotion(policy, make_outcome):
    """Before promotion only the gate moves, afterwards only the monitor."""
    before = fold(Window.empty(policy), make_outcome(0.2), policy, promoted=False)
    after = fold(before, make_outcome(0.2), policy, promoted=True)
    track = after.tracks[0]

    assert (before.tracks[0].gate.n, before.tracks[0].monitor.n) == (1, 0)
    assert (track.gate, track.monitor.n, track.promoted.n, track.moments.n) == (before.tracks[0].gate, 1, 1, 2)
    assert after.promoted_outcomes == 1


def test_positions_come_from_the_histogram(policy, make_outcome):
    """Two rounds of 2, one of 1, one of 0: position 1 holds in 3 of 4 rounds, position 2 in 2; lengths may differ."""
    window = Window.empty(policy)
    assert (window.positions, window.coverage) == ((), None)

    for histogram in ((1, 1, 1), (0, 0, 1), (0,)):
        accepted = sum(i * n for i, n in enumerate(histogram))
        counts = Acceptance(rounds=sum(histogram), drafted=8, accepted=accepted, histogram=histogram)
        window = fold(window, make_outcome(acceptance=counts), policy, promoted=False)

    assert window.positions == (0.75, 0.5)
    assert (window.acceptance.top, window.acceptance.bottom) == (5, 24)


def test_times_become_exceedances(make_outcome):
    """A time equal to its limit is within it; one token has no time per token."""
    window = Window.empty(POLICY)
    for changes in ({"e2e_s": 5.0}, {"e2e_s": 5.1, "completion_tokens": 1}):
        window = fold(window, make_outcome(ttft_s=0.0, **changes), POLICY, promoted=False)

    assert (window.tracks[1].moments.n, window.tracks[1].moments.total) == (1, 1.0)
    assert (window.tracks[2].moments.n, window.tracks[2].moments.total) == (2, 1.0)


def test_only_the_newest_samples_are_kept(policy, make_outcome):
    """The list for the reader of an alarm stays short."""
    window = Window.empty(policy)
    for i in range(RECENT + 5):
        window = fold(window, make_outcome(i / 100), policy, promoted=False)

    assert window.tracks[0].recent == tuple(i / 100 for i in range(5, RECENT + 5))


def test_evidence_and_rules_do_not_mix(policy, make_outcome):
    """A window begun under one policy refuses an outcome under another."""
    with pytest.raises(InvalidRecord, match="gathered under policy"):
        fold(Window.empty(POLICY), make_outcome(), policy, promoted=False)


@pytest.mark.parametrize(
    "spoil", [lambda r: r.pop("tracks"), lambda r: r.update(extra=1), lambda r: r["tracks"][0]["gate"]["stakes"].pop()]
)
def test_a_broken_record_is_refused(policy, spoil):
    """Stored evidence of another shape is an error, not a fresh start."""
    record = Window.empty(policy).to_record()
    spoil(record)

    with pytest.raises(InvalidRecord):
        Window.from_record(record)


def test_a_window_is_a_value(policy, make_outcome):
    """Folding leaves the window it was given as it was."""
    window = Window.empty(policy)

    fold(window, make_outcome(), policy, promoted=False)

    assert window == replace(window) == Window.empty(policy)
