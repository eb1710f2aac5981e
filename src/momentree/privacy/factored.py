"""One secret place of n as a factor that all places share, times a rest that is known by its moments: no sampling.

With the largest t for which `R = G − t 11ᵀ` is a covariance, v = √t x + r for independent x ~ N(0, 1), r ~ N(0, R), so

    L = exp(√t x − t/2) · L_R,      L_R = (1/n) Σ_j exp(r_j − R_jj/2).

Where the columns of the places overlap widely, L_R varies little, and its moments of order 2, 3, 4 are finite sums. Of
any M ≥ 0 of mean 1, variance s² and fourth central moment m (calculus, and Scarf 1958 for the first)

    E (M − c)₊ ≤ ½ (√(s² + (1 − c)²) + 1 − c),      E (M − c)₊ ≤ (1 − c)₊ + (27/256) m / |c − 1|³,

L_R ≥ exp((1/n) Σ_j (r_j − R_jj/2)), a lognormal, bounds it from below, and a comparison (`comparison`) with a field
above R bounds the far tail. The least of these at many c, made convex, is
the curve of a ratio above L_R in the convex order; times the lognormal it is one above L.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from momentree.privacy.comparison import Cover, above
from momentree.privacy.ratio import Array, Ratio, lognormal, multiply, of_curve

LARGEST = 200
"""Places up to which the fourth moment, a sum over four of them, is summed."""
RESOLUTION = 60
SLACK = 1e-9
"""Added to the diagonal, relative to the largest entry: a larger G is a bound, and R is then a covariance for sure."""
ROUNDING = 1e-11


def factored(gram: Array, cover: Cover) -> Ratio | None:
    """A ratio above L in the convex order; None for more places than `LARGEST`. `cover`: for the far tail."""
    n = len(gram)
    if n > LARGEST:
        return None
    shared, rest = split(gram)
    curve = _curve(rest, above(np.maximum(rest, 0.0), cover))
    return multiply(lognormal(shared, "upper", RESOLUTION), curve, RESOLUTION)


def split(gram: Array) -> tuple[float, Array]:
    """t and R = G − t 11ᵀ (plus a little on the diagonal), t about 1/(1ᵀG⁻¹1)."""
    little = SLACK * float(gram.max(initial=0.0)) + 1e-300
    raised = gram + little * np.eye(len(gram))
    shared = float(1.0 / np.linalg.solve(raised, np.ones(len(gram))).sum())
    shared = min(max(0.0, shared), float(gram.min()) if len(gram) == 1 else float(gram.mean()))
    while shared > 0 and float(np.linalg.eigvalsh(raised - shared).min()) < 0:
        shared = 0.999 * shared if shared > 1e-9 * little else 0.0
    return shared, raised - shared


def moments_of(rest: Array) -> tuple[float, float]:
    """Variance and fourth central moment of L_R, rounded up: sums over pairs, triples and fours of places."""
    n = len(rest)
    kernel = np.exp(rest)
    second = float(kernel.mean())
    third = float(((kernel @ kernel) * kernel).sum()) / n**3
    fourth = 0.0
    for row in kernel:
        pairs = row * kernel  # exp(R_ik + R_jk) for this i, every j and k
        fourth += float(row @ ((pairs @ kernel) * pairs).sum(axis=1))
    fourth /= n**4
    central = fourth - 4 * third + 6 * second - 3
    return float(np.expm1(rest).mean()) + ROUNDING * second, max(0.0, central) + ROUNDING * fourth


def _put(rest: Array, points: Array) -> Array:
    """`E (c − L_R)₊` at most: L_R ≥ exp(mean of the logarithms), a lognormal."""
    centre, square = -float(np.diag(rest).mean()) / 2, float(rest.mean())
    doubt = 1e-13 * float(np.abs(rest).max(initial=0.0))  # of the variance, which is what is left of a difference
    puts = []
    for variance in (max(0.0, square - doubt), max(0.0, square + doubt)):
        spread = math.sqrt(variance)
        if spread == 0.0:
            puts.append(np.maximum(points - math.exp(centre), 0.0))
            continue
        with np.errstate(divide="ignore"):
            d = (np.log(points) - centre) / spread
        puts.append(points * ndtr(d) - math.exp(centre + variance / 2) * ndtr(d - spread))
    return np.asarray(np.maximum(np.maximum(*puts), 0.0) + ROUNDING * points)


def _curve(rest: Array, tail: Ratio) -> Ratio:
    variance, fourth = moments_of(rest)
    steps = np.geomspace(1e-4, 1.0, 200)
    points = np.unique(
        np.concatenate(
            [
                [0.0],
                np.geomspace(1e-3, 1.0, 60),
                1 - steps[:-1],
                1 + np.append(steps, 0.0),
                np.geomspace(2.0, 1e6, 240),
            ]
        )
    )
    far = np.maximum(np.abs(points - 1), 1e-9)
    by_variance = (np.sqrt(variance + (1 - points) ** 2) + 1 - points) / 2
    by_fourth = np.maximum(1 - points, 0.0) + 27 / 256 * fourth / far**3
    by_tail = np.array([float(tail.weights @ np.maximum(tail.values - c, 0.0)) for c in points]) + tail.infinite
    least = np.minimum(np.minimum(by_variance, by_fourth), by_tail * (1 + 1e-9))
    least = np.minimum(least, 1 - points + _put(rest, points))
    least[0] = 1.0
    return of_curve(np.column_stack([points, least]))
