"""Toeplitz strategies under reshuffled epochs: one pick in every epoch, any place.

For c ≥ 0 that falls from c₁ on, ⟨C_i, C_j⟩ = Γ(j − i, T − j) falls with the distance and grows with the rows left.
A c that does not fall is replaced by its smallest falling majorant, which only adds.

- 2(p − 1) ≤ n (p the band): picks meet in pairs only, at best as neighbours across a border:
  E·Σ c_k² + 2⌊E/2⌋·Σ c_k c_{k+1}.
- Bands up to 2n + 1: epochs at most two apart meet, a chain (`momentree.privacy.chains`), exact.
- Wider: what epochs k ≥ 3 apart give each other is bounded by a line, 2Γ(kn + q − p, R) ≤ a + b·(q − p) for every
  pair of places, whose two ends go to the two epochs; then the chain. An upper bound.

Guarantee: never below the maximum; `attained` says that it is the maximum.
"""

from __future__ import annotations

import numpy as np
from scipy.signal import fftconvolve

from momentree.privacy.autocorrelation import Gamma, Whole, gamma_of
from momentree.privacy.chains import Blocks, geometric_blocks, solve
from momentree.privacy.fixed import cumulative
from momentree.privacy.local_search import Pattern
from momentree.strategy.base import Array

FAR = 64
"""Epochs further apart than this are bounded by one number."""
MANY_EPOCHS = 50_000
"""Beyond, where no chain is exact anyway, only neighbouring epochs are kept in the chain."""


def falling_majorant(c: Array) -> Array:
    """The smallest c' ≥ |c| that does not rise from c'₁ on."""
    result = np.abs(c)
    result[1:] = np.maximum.accumulate(result[:0:-1])[::-1]
    return result


def without_tail(c: Array, epochs: int) -> tuple[Array, float]:
    """c without entries whose joint norm, over all picks, is below 1e-14 of the sensitivity; and that norm."""
    energy = np.cumsum(c[::-1] ** 2)[::-1]
    limit = (1e-14 / epochs) ** 2 * energy[0]
    length = max(1, int(np.count_nonzero(energy > limit)))
    rest = float(np.sqrt(energy[length])) if length < len(c) else 0.0
    return c[:length], epochs * rest


def squared(c: Array, steps: int, n: int) -> tuple[float, bool, Pattern]:
    """(bound on the sensitivity², whether it is attained, a pattern near it) for T = `steps` columns, n an epoch."""
    given = np.asarray(c[:steps], dtype=np.float64)
    epochs = -(-steps // n)
    falling = falling_majorant(given)
    faithful = bool(np.linalg.norm(falling - given) * epochs <= 1e-13 * np.linalg.norm(given))
    series, rest = without_tail(falling, epochs)
    value, attained, places = _squared(series, steps, n, epochs)
    return (float(np.sqrt(value)) + rest) ** 2, attained and faithful, np.arange(epochs) * n + places


def pattern_value(c: Array, steps: int, pattern: Pattern) -> float:
    """‖Σ_e C[:, t_e]‖² for one pattern of 0-based steps: what is attained by it where c ≥ 0."""
    taken = np.zeros(steps)
    taken[pattern] = 1.0
    return float(np.sum(fftconvolve(taken, c[:steps])[:steps] ** 2))


def _squared(c: Array, steps: int, n: int, epochs: int) -> tuple[float, bool, Pattern]:
    p = len(c)
    if epochs == 1 or p == 1:
        return epochs * float(c @ c), True, np.zeros(epochs, dtype=np.int64)
    if n == 1:  # one pattern only
        repeated = np.zeros(steps)
        repeated[:p] = c
        return float(np.sum(cumulative(repeated) ** 2)), True, np.zeros(epochs, dtype=np.int64)
    last = steps - (epochs - 1) * n
    if 2 * (p - 1) <= n and last >= p:
        places = np.where(np.arange(epochs) % 2 == epochs % 2, n - 1, 0)  # the last pair ends in the last epoch
        return epochs * float(c @ c) + 2 * (epochs // 2) * float(c[1:] @ c[:-1]), True, places
    reach = min(epochs - 1, (p - 2) // n + 1)  # the furthest epochs that meet
    sizes = [n] * (epochs - 1) + [last]
    lines = min(reach, FAR)
    chained = 1 if reach > 2 and epochs > MANY_EPOCHS else min(reach, 2)
    gamma = gamma_of(c, (lines + 1) * n)
    constant, slope = 0.0, np.zeros(epochs)
    if reach > chained:
        constant, slope = far_pairs(gamma, steps, n, epochs, chained + 1, lines)
    if reach > FAR:
        constant += very_far_pairs(c, steps, n, epochs, FAR)

    def own(e: int, blocks: Blocks) -> Array:
        energy = gamma(np.zeros(1, dtype=np.int64), steps - e * n - blocks[:, 0])
        return np.asarray(energy + np.maximum(slope[e] * blocks[:, 0], slope[e] * blocks[:, 1]))

    known: dict[int, tuple[Blocks, Blocks, Array]] = {}

    def pair(e: int, apart: int, earlier: Blocks, later: Blocks) -> Array:
        full = steps - (e + apart + 1) * n >= p  # as many rows as c has entries: the same in all such epochs
        if full and apart in known and known[apart][0] is earlier and known[apart][1] is later:
            return known[apart][2]
        distance = apart * n + later[None, :, 0] - earlier[:, None, 1]
        value = 2.0 * gamma(distance, (steps - (e + apart) * n - later[:, 0])[None, :])
        if full:
            known[apart] = (earlier, later, value)
        return value

    exact = gamma.exact and reach == chained
    value, single, path = solve(sizes, chained, own, pair, tolerance=None if exact else 1e-4)
    ends = np.where(path[:, 0] < n - 1 - path[:, 1], path[:, 0], path[:, 1])  # the end nearer to the epoch's border
    return value + constant, single and exact, ends


def far_pairs(gamma: Gamma, steps: int, n: int, epochs: int, first: int, lines: int) -> tuple[float, Array]:
    """A constant, and what each epoch gets a place: Σ over pairs `first` … `lines` epochs apart of a + b·(q − p).

    b is the chord's slope between the two extreme differences, a the largest excess over it on blocks of differences.
    """
    blocks = geometric_blocks(2 * n - 1, 0.25) - (n - 1)  # differences q − p, from −(n−1) to n−1
    constant, slope = 0.0, np.zeros(epochs)
    for apart in range(first, lines + 1):
        later: Whole = np.arange(apart, epochs)
        rows = steps - later * n
        values = 2.0 * gamma((apart * n + blocks[:, 0])[:, None], rows[None, :])
        b = (values[-1] - values[0]) / (2 * (n - 1))
        excess = values - np.minimum(b * blocks[:, :1], b * blocks[:, 1:])
        constant += float(excess.max(axis=0).sum())
        slope[later] += b
        slope[later - apart] -= b
    return constant, slope


def very_far_pairs(c: Array, steps: int, n: int, epochs: int, beyond: int) -> float:
    """Σ over pairs more than `beyond` epochs apart of 2Γ((k−1)n + 1, T − fn), the largest that they can give.

    For a later epoch f the sum over k = beyond+1 … f is that over all k, less that over k > f: with S the sum of c over
    every n-th entry from y on, Σ_s c_s S(s + beyond·n + 1) over s < T − fn, less Σ_s c_s S(s + fn + 1).
    """
    every = np.zeros((-(-(steps + n) // n)) * n)
    every[: len(c)] = c
    every = cumulative(every.reshape(-1, n)[::-1])[::-1].reshape(-1)
    later = np.arange(beyond + 1, epochs)
    shifted = np.zeros(len(c))
    ahead = every[beyond * n + 1 : beyond * n + 1 + len(c)]
    shifted[: len(ahead)] = ahead
    first = cumulative(c * shifted)
    size = 1 << int(len(c) + len(every) - 1).bit_length()
    full = np.fft.irfft(np.conj(np.fft.rfft(c, size)) * np.fft.rfft(every, size), size)
    second = full[later * n + 1]
    error = 1e-14 * float(np.linalg.norm(c) * np.linalg.norm(every))  # of the transform, generously
    terms = first[np.minimum(steps - later * n, len(c)) - 1] - second + error
    return 2.0 * float(np.maximum(terms, 0.0).sum())
