"""How far the truth may lie below an upper bound: the best pattern of participation that a search finds.

A pattern picks one step in every epoch. Its value Σ |⟨C_t, C_u⟩| over the picks is attained by some contributions
wherever no inner product is negative, so what is found here is a lower bound on the sensitivity there. It is reported
beside a bound that is not exact; no claim rests on it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.signal import correlate

from momentree.strategy.base import Array

Column = Callable[[int], Array]
"""|⟨C_t, C_u⟩| for one t and every u, 0-based."""

Pattern = NDArray[np.int64]


def climb(column: Column, diagonal: Array, n: int, start: Pattern, sweeps: int = 20) -> tuple[float, Pattern]:
    """Move one epoch's pick at a time to its best place until none moves. Picks are 0-based steps."""
    picks = start.copy()
    columns = [column(int(t)) for t in picks]
    total = np.sum(columns, axis=0)
    for _ in range(sweeps):
        moved = False
        for e in range(len(picks)):
            low, high = e * n, min((e + 1) * n, len(diagonal))
            others = total - columns[e]
            gain = diagonal[low:high] + 2.0 * others[low:high]
            best = low + int(np.argmax(gain))
            if gain[best - low] > gain[picks[e] - low] * (1 + 1e-12):
                moved = True
                picks[e], columns[e] = best, column(best)
                total = others + columns[e]
        if not moved:
            break
    return float(sum(c[picks].sum() for c in columns)), picks


def starts(steps: int, n: int, count: int) -> list[Pattern]:
    """Neighbouring picks in pairs, either way; all first; all last; then random ones (the same on every call)."""
    epochs = -(-steps // n)
    first = np.arange(epochs) * n
    last = np.minimum(first + n, steps) - 1
    even = np.arange(epochs) % 2 == 0
    result = [np.where(even, last, first), np.where(even, first, last), first, last]
    rng = np.random.default_rng(0)
    result += [first + rng.integers(0, last - first + 1) for _ in range(max(0, count - len(result)))]
    return result[:count]


def search(column: Column, diagonal: Array, n: int, count: int = 30) -> tuple[float, Pattern]:
    """The best of several climbs: squared value and pattern."""
    found = [climb(column, diagonal, n, start) for start in starts(len(diagonal), n, count)]
    return max(found, key=lambda pair: pair[0])


def gram_column(gram: Array) -> Column:
    """Columns of a Gram matrix that is at hand, in absolute value."""
    absolute = np.abs(gram)

    def column(t: int) -> Array:
        return np.asarray(absolute[t])

    return column


def toeplitz_column(c: Array, steps: int) -> Column:
    """Columns of the Gram matrix of a lower-triangular Toeplitz C, one correlation each."""
    series = c[:steps]

    def column(t: int) -> Array:
        own = np.zeros(steps - t)  # rows t … T−1 of column t
        own[: min(len(series), steps - t)] = series[: steps - t]
        # ⟨C_t, C_u⟩ = Σ_r own[r − t] c[r − u], u from 0 on
        padded = np.zeros(steps)
        padded[t:] = own
        spread = correlate(padded, series, mode="full", method="auto")
        return np.asarray(np.abs(spread[len(series) - 1 :]))

    return column
