"""The fidelity verifier on toy engines: false alarms, power, diagnosis, and the coverage of its bound."""

import math
import statistics

import numpy as np
import pytest

from specops.core.fidelity import Evidence, Plan, Watch
from tests.calibration.tokens import BROKEN, FINE, rows

pytestmark = pytest.mark.calibration
MEDIANS = {  # most tokens in the median until a rejection at 1e-3
    "always accept": 20,
    "resample from p": 400,
    "greedy draft, soft q": 100,
    "leak 2%": 4_000,  # 1.5 x log(1000) / KL = 2,681, the least for any test on these toy laws; a far pair needs fewer
    "previous row 10%": 150,
    "T 0.9 served as 1": 1_200,
    "unsure draft dropped": 3_000,
    "1% TV": 6_000,  # 5,022 over 60 runs on these close toy laws; on the reference pair 1,741 (bench), where 5,000 is the goal
    "typical acceptance": 50,
}


def alarms(engine, runs, *, tokens=600, noise=0.0):
    """Return the share of runs that reject at 0.05."""
    peaks = [
        Evidence(plan=Plan()).fold(rows(seed, tokens, engine, atoms=20, scoring_noise=noise))[0].wealth.peak
        for seed in range(runs)
    ]
    return statistics.mean(peak >= math.log(20) for peak in peaks)


def delay(engine, seed, tokens):
    """Return tokens until a rejection at 1e-3 (infinity for none), and the law that won then."""
    found = rows(seed, tokens, engine)
    _, path = Evidence(plan=Plan()).fold(found)
    hits = np.flatnonzero(path >= math.log(1e3))
    if not hits.size:
        return math.inf, ""
    wealth = Evidence(plan=Plan()).fold(found.cut(0, int(hits[0]) + 1))[0].wealth
    return int(hits[0]) + 1, wealth.winner[0]


def powers(runs):
    """Return the median delay of each broken engine, and the share of right diagnoses among rejections."""
    medians, right = {}, []
    for name, (engine, diagnoses) in BROKEN.items():
        found = [delay(engine, seed, 3 * MEDIANS[name]) for seed in range(runs)]
        medians[name] = statistics.median(tokens for tokens, _ in found)
        right += [law in diagnoses for tokens, law in found if tokens < math.inf]
    return medians, statistics.mean(right)


@pytest.mark.parametrize("name", FINE)
def test_what_is_no_bug_stays_quiet(name):
    """Exact methods, also unusual ones: 100 runs at 0.05, plus three standard errors."""
    assert alarms(FINE[name], 100, tokens=300) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 100)


def test_rounding_of_the_scoring_path_raises_no_alarm():
    """Noise of 0.04 nats, as between bfloat16 decode and prefill, has no direction."""
    assert alarms(FINE["speculative"], 60, noise=0.04) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 60)


def test_broken_engines_are_found_in_time_and_named():
    """Median tokens to reject at 1e-3 within the table; diagnosis right in 85%."""
    medians, right = powers(7)

    assert {name: tokens for name, tokens in medians.items() if tokens > MEDIANS[name]} == {}
    assert right >= 0.85


def test_the_bound_covers_a_leak_of_two_percent():
    """The share that really leaked is above the bound in at most alpha / 2 of runs, whenever one looks."""
    engine = BROKEN["leak 2%"][0]
    missed = [Evidence(plan=Plan(alpha=0.1)).fold(rows(seed, 600, engine))[0].leak.upper < 0.02 for seed in range(60)]

    assert statistics.mean(missed) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 60)


def test_the_detector_keeps_its_run_length_and_finds_a_bug_that_begins_late():
    """At most n / run length of sound runs alarm within n tokens; 1,000 sound tokens before a bug delay nothing."""
    alarms = [Watch(run_length=1_000).fold(rows(seed, 200, FINE["speculative"]))[0].detector.alarm_at for seed in range(80)]
    delays = []
    for seed in range(7):
        sound, _ = Watch(run_length=1e5).fold(rows(seed, 1_000, FINE["speculative"]))
        found, _ = sound.fold(rows(seed + 100, 2_000, BROKEN["resample from p"][0]))
        delays.append(found.detector.alarm_at - 1_000)

    assert statistics.mean(at is not None for at in alarms) <= 0.2 + 3 * math.sqrt(0.2 * 0.8 / 80)
    assert statistics.median(delays) <= 400


@pytest.mark.exhaustive
@pytest.mark.parametrize("noise", [0.0, 0.04])
def test_false_alarms_over_400_runs(noise):
    """At 0.05, 400 runs of a sound engine of 2,000 tokens: at most 0.05 plus two standard errors."""
    assert alarms(FINE["speculative"], 400, tokens=2_000, noise=noise) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)


@pytest.mark.exhaustive
def test_power_over_60_runs():
    """The same table as the short test, on more runs."""
    medians, right = powers(60)

    assert {name: tokens for name, tokens in medians.items() if tokens > MEDIANS[name]} == {}
    assert right >= 0.85
