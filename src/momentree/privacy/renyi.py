"""Moments of the likelihood ratio of one secret place by dynamic programming, and what they say of δ: no sampling.

For P = (1/n) Σ_j N(h_j, σ²I) against Q = N(0, σ²I) and G the Gram matrix of the h_j/σ,

    E_Q L^α = n^{−α} Σ_{|k| = α} α!/(k_1! … k_n!) · exp(½ Σ_ij k_i G_ij k_j − ½ Σ_j k_j G_jj),

a sum over how often each place is drawn (Schuchardt & Kalinin, arXiv 2601.21636, sum it by dynamic programming for
balls-in-bins; derivation and bounds in docs/guarantees/amplified.md). It grows with every entry of G. So entries
further apart than the band are raised to their maximum τ, which comes out as a factor exp(τ α(α−1)/2), and what is left
is a chain over places whose state is the last counts and their total: all orders α up to the largest in one pass.

Guarantee: `log_moments` is at or above the truth; `Moments.forward` bounds `E_Q (L − e^ε)₊` and `Moments.reverse`
`E_Q (1 − e^ε L)₊`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp, ndtr

Array = NDArray[np.float64]
ROUNDING = 1e-10
LARGEST_ORDER, LARGEST_GROUPED = 64, 16
WORK = 8e5
"""Cells of one dynamic programme."""


@dataclass(frozen=True, eq=False)
class Moments:
    """`log E_Q L^α` from above, for the orders 2, 3, …; mean and variance of a Gaussian that is below log L."""

    logs: Array
    centre: float
    spread: float

    def times(self, count: int) -> Moments:
        """Independent copies multiplied: Rényi divergences add, and so do the Gaussians below log L."""
        return Moments(self.logs * count, self.centre * count, self.spread * math.sqrt(count))

    def joined(self, other: Moments) -> Moments:
        """Two independent releases together; the orders that both have."""
        size = min(len(self.logs), len(other.logs))
        return Moments(
            self.logs[:size] + other.logs[:size], self.centre + other.centre, math.hypot(self.spread, other.spread)
        )

    def forward(self, epsilon: float) -> float:
        """`(L − x)₊ ≤ L^α x^{1−α} (α−1)^{α−1}/α^α` for every L ≥ 0 (calculus), so its mean is at most the least of
        these; it is the conversion of Canonne, Kamath & Steinke (2020)."""
        orders = np.arange(2, len(self.logs) + 2)
        exponents = self.logs - (orders - 1) * epsilon + (orders - 1) * np.log(orders - 1) - orders * np.log(orders)
        return min(1.0, math.exp(min(0.0, float(exponents.min()))) * (1 + ROUNDING))

    def reverse(self, epsilon: float) -> float:
        """`L ≥ exp(mean of the logs)`, a lognormal: what is left is the price of a put."""
        low = epsilon + self.centre
        if self.spread == 0.0:
            return max(0.0, -math.expm1(low))
        first = float(ndtr(-low / self.spread))
        second = math.exp(low + self.spread**2 / 2) * float(ndtr(-low / self.spread - self.spread))
        return min(1.0, max(0.0, first - second) + ROUNDING * first)


def moments(gram: Array, work: float = WORK) -> Moments:
    """The best, order by order, that a few ways to group, thin and cut off give."""
    n = len(gram)
    best = np.full(LARGEST_ORDER - 1, np.inf)
    ways = [(gram, group, min(band, -(-n // group))) for group, band in ((1, 2), (1, 4), (4, 2))]
    # keeping one place of many, at all shifts alike, is an upper bound (x^α is convex) and shortens the chain
    ways += [(_thinned(gram, count), 1, band) for count, band in ((6, 2), (6, 4), (12, 2)) if 2 * count <= n]
    for one, group, band in ways:
        order = math.floor((work * group / len(one)) ** (1 / (band + 1))) - 1
        order = min(LARGEST_ORDER if group == 1 else LARGEST_GROUPED, order)
        if order >= 2:
            found = log_moments(one, band, order, group)
            best[: len(found)] = np.minimum(best[: len(found)], found)
    reached = int(np.sum(np.isfinite(best)))
    centre = -float(np.diag(gram).mean()) / 2
    return Moments(best[:reached], centre, math.sqrt(float(gram.mean())))


def log_moments(gram: Array, band: int, order: int, group: int = 1) -> Array:
    """Upper bounds of log E_Q L^α for α = 2 … order.

    Places are taken in groups of neighbours. Inside a group every count is summed over; two groups less than `band`
    apart meet at their largest entry, all others at τ. So the bound is exact where groups are single places and the
    entries outside |i − j| < band are all equal.
    """
    chain, n = _folded(gram, band) if group == 1 else gram, len(gram)
    owner = np.arange(n) // group
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    meet = np.maximum.reduceat(np.maximum.reduceat(chain, starts, axis=0), starts, axis=1)
    far = np.abs(np.subtract.outer(np.arange(len(meet)), np.arange(len(meet)))) >= band
    tau = float(meet[far].max(initial=0.0))
    rest = np.maximum(chain, tau) - tau  # a smaller entry that is not far is raised to τ too: still a bound
    meet = np.maximum(meet, tau) - tau
    counts = np.arange(order + 1)
    # table[t, c_1 … c_{b−1}]: log of the sum over the groups so far that used t draws, the last b−1 groups c_1, c_2 …
    table = np.full((order + 1,) * band, -np.inf)
    table[(0,) * band] = 0.0
    fields = np.meshgrid(*[counts.astype(np.float64)] * (band - 1), indexing="ij") if band > 1 else []
    for i in range(len(meet)):
        inside = _within(rest[np.ix_(owner == i, owner == i)], order)
        pull: Array | float = 0.0
        for back, field in enumerate(fields, start=1):
            if i >= back:
                pull = pull + meet[i, i - back] * field
        after = np.full_like(table, -np.inf)
        for k in range(order + 1):
            moved = table[: order + 1 - k] + k * pull
            if band > 1:
                after[k:, k] = _log_sum(moved) + inside[k]  # the oldest count is forgotten
            else:
                after[k:] = np.logaddexp(after[k:], moved + inside[k])
        table = after
    while table.ndim > 1:
        table = _log_sum(table)
    alphas = counts[2:]
    found = table[2:] + gammaln(alphas + 1) - alphas * math.log(n) + tau * alphas * (alphas - 1) / 2
    return np.asarray(found + ROUNDING * (1 + np.abs(found)))


def _within(gram: Array, order: int) -> Array:
    """log Σ_{|k| = K} exp(½ kᵀGk − ½ Σ k_j G_jj) / Π k_j!, for K = 0 … order, over the places of one group."""
    found = np.empty(order + 1)
    for total in range(order + 1):
        k = _counts(len(gram), total)
        terms = ((k @ gram) * k).sum(axis=1) / 2 - k @ np.diag(gram) / 2 - gammaln(k + 1).sum(axis=1)
        found[total] = float(logsumexp(terms))
    return found


@lru_cache(maxsize=512)
def _counts(places: int, total: int) -> Array:
    """All ways to split a total over so many places, one a row."""
    if places == 1:
        return np.array([[float(total)]])
    parts = [
        np.hstack([np.full((len(rest), 1), float(k)), rest])
        for k in range(total + 1)
        for rest in (_counts(places - 1, total - k),)
    ]
    return np.vstack(parts)


def _log_sum(table: Array) -> Array:
    top = table.max(axis=-1)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(table - safe[..., None]).sum(axis=-1)) + safe)


def _folded(gram: Array, band: int) -> Array:
    """The places in an order that leaves little outside the band: as they are, or a ring folded flat."""
    n = len(gram)
    ring = np.empty(n, dtype=np.int64)
    ring[0::2] = np.arange((n + 1) // 2)
    ring[1::2] = np.arange(n - 1, (n + 1) // 2 - 1, -1)
    far = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) >= band
    ways: Sequence[Array] = (gram, gram[np.ix_(ring, ring)])
    return min(ways, key=lambda g: float(g[far].max(initial=0.0)))


def _thinned(gram: Array, count: int) -> Array:
    """So many places at equal distances; entrywise the largest over all shifts."""
    n = len(gram)
    where = ((np.arange(count) * n) // count)[None, :] + np.arange(n)[:, None]
    where %= n
    found = gram[where[0][:, None], where[0][None, :]]
    for row in where[1:]:
        found = np.maximum(found, gram[row[:, None], row[None, :]])
    return np.asarray(found)
