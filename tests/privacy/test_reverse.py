"""The reverse divergence: what bounds it without a sample, and that a calibration is not misled where samples fail."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from momentree import Plan
from momentree.privacy.balls_in_bins import balls_in_bins, places_gram
from momentree.privacy.mixtures import Places
from momentree.privacy.random_allocation import allocation_of
from momentree.privacy.reverse import without_sampling


def truth(gram, epsilon):
    """E_Q (1 − e^ε L)₊ for two places, by numerical integration over y in the plane."""
    a, b = np.linalg.cholesky(gram).T.T  # rows: h_1 and h_2 in an orthonormal basis
    top = np.exp(-epsilon)

    def inner(x):
        first = 0.5 * np.exp(a[0] * x - gram[0, 0] / 2)
        if first >= top:
            return 0.0
        # the second term is below top − first for y under this
        y = (np.log(2 * (top - first)) + gram[1, 1] / 2 - b[0] * x) / b[1]
        density = np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
        rest = 0.5 * np.exp(b[0] * x - gram[1, 1] / 2 + b[1] ** 2 / 2) * ndtr(y - b[1])
        return density * ((1 - first / top) * ndtr(y) - rest / top)

    return quad(inner, -12, 12, limit=400, epsabs=1e-14)[0]


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("gram", [[[1.0, 0.3], [0.3, 0.8]], [[0.2, 0.1], [0.1, 0.2]], [[4.0, 3.0], [3.0, 5.0]]])
def test_the_bound_without_a_sample_is_above_the_truth(gram, epsilon):
    mixture = Places(np.array(gram))
    bound = without_sampling(*mixture.averages(), epsilon)
    assert bound >= truth(np.array(gram), epsilon)
    assert bound < 1.0


@pytest.mark.parametrize("order", ["balls-in-bins", "random-allocation"])
def test_the_averages_are_those_of_the_written_out_mixture(order):
    plan = Plan(
        examples=12, batch_size=3, epochs=3, noise_multiplier=1.3, delta=1e-3, order=order, strategy="bsr", band=3
    )
    n, matrix = 4, plan.strategy.matrix() / 1.3
    if order == "balls-in-bins":
        mixture = Places(places_gram(plan.strategy, n) / 1.3**2)
        patterns = [[p] * 3 for p in range(n)]
    else:
        mixture = allocation_of(plan.strategy, n, 1.3)
        patterns = [[p, q, r] for p in range(n) for q in range(n) for r in range(n)]
    reached = np.array([sum(matrix[:, e * n + place] for e, place in enumerate(p)) for p in patterns])
    norm, square = mixture.averages()
    assert norm == pytest.approx(np.linalg.norm(reached.mean(axis=0)), rel=1e-10)
    assert square == pytest.approx((reached**2).sum(axis=1).mean(), rel=1e-10)


def test_where_no_sample_reaches_the_account_is_small_all_the_same():
    """A calibration starts at the σ of a kept place; a δ that is stuck there at the unamplified one misleads it."""
    plan = Plan(
        examples=10_000, batch_size=100, epochs=10, noise_multiplier=22.0, delta=1e-5, order="balls-in-bins",
        strategy="bsr", band=4,
    )  # fmt: skip
    account = balls_in_bins(places_gram(plan.strategy, 100), 22.0, seed=1, samples=20_000)
    assert account.delta(1.0).upper < 1e-8
    assert account.delta(0.5).upper < 1e-5
