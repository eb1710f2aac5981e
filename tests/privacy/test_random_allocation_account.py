"""A fresh secret place in every epoch: check values, restarts, cut epochs, and the certified noise."""

import numpy as np
import pytest

from momentree.errors import InputError, NoProofError
from momentree.order import RandomAllocation
from momentree.order.base import Shape
from momentree.privacy.allocation import allocation, banded_allocation
from momentree.privacy.amplified import amplified_account, calibrate_release
from momentree.privacy.balls_in_bins import balls_in_bins
from momentree.privacy.events import Release
from momentree.privacy.monte_carlo import MonteCarloAccount
from momentree.privacy.random_allocation import allocation_of, random_allocation, restarted_allocation
from momentree.strategy import iterate_rmse
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense
from momentree.strategy.identity import Identity
from momentree.strategy.restarted import Restarted
from momentree.strategy.tree import Tree
from momentree.strategy.workload import iterate_workload


def test_the_check_value():
    """N = 1000, batch 50 (n = 20), σ = 1, 2 epochs, δ = 1e-5, identity."""
    release = Release(Identity(40), RandomAllocation(Shape(1000, 50, 2)), "zero-out", 1.0)
    bracket = amplified_account(release, seed=0).epsilon(1e-5)
    assert bracket.upper == pytest.approx(2.04, rel=0.03)
    assert bracket.upper - bracket.lower < 0.005


def test_one_epoch_is_balls_in_bins():
    mine = random_allocation(banded_allocation(np.ones(1), 7, 1, 1.3), seed=0).epsilon(1e-4)
    assert mine == balls_in_bins(np.eye(7), 1.3, seed=0).epsilon(1e-4)


def test_a_fresh_place_costs_less_than_a_kept_one():
    fresh = random_allocation(banded_allocation(np.ones(1), 20, 5, 1.0), seed=0).epsilon(1e-5)
    kept = balls_in_bins(5 * np.eye(20), 1.0, seed=0).epsilon(1e-5)
    assert fresh.upper < 0.75 * kept.lower


@pytest.mark.parametrize("steps", [12, 15, 8])
def test_every_form_of_a_strategy_gives_the_same_mixture(steps):
    """Toeplitz, the same matrix as `dense`, and a restart every epoch; the last epoch cut or not."""
    c = np.array([1.0, 0.6, 0.2])
    banded = allocation_of(Bsr(steps, c), 4, 1.2)
    dense = allocation_of(Dense(Bsr(steps, c).matrix()), 4, 1.2)
    y = np.random.default_rng(0).standard_normal((30, steps))
    assert np.allclose(banded.log_ratio(y), dense.log_ratio(y), atol=1e-10)
    assert banded.largest_norm() == pytest.approx(dense.largest_norm())
    last = steps % 4 or 4
    blocks = Restarted(Tree(4, 0.9), -(-steps // 4), last if last < 4 else None)
    ours, written = allocation_of(blocks, 4, 1.2), allocation(blocks.matrix(), 4, 1.2)
    rows = np.random.default_rng(1).standard_normal((30, ours.rows))
    assert np.allclose(ours.log_ratio(rows), written.log_ratio(rows[:, : written.rows]), atol=1e-10)


def test_restarted_identity_is_identity():
    mine = restarted_allocation(np.eye(5), 3, 1.0)
    assert random_allocation(mine, seed=0).epsilon(1e-4) == random_allocation(
        banded_allocation(np.ones(1), 5, 3, 1.0), seed=0
    ).epsilon(1e-4)


def test_refusals():
    shape = Shape(40, 10, 3)
    for strategy in (Bsr(12, np.linspace(1, 0.1, 6)), Tree(12, 0.9), Restarted(Tree(8, 0.9), 2, 4)):
        with pytest.raises(NoProofError):
            amplified_account(Release(strategy, RandomAllocation(shape), "zero-out", 1.0), seed=0)
    with pytest.raises(InputError):
        amplified_account(Release(Identity(12), RandomAllocation(shape), "zero-out", 0.0), seed=0)
    with pytest.raises(NoProofError):
        amplified_account(Release(Identity(12), RandomAllocation(shape), "add-remove", 1.0), seed=0)
    declared = RandomAllocation(shape, declared=True)
    assert amplified_account(Release(Identity(12), declared, "add-remove", 1.0), seed=0).epsilon(1e-4) == (
        amplified_account(Release(Identity(12), declared, "zero-out", 1.0), seed=0).epsilon(1e-4)
    )


CERTIFIED = {  # (ε, band): the largest noise on Σm̂ that may be needed at n = 100, E = 10, β = 0.9, δ = 1e-4
    (1.0, 16): 22.9,
    (2.0, 16): 12.8,
    (4.0, 16): 7.5,
    (2.0, 32): 12.7,
    (4.0, 32): 7.2,
    (8.0, 64): 4.2,
}


def certified_noise(epsilon: float, band: int, sigma: float | None, samples: int) -> float:
    strategy = Bsr(1000, iterate_workload(1000, 0.9).square_root(band))
    release = Release(strategy, RandomAllocation(Shape(1000, 10, 10)), "zero-out", sigma or 10 / epsilon)
    if sigma is None:
        sigma = calibrate_release(release, epsilon, 1e-4, seed=11, samples=samples).noise_multiplier
    else:
        account = amplified_account(release, seed=11, samples=samples)
        assert isinstance(account, MonteCarloAccount)
        assert account.epsilon(1e-4).upper <= epsilon
    return sigma * iterate_rmse(strategy, 0.9)


@pytest.mark.verify
@pytest.mark.parametrize(("epsilon", "band"), CERTIFIED)
def test_the_certified_noise(epsilon, band):
    assert certified_noise(epsilon, band, None, 150_000) <= CERTIFIED[epsilon, band]


def test_a_slice_of_the_certified_noise():
    """The σ that gives the figure for ε = 8, certified here and now on a smaller sample."""
    strategy = Bsr(1000, iterate_workload(1000, 0.9).square_root(64))
    sigma = 4.2 / iterate_rmse(strategy, 0.9)
    assert certified_noise(8.0, 64, sigma, 20_000) <= 4.2 * (1 + 1e-12)
