"""Algorithm 4, the reconstruction of m̂_t from the noisy sums of Algorithm 2; Lemma `breaksum`; the recursion of E12.

q = (t-1)//N and r = t - qN ∈ 1 … N (the print's ⌊t/N⌋ asks for an empty prefix at t = N, 2N, …: docs/paper.md, E10),
and the term of Δ and γG starts at i = 1 (at i = 0 it would ask for the future: E8).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from momentree.paper.common import Node, Vector
from momentree.paper.compose import compose, prefix, window

Sums = dict[Node, Vector]


@dataclass(frozen=True)
class Released:
    """F̂ of the three families, node by node: G at the epoch's anchor, Δ anchor to anchor, r iterate to anchor."""

    G: Sums = field(default_factory=dict)
    Delta: Sums = field(default_factory=dict)
    r: Sums = field(default_factory=dict)


def windows(t: int, N: int) -> tuple[int, int]:
    """(q, r) with t = qN + r, r ∈ 1 … N."""
    q = (t - 1) // N
    return q, t - q * N


def weight(i: int, N: int, alpha: float, gamma: float) -> float:
    """Σ_{j=0}^{i-1} (1-γ)^j (1-α)^((i-1-j)N), the weight of the window that ends i-1 epochs ago."""
    return sum((1 - gamma) ** j * (1 - alpha) ** ((i - 1 - j) * N) for j in range(i))


def reconstruct_sum(F_G: Sums, F_Delta: Sums, *, alpha: float, gamma: float, t: int, steps_per_epoch: int) -> Vector:
    """Ĝ_[1,t] of Algorithm 4, in its order. On exact sums it is the right-hand side of Lemma `breaksum`."""
    N = steps_per_epoch
    q, r = windows(t, N)
    G_t = (1 - alpha) ** (t - r) * prefix(F_G, r, alpha)
    for i in range(q):
        G_t = G_t + (1 - alpha) ** (N * i) * (1 - gamma) ** (q - i - 1) * window(F_G, r + 1, r + N, alpha)
        if i >= 1:
            a, b = t - i * N + 1, t - (i - 1) * N
            G_window, Delta_window = window(F_G, a, b, alpha), window(F_Delta, a, b, alpha)
            G_t = G_t + weight(i, N, alpha, gamma) * ((1 - gamma) * Delta_window + gamma * G_window)
    return G_t


def reconstruct(released: Released, *, alpha: float, gamma: float, t: int, steps_per_epoch: int) -> Vector:
    """Algorithm 4: m̂_t = α Ĝ_[1,t] + α r̂_t, from released sums and from nothing else."""
    G_t = reconstruct_sum(released.G, released.Delta, alpha=alpha, gamma=gamma, t=t, steps_per_epoch=steps_per_epoch)
    return alpha * G_t + alpha * prefix(released.r, t, alpha)


def reconstruct_by_recursion(
    released: Released, *, alpha: float, gamma: float, steps: int, steps_per_epoch: int
) -> Vector:
    """m̂_1 … m̂_T by the recursion one epoch back, equal to Algorithm 4 at O(log T) nodes a step (docs/paper.md, E12).

    Ĝ_t = (1-α)^n Ĝ_{t-n} + W_t and W_t = (1-γ)(Δ̂_t + W_{t-n}) + γ Ĝraw_t, where hats with one index are windows of
    the last n steps; base cases: Ĝ_t the raw prefix for t ≤ n, W_t the raw window for n < t ≤ 2n.
    """
    n = steps_per_epoch
    G: dict[int, Vector] = {}
    W: dict[int, Vector] = {}
    m_hat = []
    for t in range(1, steps + 1):
        if t <= n:
            G[t] = prefix(released.G, t, alpha)
        else:
            raw = window(released.G, t - n + 1, t, alpha)
            if t <= 2 * n:
                W[t] = raw
            else:
                W[t] = (1 - gamma) * (window(released.Delta, t - n + 1, t, alpha) + W[t - n]) + gamma * raw
            G[t] = (1 - alpha) ** n * G[t - n] + W[t]
        m_hat.append(alpha * G[t] + alpha * prefix(released.r, t, alpha))
    return np.array(m_hat)


def reconstruction_weights(
    *, alpha: float, gamma: float, t: int, steps_per_epoch: int
) -> dict[tuple[str, int, int], float]:
    """The coefficient of every released node in m̂_t, by (family, y, z): what the noise of m̂_t is made of."""
    N = steps_per_epoch
    q, r = windows(t, N)
    weights: dict[tuple[str, int, int], float] = {}

    def add(family: str, a: int, b: int, factor: float) -> None:
        for y, z in compose(a, b):
            key = (family, y, z)
            weights[key] = weights.get(key, 0.0) + alpha * factor * (1 - alpha) ** (b - z)

    add("G", 1, r, (1 - alpha) ** (t - r))
    if q >= 1:
        add("G", r + 1, r + N, sum((1 - alpha) ** (N * i) * (1 - gamma) ** (q - 1 - i) for i in range(q)))
    for i in range(1, q):
        a, b = t - i * N + 1, t - (i - 1) * N
        add("Delta", a, b, weight(i, N, alpha, gamma) * (1 - gamma))
        add("G", a, b, weight(i, N, alpha, gamma) * gamma)
    add("r", 1, t, 1.0)
    return weights
