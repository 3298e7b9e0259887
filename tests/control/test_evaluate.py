"""The offline evaluation compares pairs fairly and reports exactly what differed."""

from dataclasses import dataclass, replace

import pytest

from specops.control.evaluate import evaluate
from specops.core.outcome import Acceptance, Arm, Kind

RELEASES = {Arm.BASELINE: "rel-a", Arm.CANDIDATE: "rel-b"}
COUNTS = Acceptance(rounds=2, drafted=8, accepted=5, histogram=(0, 0, 1, 1, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an arm answers."""

    token_ids: tuple[int, ...] = (1, 2, 3)
    finish: str = "stop"
    ttft_s: float | None = 0.2
    e2e_s: float = 1.0
    prompt_tokens: int = 5
    completion_tokens: int = 5
    acceptance: Acceptance | None = None


@pytest.fixture
def run(clock):
    """Return a function that evaluates two arms; arms are replies or functions of the prompt."""

    def go(baseline, candidate, prompts="abcd"):
        def arm(reply):
            return reply if callable(reply) else lambda _prompt: reply

        arms = {Arm.BASELINE: arm(baseline), Arm.CANDIDATE: arm(candidate)}
        return evaluate(tuple(prompts), arms, RELEASES, clock=clock)

    return go


def test_ratios_are_baseline_over_candidate(run):
    """A candidate of half the time has ratio 2 in seconds and 1/2 in tokens per second."""
    ratios = run(Reply(), Reply(ttft_s=0.1, e2e_s=0.5)).ratios
    assert {k: round(v.ratio, 9) for k, v in ratios.items()} == {"ttft_s": 2, "tpot_s": 2, "e2e_s": 2, "tokens_per_s": 0.5}
    assert all(r.n == 4 for r in ratios.values())


def test_a_metric_that_is_absent_has_no_ratio(run):
    """No number is made up for a server that reports no first token."""
    assert set(run(Reply(ttft_s=None), Reply()).ratios) == {"e2e_s", "tokens_per_s"}


def test_the_order_of_the_arms_swaps(run):
    """A B, B A: drift of the machine falls on both arms alike."""
    calls = []

    def arm(name):
        return lambda prompt: calls.append(name + prompt) or Reply()

    run(arm("A"), arm("B"))
    assert calls == ["Aa", "Ba", "Bb", "Ab", "Ac", "Bc", "Bd", "Ad"]


def test_equal_answers_have_no_difference(run):
    """Greedy equality is the absence of differences."""
    assert run(Reply(), Reply()).differences == ()


@pytest.mark.parametrize(("tokens", "first"), [((1, 9, 3), 1), ((1, 2), 2), ((1, 2, 3, 4), 3), ((), 0)])
def test_a_difference_names_prompt_and_token(run, tokens, first):
    """The first differing token is found, a missing tail included."""
    found = run(Reply(), lambda prompt: Reply(token_ids=tokens) if prompt == "c" else Reply()).differences
    assert [(d.prompt, d.token, d.candidate) for d in found] == [(2, first, tokens)]


def test_acceptance_pools_the_candidate_only(run):
    """Counts add up over prompts; the baseline's never count."""
    pooled = run(Reply(acceptance=COUNTS), Reply(acceptance=COUNTS), "abc").acceptance
    assert pooled == Acceptance(rounds=6, drafted=24, accepted=15, histogram=(0, 0, 3, 3, 0))


def test_histograms_of_some_requests_are_not_pooled(run):
    """Where one answer lacks its histogram, counts stay and the histogram goes, as it would not add up."""
    bare = replace(COUNTS, histogram=())
    pooled = run(Reply(), lambda p: Reply(acceptance=bare if p == "a" else COUNTS), "ab").acceptance
    assert pooled == Acceptance(rounds=4, drafted=16, accepted=10)


def test_outcomes_are_offline_pairs(run):
    """Both outcomes of a prompt share an id, so that they can be paired again from the store."""
    outcomes = run(Reply(), Reply(), "ab").outcomes
    assert [(o.request_id, o.arm, o.release_id) for o in outcomes[:2]] == [
        ("offline-0000", Arm.BASELINE, "rel-a"),
        ("offline-0000", Arm.CANDIDATE, "rel-b"),
    ]
    assert {o.kind for o in outcomes} == {Kind.OFFLINE}


def test_the_record_is_json_ready(run):
    """What the evidence log stores has rates beside counts and no outcome."""
    record = run(Reply(), Reply(acceptance=COUNTS)).to_record()
    assert (record["prompts"], record["acceptance_rate"], record["acceptance_length"]) == (4, 5 / 8, 1 + 5 / 2)
    assert "outcomes" not in record
