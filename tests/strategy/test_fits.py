"""The optimisers: what they claim is what the written-out matrices say, and nothing simple beats them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from momentree.errors import InputError
from momentree.strategy import Setting, make
from momentree.strategy.base import Array
from momentree.strategy.blt import Blt
from momentree.strategy.blt_fit import fit_blt, fixed_squared, reshuffled_estimate
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense
from momentree.strategy.dense_fit import fit_dense, lower_bound
from momentree.strategy.error import iterate_rmse, rms_error
from momentree.strategy.participation import fixed_sensitivity, gram_squared, toeplitz_squared
from momentree.strategy.restarted import Restarted
from momentree.strategy.workload import Workload, iterate_workload, momentum_workload

SIGMA = 3.7306
"""Noise multiplier at sensitivity 1 for ε = 1, δ = 1e-5."""


@pytest.mark.parametrize(("n", "epochs"), [(1, 1), (1, 2), (2, 1), (1, 7), (3, 4), (16, 5), (37, 1), (500, 40)])
def test_closed_sensitivity_of_a_blt(n: int, epochs: int) -> None:
    rng = np.random.default_rng(n + epochs)
    for decays in (rng.uniform(0.0, 1.0, 3), np.array([0.0, 1.0 - 1e-9, 0.5]), np.array([1.0, 1.0, 0.999])):
        scales = rng.uniform(0.0, 0.4, 3)
        expected = toeplitz_squared(Blt(n * epochs, scales, decays).coefficients, n * epochs, n)
        if n * epochs == 1:
            expected = 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            found = fixed_squared(scales, np.maximum(1.0 - decays, 1e-15), n, epochs)
        assert float(found) == pytest.approx(expected, rel=1e-6 if decays.max() > 0.999 else 1e-11)


def test_reshuffled_estimate_is_the_pattern_that_it_describes() -> None:
    """Picks at the end of one epoch and the start of the next, by an endless C cut far out."""
    n, epochs, scales, decays = 6, 4, np.array([0.3, 0.2]), np.array([0.8, 0.5])
    long = Blt(400, scales, decays).matrix()
    picks = [n - 1, n, 3 * n - 1, 3 * n]
    gram = long[:, picks].T @ long[:, picks]
    assert float(reshuffled_estimate(scales, 1 - decays, n, epochs)) == pytest.approx(gram.sum(), rel=0.05)


def best_of_a_grid(workload: Workload, n: int) -> float:
    """One buffer, scale and decay on a grid, everything written out."""
    steps, a = workload.steps, workload.matrix()
    best = math.inf
    for decay in np.linspace(0.0, 0.999, 25):
        for scale in np.linspace(0.0, 1.3, 27):
            strategy = Blt(steps, [scale], [decay])
            matrix = strategy.matrix()
            norm = max(float(np.sum(matrix[:, j::n].sum(axis=1) ** 2)) for j in range(n))
            best = min(best, math.sqrt(float(np.sum((a @ strategy.decoder()) ** 2)) / steps * norm))
    return best


@pytest.mark.parametrize(("n", "epochs", "beta"), [(8, 3, 0.9), (20, 1, 0.5), (1, 12, 0.0)])
def test_one_buffer_beats_a_grid(n: int, epochs: int, beta: float) -> None:
    for workload in (iterate_workload(n * epochs, beta), momentum_workload(n * epochs, beta)):
        strategy, loss = fit_blt(workload, n, 1)
        assert loss == pytest.approx(rms_error(strategy, workload) * fixed_sensitivity(strategy, n), rel=1e-9)
        assert loss <= best_of_a_grid(workload, n) * (1 + 1e-9)


def test_more_buffers_do_not_hurt() -> None:
    workload = iterate_workload(10_000, 0.9)
    losses = [fit_blt(workload, 1000, buffers)[1] for buffers in range(1, 9)]
    for fewer, more in itertools.pairwise(losses):
        assert more <= fewer * 1.002


def test_restarted_blt_counts_what_goes_on_after_a_restart() -> None:
    n, blocks, beta = 16, 3, 0.9
    strategy, loss = fit_blt(iterate_workload(n, beta), n, 2, blocks=blocks)
    again = Restarted(strategy, blocks)
    assert loss == pytest.approx(iterate_rmse(again, beta) * fixed_sensitivity(again, n), rel=1e-9)
    alone = Restarted(fit_blt(iterate_workload(n, beta), n, 2)[0], blocks)
    assert loss < iterate_rmse(alone, beta) * fixed_sensitivity(alone, n)


def test_noise_on_the_iterates_at_epsilon_1() -> None:
    """128 steps, 4 epochs, β = 0.9, ε = 1, δ = 1e-5: at most 15.43 with n vectors; 4 buffers within 5% of 15.38."""
    n, epochs, beta = 128, 4, 0.9

    def noise(strategy: Bsr | Blt) -> float:
        return SIGMA * iterate_rmse(strategy, beta) * fixed_sensitivity(strategy, n)

    banded = make("bsr", Setting(n, epochs, beta), lambda c: fixed_sensitivity(c, n))
    assert banded.noise_vectors <= n
    assert noise(banded) <= 15.43
    buffered = make("blt", Setting(n, epochs, beta, buffers=4), lambda c: fixed_sensitivity(c, n))
    assert buffered.noise_vectors == 4
    assert noise(buffered) <= 1.05 * 15.38
    # the figures themselves, written out
    for strategy in (banded, buffered):
        a = np.cumsum(momentum_workload(n * epochs, beta).matrix(), axis=0)
        norm = max(float(np.sum(strategy.matrix()[:, j::n].sum(axis=1) ** 2)) for j in range(n))
        error = float(np.sum((a @ strategy.decoder()) ** 2)) / (n * epochs)
        assert noise(strategy) == pytest.approx(SIGMA * math.sqrt(norm * error), rel=1e-8)


def random_causal(rng: np.random.Generator, steps: int) -> Array:
    return np.tril(rng.standard_normal((steps, steps)) * 0.3, -1) + np.diag(rng.uniform(0.5, 1.5, steps))


@pytest.mark.parametrize(("n", "epochs", "beta"), [(1, 1, 0.9), (5, 1, 0.9), (1, 5, 0.5), (4, 3, 0.9), (8, 2, 0.0)])
def test_dense_and_its_bound(n: int, epochs: int, beta: float) -> None:
    steps = n * epochs
    workload = iterate_workload(steps, beta)
    fit = fit_dense(workload, n)
    a = workload.matrix()

    def loss(matrix: Array) -> float:
        error = float(np.sum((a @ np.linalg.inv(matrix)) ** 2)) / steps
        return math.sqrt(error * float(gram_squared(matrix, n).max()))

    assert np.array_equal(np.diag(fit.strategy.entries), np.ones(steps))
    assert loss(fit.strategy.entries) == pytest.approx(fit.loss, rel=1e-9)
    assert -1e-9 <= fit.gap <= (0.012 if n > 1 else 0.04)
    rivals = [Bsr(steps, workload.square_root(band)).matrix() for band in range(1, steps + 1)]
    assert fit.loss <= min(loss(rival) for rival in rivals) * (1 + 1e-9)
    rng = np.random.default_rng(0)
    nearby = [fit.strategy.entries + np.tril(rng.standard_normal((steps, steps)) * 0.01, -1) for _ in range(200)]
    rivals += nearby + [random_causal(rng, steps) for _ in range(200)]
    assert min(loss(rival) for rival in rivals) >= fit.bound * (1 - 1e-9)
    assert fit.loss <= min(loss(rival) for rival in nearby) * (1 + 1e-3)


def test_the_bound_is_attained_where_the_optimum_is_known() -> None:
    """One epoch, identity workload: C = I is optimal and its loss is 1; two steps of prefix sums by a fine grid."""
    assert lower_bound(np.eye(6) / 6, 6) == pytest.approx(1.0, rel=1e-9)
    gram = np.array([[2.0, 1.0], [1.0, 1.0]]) / 2  # A = [[1, 0], [1, 1]]
    best = math.inf
    for own in np.linspace(0.3, 1.0, 281):
        for below in np.linspace(0.0, 1.0, 401):
            matrix = np.array([[own, 0.0], [below, 1.0]])
            inverse = np.linalg.inv(matrix)
            norm = float(np.max(np.sum(matrix**2, axis=0)))
            best = min(best, math.sqrt(float(np.sum(inverse * (gram @ inverse))) * norm))
    bound = lower_bound(gram, 2)
    assert bound <= best
    assert bound == pytest.approx(best, rel=1e-3)


def test_dense_is_the_best_at_its_size() -> None:
    n, epochs, beta = 16, 3, 0.9
    price = {
        name: rms_error(strategy, iterate_workload(48, beta)) * fixed_sensitivity(strategy, n)
        for name in ("dense", "bsr", "blt", "bisr")
        for strategy in [make(name, Setting(n, epochs, beta), lambda c: fixed_sensitivity(c, n))]
    }
    assert min(price, key=lambda name: price[name]) == "dense"


@pytest.mark.verify
def test_dense_below_the_banded_root_at_512_steps() -> None:
    n, beta = 128, 0.9
    fit = fit_dense(iterate_workload(512, beta), n)
    assert SIGMA * fit.loss < 15.38 * 0.96
    assert fit.gap <= 0.008
    assert SIGMA * iterate_rmse(fit.strategy, beta) * fixed_sensitivity(fit.strategy, n) == pytest.approx(
        SIGMA * fit.loss
    )


def test_dense_above_its_size() -> None:
    with pytest.raises(InputError, match="dense over 2001 steps is too large: at most 2000"):
        fit_dense(iterate_workload(2001, 0.9), 2001)
    with pytest.raises(InputError, match="too large"):
        Dense(np.eye(2001))
