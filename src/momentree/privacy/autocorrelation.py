"""Γ(d, R) = Σ_{s<R} c_s c_{s+d}: the inner product of two columns of a Toeplitz C, d apart, R rows under the later one.

Both forms return upper bounds for c ≥ 0 that falls from c₁ on, where Γ falls in d ≥ 1 and grows in R: the table is
exact (up to rounding), the grid rounds d down and R up.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from momentree.privacy.fixed import cumulative
from momentree.strategy.base import Array

Whole = NDArray[np.int64]
LARGEST_TABLE = 3_000


class Gamma(Protocol):
    exact: bool

    def __call__(self, distance: Whole, rows: Whole) -> Array:
        """Γ(d, R) or a bound above it, for arrays of distances and row counts ≥ 0; 0 where R is 0."""


class TableGamma:
    """All of it, p² numbers."""

    exact = True

    def __init__(self, c: Array) -> None:
        length = len(c)
        self.length = length
        self.table = np.zeros((length + 1, length + 1))
        for d in range(length):
            sums = cumulative(c[: length - d] * c[d:])
            self.table[d, 1 : len(sums) + 1] = sums
            self.table[d, len(sums) + 1 :] = sums[-1]

    def __call__(self, distance: Whole, rows: Whole) -> Array:
        return np.asarray(self.table[np.minimum(distance, self.length), np.clip(rows, 0, self.length)])


class GridGamma:
    """Γ on a grid of distances and of row counts: whole numbers first, then by a ratio. O(p) for each distance."""

    exact = False

    def __init__(self, c: Array, largest_distance: int, ratio: float = 0.01) -> None:
        length = len(c)
        self.distances = grid(min(largest_distance, length), ratio)
        self.rows = grid(length, ratio)
        self.table = np.zeros((len(self.distances) + 1, len(self.rows)))
        for i, d in enumerate(self.distances):
            if d >= length:
                break
            products = c[: length - d] * c[d:]
            cuts = self.rows[self.rows < len(products)]
            parts = np.add.reduceat(products, cuts)
            self.table[i, 1 : len(cuts) + 1] = np.cumsum(parts)
            self.table[i, len(cuts) + 1 :] = self.table[i, len(cuts)]
        self.beyond = length

    def __call__(self, distance: Whole, rows: Whole) -> Array:
        i = np.searchsorted(self.distances, distance, side="right") - 1
        i = np.where(distance >= self.beyond, len(self.distances), i)
        j = np.searchsorted(self.rows, np.clip(rows, 0, self.rows[-1]), side="left")
        return np.asarray(self.table[i, j])


def grid(last: int, ratio: float) -> Whole:
    """0, 1, 2, …, then steps of `ratio`, up to and with `last`."""
    points = [0]
    while points[-1] < last:
        points.append(min(last, points[-1] + max(1, int(points[-1] * ratio))))
    return np.array(points, dtype=np.int64)


def gamma_of(c: Array, largest_distance: int) -> Gamma:
    return TableGamma(c) if len(c) <= LARGEST_TABLE else GridGamma(c, largest_distance)
