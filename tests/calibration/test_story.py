"""The quickstart's policy on simulated traffic: it promotes, stays quiet, and finds the shift."""

import logging
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from specops.core.judge import judge
from specops.core.ladder import Terms
from specops.core.outcome import Acceptance, Arm, Finish, Kind, Outcome
from specops.core.policy import parse_policy
from specops.core.verdict import Result
from specops.core.window import Window, fold

pytestmark = pytest.mark.calibration
LOG = logging.getLogger(__name__)  # measured figures: pytest --log-cli-level=INFO

T0 = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = parse_policy(yaml.safe_load((Path(__file__).parents[2] / "policies" / "quickstart.yaml").read_text()))


CODE, PROSE = 0.42, 0.19  # mean acceptance rate of the demo pair's requests, in its domain and outside it
SPREAD = 5  # Beta(5 m, 5 (1 - m)) has the measured standard deviations of about 0.2 and 0.16 between requests


def _outcome(rng, mean, number):
    rate = rng.betavariate(mean * SPREAD, (1 - mean) * SPREAD)
    counts = Acceptance(rounds=30, drafted=120, accepted=sum(rng.random() < rate for _ in range(120)))
    return Outcome(
        request_id="r", arm=Arm.CANDIDATE, kind=Kind.LIVE, release_id="x", at=T0 + timedelta(seconds=number / 5),
        finish=Finish.STOP, e2e_s=1.5, ttft_s=rng.uniform(0.1, 1.0), completion_tokens=80, acceptance=counts,
    )  # fmt: skip


def _requests_until(result, window, rng, mean, *, promoted, limit):
    """Fold one request at a time; return the window and the request at which the verdict was `result`, or None."""
    for i in range(1, limit + 1):
        window = fold(window, _outcome(rng, mean, window.outcomes), POLICY, promoted=promoted)
        if judge(POLICY, window, terms=Terms(promoted=promoted), now=T0).result is result:
            return window, i
    return window, None


@pytest.mark.parametrize("seed", range(10))
def test_promote_watch_and_find_the_shift(seed):
    """PASS within 70 requests at 5/s, no alarm in 80 more, and FAIL within 100 requests of the fall from code to prose."""
    rng = random.Random(seed)
    window, passed = _requests_until(Result.PASS, Window.empty(POLICY), rng, CODE, promoted=False, limit=70)
    window, false_alarm = _requests_until(Result.FAIL, window, rng, CODE, promoted=True, limit=80)
    window, found = _requests_until(Result.FAIL, window, rng, PROSE, promoted=True, limit=100)

    LOG.info("requests: %s", (passed, found))
    assert passed is not None
    assert false_alarm is None
    assert found is not None
