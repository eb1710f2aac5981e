"""The constants of both theorems, as printed and as they should be."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from momentree.errors import InputError
from momentree.paper import constants
from momentree.paper.algorithm2 import algorithm_2
from momentree.privacy.gaussian import epsilon_of, largest_mu


def test_condition_on_delta_is_upside_down() -> None:
    """E6: at δ = 1e-5, ε = 40 (where δ ≥ exp(-ε) holds) the stated σ gives 41.76, by the print's own account 45.7;
    it is enough, by that account, exactly where ε ≤ log(1/δ)."""
    delta = 1e-5
    sigma = constants.sigma_printed_1(40, delta)
    assert delta >= math.exp(-40)
    with mpmath.workdps(40):
        mu = 1 / mpmath.mpf(sigma)

        def surplus(e):
            return mpmath.ncdf(-e / mu + mu / 2) - mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2) - delta

        exact = mpmath.findroot(surplus, (40, 43), solver="bisect", tol=1e-25)
    assert float(exact) == pytest.approx(41.76, abs=5e-3)
    assert epsilon_of(1 / sigma, delta).upper == pytest.approx(float(exact), rel=1e-9)
    assert constants.renyi_epsilon(1, sigma, delta) == pytest.approx(45.66, abs=5e-3)
    for epsilon in (0.1, 1, 5, 11.5, 11.6, 20, 40):
        needed = constants.sigma_quadratic(epsilon, delta)
        assert constants.renyi_epsilon(1, needed, delta) == pytest.approx(epsilon)
        assert constants.sigma_simpler(epsilon, delta) >= needed
        enough = constants.sigma_printed_1(epsilon, delta) >= constants.sigma_simpler(epsilon, delta)
        assert enough == (epsilon <= math.log(1 / delta))


def test_exact_sigma_is_about_half() -> None:
    """E6: at ε = 1, δ = 1e-5 the exact σ is 3.7306, the paper's 6.79."""
    assert 1 / largest_mu(1.0, 1e-5) == pytest.approx(3.7306, abs=5e-5)
    assert constants.sigma_printed_1(1.0, 1e-5) == pytest.approx(6.79, abs=5e-3)
    assert constants.sigma_printed_2(1.0, 1e-5) == pytest.approx(2 * 6.786, abs=1e-3)


def test_four_families_still_give_epsilon() -> None:
    """E7: with 4z/2σ² in place of 3z/2σ² the printed σ of Algorithm 2 still gives ε, up to ε = 2.34 log(1/δ)."""
    for delta in (1e-9, 1e-5, 1e-2):
        log = math.log(1 / delta)
        for factor, fine in ((0.01, True), (1.0, True), (2.3, True), (2.4, False)):
            sigma = constants.sigma_printed_2(factor * log, delta)
            assert (constants.renyi_epsilon(4, sigma, delta) <= factor * log) == fine
        assert constants.renyi_epsilon(3, constants.sigma_printed_2(4 * log, delta), delta) <= 4 * log


@pytest.mark.parametrize("L", [1.0, 5.0])
def test_difference_level_as_printed_is_too_small(L) -> None:
    """E5, on real runs: f(w, x) = ±L w²/2 in one dimension, the last example's sign changed, the noise so large that
    every step goes the same way. A node of Δ then moves by 2ηNL Σ_j (1-α)^(jN): above the print's 2ηN, above the
    proof's 2ηNL, and near 2ηNL/(1-1/e)."""
    N, epochs, eta = 8, 9, 0.01
    alpha, T = 1 / N, N * epochs

    def run(sign):
        return algorithm_2(
            lambda w, i: (sign if i == N - 1 else 1.0) * L * w,
            np.zeros(1),
            steps_per_epoch=N,
            steps=T,
            alpha=alpha,
            gamma=0.1,
            eta=eta,
            noise=lambda family, y, z: np.full(1, 1e9 if family == "r" else 0.0),
        )

    one, other = run(1.0), run(-1.0)
    np.testing.assert_array_equal(one.w, other.w)
    moved = max(abs(float((one.released.Delta[node] - other.released.Delta[node])[0])) for node in one.released.Delta)
    assert moved > constants.difference_level_printed(eta, N) * 1.05
    assert moved > constants.difference_level_proof(eta, N, L) * 1.05
    assert 0.9 * constants.difference_level_tight(eta, N, L) < moved <= constants.difference_level(eta, N, L)
    for t in range(N + 1, T + 1):
        a_step = abs(float((one.released.Delta[t, t] - other.released.Delta[t, t])[0]))
        assert a_step <= 2 * eta * N * L * (1 + 1e-9)


def test_difference_level_is_tight() -> None:
    """E5: 2ηNL Σ_{j<k} (1-α)^(jN) rises to 2ηNL/(1-1/e) at α = 1/N, from below: 4ηNL is safe, 1.58 is the factor."""
    for N in (2, 10, 1000):
        limit = 2 / -math.expm1(N * math.log1p(-1 / N))
        assert limit <= constants.difference_level_tight(1 / N, N, 1.0) * (1 + 1e-12)
        assert constants.difference_level_tight(1 / N, N, 1.0) < constants.difference_level(1 / N, N, 1.0)
    assert limit == pytest.approx(2 / (1 - math.exp(-1)), rel=1e-3)


def test_steps_of_algorithm_1_are_a_fixed_point() -> None:
    """E14: T = εN²/(log2 T √(d log(1/δ))) is implicit; α is then 1/N."""
    for N, d, epsilon, delta in (
        (10**4, 100, 1.0, 1e-5),
        (100, 10**6, 0.1, 1e-3),
        (60_000, 7850, 2.0, 1e-6),
        (2, 1, 9.0, 0.5),
    ):
        T = constants.steps_1(N, d, epsilon, delta)
        assert T > 1
        assert T * math.log2(T) == pytest.approx(epsilon * N**2 / math.sqrt(d * math.log(1 / delta)), rel=1e-10)
        assert constants.alpha_1(N, d, epsilon, delta, T) == pytest.approx(1 / N)
        T = constants.steps_2(N, d, epsilon)
        assert constants.alpha_2(N, d, epsilon, T) == pytest.approx(1 / N)


def test_K_needs_delta_below_one_over_e() -> None:
    assert constants.K_printed(1000, 1e-5) > constants.K_derived(1000, 1e-5)
    assert constants.K_printed(1000, 0.5) < constants.K_derived(1000, 0.5)


def test_bad_facts_are_refused() -> None:
    for bad in ((0, 1, 1.0, 0.1), (10, 0, 1.0, 0.1), (10, 1, 0.0, 0.1), (10, 1, 1.0, 1.0)):
        with pytest.raises(InputError):
            constants.steps_1(*bad)
