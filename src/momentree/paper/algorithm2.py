"""Algorithm 2: sensitivity-reduced normalised SGD, its three streams, reconstructed by Algorithm 4.

With anchors a_q = w_{qN+1}, the iterate that opens epoch q (E10), and q the epoch of step t, the families are
    G: ∇f(a_q, x),   Δ: ∇f(a_q, x) - ∇f(a_{q-1}, x) (from the second epoch on),   r: ∇f(w_t, x) - ∇f(a_q, x),
each released as decayed sums over the nodes of the binary tree. The print writes one q for a whole node; its proof,
and this code, take each term's own. Lemma `breaksum` needs the same order in every epoch (E1): under another one
the reconstruction is wrong by O(1), which this oracle will show and not refuse.

Guarantee: none by itself. Whoever supplies the noise owns the account. Everything after the released sums is
post-processing, clips included: with a clip that binds, m̂ without noise is no longer the plain momentum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from momentree.errors import InputError, number, whole
from momentree.paper.common import (
    Clip,
    Gradient,
    Order,
    Vector,
    decayed_sum,
    epoch_and_place,
    normalised_step,
    permutation,
    query,
)
from momentree.paper.compose import nodes_ending_at
from momentree.paper.reconstruction import Released, reconstruct

Family = Literal["G", "Delta", "r"]
FAMILIES: tuple[Family, ...] = ("G", "Delta", "r")
FamilyNoise = Callable[[Family, int, int], Vector] | Mapping[tuple[Family, int, int], Vector]
"""ζ of node [y, z] of a family: what is added to the node, scale included. A callable is called once a node."""


@dataclass(frozen=True)
class Clips:
    """A clip for each family, acting on each example's gradient (G) or difference of gradients (Δ, r); None: none."""

    G: Clip | None = None
    Delta: Clip | None = None
    r: Clip | None = None


@dataclass(frozen=True)
class Run2:
    """What Algorithm 2 computed. Arrays count from 0: `w[t-1]` is w_t (T+1 of them), `m_hat[t-1]` is m̂_t.

    `m`: the plain momentum of the unclipped ∇f(w_t, x), what the method estimates. `signal`: Algorithm 4 on the same
    sums without their noise; equal to `m` on one fixed order while no clip binds. `released`: all that leaves.
    """

    w: Vector
    m: Vector
    m_hat: Vector
    signal: Vector
    released: Released


def algorithm_2(
    gradient: Gradient,
    w_1: Vector,
    *,
    steps_per_epoch: int,
    steps: int,
    alpha: float,
    gamma: float,
    eta: float,
    order: Order | None = None,
    noise: FamilyNoise | None = None,
    clips: Clips | None = None,
    batch_size: int = 1,
) -> Run2:
    """Algorithm 2 on `steps` steps of epochs of `steps_per_epoch` (N), α = 1-β, leak γ, step length η.

    `gradient(w, i)`: ∇f(w, x_i) for entry i of the order; a matrix speaks for a batch (see `common`).
    `order`: one permutation for all epochs; or, to see Lemma `breaksum` fail, q -> permutation. Default 0 … N-1.
    `noise`: a callable (family, y, z) -> vector or a map {(family, y, z): vector}, families "G", "Delta", "r" and
    every node [y, z] inside {1 … T} (of "Delta" those with y > N), added as it is; default none.
    """
    N, T = whole("steps_per_epoch", steps_per_epoch), whole("steps", steps)
    number("alpha", alpha, above=0.0, at_most=1.0)
    number("gamma", gamma, at_least=0.0, at_most=1.0)
    clips = clips or Clips()
    w_t = np.asarray(w_1, dtype=np.float64)
    m_t = np.zeros_like(w_t)
    w, m, m_hat, signal = [w_t], [], [], []
    anchors: list[Vector] = []
    terms: dict[Family, dict[int, Vector]] = {family: {} for family in FAMILIES}
    released, exact = Released(), Released()

    for t in range(1, T + 1):
        q, place = epoch_and_place(t, N)
        x = permutation(order, q, N)[place]
        if place == 0:
            anchors.append(w_t)
        at_iterate = np.asarray(gradient(w_t, x), dtype=np.float64)
        at_anchor = np.asarray(gradient(anchors[q], x), dtype=np.float64)
        terms["G"][t] = query(at_anchor, clips.G, batch_size)
        terms["r"][t] = query(at_iterate - at_anchor, clips.r, batch_size)
        if q >= 1:
            terms["Delta"][t] = query(at_anchor - gradient(anchors[q - 1], x), clips.Delta, batch_size)

        for y, z in nodes_ending_at(t):
            for family in FAMILIES:
                if family == "Delta" and y <= N:
                    continue
                F = decayed_sum(terms[family], y, z, alpha)
                getattr(exact, family)[y, z] = F
                getattr(released, family)[y, z] = F + _draw(noise, family, y, z, w_t)

        m_t = (1 - alpha) * m_t + alpha * query(at_iterate, None, batch_size)
        m_hat_t = reconstruct(released, alpha=alpha, gamma=gamma, t=t, steps_per_epoch=N)
        w_t = normalised_step(w_t, m_hat_t, eta)
        w.append(w_t)
        m.append(m_t)
        m_hat.append(m_hat_t)
        signal.append(reconstruct(exact, alpha=alpha, gamma=gamma, t=t, steps_per_epoch=N))
    return Run2(np.array(w), np.array(m), np.array(m_hat), np.array(signal), released)


def _draw(noise: FamilyNoise | None, family: Family, y: int, z: int, like: Vector) -> Vector:
    if noise is None:
        return np.zeros_like(like)
    if callable(noise):
        return np.asarray(noise(family, y, z), dtype=np.float64)
    if (family, y, z) not in noise:
        raise InputError(f"the noise map has no entry for node [{y}, {z}] of family {family}: give one for every node")
    return np.asarray(noise[family, y, z], dtype=np.float64)
