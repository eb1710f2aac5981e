"""The best scales and decays of a BLT, for a workload and the way in which examples take part.

Both factors of the loss are exact and cost O(log T + log E) products of matrices of the size of the buffers, whatever
T is: the error by `error.blt_span`, the norm of C under the fixed order by summing geometric series (`fixed_squared`).
Nothing of length T is formed. The search is L-BFGS in log ω and log(1 − θ), all finite differences of a step at once,
from a few starts; scales stay above 0 and decays inside [0, 1), so C ≥ 0 holds by construction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from scipy.optimize import minimize

from momentree.strategy.base import Array
from momentree.strategy.blt import Blt
from momentree.strategy.error import blt_span
from momentree.strategy.span import step_span
from momentree.strategy.workload import Workload

Shape = Literal["fixed", "one-per-epoch"]
DIFFERENCE = 1e-5
SCALE_BOUNDS = (-25.0, 0.7)
"""log ω: with decays ≥ 0 a scale above 2 alone makes C⁻¹ grow without bound."""
UNSTABLE = 1e6
"""The logarithm of a loss that is not finite."""


def fit_blt(
    workload: Workload, steps_per_epoch: int, buffers: int, shape: Shape = "fixed", *, blocks: int = 1
) -> tuple[Blt, float]:
    """The BLT of `buffers` buffers with the least error × ‖C‖ found, an example taking part once in n steps; that loss.

    `shape`: participation in the loss: `fixed` is exact; `one-per-epoch` is an estimate of the worst case under
    reshuffling, good enough to choose a C by (whatever is chosen is priced by the account, never by this estimate).
    `blocks`: how many times the strategy runs, afresh each time, while the workload goes on; `workload.steps` is the
    length of one block. A schedule counts by its root mean square.
    """
    steps = workload.steps
    if steps == 1:
        return Blt(1, np.zeros(buffers), np.zeros(buffers)), math.nan
    workload = workload.averaged()
    epochs = -(-steps // steps_per_epoch)
    squared = fixed_squared if shape == "fixed" else reshuffled_estimate

    def loss(points: Array) -> Array:
        scales, gaps = np.exp(points[..., :buffers]), np.minimum(np.exp(points[..., buffers:]), 1.0)
        with np.errstate(over="ignore", invalid="ignore"):  # scales too large: C⁻¹ grows without bound
            energy = blt_span(scales, 1.0 - gaps, workload, steps).power(blocks).energy
            norm = blocks * squared(scales, gaps, steps_per_epoch, epochs)
            values = 0.5 * np.log(energy / (steps * blocks) * norm)
        return np.where(np.isfinite(values), values, UNSTABLE)

    gap_bounds = (float(np.log(1e-3 / steps)), 0.0)
    bounds = [SCALE_BOUNDS] * buffers + [gap_bounds] * buffers
    best, value = None, float(loss(np.full((1, 2 * buffers), -745.0))[0])  # scales 0: independent noise
    for start in _starts(workload, steps_per_epoch, buffers):
        found = minimize(_with_gradient(loss), start, jac=True, method="L-BFGS-B", bounds=bounds, options=OPTIONS)
        if found.fun < value:
            best, value = found.x, float(found.fun)
    if best is None:
        return Blt(steps, np.zeros(buffers), np.zeros(buffers)), math.exp(value)
    order = np.argsort(best[buffers:])
    return Blt(steps, np.exp(best[:buffers][order]), 1.0 - np.exp(best[buffers:][order])), math.exp(value)


OPTIONS = {"maxiter": 400, "ftol": 1e-9, "gtol": 1e-6, "maxcor": 20}


def _with_gradient(loss: Callable[[Array], Array]) -> Callable[[Array], tuple[float, Array]]:
    """Value and central differences in one batch."""

    def evaluate(point: Array) -> tuple[float, Array]:
        moves = DIFFERENCE * np.eye(len(point))
        values = loss(np.concatenate([point[None], point + moves, point - moves]))
        return float(values[0]), (values[1 : 1 + len(point)] - values[1 + len(point) :]) / (2 * DIFFERENCE)

    return evaluate


def _starts(workload: Workload, steps_per_epoch: int, buffers: int) -> list[Array]:
    """Decays whose memories 1/(1 − θ) are spread evenly in the logarithm, up to an epoch or the momentum's own reach.

    The scales are those that make Σ ω θ^{k−1} fall like 1/√k, as a square root does.
    """
    starts = []
    reach = 1.0 / (1.0 - workload.momentum)
    for longest in (float(steps_per_epoch), reach):
        gaps = (
            np.geomspace(1.0 / max(2.0, longest), 0.9, buffers + 1)[:-1]
            if buffers > 1
            else np.array([2.0 / (2.0 + longest)])
        )
        scales = 0.4 * np.sqrt(gaps) / np.sqrt(buffers)
        starts.append(np.concatenate([np.log(scales), np.log(gaps)]))
    return starts


def fixed_squared(scales: Array, gaps: Array, steps_per_epoch: int, epochs: int) -> Array:
    """‖Σ_e C[:, en]‖² of the BLT with ω = scales and θ = 1 − gaps over nE steps; leading axes allowed.

    Row en + r of the sum is Σ_i ω_i θ_i^{r−1} q_i(e) for r ≥ 1 and 1 + Σ_i ω_i θ_i^{n−1} q_i(e − 1) for r = 0,
    q_i(e) = Σ_{f≤e} θ_i^{fn} (q(−1) = 0). The sums over e of q qᵀ follow the recurrence q(e + 1) = θⁿ q(e) + 1.
    """
    n, size = steps_per_epoch, scales.shape[-1]
    with np.errstate(divide="ignore"):
        logs = np.log1p(-gaps)
    move = np.zeros((*scales.shape[:-1], size + 1, size + 1))
    move[..., np.arange(size), np.arange(size)] = np.exp(n * logs)
    move[..., :, size] = 1.0
    state = np.ones((*scales.shape[:-1], size + 1))
    step = step_span(move, state, np.zeros(size + 1))
    sums = step.power(epochs).covariance[..., :size, :size]
    total = np.ones(scales.shape[:-1])
    if epochs > 1:
        before = step.power(epochs - 1).covariance
        first = np.concatenate(
            [scales * np.exp((n - 1) * logs) if n > 1 else scales, np.ones((*scales.shape[:-1], 1))], axis=-1
        )
        total = total + np.einsum("...i,...ij,...j->...", first, before, first)
    if n > 1:
        weight = scales[..., :, None] * scales[..., None, :] * _geometric(gaps, logs, n - 1)
        total = total + np.sum(weight * sums, axis=(-1, -2))
    return np.asarray(total)


def _geometric(gaps: Array, logs: Array, terms: int) -> Array:
    """Σ_{r<terms} (θ_i θ_j)^r for all pairs."""
    gap = gaps[..., :, None] + gaps[..., None, :] - gaps[..., :, None] * gaps[..., None, :]
    return np.asarray(-np.expm1(terms * (logs[..., :, None] + logs[..., None, :])) / gap)


def reshuffled_estimate(scales: Array, gaps: Array, steps_per_epoch: int, epochs: int) -> Array:
    """About the worst ‖Σ_e C[:, en + p_e]‖²: picks in pairs of neighbours, one pair every two epochs.

    Epochs k apart are then kn apart where k is even, (k − 1)n + 1 or (k + 1)n − 1 where it is odd.
    """
    n = steps_per_epoch
    with np.errstate(divide="ignore"):
        logs = np.log1p(-gaps)
    gap = gaps[..., :, None] + gaps[..., None, :] - gaps[..., :, None] * gaps[..., None, :]
    weight = np.sum(scales[..., :, None] * scales[..., None, :] / gap, axis=-2)

    def gamma(distance: int) -> Array:  # ⟨column, column `distance` later⟩ of an endless C
        return np.asarray(np.sum(np.exp(distance * logs) * (weight + scales * np.exp(-logs)), axis=-1))

    total = epochs * (1.0 + np.sum(weight, axis=-1))
    for k in range(1, min(epochs, 64)):
        pairs = epochs - k
        if k % 2 == 0:
            total = total + 2 * pairs * gamma(k * n)
        else:
            near = (pairs + 1) // 2
            total = total + 2 * near * gamma((k - 1) * n + 1) + 2 * (pairs - near) * gamma((k + 1) * n - 1)
    return np.asarray(total)
