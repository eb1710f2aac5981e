"""What Algorithms 1 and 2 share: steps and places, the order, the query of one step, the normalised step.

Steps are t = 1 … T, epoch q = (t-1)//n, place (t-1)%n, n steps an epoch (the print's N: there a batch is one example).

A `gradient(w, i)` answers for the i-th entry of the order. It returns a vector, the gradient of one example, or a
matrix with one row an example, the gradients of a batch. Differences are formed row by row, a clip acts on each row,
then the rows are summed and divided by the public `batch_size`, short batches too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from momentree.errors import InputError

Vector = NDArray[np.float64]
Node = tuple[int, int]
"""An interval [y, z] of steps, both ends included."""
Gradient = Callable[[Vector, int], Vector]
Clip = Callable[[Vector], Vector]
"""Acts on one example's gradient, or on one example's difference of gradients."""
Order = Sequence[int] | Callable[[int], Sequence[int]]
"""One permutation kept in every epoch, or a callable q -> permutation of epoch q = 0, 1, …"""
NodeNoise = Callable[[int, int], Vector] | Mapping[Node, Vector]
"""ζ of node [y, z]: what is added to the node, scale included. A callable is called once a node."""


def epoch_and_place(t: int, n: int) -> tuple[int, int]:
    """q = (t-1)//n and the place (t-1)%n of step t = 1, 2, … (the print is not of one mind: docs/paper.md, E10)."""
    return (t - 1) // n, (t - 1) % n


def permutation(order: Order | None, q: int, n: int) -> Sequence[int]:
    """The order of epoch q; without one, 0 … n-1 in every epoch."""
    if order is None:
        return range(n)
    chosen = order(q) if callable(order) else order
    if len(chosen) != n:
        raise InputError(f"an order of {len(chosen)} places was given for {n} steps an epoch: give one entry a step")
    return chosen


def clip_to(level: float) -> Clip:
    """v -> v·min(1, level/‖v‖); a row that is not finite becomes zero, for min(1, level/nan) would be 1."""

    def clip(v: Vector) -> Vector:
        if not np.all(np.isfinite(v)):
            return np.zeros_like(v)
        norm = float(np.linalg.norm(v))
        return v if norm <= level else v * (level / norm)

    return clip


def query(values: Vector, clip: Clip | None, batch_size: int) -> Vector:
    """The sum of the (clipped) rows over the public batch size; a vector counts as one row."""
    rows = np.atleast_2d(np.asarray(values, dtype=np.float64))
    kept = rows if clip is None else np.array([clip(row) for row in rows])
    return np.asarray(kept.sum(axis=0) / batch_size, dtype=np.float64)


def normalised_step(w: Vector, m_hat: Vector, eta: float) -> Vector:
    """w - η m̂/‖m̂‖. The print leaves m̂ = 0 undefined; the step is then zero."""
    norm = float(np.linalg.norm(m_hat))
    return w.copy() if norm == 0.0 else w - eta * m_hat / norm


def decayed_sum(terms: Mapping[int, Vector], y: int, z: int, alpha: float) -> Vector:
    """Σ_{t=y}^z (1-α)^(z-t) terms[t]; zero where y > z."""
    total = np.zeros_like(next(iter(terms.values())))
    for t in range(y, z + 1):
        total = total + (1 - alpha) ** (z - t) * terms[t]
    return total
