"""Both checkers of a batch: the real Great Expectations suite and the plain one, which must agree."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from specops.adapters.expectations import quick_check, validate
from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)


def outcome(number, arm=Arm.CANDIDATE):
    """One sound outcome."""
    return Outcome(
        request_id=f"r{number}",
        arm=arm,
        kind=Kind.LIVE,
        release_id="rel-a",
        at=NOW - timedelta(seconds=number),
        finish=Finish.STOP,
        e2e_s=0.5,
        ttft_s=0.1,
        acceptance=Acceptance(rounds=3, drafted=9, accepted=4),
    )


GOOD = [outcome(i, arm) for i in range(6) for arm in Arm]


def with_change(**change):
    """Return a good batch as records, with one record changed."""
    records = [o.to_record() for o in GOOD]
    return [*records[:-1], records[-1] | change]


BROKEN = {
    "accepted more": with_change(acceptance={"rounds": 1, "drafted": 2, "accepted": 3, "histogram": ()}),
    "ttft_s greater": with_change(ttft_s=0.7),
    "in the future": with_change(at=(NOW + timedelta(seconds=1)).isoformat()),
    "without a time with zone": with_change(at="2026-11-01T11:00:00"),
    "negative e2e_s": with_change(e2e_s=-0.1, ttft_s=None),
    "without e2e_s": with_change(e2e_s=float("nan")),
    "without request_id": with_change(request_id=None),
    "share request_id": with_change(request_id="r0"),
    "an arm has no outcome": [o for o in GOOD if o.arm is Arm.BASELINE],
}


@pytest.fixture(scope="module", autouse=True)
def _gx():
    """Skip where the extra is missing."""
    pytest.importorskip("great_expectations")


@pytest.mark.slow
def test_a_sound_batch_has_no_errors():
    """Both arms, plausible times, unique requests: nothing to say."""
    assert validate(GOOD, NOW, both_arms=True) == quick_check(GOOD, NOW, both_arms=True) == ()


@pytest.mark.slow
@pytest.mark.parametrize("words", BROKEN)
def test_each_fault_is_found_and_both_checkers_agree(words):
    """One broken rule gives one sentence, the same from both."""
    said = validate(BROKEN[words], NOW, both_arms=True)

    assert len(said) == 1
    assert words in said[0]
    assert quick_check(BROKEN[words], NOW, both_arms=True) == said


@pytest.mark.slow
def test_many_faults_are_all_told_with_their_counts():
    """Faults do not hide one another."""
    batch = [*BROKEN["ttft_s greater"], *(r.to_record() | {"request_id": None} for r in GOOD[:2])]

    said = validate(batch, NOW, both_arms=False)

    assert said == ("outcomes without request_id: 2", "outcomes with ttft_s greater than e2e_s: 1")
    assert quick_check(batch, NOW, both_arms=False) == said


@pytest.mark.slow
def test_an_empty_batch_is_sound_unless_arms_are_asked_for():
    """No data is the judge's matter; a missing arm is ours."""
    for both, count in ((False, 0), (True, 1)):
        said = validate([], NOW, both_arms=both)
        assert len(said) == count
        assert quick_check([], NOW, both_arms=both) == said


def test_shadow_and_retried_outcomes_share_a_request_id():
    """The same request may appear once per arm, kind and retry."""
    records = [
        outcome(1).to_record(),
        outcome(1).to_record() | {"kind": "shadow"},
        outcome(1).to_record() | {"retried_on_baseline": True},
    ]

    assert quick_check(records, NOW, both_arms=False) == ()


def test_the_request_path_does_not_import_great_expectations():
    """Importing the adapter and checking quickly stays cheap."""
    code = (
        "import sys; from datetime import datetime, UTC; from specops.adapters.expectations import quick_check; "
        "quick_check([], datetime.now(UTC), both_arms=False); sys.exit('great_expectations' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_great_expectations_the_extra_is_named():
    """A missing package tells how to get it."""
    code = (
        "import sys; sys.modules['great_expectations'] = None; from datetime import datetime, UTC; "
        "from specops.adapters.expectations import validate; validate([], datetime.now(UTC), both_arms=False)"
    )

    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert "MissingExtra" in done.stderr
    assert "specops[expectations]" in done.stderr
