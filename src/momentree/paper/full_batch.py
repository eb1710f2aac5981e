"""The full-batch recursion that motivates section 4: `epoch-lag` with one step an epoch.

    g_t = (1-γ)(g_{t-1} + ∇F(w_t) - ∇F(w_{t-1})) + γ ∇F(w_t),   w_{t+1} = w_t - η g_t/‖g_t‖,   g_1 = ∇F(w_1),
that is g_t = Σ_{i≤t} (1-γ)^(t-i) v_i with v_1 = ∇F(w_1) and v_i = (1-γ)(∇F(w_i) - ∇F(w_{i-1})) + γ ∇F(w_i): after the
first step only terms of sensitivity O(η/N) + γ·O(1/N) are asked. Without noise and clips g_t is ∇F(w_t).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from momentree.errors import number, whole
from momentree.paper.common import Clip, Vector, normalised_step, query


@dataclass(frozen=True)
class FullBatchRun:
    """Arrays count from 0: `w[t-1]` is w_t (T+1 of them), `v_hat[t-1]` the released term v̂_t, `g_hat[t-1]` is ĝ_t."""

    w: Vector
    v_hat: Vector
    g_hat: Vector


def full_batch(
    gradient: Callable[[Vector], Vector],
    w_1: Vector,
    *,
    steps: int,
    gamma: float,
    eta: float,
    noise: Callable[[int], Vector] | None = None,
    clip_gradient: Clip | None = None,
    clip_difference: Clip | None = None,
    batch_size: int = 1,
) -> FullBatchRun:
    """The recursion for `steps` steps. `gradient(w)` is ∇F(w), or a row an example, summed over `batch_size`.

    `noise(t)` is added to v_t (t = 1 … T); the tree aggregation of the print is one such noise: with n_t the noise of
    COMPOSE(1, t) decayed by 1-γ, noise(t) = n_t - (1-γ) n_{t-1}. Clips act on each row, after differences are formed;
    the first term is asked at full sensitivity.
    """
    T = whole("steps", steps)
    number("gamma", gamma, at_least=0.0, at_most=1.0)
    w_t = np.asarray(w_1, dtype=np.float64)
    g_t = np.zeros_like(w_t)
    w, v_hat, g_hat = [w_t], [], []
    before: Vector | None = None
    for t in range(1, T + 1):
        now = np.asarray(gradient(w_t), dtype=np.float64)
        full = query(now, clip_gradient, batch_size)
        v_t = full if before is None else (1 - gamma) * query(now - before, clip_difference, batch_size) + gamma * full
        v_hat_t = v_t if noise is None else v_t + noise(t)
        g_t = (1 - gamma) * g_t + v_hat_t
        w_t = normalised_step(w_t, g_t, eta)
        before = now
        w.append(w_t)
        v_hat.append(v_hat_t)
        g_hat.append(g_t)
    return FullBatchRun(np.array(w), np.array(v_hat), np.array(g_hat))
