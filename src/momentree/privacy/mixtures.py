"""The dominating pairs of the orders that draw places: `P* = Σ_u p(u) N(Cu, σ²I)` against `Q* = N(0, σ²I)`.

docs/guarantees/amplified.md has the proof that this pair bounds every adaptive run, in both directions. Here it is
sampled. `Places` here and `Allocation` (in `allocation`) draw, portion by portion,

- `along(x)`: ℓ = log dP*/dQ* under Q*, given the component x of y/σ along the mean pattern C·E[u];
- `replicas(m)`: m patterns u_1 … u_m drawn one after the other, u_i with probability ∝ p(u) exp(⟨u, G(u_1+…+u_{i−1})⟩),
  then y ~ N(CΣu_i, σ²I); returned are ℓ(y) and log of the product of the normalisers.

The second is what makes small δ reachable: since `L^m = Σ Π p(u_i) exp(Σ a_{u_i})` and
`exp(Σ a_{u_i}) Q* = exp(Σ_{i<k} ⟨Cu_i, Cu_k⟩/σ²) N(CΣu_i, σ²I)`, with a_u = log dP_u/dQ*,

    E_Q (L − e^ε)₊ = E[ Π normalisers · (L − e^ε)₊ / L^m ],

and the product of normalisers has a ceiling that is known before anything is drawn (`ceiling(m)`): a normaliser
`A(S) = E_u exp⟨u, GS⟩` is convex in S, so for S = u_1 + … + u_i it is at most max_u A(i·u).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from momentree.errors import InputError

Array = NDArray[np.float64]
Generator = np.random.Generator
CHUNK = 600_000
"""Numbers in one block of draws: small enough for a cache."""


class Mixture(Protocol):
    """A dominating pair that can be sampled."""

    def along(self, generator: Generator, x: Array) -> Array: ...

    def replicas(self, generator: Generator, count: int, m: int) -> tuple[Array, Array]: ...

    def ceiling(self, m: int) -> float:
        """An upper bound of the log of the product of normalisers of `replicas(m)`."""

    def largest_norm(self) -> float:
        """max_u ‖Cu‖/σ: without any amplification the release is Gaussian with this μ, and δ is never above that."""

    def averages(self) -> tuple[float, float]:
        """‖C E[u]‖/σ and E‖Cu‖²/σ²."""


def portions(count: int, width: int) -> list[int]:
    size = max(1, CHUNK // max(1, width))
    return [min(size, count - low) for low in range(0, count, size)]


def choose(generator: Generator, field: Array) -> tuple[Array, NDArray[np.int64]]:
    """For every row of `field` (count × n, ≥ 0): log of the mean of exp, and an index drawn with probability ∝ exp.

    Most entries are 0, so the excess e^f − 1 is drawn from apart from the uniform rest.
    """
    count, n = field.shape
    top = field.max(axis=1, keepdims=True)
    if top.max(initial=0.0) > 300.0:
        heaps = np.cumsum(np.exp(field - top), axis=1)
        total = heaps[:, -1:]
        chosen = np.sum(heaps < generator.random((count, 1)) * total, axis=1)
        return np.log(total[:, 0] / n) + top[:, 0], np.minimum(chosen, n - 1)
    excess = np.expm1(field, where=field > 0, out=np.zeros_like(field))
    more = excess.sum(axis=1)
    index: NDArray[np.int64] = np.asarray(generator.integers(n, size=count), dtype=np.int64)
    drawn = generator.random(count) * (n + more) - n
    raised = np.flatnonzero(drawn > 0)
    heaps = np.cumsum(excess[raised], axis=1)
    index[raised] = np.minimum(np.sum(heaps < drawn[raised, None], axis=1), n - 1)
    return np.log1p(more / n), index


@dataclass(frozen=True, eq=False)
class Places:
    """Balls-in-bins: one place of n for the whole run. `gram`: n × n, of the places' columns, over σ²."""

    gram: Array

    def __post_init__(self) -> None:
        if self.gram.ndim != 2 or self.gram.shape[0] != self.gram.shape[1] or not np.all(self.gram >= 0):
            raise InputError("the Gram matrix of the places has to be square and without negative entries")

    @property
    def places(self) -> int:
        return len(self.gram)

    @cached_property
    def _factor(self) -> Array:
        """F with FᵀF = G: rows of v are ζF."""
        values, vectors = np.linalg.eigh((self.gram + self.gram.T) / 2)
        kept = values > 0
        return np.asarray(np.sqrt(values[kept])[:, None] * vectors[:, kept].T)

    def log_ratio(self, v: Array) -> Array:
        """ℓ from v = Hᵀy/σ² (a row a draw): log of the mean of exp(v_j − G_jj/2)."""
        return np.asarray(logsumexp(v - np.diag(self.gram) / 2, axis=-1)) - math.log(self.places)

    def _noise(self, generator: Generator, count: int) -> Array:
        return np.asarray(generator.standard_normal((count, len(self._factor))) @ self._factor)

    @cached_property
    def _mean_field(self) -> Array:
        """⟨h̄, h_j⟩/‖h̄‖ for h̄ the mean of the places' columns."""
        field = self.gram.mean(axis=1)
        return np.asarray(field / math.sqrt(field.mean()))

    def along(self, generator: Generator, x: Array) -> Array:
        scale = float(self._mean_field.mean())  # ‖h̄‖
        parts, low = [], 0
        for count in portions(len(x), self.places):
            noise = self._noise(generator, count)
            shift = x[low : low + count] - noise.mean(axis=1) / scale
            parts.append(self.log_ratio(noise + shift[:, None] * self._mean_field))
            low += count
        return np.concatenate(parts)

    def replicas(self, generator: Generator, count: int, m: int) -> tuple[Array, Array]:
        parts = [self._replicas(generator, c, m) for c in portions(count, self.places)]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def _replicas(self, generator: Generator, count: int, m: int) -> tuple[Array, Array]:
        field = self.gram[generator.integers(self.places, size=count)]
        weight = np.zeros(count)
        for _ in range(m - 1):
            log_mean, chosen = choose(generator, field)
            weight += log_mean
            field = field + self.gram[chosen]
        return self.log_ratio(field + self._noise(generator, count)), weight

    def largest_norm(self) -> float:
        return math.sqrt(float(np.diag(self.gram).max()))

    def averages(self) -> tuple[float, float]:
        return math.sqrt(float(self.gram.mean())), float(np.diag(self.gram).mean())

    def ceiling(self, m: int) -> float:
        return sum(float(logsumexp(i * self.gram, axis=1).max()) - math.log(self.places) for i in range(1, m))
