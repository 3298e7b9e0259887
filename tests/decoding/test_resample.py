"""The token that ends a round, on hand-made laws."""

import torch

from specops.decoding.resample import excess, resample, residual
from specops.decoding.sampling import Seeded

P = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], dtype=torch.float64)
Q = torch.tensor([[0.1, 0.6, 0.3]], dtype=torch.float64)


def test_the_residual_is_the_normalised_excess():
    """Only token 0 has more mass under p."""
    assert residual(P[0], Q[0]).tolist() == [1.0, 0.0, 0.0]


def test_the_residual_of_a_one_hot_proposal_excludes_it():
    """An integer draft stands for the one-hot law."""
    one_hot = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)

    assert torch.allclose(residual(P[0], 1), torch.tensor([5 / 7, 0.0, 2 / 7], dtype=torch.float64))
    assert torch.allclose(excess(P[0], 1), excess(P[0], one_hot))


def test_equal_laws_leave_the_target():
    """No mass is left after rounding: p itself is drawn from, never a NaN."""
    assert torch.equal(residual(P[0], P[0]), P[0])


def test_laws_are_not_changed():
    """Stages share the rows; none may write into them."""
    before = P.clone(), Q.clone()
    residual(P[0], 1)
    residual(P[0], Q[0])

    assert torch.equal(P, before[0])
    assert torch.equal(Q, before[1])


def test_a_full_accept_draws_the_bonus_from_the_last_row(every_path):
    """All of row k, none of row k - 1."""
    got = {token: weight for weight, token in every_path(lambda chance: resample(1, (0,), Q, P, chance))}

    assert got == {0: 0.1, 1: 0.1, 2: 0.8}


def test_a_rejection_draws_from_the_rejected_row(every_path):
    """The residual of row 0."""
    assert list(every_path(lambda chance: resample(0, (1,), Q, P, chance))) == [(1.0, 0)]


def test_an_empty_block_draws_from_the_target():
    """Without proposals the only row is the bonus row."""
    assert resample(0, (), None, P[1:], Seeded(0)) in {0, 1, 2}
