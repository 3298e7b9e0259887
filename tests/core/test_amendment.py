"""A policy is amended by two people, and judges nothing that was measured before."""

from datetime import UTC, datetime

import pytest

from specops.core.rollout import Rollout, State, approve
from specops.core.steer import amend, propose
from specops.errors import IllegalTransition

NOW = datetime(2026, 1, 2, tzinfo=UTC)
NEW = "abcdef0123456789" * 4


@pytest.fixture
def proposed(make_rollout):
    """Return a rollout at its gate, with a policy proposed by bob."""
    return propose(make_rollout(2, approved_steps=(2,), step_began_at=7), digest=NEW, actor="bob")


def test_a_proposal_changes_no_judgement(proposed):
    """The policy in force and its evidence stay."""
    assert (proposed.policy_digest, proposed.amendment, proposed.evidence, proposed.version) == ("d", NEW, 1, 2)
    assert Rollout.from_record(proposed.to_record()) == proposed


def test_an_approved_policy_judges_new_outcomes_where_the_rollout_stands(proposed):
    """Step and share stay; evidence and approvals are gone."""
    after = amend(proposed, digest=NEW[:12], actor="eve", at=NOW)

    assert (after.policy_digest, after.amendment, after.step, after.state) == (NEW, "", 2, State.RUNNING)
    assert (after.evidence, after.evidence_since, after.step_began_at, after.approved_steps) == (2, NOW, 0, ())
    assert Rollout.from_record(after.to_record()) == after


@pytest.mark.parametrize(
    ("digest", "actor", "says"),
    [(NEW, "bob", "another person"), (NEW[:7], "eve", "at least 8"), ("0" * 64, "eve", "no proposed policy")],
)
def test_a_wrong_approval_is_refused(proposed, digest, actor, says):
    """The proposer, a digest too short, and another policy than the one proposed."""
    with pytest.raises(IllegalTransition, match=says):
        amend(proposed, digest=digest, actor=actor, at=NOW)


def test_there_must_be_something_to_propose_and_to_approve(make_rollout, proposed):
    """No proposal, the same policy, an ended rollout."""
    ended = make_rollout(1, state=State.ABORTED)
    with pytest.raises(IllegalTransition, match="none"):
        amend(make_rollout(1), digest=NEW, actor="eve", at=NOW)
    with pytest.raises(IllegalTransition, match="already"):
        propose(make_rollout(1), digest="d", actor="bob")
    with pytest.raises(IllegalTransition, match="start a new one"):
        propose(ended, digest=NEW, actor="bob")
    with pytest.raises(IllegalTransition, match="already"):
        amend(ended, digest=NEW, actor="eve", at=NOW)


def test_an_amendment_after_a_fall_is_a_new_attempt(make_rollout):
    """A milder policy does not lower the bar for what was tried before."""
    fallen = propose(make_rollout(1, state=State.FALLEN_BACK, attempt=1, evidence_since=NOW), digest=NEW, actor="bob")

    assert amend(fallen, digest=NEW, actor="eve", at=NOW).attempt == 2


def test_approving_no_gate_names_the_proposal(make_rollout):
    """The hint says how to approve the policy."""
    waiting = propose(make_rollout(1), digest=NEW, actor="bob")

    with pytest.raises(IllegalTransition, match=f"--amendment {NEW[:12]}"):
        approve(waiting, actor="eve")
