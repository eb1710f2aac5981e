"""The best dense C for a workload under the fixed order, and how far it can be from the best there is.

Lower bound. Let S = AᵀA, X = CᵀC, and U positive semidefinite, non-zero only where row and column are steps of the same
place, its diagonal constant within each place: v_j. One example at place j gives contributions of norm ≤ 1, whose Gram
matrix R has a unit diagonal, so ⟨U_j, X_j⟩ ≤ v_j ‖C‖² for U_j = v_j R, and ⟨U, X⟩ ≤ ‖C‖² Σ v_j. By Cauchy–Schwarz
tr(S X⁻¹) · tr(U X) ≥ (tr (S^{1/2} U S^{1/2})^{1/2})². Hence for every causal C, of any signs and any diagonal,

    error² · ‖C‖² ≥ (tr (S^{1/2} U S^{1/2})^{1/2})² / (T Σ v_j),

whatever U is. `lower_bound` maximises over U (v_j and, for each place, a correlation matrix Y Yᵀ with unit rows).

C. Its own entries are 1 like those of every strategy here. That costs some tenths of a per cent against a free diagonal
(up to 3% for a handful of steps); `gap` is measured against the bound for all C, so it includes that. L-BFGS over L in
C = L C_0, C_0 the banded root and L unit lower-triangular: near L = I the loss is far better scaled than in C itself.
‖C‖ is the sum of absolute inner products (the honest one where signs are mixed); its kinks and its maximum over places
are smoothed and sharpened in stages; what is returned is evaluated without smoothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh, solve_triangular
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dtrtri
from scipy.optimize import minimize

from momentree.errors import InputError
from momentree.strategy.base import Array
from momentree.strategy.dense import LARGEST, Dense
from momentree.strategy.participation import gram_squared
from momentree.strategy.workload import Workload

SHARPNESS = (30.0, 200.0, 1500.0)
"""Exponents of the smoothed maximum, in stages."""
KINK = 0.5
"""|x| counts as √(x² + (KINK / sharpness)²) during the descent: many inner products want to be exactly 0."""


@dataclass(frozen=True, eq=False)
class DenseFit:
    """The strategy; its error × ‖C‖ under the fixed order; the bound that no C goes below; `gap` = ratio − 1."""

    strategy: Dense
    loss: float
    bound: float

    @property
    def gap(self) -> float:
        """How much of the loss might be saved at most, as a fraction of the bound."""
        return self.loss / self.bound - 1.0


def fit_dense(workload: Workload, steps_per_epoch: int, *, block: int | None = None) -> DenseFit:
    """The best unit-diagonal C found under the fixed order, with its optimality gap. T ≤ 2,000: three minutes.

    `block`: C covers that many steps and runs again from there on (the last time perhaps cut), while the workload goes
    on; then loss and bound count every run as a whole one and speak of such strategies only.
    """
    steps, block = workload.steps, block or workload.steps
    if steps > LARGEST:
        raise InputError(f"dense over {steps} steps is too large: at most {LARGEST}; choose blt or bsr")
    a, gram = workload.matrix(), np.zeros((block, block))
    for first in range(0, steps, block):
        columns = a[:, first : first + block]
        gram[: columns.shape[1], : columns.shape[1]] += columns.T @ columns
    gram *= -(-steps // block) / steps  # error² · ‖C‖² = tr(Dᵀ gram D) · ‖C of a block‖²
    few = min(1.0, (800 / block) ** 1.5)  # an iteration costs 5T³ and more: fewer of them where T is large
    iterations = max(40, int(150 * few))
    root, left = _root(workload, block, steps_per_epoch), np.eye(block)
    for sharpness in SHARPNESS if block > 1 else ():
        left = _descend(left, root, gram, _places(block, steps_per_epoch), sharpness, iterations)
    best = np.tril(left @ root)
    np.fill_diagonal(best, 1.0)
    loss, bound = _loss(best, gram, steps_per_epoch), lower_bound(gram, steps_per_epoch, max(15, int(60 * few)))
    return DenseFit(Dense(best, loss / bound - 1.0), loss, bound)


def _loss(c: Array, gram: Array, steps_per_epoch: int) -> float:
    inverse = solve_triangular(c, np.eye(len(c)), lower=True)
    return math.sqrt(float(np.sum(inverse * (gram @ inverse))) * float(np.max(gram_squared(c, steps_per_epoch))))


def _places(steps: int, steps_per_epoch: int) -> Array:
    """Steps of each place, one row a place; −1 where a last, shorter epoch does not reach."""
    epochs = -(-steps // steps_per_epoch)
    grid = np.arange(epochs * steps_per_epoch).reshape(epochs, steps_per_epoch).T
    return np.where(grid < steps, grid, -1)


def _root(workload: Workload, steps: int, steps_per_epoch: int) -> Array:
    """The banded square root: within some per cent of the best already."""
    c = workload.averaged().square_root(min(steps, steps_per_epoch))
    lags = np.subtract.outer(np.arange(steps), np.arange(steps))
    return np.where((lags >= 0) & (lags < len(c)), c[np.clip(lags, 0, len(c) - 1)], 0.0)


def _descend(start: Array, root: Array, gram: Array, places: Array, sharpness: float, iterations: int) -> Array:
    """L-BFGS at one degree of smoothing, over L in C = L · root; L is what goes in and comes out."""
    steps = len(start)
    below = np.tril_indices(steps, -1)
    valid = places >= 0

    def loss(point: Array) -> tuple[float, Array]:
        left = np.eye(steps)
        left[below] = point
        c = dtrmm(1.0, left, root, side=0, lower=1)
        inverse = dtrtri(c, lower=1)[0]
        product = dtrmm(1.0, inverse, gram, side=1, lower=1)  # SD; error = tr(Dᵀ S D)
        error = float(np.sum(inverse * product))
        # ∂ tr(DᵀSD) / ∂C = −2 Dᵀ (S D) Dᵀ
        right = dtrmm(1.0, inverse, product, side=1, lower=1, trans_a=1)
        slope = -2.0 / error * dtrmm(1.0, inverse, right, side=0, lower=1, trans_a=1)
        columns = c[:, places] * valid  # T × n × E
        stacked = np.ascontiguousarray(columns.transpose(1, 0, 2))
        inner = stacked.transpose(0, 2, 1) @ stacked
        rounded = np.sqrt(inner * inner + (KINK / sharpness) ** 2)
        norms = np.sum(rounded, axis=(1, 2))
        largest = float(norms.max())
        weights = (norms / largest) ** sharpness
        total = float(weights.sum())
        # ∂ Σ|⟨C_e, C_f⟩| / ∂C_e = 2 Σ_f sign ⟨C_e, C_f⟩ C_f, the sign rounded off
        moves = 2.0 * (stacked @ (inner / rounded)) * (weights / (total * norms))[:, None, None]
        slope[:, places[valid]] += moves.transpose(1, 0, 2)[:, valid]
        value = 0.5 * math.log(error) + 0.5 * (math.log(largest) + math.log(total) / sharpness)
        by_left = dtrmm(0.5, root, slope, side=1, lower=1, trans_a=1)  # dC = dL · root
        return value, by_left[below]

    options = {"maxiter": iterations, "maxcor": 20 if steps <= 800 else 10, "ftol": 1e-10, "gtol": 1e-8}
    found = minimize(loss, start[below], jac=True, method="L-BFGS-B", options=options)
    result = np.eye(steps)
    result[below] = found.x
    return result


def lower_bound(gram: Array, steps_per_epoch: int, iterations: int = 60) -> float:
    """√(tr(gram X⁻¹) · ‖C‖²) cannot go below this under the fixed order, for any C at all; gram = AᵀA / T."""
    steps = len(gram)
    places = _places(steps, steps_per_epoch)
    valid = places >= 0
    count, epochs = places.shape
    values, vectors = eigh(gram)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T

    def factors(point: Array) -> tuple[Array, Array, Array]:
        weights = np.exp(point[:count])
        raw = point[count:].reshape(count, epochs, epochs)
        lengths = np.linalg.norm(raw, axis=2, keepdims=True)
        return weights, raw / lengths, lengths

    def negative(point: Array) -> tuple[float, Array]:
        weights, rows, lengths = factors(point)
        u = np.zeros((steps, steps))
        blocks = weights[:, None, None] * (rows @ rows.transpose(0, 2, 1))
        pairs = valid[:, :, None] & valid[:, None, :]
        across = np.broadcast_to(places[:, :, None], blocks.shape)[pairs]
        down = np.broadcast_to(places[:, None, :], blocks.shape)[pairs]
        u[across, down] = blocks[pairs]
        spectrum, basis = eigh(root @ u @ root, overwrite_a=True, check_finite=False)
        spectrum = np.sqrt(np.maximum(spectrum, 1e-14 * spectrum[-1]))
        trace = float(spectrum.sum())
        half = (root @ basis) / np.sqrt(spectrum)
        x = half @ half.T  # S^{1/2} (S^{1/2} U S^{1/2})^{−1/2} S^{1/2} = 2 ∂ trace / ∂U
        inner = np.zeros_like(blocks)
        inner[pairs] = x[across, down]
        by_weight = np.sum(inner * blocks, axis=(1, 2)) / (2 * trace) - 0.5 * weights / weights.sum()
        by_rows = weights[:, None, None] * (inner @ rows) / trace
        by_rows = (by_rows - rows * np.sum(by_rows * rows, axis=2, keepdims=True)) / lengths
        value = math.log(trace) - 0.5 * math.log(weights.sum())
        return -value, -np.concatenate([by_weight, by_rows.ravel()])

    start = np.concatenate([np.zeros(count), np.broadcast_to(np.eye(epochs), (count, epochs, epochs)).ravel()])
    options = {"maxiter": iterations, "maxcor": 20, "ftol": 1e-9, "gtol": 1e-8}
    found = minimize(negative, start, jac=True, method="L-BFGS-B", options=options)
    return math.exp(-float(found.fun))
