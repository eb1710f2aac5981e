"""Workloads against their recurrences, step by step, and their square roots squared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from momentree.errors import InputError
from momentree.strategy.base import Array
from momentree.strategy.series import binomial, multiply, powers_product, reciprocal
from momentree.strategy.workload import (
    Workload,
    gradient_workload,
    iterate_workload,
    momentum_workload,
    path_workload,
    prefix_workload,
)


def run(gradients: Array, beta: float, etas: Array, decay: float, nesterov: bool, dampened: bool) -> Array:
    """An optimiser written out, w_0 = 0, sign flipped."""
    momentum = weights = 0.0
    path = []
    gain = 1 - beta if dampened else 1.0
    for g, eta in zip(gradients, etas, strict=True):
        momentum = beta * momentum + gain * g
        update = beta * momentum + gain * g if nesterov else momentum
        weights = weights - eta * decay * weights + eta * update
        path.append(weights)
    return np.array(path)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    steps=st.integers(1, 23),
    beta=st.sampled_from([0.0, 0.5, 0.9, 0.99]),
    decay=st.sampled_from([0.0, 0.1, 0.7]),
    nesterov=st.booleans(),
    dampened=st.booleans(),
    scheduled=st.booleans(),
    seed=st.integers(0, 100),
)
def test_path_is_the_optimiser(
    steps: int, beta: float, decay: float, nesterov: bool, dampened: bool, scheduled: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.uniform(0.0, 1.0, steps) if scheduled else 0.3
    workload = path_workload(steps, beta, sizes, weight_decay=decay, nesterov=nesterov, dampened=dampened)
    gradients = rng.standard_normal(steps)
    expected = run(gradients, beta, np.broadcast_to(sizes, steps), decay, nesterov, dampened)
    np.testing.assert_allclose(workload.apply(gradients), expected, atol=1e-12)
    np.testing.assert_allclose(workload.matrix() @ gradients, expected, atol=1e-12)
    assert workload.invariant == (not scheduled)
    if workload.invariant:
        np.testing.assert_allclose(workload.matrix()[:, 0], workload.kernel(), atol=1e-14)


def test_named_workloads() -> None:
    steps, beta = 6, 0.8
    lags = np.subtract.outer(np.arange(steps), np.arange(steps))
    lower = lags >= 0
    momentum = np.where(lower, (1 - beta) * beta ** np.maximum(lags, 0.0), 0.0)
    np.testing.assert_allclose(momentum_workload(steps, beta).matrix(), momentum)
    np.testing.assert_allclose(iterate_workload(steps, beta).matrix(), np.cumsum(momentum, axis=0))
    np.testing.assert_allclose(gradient_workload(steps).matrix(), np.eye(steps))
    np.testing.assert_allclose(prefix_workload(steps).matrix(), np.where(lower, 1.0, 0.0))


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize(("retain", "nesterov"), [(0.0, False), (1.0, False), (1.0, True), (0.97, True), (0.0, True)])
def test_square_root_squared_is_the_workload(beta: float, retain: float, nesterov: bool) -> None:
    workload = Workload(200, beta, 0.7, retain, nesterov)
    root = workload.square_root(200)
    assert root[0] == 1.0
    assert root.min() >= 0.0
    np.testing.assert_allclose(np.convolve(root, root)[:200], workload.kernel() / workload.kernel()[0], atol=1e-12)
    np.testing.assert_allclose(np.convolve(root, workload.inverse_square_root(200))[:200], np.eye(200)[0], atol=1e-12)


def test_long_series_agree_with_short_ones() -> None:
    """The FFT takes over where the direct product would be slow; neither may notice."""
    length = 40_000
    left, right = binomial(1.0, -0.5, length), binomial(0.999, -0.5, length)
    direct = np.convolve(left[:3000], right[:3000])[:3000]
    np.testing.assert_allclose(multiply(left, right, length)[:3000], direct, rtol=1e-11)
    band = powers_product([(1.0, -0.5), (0.9, -0.5)], 1500)
    inverse = reciprocal(band, length)
    np.testing.assert_allclose(inverse[:4000], reciprocal(band, 4000), atol=1e-13)
    np.testing.assert_allclose(multiply(inverse, band, length), np.eye(1, length)[0], atol=1e-12)


def test_underflow_ends_in_zeros() -> None:
    root = momentum_workload(1_000_000, 0.5).square_root(1_000_000)
    assert np.all(np.isfinite(root))
    assert root.min() >= 0.0
    assert root[-1] == 0.0
    assert not np.any((root > 0) & (root < 1e-300))
    decayed = Workload(300_000, 0.9, 1.0, 0.999).square_root(300_000)
    assert decayed.min() >= 0.0
    middle = decayed[100_000] / (0.999**100_000)  # (1 − 0.9/0.999)^{−1/2} (πk)^{−1/2} as k grows
    assert middle == pytest.approx((1 - 0.9 / 0.999) ** -0.5 / np.sqrt(np.pi * 100_000), rel=1e-3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Workload(0), "steps 0"),
        (lambda: Workload(3, 1.0), "momentum 1"),
        (lambda: Workload(3, -0.1), "momentum -0.1"),
        (lambda: Workload(3, 0.5, np.ones(2)), "2 entries for 3 steps"),
        (lambda: Workload(3, 0.5, np.array([1.0, np.nan, 1.0])), "finite"),
        (lambda: Workload(2, 0.5, np.array([1.0, -1.0])), "at least 0"),
        (lambda: Workload(2, 0.5, 1.0, np.array([1.0, 1.5])), "between 0 and 1"),
        (lambda: path_workload(2, 0.5, np.array([1.0, 2.0]), weight_decay=0.9), "at most 1"),
        (lambda: Workload(2, 0.5, np.ones(2)).kernel(), "schedule"),
    ],
)
def test_bad_input_is_one_line(make: object, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)
