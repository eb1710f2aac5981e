"""One secret place for all epochs: Gram matrices, check values, the tree."""

import numpy as np
import pytest

from momentree.order import BallsInBins, Fixed
from momentree.order.base import Shape
from momentree.privacy.account_of import calibrate
from momentree.privacy.amplified import amplified_account, calibrate_release
from momentree.privacy.balls_in_bins import balls_in_bins, places_gram
from momentree.privacy.events import Release
from momentree.privacy.gaussian import epsilon_of
from momentree.privacy.mixtures import Places
from momentree.privacy.monte_carlo import MonteCarloAccount
from momentree.strategy.bsr import Bsr
from momentree.strategy.identity import Identity
from momentree.strategy.restarted import Restarted
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from momentree.strategy.workload import iterate_workload


@pytest.mark.parametrize("steps", [3, 5, 6, 11, 12, 13])
@pytest.mark.parametrize("n", [1, 3, 6])
def test_the_gram_matrix_is_that_of_the_summed_columns(n, steps):
    band = iterate_workload(steps, 0.9).square_root(min(4, steps))
    for strategy in (Identity(steps), Bsr(steps, band), Tree(steps, 0.9), TreeFull(steps, 0.8)):
        matrix = strategy.matrix()
        columns = np.zeros((len(matrix), n))
        for t in range(steps):
            columns[:, t % n] += matrix[:, t]
        assert np.allclose(places_gram(strategy, n), columns.T @ columns, atol=1e-12)


def test_the_check_value():
    """N = 1000, batch 50 (n = 20), σ = 1, 2 epochs, δ = 1e-5, identity."""
    release = Release(Identity(40), BallsInBins(Shape(1000, 50, 2)), "zero-out", 1.0)
    bracket = amplified_account(release, seed=0).epsilon(1e-5)
    assert bracket.upper == pytest.approx(3.62, rel=0.03)
    assert bracket.upper - bracket.lower < 0.01
    sampled = MonteCarloAccount(Places(2.0 * np.eye(20)), seed=1, samples=50_000).epsilon(1e-5)
    assert sampled.lower <= bracket.upper
    assert bracket.lower <= sampled.upper


def test_one_place_is_the_gaussian_mechanism():
    bracket = balls_in_bins(np.full((1, 1), 4.0), 2.0, seed=0).epsilon(1e-5)
    assert bracket.lower <= epsilon_of(1.0, 1e-5).estimate <= bracket.upper


def test_a_cut_last_epoch_has_places_that_take_part_less_often():
    whole = balls_in_bins(places_gram(Identity(12), 6), 1.0, seed=0).epsilon(1e-4)
    cut = balls_in_bins(places_gram(Identity(9), 6), 1.0, seed=0).epsilon(1e-4)
    short = balls_in_bins(places_gram(Identity(6), 6), 1.0, seed=0).epsilon(1e-4)
    assert short.upper < cut.lower
    assert cut.upper < whole.lower


def test_restarts_are_priced_with_their_own_columns():
    inner = Tree(6, 0.9)
    twice = places_gram(Restarted(inner, 2), 6)
    assert np.allclose(twice, 2 * places_gram(inner, 6))


def test_a_persons_rows_count_together():
    order = BallsInBins(Shape(60, 10, 2), together=True)
    one = amplified_account(Release(Identity(12), order, "zero-out", 2.0, group_size=2), seed=0).epsilon(1e-4)
    half = amplified_account(Release(Identity(12), order, "zero-out", 1.0), seed=0).epsilon(1e-4)
    assert one == half


def tree_ratio(epsilon: float, samples: int) -> float:
    shape = Shape(1000, 10, 10)
    release = Release(TreeFull(1000, 0.9), BallsInBins(shape), "zero-out", 20.0 / epsilon)
    found = calibrate_release(release, epsilon, 1e-4, seed=7, samples=samples)
    assert found.account.epsilon(1e-4).upper <= epsilon
    unamplified = calibrate(Release(TreeFull(1000, 0.9), Fixed(shape, seed=0), "zero-out", 1.0), epsilon, 1e-4)
    return found.noise_multiplier / unamplified


def test_the_tree_needs_half_of_its_noise_at_epsilon_4():
    assert tree_ratio(4.0, 40_000) == pytest.approx(0.51, rel=0.02)


@pytest.mark.verify
def test_the_tree_needs_a_quarter_of_its_noise_at_epsilon_1():
    assert tree_ratio(1.0, 200_000) == pytest.approx(0.26, rel=0.02)
