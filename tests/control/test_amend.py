"""An amended policy is picked up by the running loop, and judges outcomes that came after it only."""

from dataclasses import replace

import pytest
import yaml

from specops.control.amend import approve_amendment, propose_amendment, read_policy
from specops.control.replay import replay_rollout
from specops.core.policy import parse_policy
from specops.core.rollout import ActionKind, State
from specops.core.steer import propose as propose_rule
from specops.errors import IllegalTransition, IncompatibleRelease, PolicyError

MILDER = """
name: milder
alpha: 0.01
settle: 0
arl_requests: 10000
checks:
  - {name: acceptance, metric: acceptance_rate, at_least: 0.05, pass_at: 0.02, min_requests: 8, owner: oncall}
"""


@pytest.fixture
def milder():
    """Return the policy that is proposed."""
    return parse_policy(yaml.safe_load(MILDER))


@pytest.fixture
def propose(store, clock, milder):
    """Return a function that proposes it."""
    words = {"policy": milder, "policy_text": MILDER, "reason": "limit was a guess", "actor": "bob"}
    return lambda: propose_amendment(store, "ro-1", now=clock(), **words)


def test_a_proposal_judges_nothing(controller, ring, propose, collapsed, policy):
    """Until it is approved, the old policy fails what it always failed."""
    propose()
    ring.outcomes += collapsed(40)

    assert controller.pass_once().kind is ActionKind.ROLL_BACK
    assert controller.policy.digest == policy.digest


def test_the_running_loop_follows_an_approved_policy(controller, store, ring, clock, propose, collapsed, milder):
    """New policy, new evidence; what the old one would have failed is what the new one passes."""
    ring.outcomes += collapsed(5)
    controller.pass_once()
    clock.pass_s(1)
    propose()
    approve_amendment(store, "ro-1", digest=milder.digest, actor="eve", now=clock())
    ring.outcomes += collapsed(5)  # ended before the approval

    assert controller.pass_once() is None

    with store.read() as unit:
        record, _, cursor = unit.windows.load("ro-1")
        digests = [v["policy_digest"] for v in unit.verdicts.of("ro-1")]
        assert (record["outcomes"], record["policy_digest"], cursor) == (0, milder.digest, 10)
        assert unit.outcomes.count("ro-1") == 10
    assert digests[-1] == milder.digest  # judged, on nothing yet
    assert controller.policy == milder


def test_new_outcomes_move_it_on(controller, store, ring, clock, propose, make_outcome, milder):
    """The step is left on evidence under the new policy."""
    propose()
    clock.pass_s(1)
    approve_amendment(store, "ro-1", digest=milder.digest, actor="eve", now=clock())
    ring.outcomes += [make_outcome(0.3, at=clock()) for _ in range(60)]

    assert controller.pass_once().kind in {ActionKind.ADVANCE, ActionKind.PROMOTE}
    with store.read() as unit:
        assert {v["policy_digest"] for v in unit.verdicts.of("ro-1")} == {milder.digest}


def test_a_loop_that_was_down_begins_under_the_new_policy(controller, store, ring, clock, propose, make_controller, milder):
    """Also when it was built with the old one."""
    propose()
    approve_amendment(store, "ro-1", digest=milder.digest, actor="eve", now=clock())

    heir = make_controller(store, ring)
    heir.resume()

    assert heir.policy == milder


def test_both_halves_are_in_the_log(controller, store, clock, propose, milder, policy, tags):
    """Who proposed what instead of what, and who approved it."""
    propose()
    approve_amendment(store, "ro-1", digest=milder.digest[:8], actor="eve", now=clock())

    with store.read() as unit:
        proposed, amended = unit.audit.of("ro-1")[-2:]
    assert (proposed.tag, proposed.actor) == ("rollout:policy:amendment_proposed", "bob")
    assert (amended.tag, amended.actor) == ("rollout:policy:amended", "eve")
    assert (amended.payload["policy"], amended.payload["instead_of"]) == (milder.digest, policy.digest)


def test_a_refused_approval_changes_nothing(controller, store, clock, propose, milder, tags):
    """The proposer can't approve it."""
    propose()
    before = tags(store)
    with pytest.raises(IllegalTransition, match="another person"):
        approve_amendment(store, "ro-1", digest=milder.digest, actor="bob", now=clock())

    with store.read() as unit:
        assert unit.rollouts.get("ro-1").amendment == milder.digest
    assert tags(store) == before


def test_an_amended_promotion_stays_promoted(controller, store, ring, clock, propose, healthy, milder):
    """Everybody stays on the candidate, watched by the new policy from new outcomes on."""
    ring.outcomes += healthy(60)
    controller.pass_once()
    propose()
    approve_amendment(store, "ro-1", digest=milder.digest, actor="eve", now=clock())
    controller.pass_once()

    assert (controller.rollout.state, ring.route.weight) == (State.PROMOTED, 1.0)


@pytest.mark.parametrize("text", ["{", "- 1", "name: x"])
def test_a_stored_text_that_is_no_policy_is_named(text):
    """The store was changed by hand."""
    with pytest.raises(PolicyError):
        read_policy(text)


def test_no_outcome_is_lost_when_control_dies_after_an_approval(
    controller, store, ring, clock, propose, make_outcome, make_controller, milder
):
    """The next process reads on from where the last one was; all that came after the approval is evidence."""
    ring.outcomes += [make_outcome(at=clock()) for _ in range(5)]
    controller.pass_once()
    propose()
    clock.pass_s(1)
    approve_amendment(store, "ro-1", digest=milder.digest, actor="eve", now=clock())
    ring.outcomes += [make_outcome(at=clock()) for _ in range(9)]

    heir = make_controller(store, ring)
    heir.resume()
    heir.pass_once()

    with store.read() as unit:
        record, _, cursor = unit.windows.load("ro-1")
        assert (record["outcomes"], cursor, unit.outcomes.count("ro-1")) == (9, 14, 14)
    assert replay_rollout(store, "ro-1").difference is None


def test_a_policy_that_does_not_allow_a_lossy_candidate_is_refused(store, begin, releases, clock, milder):
    """The rule of the start holds for an amendment: proposing it stores nothing, approving an older proposal neither."""
    setting = "rejection_sample_method: typical"
    config = {"rejection_sample_method": "typical"}
    lossy = replace(releases[1], name="lossy", speculative_config=config, lossy=(setting,))
    text = MILDER + f"allow_lossy: ['{setting}']\n"
    with store.begin() as unit:
        unit.releases.add(lossy)
    begin(store, policy=parse_policy(yaml.safe_load(text)), policy_text=text, candidate="lossy")
    words = {"policy": milder, "policy_text": MILDER, "reason": "x", "actor": "bob", "now": clock()}

    with pytest.raises(IncompatibleRelease, match="is not exact"):
        propose_amendment(store, "ro-1", **words)
    with store.begin() as unit:  # as an earlier version let it through
        assert unit.rollouts.get("ro-1").amendment == ""
        unit.policies.add(milder.digest, milder.name, MILDER)
        unit.rollouts.save(propose_rule(unit.rollouts.get("ro-1"), digest=milder.digest, actor="bob"))
    with pytest.raises(IncompatibleRelease, match="is not exact"):
        approve_amendment(store, "ro-1", digest=milder.digest, actor="eve", now=clock())
