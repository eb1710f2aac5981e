"""Dispatch, calibration and composition of the amplified accounts."""

import math

import numpy as np
import pytest

from momentree.errors import InputError, NoProofError
from momentree.order import BallsInBins, CyclicPoisson, Fixed, Poisson, RandomAllocation
from momentree.order.base import Shape
from momentree.privacy.amplified import account_maker, amplified_account, calibrate_amplified, calibrate_release
from momentree.privacy.balls_in_bins import balls_in_bins
from momentree.privacy.compose import certified_ratio, compose
from momentree.privacy.events import Release
from momentree.privacy.gaussian import GaussianAccount, epsilon_of, largest_mu
from momentree.privacy.mixtures import Places
from momentree.privacy.monte_carlo import MonteCarloAccount
from momentree.privacy.poisson import PoissonAccount
from momentree.privacy.ratio import RatioAccount, lognormal
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense
from momentree.strategy.identity import Identity
from momentree.strategy.tree import Tree

SHAPE = Shape(120, 20, 2)


def random_release(generator: np.random.Generator) -> Release:
    """A small amplified configuration, any order, adjacency and strategy that have a proof."""
    n, epochs = int(generator.integers(2, 7)), int(generator.integers(1, 4))
    batch = int(generator.integers(1, 9))
    shape = Shape(n * batch, batch, epochs)
    kind = generator.integers(4)
    adjacency = "add-remove" if generator.random() < 0.3 else "zero-out"
    declared = adjacency == "add-remove"
    steps, band = shape.steps, int(generator.integers(1, n + 1))
    bsr = Bsr(steps, np.r_[1.0, np.sort(generator.random(band - 1))[::-1]])
    order, strategy = {
        0: (Poisson(shape, declared), Identity(steps)),
        1: (CyclicPoisson(shape, declared, parts=n), bsr),
        2: (BallsInBins(shape, declared), Tree(steps, float(generator.random())) if generator.random() < 0.5 else bsr),
        3: (RandomAllocation(shape, declared), bsr if generator.random() < 0.5 else Identity(steps)),
    }[int(kind)]
    return Release(strategy, order, adjacency, 1.0)  # type: ignore[arg-type]


def check_calibrated(seed: int) -> None:
    generator = np.random.default_rng(seed)
    release = random_release(generator)
    epsilon, delta = float(np.exp(generator.uniform(-0.7, 1.8))), 10.0 ** -float(generator.uniform(2.5, 6))
    sampled = isinstance(release.order, BallsInBins | RandomAllocation)
    found = calibrate_release(release, epsilon, delta, seed=seed, samples=20_000 if sampled else None)
    assert found.account.epsilon(delta).upper <= epsilon
    # the record's facts give the same account again
    again = account_maker(release, samples=20_000 if sampled else None)(found.noise_multiplier, found.seed)
    assert again.epsilon(delta) == found.account.epsilon(delta)
    # and less noise is not enough: by 1% where the loss is computed, by what sampling costs elsewhere
    room = 0.9 if isinstance(found.account, MonteCarloAccount) else 0.99
    less = account_maker(release)(room * found.noise_multiplier, seed + 1)
    assert less.epsilon(delta).upper > epsilon


@pytest.mark.parametrize("seed", range(6))
def test_calibrated_noise_is_enough_and_not_too_much(seed):
    check_calibrated(seed)


@pytest.mark.verify
@pytest.mark.parametrize("seed", range(100, 200))
def test_calibrated_noise_on_100_plans(seed):
    check_calibrated(seed)


def test_calibration_ends_on_the_private_side_and_meets_the_gaussian():
    """One place of one: the mechanism is Gaussian, so the σ is known."""
    exact = 1 / largest_mu(1.0, 1e-5)
    found = calibrate_amplified(
        lambda sigma, seed: MonteCarloAccount(Places(np.full((1, 1), 1 / sigma**2)), seed=seed, samples=50_000),
        1.0,
        1e-5,
        seed=1,
    )
    assert exact <= found.noise_multiplier <= 1.03 * exact
    computed = calibrate_amplified(
        lambda sigma, seed: balls_in_bins(np.full((1, 1), 1.0), sigma, seed=seed), 1.0, 1e-5, seed=1
    )
    assert exact <= computed.noise_multiplier <= 1.002 * exact


@pytest.mark.parametrize(
    ("order", "strategy", "adjacency"),
    [
        (Poisson(SHAPE), Bsr(12, np.array([1.0, 0.5])), "zero-out"),
        (CyclicPoisson(SHAPE, parts=3), Tree(12, 0.9), "zero-out"),
        (CyclicPoisson(SHAPE, parts=3), Bsr(12, np.array([1.0, 0.5, 0.4, 0.3])), "zero-out"),
        (BallsInBins(SHAPE), Identity(12), "replace-one"),
        (RandomAllocation(SHAPE), Identity(12), "replace-one"),
        (BallsInBins(SHAPE), Identity(12), "add-remove"),
        (BallsInBins(SHAPE), Dense(np.eye(12) - 0.1 * np.eye(12, k=-1)), "zero-out"),
        (Fixed(SHAPE, seed=0), Identity(12), "zero-out"),
    ],
)
def test_what_has_no_proof_is_refused_in_one_line(order, strategy, adjacency):
    with pytest.raises(NoProofError) as caught:
        amplified_account(Release(strategy, order, adjacency, 1.0), seed=0)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_groups_need_to_draw_together():
    with pytest.raises(NoProofError):
        amplified_account(Release(Identity(12), Poisson(SHAPE), "zero-out", 1.0, group_size=2), seed=0)
    together = Release(Identity(12), Poisson(SHAPE, together=True), "zero-out", 2.0, group_size=2)
    alone = Release(Identity(12), Poisson(SHAPE), "zero-out", 1.0)
    assert amplified_account(together, seed=0).epsilon(1e-4) == amplified_account(alone, seed=0).epsilon(1e-4)


def test_targets_out_of_reach_are_refused():
    def account(sigma, seed):
        return MonteCarloAccount(Places(np.eye(2) / sigma**2), seed=seed, samples=2000)

    for epsilon, delta in ((-1.0, 1e-5), (1.0, 0.0), (math.nan, 1e-5)):
        with pytest.raises(InputError):
            calibrate_amplified(account, epsilon, delta, seed=0)


# composition


def test_gaussians_compose_exactly_in_either_form():
    together = compose([GaussianAccount(0.5), RatioAccount(lambda side: lognormal(0.36, side, 80), "a Gaussian")])
    truth = epsilon_of(math.sqrt(0.61), 1e-5)
    bracket = together.epsilon(1e-5)
    assert bracket.lower <= truth.upper
    assert truth.lower <= bracket.upper <= 1.003 * truth.upper
    assert compose([GaussianAccount(0.3), GaussianAccount(0.4)]).mu == pytest.approx(0.5)


def test_poisson_runs_compose_as_one_longer_run():
    both = compose([PoissonAccount(0.05, 25, 1.0), PoissonAccount(0.05, 15, 1.0)]).epsilon(1e-5)
    whole = PoissonAccount(0.05, 40, 1.0).epsilon(1e-5)
    assert both.lower <= whole.upper
    assert whole.lower <= both.upper <= 1.005 * whole.upper


def test_sampled_accounts_compose_above_the_computed_ones():
    gram = 1.5 * np.eye(8)
    computed = balls_in_bins(gram, 1.0, seed=0)
    sampled = MonteCarloAccount(Places(gram), seed=2, samples=40_000)
    curve = certified_ratio(sampled)
    assert float(curve.values @ curve.weights) + curve.infinite == pytest.approx(1.0)
    for epsilon in (0.0, 0.5, 1.5, 3.0):
        lower = computed.ratio("lower")
        assert curve.forward(epsilon) >= lower.forward(epsilon)
        assert curve.reverse(epsilon) >= lower.reverse(epsilon)
    together, truth = compose([computed, sampled]), compose([computed, computed])
    assert together.failure_probability == sampled.failure_probability
    for delta in (1e-3, 1e-6):
        bracket = together.epsilon(delta)
        assert bracket.lower <= truth.epsilon(delta).upper
        assert truth.epsilon(delta).lower <= bracket.upper <= 1.06 * truth.epsilon(delta).upper


def test_what_cannot_be_composed_is_refused():
    with pytest.raises(NoProofError):
        compose([PoissonAccount(0.1, 5, 1.0, "replace-one"), GaussianAccount(0.2)])
