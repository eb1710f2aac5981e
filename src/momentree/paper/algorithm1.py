"""Algorithm 1: differentially private normalised SGD with momentum (DP-NSGD), as printed, steps 1 … T.

The print keeps the un-noised m_t and adds the noise of the nodes COMPOSE(1, t); `nodes` holds what it proves private,
f̂_[y,z] = α Σ_{t'=y}^z (1-α)^(z-t') ∇f(w_t', x) + ζ_[y,z], and m̂_t is a function of these alone (Theorem 2's proof).

Guarantee: none by itself. Whoever supplies the noise owns the account: `theorems` has the print's, with its errata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from momentree.errors import number, one_of, whole
from momentree.paper.common import (
    Clip,
    Gradient,
    Node,
    NodeNoise,
    Order,
    Vector,
    decayed_sum,
    epoch_and_place,
    normalised_step,
    permutation,
    query,
)
from momentree.paper.compose import compose, draw, left_nodes, tree_nodes


@dataclass(frozen=True)
class Run1:
    """What Algorithm 1 computed. Arrays count from 0: `w[t-1]` is w_t (T+1 of them), `m[t-1]` is m_t."""

    w: Vector
    m: Vector
    m_hat: Vector
    nodes: dict[Node, Vector]


def algorithm_1(
    gradient: Gradient,
    w_1: Vector,
    *,
    steps_per_epoch: int,
    steps: int,
    alpha: float,
    eta: float,
    order: Order | None = None,
    noise: NodeNoise | None = None,
    nodes: Literal["all", "left"] = "all",
    clip: Clip | None = None,
    batch_size: int = 1,
) -> Run1:
    """Algorithm 1 on `steps` steps of epochs of `steps_per_epoch` (N), α = 1-β, step length η.

    `gradient(w, i)`: ∇f(w, x_i) for entry i of the order; a matrix speaks for a batch (see `common`).
    `order`: one permutation, or q -> permutation (the print draws a new one each epoch); default 0 … N-1.
    `noise`: ζ_[y,z], a callable (y, z) -> vector or a map {(y, z): vector}, added as it is; default none.
    `nodes`: "all" draws and releases every node, as printed; "left" only those that COMPOSE(1, t) uses (E13).
    `clip`: acts on each example's gradient; default none.
    """
    N, T = whole("steps_per_epoch", steps_per_epoch), whole("steps", steps)
    number("alpha", alpha, above=0.0, at_most=1.0)
    one_of("nodes", nodes, ("all", "left"))
    w_t = np.asarray(w_1, dtype=np.float64)
    Z = {node: draw(noise, node, w_t) for node in (tree_nodes(T) if nodes == "all" else left_nodes(T))}

    m_t = np.zeros_like(w_t)
    w, m, m_hat, g = [w_t], [], [], {}
    for t in range(1, T + 1):
        q, place = epoch_and_place(t, N)
        noise_t = np.zeros_like(w_t)
        for y, z in compose(1, t):
            noise_t = noise_t + (1 - alpha) ** (t - z) * Z[y, z]
        g[t] = query(gradient(w_t, permutation(order, q, N)[place]), clip, batch_size)
        m_t = (1 - alpha) * m_t + alpha * g[t]
        m_hat_t = m_t + noise_t
        w_t = normalised_step(w_t, m_hat_t, eta)
        w.append(w_t)
        m.append(m_t)
        m_hat.append(m_hat_t)

    released = {(y, z): alpha * decayed_sum(g, y, z, alpha) + zeta for (y, z), zeta in Z.items()}
    return Run1(np.array(w), np.array(m), np.array(m_hat), released)
