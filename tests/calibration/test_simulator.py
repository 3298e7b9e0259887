"""The simulator of many runs gives what the real tests give, run by run and request by request."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from specops.core.outcome import Arm, Finish, Kind, Outcome
from specops.core.policy import parse_policy
from specops.core.policy_fields import SETTLE_S
from specops.core.rival import is_settled, rival_next, share_next, start_rival
from specops.stats import attribution, bernoulli, betting, two_sample
from specops.stats.stratified import Stratified
from specops.stats.wealth import Mode, Null, Wealth
from tests.calibration.arrivals import Arrivals, TwoArms, by_end
from tests.calibration.simulator import attributions, splits, stratified, two_samples, wealths

pytestmark = pytest.mark.calibration
RUNS, STEPS, SAME = 3, 150, 1e-12
T0 = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("bets", [betting.bets(Null.AT_LEAST, 0.6), bernoulli.bets(Null.AT_MOST, 0.1)])
def test_wealth_is_simulated_truly(bets, mode):
    """Same samples, same wealth after every request."""
    x = np.random.default_rng(1).choice([0.0, 0.3, 1.0], size=(STEPS, RUNS))
    step = wealths(bets, mode, RUNS, lambda n: x[n - 1])
    real = [Wealth.start(bets, mode) for _ in range(RUNS)]

    for n in range(1, STEPS + 1):
        real = [w.update(float(x[n - 1, r])) for r, w in enumerate(real)]
        assert step(n) == pytest.approx([w.e_value for w in real], rel=SAME)


@pytest.mark.parametrize("mode", Mode)
def test_strata_are_simulated_truly(mode):
    """Same samples of two strata, same combined evidence after every request."""
    rng, bets = np.random.default_rng(3), {"code": betting.bets(Null.AT_LEAST, 0.7), "prose": betting.bets(Null.AT_LEAST, 0.35)}
    x, stratum = rng.random((STEPS, RUNS)), rng.integers(2, size=(STEPS, RUNS))
    step = stratified(list(bets.values()), mode, RUNS, lambda n: (stratum[n - 1], x[n - 1]))
    real = [Stratified.start(bets, mode) for _ in range(RUNS)]

    for n in range(1, STEPS + 1):
        real = [s.update(list(bets)[stratum[n - 1, r]], float(x[n - 1, r])) for r, s in enumerate(real)]
        assert step(n) == pytest.approx([s.e_value for s in real], rel=SAME)


@pytest.mark.parametrize("mode", Mode)
def test_comparisons_are_simulated_truly(mode):
    """Same requests of two arms, same evidence after every request, for both comparisons."""
    rng = np.random.default_rng(2)
    labels = (rng.random((2, STEPS, RUNS)) < 0.3).astype(float)
    told = lambda n: (labels[0, n - 1], labels[1, n - 1], 0.3)
    steps = (attributions(mode, RUNS, told), two_samples(mode, RUNS, told))
    blocks = [two_sample.TwoSample.start(mode)] * RUNS
    events = [attribution.Attribution.start(mode=mode)] * RUNS

    for n in range(1, STEPS + 1):
        drawn = [(bool(c), bool(e)) for c, e in zip(*told(n)[:2], strict=True)]
        blocks = [t.update(candidate=c, over=e) for t, (c, e) in zip(blocks, drawn, strict=True)]
        events = [t.update(candidate=c, share=0.3) if e else t for t, (c, e) in zip(events, drawn, strict=True)]
        for step, real in zip(steps, (events, blocks), strict=True):
            assert step(n) == pytest.approx([t.e_value for t in real], rel=SAME)


def test_the_split_is_simulated_truly():
    """Same requests under a share that moves, same evidence after each; requests that do not count leave it alone."""
    rng = np.random.default_rng(4)
    candidate, counts = (rng.random((2, STEPS, RUNS)) < 0.4).astype(float)
    share = lambda n: 0.2 if n < STEPS / 2 else 0.5
    step = splits(RUNS, lambda n: (candidate[n - 1], counts[n - 1], share(n)))
    real = [attribution.Split.start(("candidate", "baseline"))] * RUNS

    for n in range(1, STEPS + 1):
        shares = {"candidate": share(n), "baseline": 1 - share(n)}
        arms = ["candidate" if one else "baseline" for one in candidate[n - 1]]
        real = [s.update(arms[r], shares) if counts[n - 1, r] else s for r, s in enumerate(real)]
        assert step(n) == pytest.approx([s.e_value for s in real], rel=SAME)


def _outcomes(told, run):
    """Return the outcomes of one run as the gateway would report them; slow answers have a late first token."""
    for began, took, ours, slow, share in zip(
        told.began[run], told.took[run], told.candidate[run], told.slow[run], told.share[run], strict=True
    ):
        yield Outcome(
            request_id="r", arm=Arm.CANDIDATE if ours else Arm.BASELINE, kind=Kind.LIVE, release_id="x", share=float(share),
            at=T0 + timedelta(seconds=began + took), finish=Finish.STOP, e2e_s=float(took), ttft_s=2.0 if slow else 0.1,
        )  # fmt: skip


_TOLD_BY = {"owner": "oncall", "source": "measured"}
_TTFT = {"name": "attribution", "metric": "ttft_s", "against": "baseline", "at_most": {"limit_s": 1.0}, "ratio": 1.0}
_CHECKS = [_TTFT | {"pass_at": 0.5} | _TOLD_BY, {"name": "split", "metric": "split"} | _TOLD_BY]
RIVALS = {c.name: c for c in parse_policy({"name": "p", "alpha": 0.01, "arl_requests": 1000, "checks": _CHECKS}).checks}


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("arrivals", [Arrivals(rate=4.0), Arrivals(rate=2.0, times=10.0)], ids=["steady", "bursts"])
def test_settling_is_simulated_truly(name, arrivals):
    """Same outcomes told by their end: the same ones count, and the evidence of `core.rival` is the same after each of them."""
    check = RIVALS[name]
    told = TwoArms(arrivals=arrivals, shares=(0.1, 0.3, 0.5), slow=0.3).draw(np.random.default_rng(5), 2, 600)
    counts = told.settled(SETTLE_S)
    step, _ = told.splits(SETTLE_S) if name == "split" else told.attributions(Mode.CHANGE, SETTLE_S)
    if name == "attribution":
        counts &= told.slow
    simulated = np.array([step(n) for n in range(1, int(counts.sum(axis=1).max()) + 1)]).T

    for run in range(2):
        rival, share, since, seen = start_rival(check), None, None, []
        for outcome in _outcomes(told, run):
            share, since = share_next(share, since, outcome)
            moved = rival_next(rival, check, outcome) if is_settled(share, since, outcome, SETTLE_S) else rival
            if moved is not rival:
                seen.append(moved.e_value)
            rival = moved
        assert len(seen) == counts[run].sum() > 20
        assert simulated[run, : len(seen)] == pytest.approx(seen, rel=SAME)


def test_bursts_of_traffic_come_when_they_are_told():
    """Ten times the requests in 2 of 20 seconds: 20 of the 38 requests of a second's mean."""
    began = Arrivals(rate=20.0, times=10.0).draw(np.random.default_rng(6), 4, 6000)

    assert (np.diff(began, axis=1) >= 0).all()
    assert (began % 20.0 < 2.0).mean() == pytest.approx(20 / 38, abs=0.02)
    assert 6000 / began[:, -1] == pytest.approx(38.0, rel=0.1)


def test_answers_are_told_by_their_end():
    """A slow answer comes after those that began later and ended sooner; what is open at the end is left out."""
    began, took = np.array([[0.0, 1.0, 2.0, 3.0]]), np.array([[2.5, 0.1, 0.2, 0.3]])

    assert by_end(began, took, np.array([[1.0, 2.0, 3.0, 4.0]]), open_value=0.5).tolist() == [[2.0, 3.0, 1.0, 0.5]]
