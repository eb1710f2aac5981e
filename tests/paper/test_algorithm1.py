"""Algorithm 1 against the plain momentum, against its own released nodes, and against Algorithm 5."""

from __future__ import annotations

import numpy as np
import pytest

from momentree.errors import InputError
from momentree.paper.aggregation import aggregate
from momentree.paper.algorithm1 import algorithm_1
from momentree.paper.common import clip_to, normalised_step
from momentree.paper.compose import compose, gaussian_draws, left_nodes, prefix, tree_depth, tree_nodes

SIZES = (1, 2, 3, 5, 7, 8, 13)


def reshuffled(N: int, seed: int):
    return lambda q: np.random.default_rng((seed, q)).permutation(N)


@pytest.mark.parametrize("N", SIZES)
@pytest.mark.parametrize("epochs", range(1, 7))
def test_without_noise_it_is_the_plain_momentum(problem, plain_momentum, N, epochs) -> None:
    p = problem(N, 3, N)
    T = epochs * N - (N // 2 if epochs > 1 else 0)
    order = reshuffled(N, epochs)
    run = algorithm_1(p.gradient, np.ones(3), steps_per_epoch=N, steps=T, alpha=0.3, eta=0.1, order=order)
    gradients = [p.gradient(run.w[t - 1], order((t - 1) // N)[(t - 1) % N]) for t in range(1, T + 1)]
    np.testing.assert_allclose(run.m_hat, plain_momentum(gradients, 0.3), atol=1e-12, rtol=0)
    np.testing.assert_array_equal(run.m_hat, run.m)


@pytest.mark.parametrize("T", [1, 2, 3, 7, 8, 37])
@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.1, 0.001])
def test_the_noise_is_the_decayed_nodes_of_compose(problem, T, alpha) -> None:
    p = problem(5, 2, T)
    generator = np.random.default_rng(T)
    zeta = {node: generator.normal(size=2) for node in tree_nodes(T)}
    run = algorithm_1(p.gradient, np.zeros(2), steps_per_epoch=5, steps=T, alpha=alpha, eta=0.1, noise=zeta)
    for t in range(1, T + 1):
        # the greedy binary expansion, written again
        expected, y = np.zeros(2), 0
        for k in reversed(range(10)):
            if t - y >= 2**k:
                y += 2**k
                expected = expected + (1 - alpha) ** (t - y) * zeta[y - 2**k + 1, y]
        np.testing.assert_allclose(run.m_hat[t - 1] - run.m[t - 1], expected, atol=1e-12)
        np.testing.assert_allclose(prefix(run.nodes, t, alpha), run.m_hat[t - 1], atol=1e-12)
        np.testing.assert_array_equal(run.w[t], normalised_step(run.w[t - 1], run.m_hat[t - 1], 0.1))


def test_left_nodes_are_enough() -> None:
    """E13: with draws for the left children alone the run is the same; the right ones never reach m̂."""
    generator = np.random.default_rng(0)
    T = 21
    zeta = {node: generator.normal(size=1) for node in tree_nodes(T)}
    options = {"steps_per_epoch": 4, "steps": T, "alpha": 0.2, "eta": 0.1}

    def gradient(w, i):
        return np.cos(w + i)

    full = algorithm_1(gradient, np.zeros(1), noise=zeta, **options)
    left = {node: zeta[node] for node in left_nodes(T)}
    square = algorithm_1(gradient, np.zeros(1), noise=left, nodes="left", **options)
    np.testing.assert_array_equal(full.m_hat, square.m_hat)
    assert set(square.nodes) == set(left_nodes(T))
    for node, value in square.nodes.items():
        np.testing.assert_array_equal(value, full.nodes[node])
    with pytest.raises(InputError, match="noise map"):
        algorithm_1(gradient, np.zeros(1), noise=left, **options)


def test_levels_as_printed_lack_a_node() -> None:
    """E10: b = 0 … R-1 with R = ⌊log2 T⌋ draws nothing for [1, 2^R], which COMPOSE(1, 2^R) is made of; V counts it."""
    for T in (2, 8, 12, 64):
        R = tree_depth(T)
        printed = {(a * 2**b + 1, (a + 1) * 2**b) for b in range(R) for a in range(T // 2**b)}
        used = {node for t in range(1, T + 1) for node in compose(1, t)}
        assert used - printed == {(1, 2**R)}
        assert used <= set(tree_nodes(T))


def test_algorithm_1_is_algorithm_5_on_its_nodes(problem) -> None:
    """The step that its privacy proof rests on: each node is a function of the data and of earlier released nodes."""
    N, T, alpha, eta = 3, 7, 0.4, 0.2
    p = problem(N, 2, 1)
    generator = np.random.default_rng(3)
    nodes = sorted(tree_nodes(T), key=lambda node: (node[1], -node[0]))
    zeta = {node: generator.normal(size=2) for node in nodes}
    start = np.full(2, 0.5)

    def function(k: int):
        y, z = nodes[k]

        def G_k(D, *earlier):
            known = dict(zip(nodes, earlier, strict=False))
            w = [start]
            for t in range(1, z):
                w.append(normalised_step(w[-1], prefix(known, t, alpha), eta))
            return alpha * sum((1 - alpha) ** (z - t) * D(w[t - 1], (t - 1) % N) for t in range(y, z + 1))

        return G_k

    released = aggregate(
        p.gradient,
        [function(k) for k in range(len(nodes))],
        [1.0] * len(nodes),
        rho=1.0,
        noise=lambda i, _scale, _like: zeta[nodes[i - 1]],
    )
    run = algorithm_1(p.gradient, start, steps_per_epoch=N, steps=T, alpha=alpha, eta=eta, noise=zeta)
    for node, value in zip(nodes, released, strict=True):
        np.testing.assert_allclose(value, run.nodes[node], atol=1e-12)


def test_a_batch_is_clipped_row_by_row_and_divided_by_the_public_size() -> None:
    rows = {0: np.array([[3.0, 4.0], [0.3, 0.4]]), 1: np.array([[0.0, 2.0]])}  # the second batch is short

    def gradient(w, place):
        return rows[place]

    run = algorithm_1(
        gradient, np.zeros(2), steps_per_epoch=2, steps=2, alpha=1.0, eta=0.1, clip=clip_to(1.0), batch_size=2
    )
    np.testing.assert_allclose(run.m, [[(0.6 + 0.3) / 2, (0.8 + 0.4) / 2], [0.0, 0.5]], atol=1e-15)


def test_a_row_that_is_not_finite_counts_as_zero() -> None:
    clip = clip_to(1.0)
    for bad in (np.nan, np.inf, -np.inf):
        np.testing.assert_array_equal(clip(np.array([bad, 1.0])), np.zeros(2))
    np.testing.assert_allclose(clip(np.array([3.0, 4.0])), [0.6, 0.8])


def test_a_zero_momentum_takes_no_step() -> None:
    run = algorithm_1(lambda w, i: np.zeros(1), np.ones(1), steps_per_epoch=1, steps=3, alpha=0.5, eta=1.0)
    np.testing.assert_array_equal(run.w, np.ones((4, 1)))


def test_gaussian_draws_have_the_scale_asked_for() -> None:
    draws = gaussian_draws(np.random.default_rng(0), 20_000, 3.0)
    sample = draws(1, 1)
    assert abs(sample.std() - 3.0) < 0.1  # a draw of ⅔ the scale would be 1 away
    assert not np.array_equal(sample, draws(1, 1))


def test_bad_input_is_one_line() -> None:
    for bad in ({"alpha": 0.0}, {"alpha": 1.5}, {"steps": 0}, {"nodes": "right"}, {"order": [0, 1, 2]}):
        options = {"steps_per_epoch": 2, "steps": 2, "alpha": 0.5, "eta": 0.1, **bad}
        with pytest.raises(InputError) as caught:
            algorithm_1(lambda w, i: w, np.ones(1), **options)
        assert "\n" not in str(caught.value)
