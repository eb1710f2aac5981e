"""The full-batch recursion of section 4."""

from __future__ import annotations

import numpy as np

from momentree.paper.common import clip_to
from momentree.paper.compose import compose, tree_nodes
from momentree.paper.full_batch import full_batch


def test_without_noise_it_is_the_full_gradient(problem) -> None:
    p = problem(6, 3, 0)
    for gamma in (0.0, 0.1, 1.0):
        run = full_batch(p.mean_gradient, np.ones(3), steps=20, gamma=gamma, eta=0.1)
        for t in range(1, 21):
            np.testing.assert_allclose(run.g_hat[t - 1], p.mean_gradient(run.w[t - 1]), atol=1e-13)


def test_it_is_the_recursion_of_the_print(problem) -> None:
    """g_t = (1-γ)(g_{t-1} + ∇F(w_t) - ∇F(w_{t-1})) + γ∇F(w_t), with noise on each term."""
    p = problem(6, 3, 1)
    xi = np.random.default_rng(0).normal(size=(15, 3))
    run = full_batch(p.mean_gradient, np.ones(3), steps=15, gamma=0.2, eta=0.1, noise=lambda t: xi[t - 1])
    F = [p.mean_gradient(w) for w in run.w]
    g = F[0] + xi[0]
    np.testing.assert_allclose(run.g_hat[0], g, atol=1e-13)
    for t in range(1, 15):
        g = 0.8 * (g + F[t] - F[t - 1]) + 0.2 * F[t] + xi[t]
        np.testing.assert_allclose(run.g_hat[t], g, atol=1e-12)


def test_tree_aggregation_is_one_such_noise(problem) -> None:
    """The print's way: nodes of the tree of v's, decayed by 1-γ; the prefix of the noisy nodes is ĝ_t."""
    p = problem(4, 2, 2)
    T, gamma = 13, 0.25
    generator = np.random.default_rng(1)
    zeta = {node: generator.normal(size=2) for node in tree_nodes(T)}

    def on_prefix(t):
        return sum(((1 - gamma) ** (t - z) * zeta[y, z] for y, z in compose(1, t)), np.zeros(2)) if t else np.zeros(2)

    def noise(t):
        return on_prefix(t) - (1 - gamma) * on_prefix(t - 1)

    run = full_batch(p.mean_gradient, np.ones(2), steps=T, gamma=gamma, eta=0.1, noise=noise)
    v = [run.v_hat[t - 1] - noise(t) for t in range(1, T + 1)]
    for t in range(1, T + 1):
        nodes = sum(
            (1 - gamma) ** (t - z) * (sum((1 - gamma) ** (z - i) * v[i - 1] for i in range(y, z + 1)) + zeta[y, z])
            for y, z in compose(1, t)
        )
        np.testing.assert_allclose(run.g_hat[t - 1], nodes, atol=1e-12)


def test_terms_after_the_first_have_low_sensitivity(problem) -> None:
    """‖∇f(w_t) - ∇f(w_{t-1})‖ ≤ ηL for every example, so a term moves by (1-γ)ηL/N + γG/N and a clip there is idle."""
    p = problem(5, 3, 3)
    eta, gamma = 0.05, 0.1

    def rows(w):
        return np.array([p.gradient(w, i) for i in range(5)])

    plain = full_batch(p.mean_gradient, np.ones(3), steps=30, gamma=gamma, eta=eta)
    idle = full_batch(
        rows,
        np.ones(3),
        steps=30,
        gamma=gamma,
        eta=eta,
        clip_gradient=clip_to(p.G),
        clip_difference=clip_to(eta * p.L),
        batch_size=5,
    )
    np.testing.assert_allclose(plain.w, idle.w, atol=1e-9)
    for now, before in zip(plain.w[1:], plain.w, strict=False):
        assert np.linalg.norm(rows(now) - rows(before), axis=1).max() <= eta * p.L * (1 + 1e-9)
    binding = full_batch(
        rows, np.ones(3), steps=30, gamma=gamma, eta=eta, clip_difference=clip_to(eta * p.L / 50), batch_size=5
    )
    assert np.abs(binding.v_hat - plain.v_hat).max() > 1e-3
