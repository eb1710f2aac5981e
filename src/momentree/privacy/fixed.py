"""Worst-case sensitivity where an example keeps its place: steps j, j+n, j+2n, … for one j.

With x_t ≥ 0 a bound on what the example may add at step t (1; s_e for difference queries), and ‖g_t‖ ≤ 1 whatever the
steps before have shown, its contribution to the release is Σ_t x_t C[:, t] g_tᵀ, of squared norm

    Σ_{t,u} x_t x_u ⟨C_t, C_u⟩ ⟨g_t, g_u⟩  ≤  Σ_{t,u} x_t x_u |⟨C_t, C_u⟩|,      t ≡ u ≡ j (mod n).

Guarantee: every function returns this right-hand side for every place j. It is attained (g_t all equal) where no inner
product that enters it is negative, and then `exact` holds for the place. T need not be a multiple of n. Sums are
paired or blocked, so rounding stays below `ROUNDING`, which is added where the sensitivity is published.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from momentree.errors import InputError
from momentree.strategy.base import Array

ROUNDING = 1e-12
DIRECT_WORK = 2_000_000_000
Flags = NDArray[np.bool_]
Ends = NDArray[np.int64]


def weights_of(scales: tuple[float, ...], steps: int, steps_per_epoch: int) -> Array | None:
    """x_t = s_e for every step of epoch e, or one number a step; None means 1 everywhere."""
    if not scales or all(s == 1.0 for s in scales):
        return None
    epochs = -(-steps // steps_per_epoch)
    if len(scales) not in (epochs, steps):
        raise InputError(
            f"{len(scales)} scales for {epochs} epochs of {steps} steps: give one an epoch, or one a step, or none for "
            "1 everywhere"
        )
    if not all(0.0 <= s < np.inf for s in scales):
        raise InputError("a scale is negative or not finite: give the query's sensitivity of each epoch, at least 0")
    given = np.asarray(scales, dtype=np.float64)
    return given if len(given) == steps else np.repeat(given, steps_per_epoch)[:steps]


def cumulative(values: Array) -> Array:
    """Running sums along axis 0 in two levels: relative error below 3·√len·2⁻⁵³ for terms of one sign."""
    length = len(values)
    width = max(1, int(length**0.5))
    blocks = -(-length // width)
    padded = np.zeros((blocks * width, *values.shape[1:]))
    padded[:length] = values
    inside = np.cumsum(padded.reshape(blocks, width, *values.shape[1:]), axis=1)
    before = np.cumsum(inside[:-1, -1], axis=0)
    inside[1:] += before[:, None]
    return inside.reshape(padded.shape)[:length]


def by_place(per_step: Array, n: int) -> Array:
    """Σ over epochs of a value a step, for every place; summed in pairs along a contiguous axis."""
    rows = -(-len(per_step) // n)
    padded = np.zeros(rows * n)
    padded[: len(per_step)] = per_step
    return np.asarray(np.ascontiguousarray(padded.reshape(rows, n).T).sum(axis=1))


def tree_squares(
    steps: int,
    n: int,
    decay: float,
    all_nodes: bool,
    weights: Array | None = None,
    keep: Callable[[Ends, int], Flags] | None = None,
) -> Array:
    """Σ over nodes of (Σ_{t ∈ node, t ≡ j} x_t β^{end−t})², for every place j. Entries are ≥ 0: exact.

    `keep`: which nodes count, from their ends (steps, from 1) and their common length; all by default.
    A node no longer than n meets a place at most once. Longer ones are made from their halves, all places at a time:
    (T / 2^k)·n numbers a level, O(T log n) in all.
    """
    x = np.ones(steps) if weights is None else weights
    t = np.arange(steps)
    total = np.zeros(n)
    level = 0
    sums: Array | None = None
    with np.errstate(under="ignore"):
        while 2**level <= steps:
            size = 2**level
            complete = steps // size  # nodes [i·size, (i+1)·size), 0-based, that end within T
            ends = np.arange(1, complete + 1) * size
            if size <= n:
                value = x[: complete * size] * np.power(float(decay), size - 1 - t[: complete * size] % size)
                used = value if all_nodes else np.where((t[: complete * size] >> level) & 1, 0.0, value)
                if keep is not None:
                    used = used * np.repeat(keep(ends, size), size)
                total += by_place(used * used, n)
                last = value
            else:
                if sums is None:  # the level above the last one with a place at most once in a node
                    node = (t[: len(last)] >> (level - 1)).astype(np.int64)
                    where = node * n + t[: len(last)] % n
                    flat = np.asarray(np.bincount(where, weights=last, minlength=int(node[-1] + 1) * n), np.float64)
                    sums = flat.reshape(-1, n)
                half = float(np.power(float(decay), size // 2))
                sums = half * sums[0 : 2 * complete : 2] + sums[1 : 2 * complete : 2]
                used = sums if all_nodes else sums[::2]
                if keep is not None:
                    used = used * keep(ends if all_nodes else ends[::2], size)[:, None]
                total += np.ascontiguousarray((used * used).T).sum(axis=1)
            level += 1
    return total


def toeplitz_squares(c: Array, steps: int, n: int, weights: Array | None = None) -> tuple[Array, Flags]:
    """The bound for every place of the lower-triangular Toeplitz C[i, j] = c_{i−j}, i, j < T."""
    if np.all(c >= 0):
        return _non_negative(c, steps, n, weights), np.ones(n, dtype=bool)
    return _signed(c, steps, n, weights)


def _non_negative(c: Array, steps: int, n: int, weights: Array | None) -> Array:
    """Columns of a place add up to the same series whatever the place, cut where T ends: one running sum serves all."""
    epochs = -(-steps // n)
    result = np.zeros(n)
    if weights is None:
        patterns, which = np.ones((1, epochs)), np.zeros(n, dtype=np.int64)
    else:
        padded = np.pad(weights, (0, epochs * n - steps), mode="edge").reshape(epochs, n).T
        patterns, which = np.unique(padded, axis=0, return_inverse=True)
        which = which.reshape(-1)
    series = np.zeros(epochs * n)
    series[: min(len(c), steps)] = c[:steps]
    repeated = cumulative(series.reshape(epochs, n)) if epochs > 1 else series.reshape(1, n)
    for number, pattern in enumerate(patterns):
        base = float(pattern.min())  # as at every epoch, and then what single epochs have beyond: sums of terms ≥ 0
        extra = pattern - base
        column = base * repeated
        if np.count_nonzero(extra) * steps > DIRECT_WORK:
            extra = np.zeros(epochs)
            column = np.zeros((epochs, n))
            for e in np.flatnonzero(np.diff(pattern, prepend=0.0)):  # a constant from each jump on; these may cancel
                column[e:] += (pattern[e] - (pattern[e - 1] if e else 0.0)) * repeated[: epochs - e]
        for e in np.flatnonzero(extra):
            column[e:] += extra[e] * series.reshape(epochs, n)[: epochs - e]
        energy = cumulative(column.reshape(-1)[:steps] ** 2)
        places = np.flatnonzero(which == number)
        places = places[places < steps]
        result[places] = energy[steps - 1 - places]
    return result


def _signed(c: Array, steps: int, n: int, weights: Array | None) -> tuple[Array, Flags]:
    """Γ(kn, R) = Σ_{s<R} c_s c_{s+kn} for every lag of whole epochs, in absolute value."""
    total = np.zeros(n)
    exact = np.ones(n, dtype=bool)
    series = c[:steps]
    x = np.ones(steps) if weights is None else weights
    for lag in range(0, len(series), n):
        gamma = cumulative(series[: len(series) - lag] * series[lag:])
        # column u meets column u − lag on the rows from u on: T − u of them
        left = steps - np.arange(lag, steps)
        value = gamma[np.minimum(left, len(gamma)) - 1]
        term = np.zeros(steps)
        term[lag:] = (2.0 if lag else 1.0) * np.abs(value) * x[lag:] * x[: steps - lag]
        total += by_place(term, n)
        negative = np.zeros(steps)
        negative[lag:] = (value < 0) & (x[lag:] * x[: steps - lag] > 0)
        exact &= by_place(negative, n) == 0
    return total, exact


def matrix_squares(matrix: Array, n: int, weights: Array | None = None) -> tuple[Array, Flags]:
    """The bound for every place of a C that is given as a matrix, one column a step."""
    total = np.zeros(n)
    exact = np.ones(n, dtype=bool)
    scaled = matrix if weights is None else matrix * weights
    for place in range(min(n, matrix.shape[1])):
        columns = scaled[:, place::n]
        gram = columns.T @ columns
        total[place] = np.abs(gram).sum()
        exact[place] = bool(np.all(gram >= 0))
    return total, exact
