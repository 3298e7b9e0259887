"""The verification job over in-memory endpoints that run the real decoding code: sound ones, and ones with a rule replaced."""

import itertools
import json
from dataclasses import replace

import pytest

from specops.control.verify import Progress, Task, estimate, verify
from specops.core.fidelity import Plan, Verdict
from specops.core.fidelity_atoms import Sampling
from specops.core.fidelity_sample import Sample
from specops.errors import IncompatibleRelease, InvalidInput
from tests.endpoints import PROMPTS, Memory, Toy, ToyDraft, always, from_target, greedy_soft, toys

TARGET, DRAFT = toys()
PLAIN, SCORER = Memory(TARGET), Memory(DRAFT.model)


def task(**changes):
    """Return a job over the toy pair."""
    return Task(
        **{
            "prompts": PROMPTS, "plan": Plan(tolerance=0.05), "budget": 3_000, "max_tokens": 64, "top": 12, "dtype": "float32",
            "greedy_tokens": 64, "draft": "draft",
        } | changes
    )  # fmt: skip


def clock():
    """Return a clock that moves a second per look."""
    ticks = itertools.count()
    return lambda: float(next(ticks))


def run(endpoint, job=None, **wires):
    """Run a job to its end."""
    job = job or task()
    return verify(job, endpoint, PLAIN, SCORER if job.draft == "draft" else None, clock=clock(), **wires)


def test_a_sound_endpoint_is_lossless_within_the_tolerance():
    """Both controls ran, greedy tokens are the argmax, and the page's figures are there."""
    found = run(Memory(TARGET, DRAFT))

    assert found.verdict is Verdict.LOSSLESS_WITHIN
    assert found.tv_bound <= 0.05
    assert found.plain_log_e < 5 < found.mutant_log_e
    assert found.greedy.beyond == found.greedy_plain.beyond == ()
    assert found.sensitivity["resample from p"] < 500
    assert found.path[-1][0] == found.tokens
    assert "LOSSLESS WITHIN 0.05 towards the draft" in found.words


@pytest.mark.parametrize(
    ("endpoint", "diagnosis"),
    [
        (Memory(TARGET, DRAFT, rules={"accept": always}), "always accept"),
        (Memory(TARGET, DRAFT, rules={"resample": from_target}), "resample from p"),
        (Memory(TARGET, ToyDraft(DRAFT.model, 3, greedy_soft)), "greedy draft, soft q"),
        (Memory(TARGET, ask=lambda request: replace(request, temperature=request.temperature * 0.8)), "temperature 0.7"),
    ],
)
def test_a_broken_endpoint_is_not_lossless_and_the_bug_is_named(endpoint, diagnosis):
    """Early: a few hundred tokens, not the budget."""
    found = run(endpoint)

    assert found.verdict is Verdict.NOT_LOSSLESS
    assert found.diagnosis in (diagnosis, "temperature 0.9")
    assert found.tokens < 2_000
    assert found.laws[found.diagnosis] > 5


def test_filters_that_are_ignored_are_found_and_honest_ones_are_not():
    """The same settings asked, one server drops them."""
    nucleus = task(sampling=Sampling(top_p=0.9))

    assert run(Memory(TARGET, DRAFT), nucleus).verdict is Verdict.LOSSLESS_WITHIN
    assert run(Memory(TARGET, ask=lambda r: replace(r, top_p=1.0)), nucleus).diagnosis == "filters ignored"


def test_greedy_tokens_off_the_argmax_are_not_lossless():
    """At temperature 0 the endpoint samples."""
    broken = Memory(TARGET, DRAFT, ask=lambda request: replace(request, temperature=request.temperature or 1.0))

    found = run(broken)

    assert found.verdict is Verdict.NOT_LOSSLESS
    assert "greedy tokens are not the argmax" in found.diagnosis
    assert found.greedy_plain.beyond == ()


def test_a_trusted_path_that_is_off_itself_is_an_error():
    """The plain control fires, so nothing is concluded, and the words say why."""
    colder = Memory(TARGET, ask=lambda request: replace(request, temperature=request.temperature * 0.7))

    found = verify(task(budget=600), Memory(TARGET, DRAFT), colder, SCORER, clock=clock())

    assert found.verdict is Verdict.ERROR
    assert "plain endpoint, without speculation, is rejected too" in found.words


class Misread(Memory):
    """A trusted path whose scores are of another temperature than it serves: the fault that looks like a broken endpoint."""

    def score(self, texts, top, concurrency):
        """Score by logits that are too flat."""
        flat = Toy(TARGET.config.vocab_size, 1, context=TARGET.config.max_len)
        flat.table = TARGET.table * 0.6
        return Memory(flat).score(texts, top, concurrency)


def test_an_endpoint_is_not_blamed_before_the_plain_one_had_as_many_tokens():
    """The endpoint is rejected within a batch; the plain control catches up and is rejected too: ERROR."""
    found = verify(task(greedy_tokens=0), Memory(TARGET, DRAFT), Misread(TARGET), SCORER, clock=clock())

    assert found.verdict is Verdict.ERROR
    assert "rejected too" in found.words
    assert "greedy decoding" in found.not_tested


def test_a_plain_endpoint_off_its_own_argmax_is_an_error():
    """Greedy requests that sample, on the trusted path itself."""
    warm = Memory(TARGET, ask=lambda request: replace(request, temperature=request.temperature or 1.0))

    found = verify(task(budget=600), Memory(TARGET, DRAFT), warm, SCORER, clock=clock())

    assert found.verdict is Verdict.ERROR
    assert "not its argmax" in found.words


def test_a_surrogate_bounds_a_leak_towards_itself_only():
    """And the limits say so."""
    job = task(draft="surrogate", prompts=("ab", "cd", "efg"), budget=300)

    found = verify(job, Memory(TARGET, DRAFT), PLAIN, SCORER, clock=clock())

    assert any("towards the surrogate's law" in one for one in found.not_tested)


def test_answers_without_tokens_are_refused():
    """There is nothing to test, and the way out is other prompts; so is a prompt that is nothing."""

    class Silent(Memory):
        def sample(self, asks, concurrency):
            return [Sample(prompt_ids=ask.prompt_ids, token_ids=()) for ask in asks]

    with pytest.raises(InvalidInput, match="no token"):
        run(Silent(TARGET), task(greedy_tokens=0))
    with pytest.raises(InvalidInput, match="has no tokens"):
        verify(task(), Memory(TARGET, DRAFT), Memory(TARGET, encode=lambda _: ()), SCORER, clock=clock())


def test_a_prompt_of_one_token_has_no_row_before():
    """The first row stands for it; everything else is as usual."""
    one = Memory(TARGET, encode=lambda text: (ord(text[0]) % 24,))

    found = verify(task(budget=200, greedy_tokens=0), Memory(TARGET), one, SCORER, clock=clock())

    assert found.tokens >= 200


def test_too_few_tokens_for_the_controls_are_an_error():
    """A mutant that had no chance to fire proves nothing."""
    assert run(Memory(TARGET, DRAFT), task(budget=4, max_tokens=1)).verdict is Verdict.ERROR


def test_without_a_draft_nothing_is_bounded():
    """INCONCLUSIVE, with the way out."""
    found = run(Memory(TARGET, DRAFT), task(draft=None, budget=600))

    assert found.verdict is Verdict.INCONCLUSIVE
    assert "give --draft" in found.words
    assert any("nothing is bounded" in one for one in found.not_tested)


def test_the_draft_of_prompt_lookup_is_recomputed():
    """One-hot where it proposes, no bet elsewhere; a sound endpoint stays sound."""
    assert run(Memory(TARGET, DRAFT), task(draft="n-gram", budget=1_000)).verdict is not Verdict.NOT_LOSSLESS


def test_lossy_settings_are_named_before_any_token():
    """Nothing is sampled; with the gate off the statistics speak."""
    facts = {"speculative_config": {"method": "ngram", "rejection_sample_method": "synthetic"}}
    endpoint = Memory(TARGET, DRAFT, facts=facts, rules={"accept": always})

    gated = run(endpoint)

    assert gated.verdict is Verdict.NOT_LOSSLESS
    assert "rejection_sample_method: synthetic" in gated.words
    assert endpoint.sampled == 0
    assert run(endpoint, task(is_gated=False)).diagnosis == "always accept"


@pytest.mark.parametrize(
    ("facts", "trusted", "reason"),
    [
        ({}, {"method": "ngram"}, "speculates itself"),
        ({"target": {"weights_sha256": "a"}}, {"target": {"weights_sha256": "b"}}, "same weights"),
    ],
)
def test_a_trusted_path_that_is_none_is_refused(facts, trusted, reason):
    """Before any token, with the way out."""
    with pytest.raises(IncompatibleRelease, match=reason):
        verify(task(), Memory(TARGET, DRAFT, facts=facts), Memory(TARGET, facts=trusted), SCORER, clock=clock())


def test_log_probabilities_that_the_endpoint_makes_up_are_a_finding_of_their_own():
    """The tokens are fine and the verdict says so."""
    found = run(Memory(TARGET, DRAFT, lies_nats=2.0))

    assert found.verdict is Verdict.LOSSLESS_WITHIN
    assert "cannot be trusted" in found.findings[0]


def test_a_saved_job_resumes_to_the_same_end():
    """Interrupted after two batches, read back from JSON, run on: the same evidence as without a break."""
    saves, job = [], task(plan=Plan(tolerance=0.05, positions=4))
    whole = run(Memory(TARGET, DRAFT), job, save=lambda record: saves.append(json.dumps(record)))

    resumed = run(Memory(TARGET, DRAFT), job, saved=json.loads(saves[1]))

    assert (resumed.path, resumed.log_e, resumed.tv_bound) == (whole.path, whole.log_e, whole.tv_bound)
    assert resumed.calibration == whole.calibration
    assert resumed.greedy == whole.greedy


def test_a_saved_job_of_other_settings_is_refused():
    """And so is what is no saved job."""
    saves = []
    run(Memory(TARGET, DRAFT), save=saves.append)

    with pytest.raises(InvalidInput, match="other settings"):
        run(Memory(TARGET, DRAFT), task(seed=1), saved=saves[0])
    with pytest.raises(InvalidInput, match="no saved job"):
        Progress.from_record({"task": task().digest}, task())


def test_continuous_mode_alarms_on_a_bug_and_else_runs_to_the_budget():
    """With the token at which it did."""
    broken = run(Memory(TARGET, DRAFT, rules={"accept": always}), task(run_length=1e5))
    sound = run(Memory(TARGET, DRAFT), task(run_length=1e5, budget=700, seed=1_000))

    assert broken.alarm_at < 100
    assert broken.diagnosis == "always accept"
    assert sound.alarm_at is None
    assert sound.tokens >= 700


def test_a_watch_goes_on_after_a_restart_where_it_stopped():
    """A detector that began anew at each restart would have a run length of its own each time, and forget a bug half seen."""
    saves, job = [], task(run_length=1e30, budget=700)
    broken = Memory(TARGET, DRAFT, rules={"resample": from_target})
    whole = run(broken, job, save=lambda record: saves.append(json.dumps(record, allow_nan=False)))

    kept = []
    resumed = run(broken, job, saved=json.loads(saves[1]), save=lambda record: kept.append(json.dumps(record, allow_nan=False)))

    assert json.loads(kept[-1])["watch"] == json.loads(saves[-1])["watch"]
    assert json.loads(saves[-1])["watch"]["detector"]["tokens"] == whole.tokens == resumed.tokens


@pytest.mark.parametrize("broken", [{"watch": 3}, {"watch": {"run_length": 5}}])
def test_a_saved_watch_that_is_none_is_refused(broken):
    """It names the way out; nothing is begun."""
    saves, job = [], task(run_length=1e5, budget=100)
    run(Memory(TARGET, DRAFT), job, save=saves.append)

    with pytest.raises(InvalidInput, match="anew"):
        run(Memory(TARGET, DRAFT), job, saved=saves[0] | broken)


def test_the_estimate_counts_controls_and_prompts():
    """A second per look of the clock over 16 tokens of the first answer."""
    found = estimate(task(), PLAIN, clock())

    assert found.sampled == 3_000 * 1.25 + 2 * 64
    assert found.scored > found.sampled
    assert found.wall_s == pytest.approx(found.sampled / 16)


@pytest.mark.parametrize(
    "changes", [{"prompts": ()}, {"prompts": ("",)}, {"budget": 0}, {"top": 1}, {"greedy_tokens": -1}, {"dtype": "int4"}]
)
def test_a_job_that_cannot_be_done_is_refused(changes):
    """Before anything is asked of a server."""
    with pytest.raises(InvalidInput):
        task(**changes)


def test_a_draft_without_its_endpoint_is_refused():
    """And an endpoint without its role."""
    with pytest.raises(InvalidInput, match="give both or neither"):
        verify(task(), Memory(TARGET, DRAFT), PLAIN, clock=clock())
