"""Certified Monte Carlo against closed forms: its level, its reach, and that it is a function of its seed."""

import math

import numpy as np
import pytest

from momentree.errors import InputError
from momentree.privacy.allocation import banded_allocation
from momentree.privacy.balls_in_bins import balls_in_bins
from momentree.privacy.gaussian import delta_of, epsilon_of
from momentree.privacy.mixtures import Places
from momentree.privacy.monte_carlo import MonteCarloAccount
from momentree.privacy.random_allocation import random_allocation

LEVEL = 0.01


def misses(mixture, truth, seeds, query):
    """In how many of the seeds the bracket does not hold the truth, and how wide it was at most."""
    missed, widest = 0, 0.0
    for seed in seeds:
        account = MonteCarloAccount(mixture, seed=seed, samples=3000, failure_probability=LEVEL)
        bracket = query(account)
        missed += not bracket.lower <= truth <= bracket.upper
        widest = max(widest, bracket.upper / truth)
    return missed, widest


CLOSED = {
    "n=1, the Gaussian": (np.full((1, 1), 1.44), lambda: epsilon_of(1.2, 1e-3).estimate),
    "n=2, identity": (np.eye(2), lambda: balls_in_bins(np.eye(2), 1.0, seed=0).epsilon(1e-3).estimate),
}


@pytest.mark.parametrize("case", CLOSED)
def test_the_level_is_kept_on_a_slice_of_seeds(case):
    gram, truth = CLOSED[case]
    missed, widest = misses(Places(gram), truth(), range(12), lambda a: a.epsilon(1e-3))
    assert missed == 0
    assert widest < 1.25


@pytest.mark.verify
@pytest.mark.parametrize("case", CLOSED)
def test_the_level_is_kept_on_200_seeds(case):
    gram, truth = CLOSED[case]
    missed, _ = misses(Places(gram), truth(), range(200), lambda a: a.epsilon(1e-3))
    assert 200 - missed >= 193


def test_a_delta_is_bracketed_too():
    missed, _ = misses(Places(np.full((1, 1), 1.0)), delta_of(1.0, 1.0), range(12), lambda a: a.delta(1.0))
    assert missed == 0


@pytest.mark.parametrize("delta", [1e-3, 1e-8])
def test_small_delta_is_reached(delta):
    for mixture, account in (
        (Places(2 * np.eye(20)), balls_in_bins(2 * np.eye(20), 1.0, seed=0)),
        (
            banded_allocation(np.ones(1), 20, 2, 1.0),
            random_allocation(banded_allocation(np.ones(1), 20, 2, 1.0), seed=0),
        ),
    ):
        truth = account.epsilon(delta)
        got = MonteCarloAccount(mixture, seed=4, samples=60_000).epsilon(delta)
        assert got.lower <= truth.upper
        assert truth.lower <= got.upper
        assert got.upper <= 1.06 * truth.upper
        assert got.lower >= 0.9 * truth.lower


def test_the_seed_decides_everything():
    def ask(seed):
        return MonteCarloAccount(Places(np.eye(3)), seed=seed, samples=4000).epsilon(1e-3)

    assert ask(1) == ask(1)
    assert ask(1) != ask(2)
    account = MonteCarloAccount(Places(np.eye(3)), seed=1, samples=4000)
    account.delta(0.5)
    assert account.epsilon(1e-3) == ask(1)  # what was asked before does not matter
    assert "seed 1" in account.method
    assert "4000" in account.method


def test_it_refuses_what_the_sample_cannot_carry():
    wide = banded_allocation(np.ones(4), 4, 6, 0.35)
    with pytest.raises(InputError, match="cannot carry"):
        MonteCarloAccount(wide, seed=1, samples=2000).epsilon(1e-9)


def test_it_never_exceeds_the_unamplified_release():
    account = MonteCarloAccount(Places(9.0 * np.eye(4)), seed=1, samples=3000)
    assert account.delta(0.5).upper <= delta_of(3.0, 0.5) * (1 + 1e-6)


def test_certifying_on_the_sample_that_chose_is_optimistic():
    """Why there are two samples: a plug-in δ on the sample that chose overstates privacy in about half of the cases."""
    over = 0
    truth = balls_in_bins(np.eye(2), 1.0, seed=0).epsilon(1e-3).lower
    for seed in range(40):
        ell, _ = Places(np.eye(2)).replicas(np.random.default_rng(seed), 3000, 1)
        chosen = next(e for e in np.linspace(0, 4, 400) if np.maximum(-np.expm1(e - ell), 0).mean() <= 1e-3)
        over += chosen < truth
    assert over >= 10


def test_inputs():
    for wrong in ({"samples": 10}, {"failure_probability": 0.0}, {"seed": -1}):
        with pytest.raises(InputError):
            MonteCarloAccount(Places(np.eye(2)), **({"seed": 1} | wrong))
    account = MonteCarloAccount(Places(np.eye(2)), seed=1, samples=2000)
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(InputError):
            account.epsilon(delta)
