"""Algorithms 2 and 4, Lemma `breaksum`, and the recursion that replaces the reconstruction."""

from __future__ import annotations

import math

import numpy as np
import pytest

from momentree.errors import InputError
from momentree.paper import reconstruction
from momentree.paper.algorithm2 import FAMILIES, Clips, algorithm_2
from momentree.paper.common import clip_to, normalised_step
from momentree.paper.compose import compose, window
from momentree.paper.reconstruction import Released, reconstruct, reconstruct_by_recursion, reconstruction_weights

SIZES = (1, 2, 3, 5, 7, 8, 13)


def normal_noise(seed: int, dimension: int, scale: float = 1.0):
    """A fixed draw for every node: the same node asked twice gets the same vector."""

    def draw(family, y, z):
        return scale * np.random.default_rng((seed, FAMILIES.index(family), y, z)).normal(size=dimension)

    return draw


def run_of(p, N, T, *, seed=0, **options):
    defaults = {"alpha": 0.2, "gamma": 0.3, "eta": 0.2, "order": np.random.default_rng(seed).permutation(N)}
    return algorithm_2(p.gradient, np.ones(3), steps_per_epoch=N, steps=T, **{**defaults, **options})


@pytest.mark.parametrize("N", SIZES)
@pytest.mark.parametrize("epochs", range(1, 7))
def test_without_noise_the_reconstruction_is_the_plain_momentum(problem, plain_momentum, N, epochs) -> None:
    p = problem(N, 3, N)
    T = epochs * N - (N // 2 if epochs > 1 else 0)
    run = run_of(p, N, T, seed=epochs)
    order = np.random.default_rng(epochs).permutation(N)
    gradients = [p.gradient(run.w[t - 1], order[(t - 1) % N]) for t in range(1, T + 1)]
    np.testing.assert_allclose(run.m_hat, plain_momentum(gradients, 0.2), atol=1e-10, rtol=0)
    np.testing.assert_allclose(run.m, plain_momentum(gradients, 0.2), atol=1e-12, rtol=0)


def test_reshuffling_breaks_breaksum(problem) -> None:
    """E1: right to 1e-12 on one order, wrong by O(1) with a new order each epoch, from the third epoch on."""
    N, T = 7, 35
    p = problem(N, 3, 7)
    fixed = run_of(p, N, T)
    assert np.abs(fixed.m_hat - fixed.m).max() < 1e-12
    reshuffled = run_of(p, N, T, order=lambda q: np.random.default_rng(q).permutation(N))
    error = np.linalg.norm(reshuffled.m_hat - reshuffled.m, axis=1)
    assert error[: 2 * N].max() < 1e-12
    assert error[2 * N :].max() > 0.2 * p.G


def test_windows_count_from_one(problem) -> None:
    """E10: with q = ⌊t/N⌋, r = t-qN as printed, t = 2N has another noise than the recursion (and an empty prefix)."""
    N, alpha, gamma = 5, 0.2, 0.3
    p = problem(N, 3, 2)
    run = run_of(p, N, 6 * N, noise=normal_noise(1, 3))

    def as_printed(t):
        q, r = t // N, t % N
        G = np.zeros(3)
        if r:
            G = (1 - alpha) ** (t - r) * window(run.released.G, 1, r, alpha)
        for i in range(q):
            G = G + (1 - alpha) ** (N * i) * (1 - gamma) ** (q - i - 1) * window(run.released.G, r + 1, r + N, alpha)
            if i >= 1:
                a, b = t - i * N + 1, t - (i - 1) * N
                both = (1 - gamma) * window(run.released.Delta, a, b, alpha) + gamma * window(
                    run.released.G, a, b, alpha
                )
                G = G + reconstruction.weight(i, N, alpha, gamma) * both
        return alpha * G + alpha * window(run.released.r, 1, t, alpha)

    for t in range(1, 6 * N + 1):
        difference = np.abs(as_printed(t) - run.m_hat[t - 1]).max()
        assert difference > 1e-3 if t % N == 0 and t > N else difference < 1e-12
    assert [reconstruction.windows(t, N) for t in (1, 5, 6, 10, 11)] == [(0, 1), (0, 5), (1, 1), (1, 5), (2, 1)]


def test_momentum_of_a_step_makes_the_next_iterate(problem) -> None:
    """E10: w_{t+1} comes from m̂_t, which needs ∇f(w_t); the print's w_t = w_{t-1} - η m̂_t/‖m̂_t‖ is circular. The
    anchors are w_{qN+1}: at the first step of an epoch r asks for nothing."""
    N = 4
    p = problem(N, 3, 3)
    run = run_of(p, N, 12, noise=normal_noise(2, 3, 0.1))
    for t in range(1, 13):
        np.testing.assert_array_equal(run.w[t], normalised_step(run.w[t - 1], run.m_hat[t - 1], 0.2))
    exact = run_of(p, N, 12)
    for t in (1, 5, 9):
        np.testing.assert_array_equal(exact.released.r[t, t], np.zeros(3))
        order = np.random.default_rng(0).permutation(N)
        np.testing.assert_array_equal(exact.released.G[t, t], p.gradient(exact.w[t - 1], order[0]))
        np.testing.assert_array_equal(exact.released.G[t + 2, t + 2], p.gradient(exact.w[t - 1], order[2]))


def test_the_loop_from_zero_asks_for_the_future(problem) -> None:
    """E8: at i = 0 the window is [t+1, t+N], of which nothing is released at step t, and its weight is an empty sum."""
    N = 5
    p = problem(N, 3, 4)
    for t in range(N + 1, 4 * N):
        past = run_of(p, N, t).released
        with pytest.raises(KeyError):
            window(past.G, t + 1, t + N, 0.2)
    assert reconstruction.weight(0, N, 0.2, 0.3) == 0
    # and what Algorithm 4 does use at step t ends at t at the latest
    for t in range(1, 4 * N):
        assert max(z for _, _, z in reconstruction_weights(alpha=0.2, gamma=0.3, t=t, steps_per_epoch=N)) == t


def test_breaksum_starts_at_one(problem) -> None:
    """R3: the statement of Lemma `breaksum` sums Δ and γG from i = 1, the last line of its proof from i = 2: wrong."""
    N, t = 4, 17
    run = run_of(problem(N, 3, 6), N, t)
    options = {"alpha": 0.2, "gamma": 0.3, "t": t, "steps_per_epoch": N}
    whole = reconstruction.reconstruct_sum(run.released.G, run.released.Delta, **options)
    first = 0.7 * window(run.released.Delta, t - N + 1, t, 0.2) + 0.3 * window(run.released.G, t - N + 1, t, 0.2)
    exact = window(run.released.G, 1, t, 0.2)
    np.testing.assert_allclose(whole, exact, atol=1e-12)
    assert np.abs(whole - first - exact).max() > 0.1


def test_a_node_keeps_each_term_s_own_epoch(problem) -> None:
    """R2: Algorithm 2 writes one q for all terms of a node, its proof q_i for each. With one q a node across an epoch
    border has the wrong anchors, and the reconstruction no longer gives the momentum."""
    N, T, alpha = 5, 20, 0.2
    p = problem(N, 3, 8)
    run = run_of(p, N, T)
    order = np.random.default_rng(0).permutation(N)

    def at(q, t):
        return p.gradient(run.w[q * N], order[(t - 1) % N])

    one_q = Released()
    for y, z in run.released.G:
        q = (z - 1) // N
        steps = range(y, z + 1)
        one_q.G[y, z] = sum((1 - alpha) ** (z - t) * at(q, t) for t in steps)
        one_q.r[y, z] = sum(
            (1 - alpha) ** (z - t) * (p.gradient(run.w[t - 1], order[(t - 1) % N]) - at(q, t)) for t in steps
        )
        if y > N:
            one_q.Delta[y, z] = sum((1 - alpha) ** (z - t) * (at(q, t) - at(q - 1, t)) for t in steps)
    errors = [
        np.abs(reconstruct(one_q, alpha=alpha, gamma=0.3, t=t, steps_per_epoch=N) - run.m[t - 1]).max()
        for t in range(1, T + 1)
    ]
    assert max(errors[:N]) < 1e-12
    assert max(errors) > 0.1


@pytest.mark.parametrize("N", SIZES)
def test_the_recursion_is_the_reconstruction(problem, N) -> None:
    """E12: the same function of the released sums, signal and noise together, at every step."""
    p = problem(N, 3, N)
    T = 5 * N + N // 2
    run = run_of(p, N, T, noise=normal_noise(N, 3), alpha=0.15, gamma=0.25)
    again = reconstruct_by_recursion(run.released, alpha=0.15, gamma=0.25, steps=T, steps_per_epoch=N)
    np.testing.assert_allclose(again, run.m_hat, atol=1e-11, rtol=0)


def test_the_recursion_fails_on_reshuffled_epochs(problem) -> None:
    """E12: as Lemma `breaksum` does, by the same amount, for it is the same function."""
    N, T = 7, 35
    p = problem(N, 3, 7)
    reshuffled = run_of(p, N, T, order=lambda q: np.random.default_rng(q).permutation(N))
    again = reconstruct_by_recursion(reshuffled.released, alpha=0.2, gamma=0.3, steps=T, steps_per_epoch=N)
    assert np.linalg.norm(again - reshuffled.m, axis=1).max() > 0.2 * p.G


def test_the_recursion_looks_at_few_nodes(problem) -> None:
    """E12: Algorithm 4 looks up O(q log N) nodes a step, the recursion O(log T)."""

    class Counting(dict):
        looked_up = 0

        def __getitem__(self, key):
            Counting.looked_up += 1
            return super().__getitem__(key)

    N, T = 8, 320
    released = Released(*(Counting(getattr(run_of(problem(N, 3, 1), N, T).released, f)) for f in FAMILIES))
    Counting.looked_up = 0
    reconstruct(released, alpha=0.1, gamma=0.1, t=T - 1, steps_per_epoch=N)
    last_step = Counting.looked_up
    Counting.looked_up = 0
    reconstruct_by_recursion(released, alpha=0.1, gamma=0.1, steps=T, steps_per_epoch=N)
    recursion = Counting.looked_up / T
    assert last_step > 150
    assert recursion < 5 * (1 + math.log2(T))


def test_the_plain_signal_is_no_post_processing_once_a_clip_binds(problem) -> None:
    """E12: with a clip that binds the released sums no longer add up to the plain momentum; and putting the plain one
    under the same noise costs 6.4 to 7.3 times the claimed μ (identity noise, γ = 0.1, E = 20, ρ = 0.1 and 0.03)."""
    N = 6
    p = problem(N, 3, 9)
    clipped = run_of(p, N, 24, clips=Clips(Delta=clip_to(0.05 * p.G)))
    assert np.abs(clipped.signal - clipped.m).max() > 0.05 * p.G
    loose = run_of(p, N, 24, clips=Clips(clip_to(2 * p.G), clip_to(2 * p.G), clip_to(2 * p.G)))
    assert np.abs(loose.signal - loose.m).max() < 1e-12

    gamma, E = 0.1, 20
    lag = np.eye(E) - (1 - gamma) * np.eye(E, k=-1)  # v = lag u: what noise of variance 1 is added to
    signs = np.array([[1.0 if s >> e & 1 else -1.0 for e in range(12)] for s in range(2**12)])
    worst = np.linalg.norm(signs @ lag[:12, :12].T, axis=1).max()  # all contributions ±1 to u, by brute force
    assert worst == pytest.approx(math.sqrt(1 + 11 * (2 - gamma) ** 2))
    true = np.linalg.norm(lag @ (-1.0) ** np.arange(E))
    for rho, ratio in ((0.1, 6.42), (0.03, 7.30)):
        claim = math.sqrt(1 + (E - 1) * ((1 - gamma) * rho + gamma) ** 2)
        assert true / claim == pytest.approx(ratio, abs=0.01)


def test_clips_act_on_each_row_of_a_family(problem) -> None:
    """The families' terms, written out: differences first, then the clip of each example, then the public divisor."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 2, 4, 4))  # three batches of two examples

    def gradient(w, place):
        return np.sin(A[place] @ w) * 3

    levels = {"G": 1.0, "Delta": 0.3, "r": 0.2}
    clips = Clips(**{family: clip_to(level) for family, level in levels.items()})
    options = {"steps_per_epoch": 3, "steps": 9, "alpha": 0.3, "gamma": 0.2, "eta": 0.4, "batch_size": 2}
    run = algorithm_2(gradient, np.ones(4), noise=normal_noise(1, 4, 0.01), clips=clips, **options)
    noise = normal_noise(1, 4, 0.01)

    def clipped_mean(rows, level):
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return (rows * np.minimum(1, level / np.maximum(norms, 1e-300))).sum(axis=0) / 2

    for t in range(1, 10):
        q, place = (t - 1) // 3, (t - 1) % 3
        anchor = run.w[3 * q]
        expected = {
            "G": clipped_mean(gradient(anchor, place), 1.0),
            "r": clipped_mean(gradient(run.w[t - 1], place) - gradient(anchor, place), 0.2),
        }
        if q:
            expected["Delta"] = clipped_mean(gradient(anchor, place) - gradient(run.w[3 * q - 3], place), 0.3)
        for family, value in expected.items():
            got = getattr(run.released, family)[t, t] - noise(family, t, t)
            np.testing.assert_allclose(got, value, atol=1e-12)
    for y, z in run.released.Delta:
        assert y > 3
        assert z <= 9


def test_weights_are_the_reconstruction(problem) -> None:
    N, T = 5, 23
    run = run_of(problem(N, 3, 5), N, T, noise=normal_noise(5, 3))
    for t in range(1, T + 1):
        weights = reconstruction_weights(alpha=0.2, gamma=0.3, t=t, steps_per_epoch=N)
        total = sum(c * getattr(run.released, family)[y, z] for (family, y, z), c in weights.items())
        np.testing.assert_allclose(total, run.m_hat[t - 1], atol=1e-12)


def test_windows_need_right_children() -> None:
    """E13: unlike prefixes, the windows of Algorithm 4 use right children; `sr-nsgd` needs every node."""
    used = {
        (y, z)
        for t in range(1, 41)
        for family, y, z in reconstruction_weights(alpha=0.2, gamma=0.3, t=t, steps_per_epoch=8)
        if family == "G"
    }
    right = {(y, z) for y, z in used if (z // (z - y + 1)) % 2 == 0}
    assert len(right) > 10
    assert compose(2, 2)[0] in right
    weights = reconstruction_weights(alpha=0.2, gamma=0.3, t=40, steps_per_epoch=8)
    assert {(y, z) for family, y, z in weights if family == "r"} == set(compose(1, 40))  # r is a prefix: left ones


def test_a_noise_map_without_a_node_is_refused(problem) -> None:
    with pytest.raises(InputError, match="family r"):
        run_of(problem(2, 3, 0), 2, 2, noise={("G", 1, 1): np.zeros(3)})
