"""The dominating mixtures: their likelihood ratio, how they are drawn, and the ceilings of the weights."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import ks_2samp

import mixture_oracle as oracle
from momentree.errors import InputError
from momentree.privacy.allocation import allocation, banded_allocation
from momentree.privacy.mixtures import Places

CASES = [
    (3, 3, 3, 9),
    (3, 3, 2, 9),
    (4, 3, 4, 12),
    (3, 4, 3, 11),
    (3, 4, 3, 10),
    (2, 5, 2, 9),
    (5, 1, 3, 5),
    (3, 4, 1, 12),
]


def some_band(p, seed=0):
    return np.r_[1.0, np.sort(np.random.default_rng(seed).random(p - 1))[::-1]]


@pytest.mark.parametrize(("n", "epochs", "p", "steps"), CASES)
def test_the_recursion_is_the_sum_over_all_patterns(n, epochs, p, steps):
    c = some_band(p, seed=n)
    matrix = oracle.toeplitz(c, steps)
    rows, weights = oracle.patterns("random-allocation", n, epochs, steps)
    y = np.random.default_rng(1).standard_normal((40, steps)) * 1.5
    truth = oracle.log_ratio(matrix, 0.8, rows, weights, y)
    for mixture in (allocation(matrix, n, 0.8), banded_allocation(c, n, epochs, 0.8, steps=steps)):
        assert np.abs(mixture.log_ratio(y) - truth).max() < 1e-10


def test_a_wider_band_is_refused():
    with pytest.raises(InputError, match="at most 3"):
        banded_allocation(some_band(4), 3, 3, 1.0)
    with pytest.raises(InputError, match="neighbouring"):
        allocation(oracle.toeplitz(some_band(6), 9), 3, 1.0)


def small_mixtures():
    c = some_band(3, seed=5)
    yield banded_allocation(c, 3, 3, 1.1), oracle.patterns("random-allocation", 3, 3, 9), oracle.toeplitz(c, 9), 1.1
    matrix = oracle.toeplitz(some_band(6, seed=6), 6)
    columns = matrix.reshape(6, 2, 3).sum(axis=1)
    yield Places(columns.T @ columns / 1.7**2), oracle.patterns("balls-in-bins", 3, 2, 6), matrix, 1.7


@pytest.mark.parametrize("mixture", list(small_mixtures()), ids=["allocation", "places"])
def test_ceilings_and_norms_are_never_below_the_truth(mixture):
    ours, (rows, _), matrix, sigma = mixture
    gram = rows @ matrix.T @ matrix @ rows.T / sigma**2
    assert ours.largest_norm() == pytest.approx(math.sqrt(np.diag(gram).max()))
    for m in (2, 3, 4):
        largest = -math.inf
        for past in itertools.combinations_with_replacement(range(len(rows)), m - 1):
            fields = np.cumsum(gram[list(past)], axis=0)
            # the product of normalisers of this tuple, in the order that makes it largest
            largest = max(largest, float(np.log(np.exp(fields).mean(axis=1)).sum()))
        assert ours.ceiling(m) >= largest - 1e-9
        assert ours.ceiling(m) <= 1.25 * largest + 1e-9


@pytest.mark.parametrize("mixture", list(small_mixtures()), ids=["allocation", "places"])
def test_replicas_and_along_draw_what_they_say(mixture):
    ours, (rows, weights), matrix, sigma = mixture
    generator = np.random.default_rng(8)
    gram = rows @ matrix.T @ matrix @ rows.T / sigma**2
    # E[product of normalisers] is E_Q L^m, a finite sum
    kernel = np.exp(gram)
    for m, truth in ((2, kernel.mean()), (3, np.einsum("ab,ac,bc->", kernel, kernel, kernel) / len(rows) ** 3)):
        _, log_normalisers = ours.replicas(generator, 60_000, m)
        drawn = np.exp(log_normalisers)
        assert drawn.max() <= math.exp(ours.ceiling(m)) * (1 + 1e-9)
        if m == 2:
            assert abs(drawn.mean() - truth) < 5 * drawn.std() / math.sqrt(len(drawn)) + 1e-9
    # one replica is P itself, and `along` with standard normal x is Q
    present = oracle.log_ratio(
        matrix, sigma, rows, weights, oracle.draw(matrix, sigma, rows, weights, generator, 20_000, present=True)
    )
    absent = oracle.log_ratio(
        matrix, sigma, rows, weights, oracle.draw(matrix, sigma, rows, weights, generator, 20_000, present=False)
    )
    assert ks_2samp(ours.replicas(generator, 20_000, 1)[0], present).pvalue > 1e-4
    assert ks_2samp(ours.along(generator, generator.standard_normal(20_000)), absent).pvalue > 1e-4
    assert ks_2samp(ours.along(generator, 0.3 + generator.standard_normal(20_000)), absent).pvalue < 1e-4


@pytest.mark.parametrize("mixture", list(small_mixtures()), ids=["allocation", "places"])
def test_along_fixes_the_component_of_the_mean_pattern(mixture):
    """ℓ given x, against draws of y in which that component was replaced by hand."""
    ours, (rows, weights), matrix, sigma = mixture
    generator = np.random.default_rng(2)
    mean = matrix @ (weights @ rows)
    mean = mean / np.linalg.norm(mean)
    y = generator.standard_normal((20_000, len(matrix)))
    y += (-1.3 - y @ mean)[:, None] * mean
    truth = oracle.log_ratio(matrix, sigma, rows, weights, y)
    assert ks_2samp(ours.along(generator, np.full(20_000, -1.3)), truth).pvalue > 1e-4


def test_weights_are_unbiased_for_any_number_of_replicas():
    """E[Π normalisers (L − e^ε)₊ / L^m] is the same divergence for every m: here the Gaussian's."""
    from momentree.privacy.gaussian import delta_of
    from momentree.privacy.monte_carlo import Draws

    mixture = Places(np.full((1, 1), 0.81))
    for m in (1, 2, 4):
        ell, log_normalisers = mixture.replicas(np.random.default_rng(m), 200_000, m)
        draws = Draws(ell, log_normalisers, m, mixture.ceiling(m))
        weights = draws.weights(1.0)
        assert weights.max() <= draws.largest(1.0) * (1 + 1e-12)
        assert abs(weights.mean() - delta_of(0.9, 1.0)) < 4 * weights.std() / math.sqrt(len(weights))
