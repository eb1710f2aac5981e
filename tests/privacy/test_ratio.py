"""Discrete likelihood ratios on either side of the truth, against closed forms and numerical integration."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from momentree.privacy.gaussian import delta_of, epsilon_of
from momentree.privacy.ratio import RatioAccount, add, lognormal, multiply, power, subsampled

SIDES = ("upper", "lower")


@pytest.mark.parametrize("mu", [0.1, 0.7, 1.5, 3.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-8])
def test_one_gaussian_is_bracketed(mu, delta):
    truth = epsilon_of(mu, delta)
    upper, lower = (lognormal(mu * mu, side, 80).epsilon(delta) for side in SIDES)
    assert lower <= truth.upper
    assert truth.lower <= upper
    assert upper - lower <= 2e-3 * truth.estimate + 1e-9


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
def test_both_directions_of_a_gaussian(epsilon):
    upper, lower = (lognormal(0.64, side, 80) for side in SIDES)
    truth = delta_of(0.8, epsilon)
    for low, high in ((lower.forward, upper.forward), (lower.reverse, upper.reverse)):
        assert low(epsilon) <= truth * (1 + 1e-9)
        assert truth <= high(epsilon) * (1 + 1e-9)
        assert high(epsilon) <= 1.005 * low(epsilon)


@pytest.mark.parametrize("times", [2, 7, 40])
def test_products_are_compositions(times):
    mu = math.sqrt(times) * 0.3
    for delta in (1e-3, 1e-6):
        upper, lower = (power(lognormal(0.09, side, 80), times, multiply, 80).epsilon(delta) for side in SIDES)
        truth = epsilon_of(mu, delta).estimate
        assert lower <= truth * (1 + 1e-9)
        assert truth <= upper * (1 + 1e-9)
        assert upper / lower < 1.005


def two_places(g: float, epsilon: float) -> tuple[float, float]:
    """Both divergences of ½(X₁ + X₂), X_i = exp(√g ζ_i − g/2), by integration over ζ₁ with ζ₂ in closed form."""
    root = math.sqrt(g)

    def partial_mean(threshold: float) -> tuple[float, float]:
        """(P(X > t), E[X; X > t])."""
        if threshold <= 0:
            return 1.0, 1.0
        z = (math.log(threshold) + g / 2) / root
        return float(ndtr(-z)), float(ndtr(root - z))

    def forward(zeta: float) -> float:
        x = math.exp(root * zeta - g / 2)
        probability, mean = partial_mean(2 * math.exp(epsilon) - x)
        return norm.pdf(zeta) * (mean / 2 + (x / 2 - math.exp(epsilon)) * probability)

    def reverse(zeta: float) -> float:
        x = math.exp(root * zeta - g / 2)
        probability, mean = partial_mean(2 * math.exp(-epsilon) - x)
        return norm.pdf(zeta) * (
            (1 - math.exp(epsilon) * x / 2) * (1 - probability) - math.exp(epsilon) / 2 * (1 - mean)
        )

    edge = (math.log(2) + epsilon + g / 2) / root
    kink = (math.log(2) - epsilon + g / 2) / root
    ahead = quad(forward, -14, edge, limit=400, epsabs=1e-14)[0] + quad(forward, edge, edge + 14, limit=400)[0]
    return ahead, quad(reverse, -14, kink, limit=400, epsabs=1e-14)[0]


@pytest.mark.parametrize("g", [0.3, 1.0, 4.0])
def test_two_places_agree_with_integration(g):
    upper, lower = (power(lognormal(g, side, 80), 2, add, 80).scaled(0.5, 0.0) for side in SIDES)
    for epsilon in (0.1, 0.5, 1.5):
        ahead, back = two_places(g, epsilon)
        assert lower.forward(epsilon) <= ahead * (1 + 1e-6) + 1e-13
        assert ahead <= upper.forward(epsilon) * (1 + 1e-6) + 1e-13
        assert upper.forward(epsilon) <= 1.01 * ahead + 1e-12
        assert lower.reverse(epsilon) <= back * (1 + 1e-6) + 1e-13
        assert back <= upper.reverse(epsilon) * (1 + 1e-6) + 1e-13


def test_the_mean_stays_one_and_the_order_holds():
    for side in SIDES:
        ratio = power(power(lognormal(2.0, side, 30), 9, add, 30).scaled(1 / 9, 0.0), 5, multiply, 30)
        assert math.isclose(float(ratio.values @ ratio.weights) + ratio.infinite, 1.0, rel_tol=1e-10)
        assert math.isclose(float(ratio.weights.sum()), 1.0, rel_tol=1e-10)
    # a coarser grid is further out on its own side
    for epsilon in (0.2, 1.0):
        fine, coarse = (power(subsampled(0.1, 1.0, "upper", r), 20, multiply, r) for r in (80, 15))
        assert coarse.forward(epsilon) > fine.forward(epsilon)
        fine, coarse = (power(subsampled(0.1, 1.0, "lower", r), 20, multiply, r) for r in (80, 15))
        assert coarse.forward(epsilon) < fine.forward(epsilon)


def test_an_account_brackets_and_answers_both_ways():
    account = RatioAccount(lambda side: lognormal(1.0, side, 60), "one Gaussian")
    bracket = account.epsilon(1e-5)
    assert bracket.lower <= epsilon_of(1.0, 1e-5).estimate <= bracket.upper
    back = account.delta(bracket.upper)
    assert back.upper <= 1e-5 * (1 + 1e-9)
    assert account.epsilon(0.9).upper == 0.0
    assert np.isclose(account.delta(0.0).upper, delta_of(1.0, 0.0), rtol=1e-3)


def test_what_cannot_be_told_from_certainty_is_bounded_all_the_same():
    """exp would overflow: the upper side gives everything away, the lower side nothing, alone and combined."""
    for variance in (690.0, 800.0, 1e9):
        top, bottom = lognormal(variance, "upper"), lognormal(variance, "lower")
        assert top.delta(5.0) > 1 - 1e-9
        assert 0.0 <= bottom.delta(5.0) <= top.delta(5.0)
        place = power(top, 4, add).scaled(1 / 4, 0.0)  # one of four places: P puts all of its mass where Q has none
        assert place.delta(1.0) == pytest.approx(1.0, abs=1e-6)
        step = subsampled(0.25, variance, "upper")
        assert step.delta(0.5) == pytest.approx(0.25)
        assert multiply(step, step).delta(0.5) <= 1.0
