"""Poisson and cyclic Poisson: loss distributions, beside Rényi and our own bracket."""

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

from momentree.errors import InputError, NoProofError
from momentree.privacy.gaussian import epsilon_of
from momentree.privacy.poisson import PoissonAccount, cyclic_poisson
from momentree.privacy.ratio import RatioAccount


def test_the_check_value():
    """N = 1000, batch 50, σ = 1, 2 epochs, δ = 1e-5."""
    bracket = PoissonAccount(0.05, 40, 1.0).epsilon(1e-5)
    assert bracket.upper == pytest.approx(2.468, rel=0.005)
    assert bracket.upper - bracket.lower < 0.005


def test_it_is_below_renyi_and_renyi_is_as_known():
    accountant = RdpAccountant()
    event = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1.0))
    accountant.compose(event, 40)
    renyi = accountant.get_epsilon(1e-5)
    assert renyi == pytest.approx(2.97, abs=0.01)
    assert PoissonAccount(0.05, 40, 1.0).epsilon(1e-5).upper < renyi


@pytest.mark.parametrize(
    ("rate", "steps", "sigma"), [(0.01, 500, 0.8), (0.3, 20, 3.0), (0.002, 5000, 0.6), (1.0, 9, 4.0)]
)
def test_our_own_loss_distribution_agrees(rate, steps, sigma):
    """dp_accounting's pessimistic end lies in our own bracket, or just above it."""
    account = PoissonAccount(rate, steps, sigma)
    ours = RatioAccount(account.ratio, "our own")
    for delta in (1e-3, 1e-6):
        mine, theirs = ours.epsilon(delta), account.epsilon(delta).upper
        assert mine.lower <= theirs
        assert theirs <= mine.upper * 1.002 + 1e-3
        assert mine.upper <= mine.lower * 1.01 + 1e-6
    if rate == 1.0:
        assert mine.lower <= epsilon_of(np.sqrt(steps) / sigma, 1e-6).estimate <= mine.upper


def test_delta_and_epsilon_answer_each_other():
    account = PoissonAccount(0.05, 40, 1.0)
    epsilon = account.epsilon(1e-5).upper
    bracket = account.delta(epsilon)
    assert bracket.lower <= bracket.estimate <= bracket.upper <= 1e-5 * (1 + 1e-6)


def test_replace_one_costs_more_than_zero_out_and_less_than_twice_the_sensitivity_unamplified():
    zero = PoissonAccount(0.05, 40, 1.0).epsilon(1e-5)
    replace = PoissonAccount(0.05, 40, 1.0, "replace-one")
    assert zero.upper < replace.epsilon(1e-5).lower
    assert replace.epsilon(1e-5).upper < epsilon_of(2 * np.sqrt(40), 1e-5).lower
    # at rate 1 it is the Gaussian mechanism of twice the sensitivity
    whole = PoissonAccount(1.0, 4, 5.0, "replace-one").epsilon(1e-5)
    assert whole.lower <= epsilon_of(2 * 2 / 5, 1e-5).estimate <= whole.upper
    assert PoissonAccount(0.05, 40, 1.0, "add-remove").epsilon(1e-5) == zero
    with pytest.raises(NoProofError):
        replace.ratio("upper")


def test_cyclic_poisson_is_one_column_a_turn():
    c = np.array([1.0, 0.5, 0.375])
    account = cyclic_poisson(c, 41, 4, 0.2, 2.0)
    assert account.steps == 11
    assert account.noise == pytest.approx(2.0 / np.linalg.norm(c))
    assert account.epsilon(1e-5) == PoissonAccount(0.2, 11, 2.0 / (np.linalg.norm(c) * (1 + 1e-12))).epsilon(1e-5)
    with pytest.raises(NoProofError, match="at most the number of parts"):
        cyclic_poisson(c, 41, 2, 0.2, 2.0)
    # trailing zeros are no diagonals
    assert cyclic_poisson(np.r_[c, 0, 0], 41, 3, 0.2, 2.0).steps == 14


@pytest.mark.parametrize(
    "facts",
    [(0.0, 4, 1.0), (1.1, 4, 1.0), (0.5, 0, 1.0), (0.5, 4, 0.0), (0.5, 4, float("nan")), (0.5, 4, 1.0, "neighbours")],
)
def test_bad_input(facts):
    with pytest.raises(InputError):
        PoissonAccount(*facts)
