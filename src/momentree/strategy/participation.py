"""The norm of C under the fixed order, for the optimisers here and as an oracle beside the accounts' own.

An example sits at one place of the epoch and takes part there in every epoch. Where the columns of one place have
inner products ≥ 0 the norm is max_j ‖Σ_e C[:, j + en]‖, exactly; elsewhere √(max_j Σ |⟨C_e, C_f⟩|), an upper bound.
Guarantee: zero-out adjacency, sensitivity 1 a step; what is public is C, n and E.
"""

from __future__ import annotations

import math

import numpy as np

from momentree.strategy.base import Array, Strategy
from momentree.strategy.restarted import Restarted
from momentree.strategy.toeplitz import Toeplitz
from momentree.strategy.tree import Tree


def fixed_sensitivity(strategy: Strategy, steps_per_epoch: int) -> float:
    """‖C‖ under the fixed order: exact for Toeplitz with c ≥ 0 and for trees, otherwise from the Gram matrix."""
    if isinstance(strategy, Toeplitz) and strategy.non_negative:
        return math.sqrt(toeplitz_squared(strategy.coefficients, strategy.steps, steps_per_epoch))
    if isinstance(strategy, Tree):
        return math.sqrt(float(np.max(tree_squared(strategy, steps_per_epoch))))
    if isinstance(strategy, Restarted) and strategy.inner.steps % steps_per_epoch == 0 and strategy.last is None:
        return math.sqrt(strategy.times) * fixed_sensitivity(strategy.inner, steps_per_epoch)
    return math.sqrt(float(np.max(gram_squared(strategy.matrix(), steps_per_epoch))))


def toeplitz_squared(coefficients: Array, steps: int, steps_per_epoch: int) -> float:
    """‖Σ_e C[:, en]‖² for c ≥ 0: place 0 is the worst, its columns are the longest."""
    n = steps_per_epoch
    epochs = -(-steps // n)
    rows = -(-len(coefficients) // n)
    folded = np.pad(coefficients, (0, rows * n - len(coefficients))).reshape(rows, n)
    sums = np.cumsum(folded, axis=0)
    energies = np.sum(sums * sums, axis=1)
    if rows >= epochs:  # the last epoch may be cut short
        cut = steps - (epochs - 1) * n
        return float(np.sum(energies[: epochs - 1]) + np.sum(sums[epochs - 1, :cut] ** 2))
    cut = steps - (epochs - 1) * n
    full = float(np.sum(energies) + (epochs - 1 - rows) * energies[-1])
    return full + float(np.sum(sums[-1, :cut] ** 2))


def tree_squared(strategy: Tree, steps_per_epoch: int) -> Array:
    """For every place j: Σ over nodes of (Σ of decay^(end − s) over the steps s of place j in the node)²."""
    steps, n, decay = strategy.steps, steps_per_epoch, strategy.decay
    result = np.zeros(n)
    place = np.arange(steps) % n
    for k in range(steps.bit_length()):
        length = 1 << k
        profile = np.power(float(decay), np.arange(length)[::-1].astype(np.float64))
        stride = 1 if strategy.all_nodes else 2
        if length <= n:
            weight = np.zeros(steps)
            whole = steps // length * length
            grid = weight[:whole].reshape(-1, length)
            grid[::stride] = profile**2
            result += np.bincount(place, weight, minlength=n)
            continue
        for first in range(0, steps - length + 1, stride * length):
            result += np.bincount(place[first : first + length], profile, minlength=n) ** 2
    return result


def gram_squared(matrix: Array, steps_per_epoch: int) -> Array:
    """For every place j: Σ_{e,f} |⟨C[:, j + en], C[:, j + fn]⟩|; without the bars where C ≥ 0, the same number."""
    places = []
    for j in range(min(steps_per_epoch, matrix.shape[1])):
        columns = matrix[:, j::steps_per_epoch]
        places.append(float(np.sum(np.abs(columns.T @ columns))))
    return np.array(places)
