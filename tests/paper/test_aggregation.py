"""Algorithm 5, Theorem `renyiaggregation`, and what the print makes of it."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from momentree.errors import InputError
from momentree.paper import aggregation
from momentree.privacy.gaussian import largest_mu


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(-epsilon / mu + mu / 2) - mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)


def test_noise_has_the_scale_of_the_print() -> None:
    scales = []

    def noise(i, scale, like):
        scales.append((i, scale))
        return np.full_like(like, float(i))

    functions = [lambda D: np.array([D]), lambda D, a: D * a, lambda D, a, b: a + b]
    released = aggregation.aggregate(2.0, functions, [1.0, 2.0, 4.0], 0.5, noise)
    assert scales == [(1, 2.0), (2, 4.0), (3, 8.0)]
    assert [float(f[0]) for f in released] == [3.0, 8.0, 14.0]
    with pytest.raises(InputError, match="one for each"):
        aggregation.aggregate(2.0, functions, [1.0], 0.5, noise)


def test_participation_counts_the_subsets_of_one_example() -> None:
    assert aggregation.participation([{0, 1}, {1}, {2}, {1, 2}], 3) == 3


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
def test_renyi_theorem_with_an_adaptive_second_query(order) -> None:
    """The divergence of two adaptive queries by numerical integration over both releases is at most Vαρ²/2; with both
    at full sensitivity it is equal; counting one node less would be refused."""
    rho = 0.7
    x = np.linspace(-14, 15, 1501)

    def density(at, mean):
        return np.exp(-((at - mean) ** 2) * rho**2 / 2) * rho / math.sqrt(2 * math.pi)

    def divergence(second):
        first, first_other = density(x, 0.0), density(x, 1.0)
        total = np.zeros_like(x)
        for k, f_1 in enumerate(x):
            P, Q = density(x, 0.0), density(x, second(f_1))
            total[k] = np.trapezoid(P ** (1 - order) * Q**order, x)
        return math.log(np.trapezoid(first ** (1 - order) * first_other**order * total, x)) / (order - 1)

    bound = aggregation.renyi_bound(order, 2, rho)
    assert divergence(lambda f_1: 1.0) == pytest.approx(bound, rel=1e-3 if order == 8.0 else 1e-6)
    adaptive = divergence(lambda f_1: math.tanh(f_1))
    assert aggregation.renyi_bound(order, 1, rho) < adaptive < bound


def test_the_intermediate_claim_of_the_print_is_not_private() -> None:
    """R1: Vρ² + ρ√(V log 1/δ) is below the truth; the print's own α gives Vρ²/2 + 1.5ρ√(V log 1/δ), which is not."""
    delta, wrong = 1e-5, 0
    for mu in np.geomspace(0.01, math.sqrt(math.log(1 / delta)), 40):
        V = 7
        rho = float(mu) / math.sqrt(V)
        divergence = aggregation.renyi_bound(aggregation.print_order(V, rho, delta), V, rho)
        derived = aggregation.epsilon_from_renyi(aggregation.print_order(V, rho, delta), divergence, delta)
        assert derived == pytest.approx(aggregation.epsilon_derived(V, rho, delta))
        assert derived <= aggregation.epsilon_final(V, rho, delta) * (1 + 1e-12)
        assert aggregation.epsilon_as_printed(V, rho, delta) <= derived * (1 + 1e-12)
        assert exact_delta(mu, derived) <= delta
        wrong += exact_delta(mu, aggregation.epsilon_as_printed(V, rho, delta)) > delta
    assert wrong > 5
    for mu, private in ((0.15, True), (0.17, False), (0.42, False), (0.94, False), (0.96, True)):
        assert (exact_delta(mu, aggregation.epsilon_as_printed(1, mu, delta)) <= delta) == private
    mu = largest_mu(1.0, delta)
    assert aggregation.epsilon_as_printed(1, mu, delta) == pytest.approx(0.981, abs=1e-3)  # where ε = 1 is true
    with pytest.raises(InputError, match="rho"):
        aggregation.epsilon_final(1, 4.0, delta)
