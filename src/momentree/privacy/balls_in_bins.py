"""`balls-in-bins`: one place of n for all epochs, drawn independently and kept secret; any causal C ≥ 0.

Guarantee (zero-out; add-remove where N is declared): the mixture `(1/n) Σ_j N(h_j, σ²I)`, `h_j = Σ_e C[:, j + en]`,
against `N(0, σ²I)` dominates every adaptive run (docs/guarantees/amplified.md). Where the h_j are orthogonal
(identity) its loss distribution is computed; else it is sampled and certified.
"""

from __future__ import annotations

import numpy as np

from momentree.errors import InputError, number, whole
from momentree.privacy.account import Account
from momentree.privacy.mixtures import Array, Places
from momentree.privacy.monte_carlo import FAILURE, SAMPLES, MonteCarloAccount
from momentree.privacy.ratio import Ratio, RatioAccount, Side, add, lognormal, power
from momentree.strategy.base import Strategy
from momentree.strategy.toeplitz import Toeplitz

RESOLUTION = 80
LARGEST_MATRIX = 60_000_000
"""Entries of a C that is written out (480 MB)."""
LEAST_SAMPLES, WORK = 30_000, 6e10
"""By default as many samples as keep samples × n² below `WORK`, from these to `SAMPLES`."""
DIFFERENT_NORMS = 6
"""So many different column norms are still summed one after the other."""


def places_gram(strategy: Strategy, steps_per_epoch: int) -> Array:
    """The n × n Gram matrix of `h_j = Σ_e C[:, j + en]`; places that the run ends before have zero rows."""
    n, total = whole("steps_per_epoch", steps_per_epoch), strategy.steps
    if isinstance(strategy, Toeplitz):
        return _toeplitz_gram(strategy.coefficients, n, total)
    if total * total > LARGEST_MATRIX:
        raise InputError(
            f"balls-in-bins with strategy {strategy.name} over {total} steps: C is too large to be written out; "
            f"at most {int(LARGEST_MATRIX**0.5)} steps, or a Toeplitz strategy"
        )
    columns = places_rows(strategy, n)
    return np.asarray(columns.T @ columns)


def places_rows(strategy: Strategy, steps_per_epoch: int) -> Array:
    """The h_j as columns: a row for every base row of C."""
    matrix = strategy.matrix()
    matrix = np.pad(matrix, ((0, 0), (0, -strategy.steps % steps_per_epoch)))
    return np.asarray(matrix.reshape(len(matrix), -1, steps_per_epoch).sum(axis=1))


def _toeplitz_gram(coefficients: Array, n: int, total: int) -> Array:
    """`h_j[t] = w[t − j]`, `w = Σ_e c shifted by en`: `⟨h_i, h_j⟩ = Σ_{s < T − max(i,j)} w[s] w[s + |i − j|]`."""
    impulse = np.zeros(total)
    impulse[::n] = 1.0
    response = (
        np.convolve(impulse, coefficients[:total])[:total]
        if n < total
        else np.pad(coefficients[:total], (0, max(0, total - len(coefficients))))
    )
    gram = np.zeros((n, n))
    for d in range(min(n, total)):
        sums = np.cumsum(response[: total - d] * response[d:])  # over s < T − (larger place)
        later = np.arange(d, min(n, total))
        values = sums[total - later - 1]
        gram[later, later - d] = values
        gram[later - d, later] = values
    return gram


def independent_places(variances: Array, side: Side, resolution: int = RESOLUTION) -> Ratio:
    """`(1/n) Σ_j exp(√g_j ζ_j − g_j/2)` with independent ζ: orthogonal columns, g_j their squares/σ²."""
    parts = [
        power(lognormal(float(g), side, resolution), int(k), add, resolution)
        for g, k in zip(*np.unique(variances, return_counts=True), strict=True)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = add(total, part, resolution)
    return total.scaled(1 / len(variances), 0.0)


def orthogonal(gram: Array) -> bool:
    """Whether the places' columns are orthogonal, with few different norms."""
    diagonal = np.diag(gram)
    return bool(np.all(gram == np.diag(diagonal))) and len(np.unique(diagonal)) <= DIFFERENT_NORMS


def balls_in_bins(
    gram: Array,
    noise_multiplier: float,
    *,
    seed: int,
    samples: int | None = None,
    failure_probability: float = FAILURE,
) -> Account:
    """The account from the places' Gram matrix (`places_gram`): deterministic for orthogonal places, else sampled."""
    sigma = number("noise_multiplier", noise_multiplier, above=0, do="without noise nothing is private")
    scaled = np.asarray(gram, dtype=np.float64) / sigma**2
    mixture = Places(scaled)
    if orthogonal(scaled):
        variances = np.diag(scaled).copy()
        method = "loss distribution of one secret place, computed (orthogonal places)"
        return RatioAccount(lambda side: independent_places(variances, side), method)
    if samples is None:
        samples = int(min(SAMPLES, max(LEAST_SAMPLES, WORK // len(scaled) ** 2)))
    what = f"one secret place of {len(scaled)}, kept in every epoch"
    return MonteCarloAccount(mixture, seed=seed, samples=samples, failure_probability=failure_probability, what=what)
