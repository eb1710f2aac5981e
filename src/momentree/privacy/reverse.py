"""The reverse divergence `E_Q (1 − e^ε L)₊` of a dominating mixture, certified along one direction.

ℓ = log L is a convex function of the Gaussian rows, so `A = {ℓ ≤ −ε}` is convex. Split the rows into their part x along
the mean pattern `C·E[u]` and the rest. x ~ N(0, 1) is integrated by strata whose weights are known exactly, so a small
δ costs no more samples than a large one. By Ehrhard's inequality (1983; Borell 2003) `Φ⁻¹ P(A | x)` is concave in x;
so beyond two certified points c₁ < c₂ it lies under the line through them, and the far end x > c₂, where next to no
sample falls into A, is bounded too:

    E_Q (1 − e^ε L)₊ ≤ E[(1 − e^{ε+ℓ})₊; x ≤ c₂] + ∫_{x > c₂} φ(x) Φ(f(c₂) + slope·(x − c₂)) dx.

Where next to nothing falls into A, no sample can say so; `without_sampling` can.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from momentree.privacy.confidence import binomial_lower, binomial_upper, lower_mean, upper_mean

Array = NDArray[np.float64]
LEFT, RIGHT = -12.0, 9.0
"""x outside these is added at its full probability, below 1e-18."""


class Along(Protocol):
    """A mixture whose ℓ can be drawn under Q given x."""

    def along(self, generator: np.random.Generator, x: Array) -> Array: ...


def far_end(c: float, level: float, slope: float) -> float:
    """`∫_{x>c} φ(x) Φ(level + slope (x − c)) dx`, rounded up; slope < 0."""
    if slope >= 0:
        return float(ndtr(-c))
    points = np.concatenate([np.linspace(c, c + min(12.0, 12.0 / -slope), 4001), [max(c, RIGHT)]])
    points = np.unique(points[points <= max(c, RIGHT) + 1e-12])
    if len(points) < 2:
        return float(ndtr(-c))
    heights = ndtr(level + slope * (points - c))
    cells = np.where(points[1:] <= 0, ndtr(points[1:]) - ndtr(points[:-1]), ndtr(-points[:-1]) - ndtr(-points[1:]))
    return float(cells @ heights[:-1] + ndtr(-points[-1]) * heights[-1])


def without_sampling(norm: float, square: float, epsilon: float) -> float:
    """A bound of `E_Q (1 − e^ε L)₊` from ‖C E[u]‖/σ and E‖Cu‖²/σ² alone.

    By Jensen `L = E_u exp(⟨Cu, y⟩/σ² − ‖Cu‖²/2σ²) ≥ exp(norm·x − square/2)` with x the standard normal component of y
    along C E[u]; so `L < e^−ε` only where `x < (square/2 − ε)/norm`, and `(1 − e^ε L)₊ ≤ 1` there.
    """
    if norm == 0.0:
        return 0.0 if square / 2 <= epsilon else 1.0
    return float(ndtr((square / 2 - epsilon) / norm)) * (1 + 1e-9)


@dataclass(frozen=True, eq=False)
class Design:
    """What the pilot decided: two points on the line, strata up to c₂ and how the samples are shared."""

    c1: float
    c2: float
    edges: Array
    shares: Array

    @property
    def probabilities(self) -> Array:
        return np.diff(ndtr(self.edges))


@dataclass(frozen=True, eq=False)
class Sample:
    """The fresh draws: ℓ and its importance for x ≤ c₂, and ℓ at c₁ and c₂."""

    ell: Array
    importance: Array
    ceiling: float
    at_c1: Array
    at_c2: Array


def design(mixture: Along, epsilon: float, generator: np.random.Generator, count: int) -> Design:
    """Choose points and strata by a pilot: P(A | x) on a grid of x, fitted by a normal distribution function."""
    low, high = LEFT, RIGHT
    centre, width = 0.0, 1.0
    for _ in range(4):  # zoom in on where P(A | x) falls from 1 to 0
        grid = np.linspace(low, high, 40)
        each = max(20, count // 120)
        ell = mixture.along(generator, np.repeat(grid, each)).reshape(40, each)
        share = (np.mean(ell <= -epsilon, axis=1) * each + 0.5) / (each + 1)
        falling = np.minimum.accumulate(share)
        k = int(np.sum(falling > 0.5))
        centre = float(grid[max(0, k - 1)] + grid[min(k, 39)]) / 2
        inside = (falling > 0.03) & (falling < 0.97)
        width = float(np.clip(np.sum(inside) * (grid[1] - grid[0]) / 3.8, 0.3 * (grid[1] - grid[0]), 6.0))
        low, high = max(LEFT, centre - 5 * width), min(RIGHT, centre + 5 * width)
    width = max(width, 1e-3)
    c1 = centre - 0.8 * width
    # the further c₂ lies out, the less is left beyond it, and the harder it is to certify P(A | c₂)
    best, c2 = math.inf, centre + 2.5 * width
    for offset in (1.0, 1.5, 2.0, 2.4, 2.7, 3.0):
        c = centre + offset * width
        level = float(ndtri(min(0.99, ndtr(-offset) + 5 * math.sqrt(ndtr(-offset) / count) + 15 / count)))
        promise = far_end(c, level, min(-1e-9, (level - 0.75) / (c - c1))) + ndtr(c) * 15 / count
        if promise < best:
            best, c2 = promise, c
    edges = np.concatenate([[-np.inf], np.linspace(min(LEFT, c2 - 1.0), c2, 120)])
    probabilities = np.diff(ndtr(edges))
    middles = np.concatenate([[edges[1]], (edges[1:-1] + edges[2:]) / 2])
    shares = probabilities * np.sqrt(ndtr(-(middles - centre) / width) + 1e-4)
    shares = shares / shares.sum() + 0.05 * probabilities / probabilities.sum()
    return Design(c1, c2, edges, shares / shares.sum())


def draw(mixture: Along, plan: Design, generator: np.random.Generator, count: int) -> Sample:
    """The fresh draws: a quarter of them at each of the two points, half of them in the strata."""
    half = count // 2
    stratum = generator.choice(len(plan.shares), size=half, p=plan.shares)
    lows, highs = ndtr(plan.edges[:-1]), ndtr(plan.edges[1:])
    u = lows[stratum] + generator.random(half) * (highs - lows)[stratum]
    x = np.minimum(ndtri(np.maximum(u, 1e-300)), plan.c2)
    importance = plan.probabilities / plan.shares
    return Sample(
        mixture.along(generator, x),
        importance[stratum],
        float(importance.max()),
        mixture.along(generator, np.full(count // 4, plan.c1)),
        mixture.along(generator, np.full(count // 4, plan.c2)),
    )


def promise(plan: Design, few: Sample, epsilon: float, failure: float, count: int) -> float:
    """What `bounds` is likely to say of a sample of `count`, from a small one."""
    weights, half, target = (
        few.importance * np.maximum(-np.expm1(epsilon + few.ell), 0.0),
        count / 2,
        math.log(15 / failure),
    )
    scale = count / 4 / len(few.at_c2)
    hits1, hits2 = (scale * (float(np.sum(ell <= -epsilon)) + 0.5) for ell in (few.at_c1, few.at_c2))
    p1 = binomial_lower(min(int(hits1), count // 4), count // 4, failure / 3)
    p2 = binomial_upper(int(hits2) + 1, count // 4, failure / 3)
    room = math.sqrt(2 * target * float(weights.var()) / half) + few.ceiling * target / half
    return float(weights.mean()) + room + _far(plan, p1, p2)


def bounds(plan: Design, sample: Sample, epsilon: float, failure: float) -> tuple[float, float, float]:
    """(lower, estimate, upper) of the reverse divergence; either end fails with probability at most `failure`."""
    weights = sample.importance * np.maximum(-np.expm1(epsilon + sample.ell), 0.0)
    near = upper_mean(weights, sample.ceiling, failure / 3)
    p2 = binomial_upper(int(np.sum(sample.at_c2 <= -epsilon)), len(sample.at_c2), failure / 3)
    p1 = binomial_lower(int(np.sum(sample.at_c1 <= -epsilon)), len(sample.at_c1), failure / 3)
    lower = lower_mean(weights, sample.ceiling, failure)
    return lower, float(weights.mean()), min(1.0, near + _far(plan, p1, p2))


def _far(plan: Design, p1: float, p2: float) -> float:
    """The far end, from a lower bound of P(A | c₁) and an upper bound of P(A | c₂)."""
    if not 0 < p2 < p1:
        return float(ndtr(-plan.c2))
    slope = (float(ndtri(p2)) - float(ndtri(p1))) / (plan.c2 - plan.c1)
    return far_end(plan.c2, float(ndtri(p2)), slope)
