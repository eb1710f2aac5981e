"""Gaussian differential privacy against 50 digits, on both sides of every rounding."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from momentree.errors import InputError
from momentree.privacy.gaussian import GaussianAccount, composed_mu, delta_of, epsilon_of, largest_mu

mp.mp.dps = 50


def delta_mp(mu: mp.mpf, epsilon: mp.mpf) -> mp.mpf:
    """The closed form as printed, in 50 digits; `ncdf` through erfc keeps its tails."""

    def phi(x: mp.mpf) -> mp.mpf:
        return mp.erfc(-x / mp.sqrt(2)) / 2

    return phi(mu / 2 - epsilon / mu) - mp.e**epsilon * phi(-mu / 2 - epsilon / mu)


def epsilon_mp(mu: float, delta: float, near: float) -> mp.mpf:
    """ε with δ(ε) = δ, by bisection on log δ in 50 digits."""
    mu, target = mp.mpf(mu), mp.log(mp.mpf(delta))
    low, high = mp.mpf(near) * mp.mpf("0.999999"), mp.mpf(near) * mp.mpf("1.000001")
    while mp.log(delta_mp(mu, low)) < target:
        low *= mp.mpf("0.99")
    while mp.log(delta_mp(mu, high)) > target:
        high *= mp.mpf("1.01")
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if mp.log(delta_mp(mu, middle)) > target else (low, middle)
    return (low + high) / 2


DELTAS = [1e-12, 1e-9, 1e-5, 1e-3, 0.1]
EPSILONS = [0.01, 0.1, 1.0, 4.0, 30.0, 200.0]


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_epsilon_and_mu_agree_with_fifty_digits_on_the_private_side(epsilon, delta):
    mu = largest_mu(epsilon, delta)
    assert mp.mpf(delta_mp(mp.mpf(mu), mp.mpf(epsilon))) <= mp.mpf(delta)  # never more than asked
    assert delta_mp(mp.mpf(mu) * (1 + mp.mpf("1e-8")), mp.mpf(epsilon)) > mp.mpf(delta)  # and not wastefully less
    bracket = epsilon_of(mu, delta)
    truth = epsilon_mp(mu, delta, epsilon)
    assert bracket.lower <= truth <= bracket.upper
    assert abs(mp.mpf(bracket.estimate) / truth - 1) < mp.mpf("1e-8")
    assert (bracket.upper - bracket.lower) < 1e-8 * epsilon
    assert bracket.upper <= epsilon  # what was calibrated for ε is quoted at no more than ε


@pytest.mark.parametrize("mu", [0.003, 0.05, 0.7, 3.0, 12.0, 20.0])
def test_delta_keeps_its_relative_accuracy(mu):
    for epsilon in (0.0, 0.01, 0.5, 3.0, 20.0, 150.0, 250.0):
        truth = delta_mp(mp.mpf(mu), mp.mpf(epsilon))
        if truth < mp.mpf("1e-290"):
            assert delta_of(mu, epsilon) <= 1e-280
            continue
        bracket = GaussianAccount(mu).delta(epsilon)
        assert bracket.lower <= truth <= bracket.upper
        assert abs(mp.mpf(bracket.estimate) / truth - 1) < mp.mpf("1e-12")


def test_random_pairs_stay_on_the_private_side_and_the_other_side_would_be_noticed():
    rng = np.random.default_rng(1)
    for _ in range(300):
        epsilon = float(10 ** rng.uniform(-2, 2.3))
        delta = float(10 ** rng.uniform(-12, -1))
        mu = largest_mu(epsilon, delta)
        assert delta_mp(mp.mpf(mu), mp.mpf(epsilon)) <= mp.mpf(delta)
        nudged = mp.mpf(mu) * (1 + mp.mpf("1e-9"))
        assert delta_mp(nudged, mp.mpf(epsilon)) > mp.mpf(delta)  # a calibration on the other side fails here


def test_figures():
    assert 1 / largest_mu(1.0, 1e-5) == pytest.approx(3.7306, abs=5e-5)
    assert 2 * math.sqrt(math.log(1e5)) == pytest.approx(6.79, abs=5e-3)  # the paper's σ at ε = 1
    assert epsilon_of(math.sqrt(2), 1e-5).upper == pytest.approx(6.57, abs=5e-3)
    # E6 of the paper's errata: at ε = 40 the printed σ gives more than 40
    assert epsilon_of(40 / (2 * math.sqrt(math.log(1e5))), 1e-5).estimate == pytest.approx(41.76, abs=5e-3)


def test_against_dp_accounting():
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import privacy_loss_mechanism

    for sigma, epsilon in ((0.5, 3.0), (2.0, 1.0), (5.0, 0.3)):
        loss = privacy_loss_mechanism.GaussianPrivacyLoss(sigma)
        assert delta_of(1 / sigma, epsilon) == pytest.approx(loss.get_delta_for_epsilon(epsilon), rel=1e-6)
    assert dp_accounting.get_sigma_gaussian(1.0, 1e-5) == pytest.approx(1 / largest_mu(1.0, 1e-5), rel=1e-6)


def test_the_account_is_monotone_and_composes_exactly():
    account = GaussianAccount(1.3)
    epsilons = [account.epsilon(d).upper for d in (1e-9, 1e-7, 1e-5, 1e-3, 0.4, 0.49)]
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[-1] == 0.0  # δ(0) = 2Φ(μ/2) − 1 = 0.484 here
    assert composed_mu(0.3, 0.4, 1.2) == pytest.approx(1.3, rel=1e-15)
    # two runs of μ = 1 are one run of μ = √2, by simulation of the loss: mean μ²/2, variance μ²
    rng = np.random.default_rng(0)
    loss = rng.normal(0.5, 1, 400_000) + rng.normal(0.5, 1, 400_000)
    empirical = np.maximum(0.0, -np.expm1(2.0 - loss)).mean()
    assert empirical == pytest.approx(delta_of(math.sqrt(2), 2.0), rel=0.02)
    assert empirical != pytest.approx(delta_of(2.0, 2.0), rel=0.2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: epsilon_of(1.0, 0.0),
        lambda: epsilon_of(1.0, 1.0),
        lambda: epsilon_of(-1.0, 1e-5),
        lambda: epsilon_of(math.inf, 1e-5),
        lambda: largest_mu(0.0, 1e-5),
        lambda: largest_mu(1.0, math.nan),
        lambda: GaussianAccount(math.nan),
        lambda: largest_mu("one", 1e-5),
    ],
)
def test_bad_numbers_are_one_line(call):
    with pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert "give" in str(caught.value)
