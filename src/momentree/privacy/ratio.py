"""Arithmetic on likelihood ratios that errs to a chosen side: sums, products and powers of L = dP/dQ.

Both divergences of a pair, `E_Q (L − e^ε)₊` and `E_Q (1 − e^ε L)₊`, are means of convex functions of L under Q. So a
discrete L̂ that is larger than L in the convex order (same mean, more spread) never understates either of them, and one
that is smaller never overstates them. Rounding a value to its two neighbours on a grid, with weights that keep the
mean, spreads; replacing all values in a cell by their mean contracts. The convex order survives independent sums, and
independent products of non-negative values (fix the other factor: the function stays convex), so a whole computation
of spread values ends above the truth and one of contracted values below it. The error is of second order in the grid,
every operation is on non-negative numbers, and the two ends are the bracket.

The rounding of floats is not tracked: weights are sums of non-negative terms, relative errors stay near 1e-13, and
`MARGIN` is added on top.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from momentree.errors import InputError, number, whole
from momentree.privacy.account import Bracket

Array = NDArray[np.float64]
Side = Literal["upper", "lower"]
MARGIN = 1e-9
"""Relative room left for the rounding of floats in a divergence."""
NEGLIGIBLE = 1e-30
"""Atoms that carry less than this under both P and Q are merged into a neighbour on the safe side (upper) or left out
of the grid's range (lower)."""

LARGEST_VARIANCE = 700.0
"""A Gaussian whose mean moves further (26 standard deviations) is taken to give everything away."""

LARGEST_VALUE = 1e140
"""Beyond this, where Q has next to nothing, P's mass goes to infinity (upper) or back to here (lower), so that no
product overflows."""


@dataclass(frozen=True, eq=False)
class Ratio:
    """A discrete likelihood ratio: value x_k ≥ 0 with probability q_k under Q, hence x_k q_k under P.

    `infinite` is what P puts where Q puts nothing. On the `upper` side it is larger than the truth in the convex
    order, on the `lower` side smaller.
    """

    values: Array
    weights: Array
    infinite: float
    side: Side

    def forward(self, epsilon: float) -> float:
        """`E_Q (L − e^ε)₊`, the divergence of P from Q."""
        factor = math.exp(min(epsilon, 700.0))
        total = float(np.sum(self.weights * np.maximum(self.values - factor, 0.0))) + self.infinite
        return self._rounded(total)

    def reverse(self, epsilon: float) -> float:
        """`E_Q (1 − e^ε L)₊`, the divergence of Q from P."""
        factor = math.exp(min(epsilon, 700.0))
        low = self.values < 1 / factor
        return self._rounded(float(np.sum(self.weights[low] * (1.0 - factor * self.values[low]))))

    def delta(self, epsilon: float) -> float:
        """The larger of the two divergences."""
        return max(self.forward(epsilon), self.reverse(epsilon))

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 with `delta(ε)` ≤ delta, rounded to the object's side; infinite where there is none."""
        if self.delta(0.0) <= delta:
            return 0.0
        high = 1.0
        while self.delta(high) > delta:
            high *= 2.0
            if high > 1e4:
                return math.inf
        root = float(brentq(lambda e: self.delta(e) - delta, 0.0, high, xtol=1e-12, rtol=1e-14))
        step = 1e-12 * max(1.0, root)
        if self.side == "upper":
            while self.delta(root) > delta:
                root, step = root + step, 2 * step
            return root
        while root > 0 and self.delta(root) < delta:
            root, step = max(0.0, root - step), 2 * step
        return root

    def _rounded(self, total: float) -> float:
        return min(1.0, total * (1 + MARGIN)) if self.side == "upper" else max(0.0, total * (1 - MARGIN))

    def scaled(self, factor: float, shift: float) -> Ratio:
        """factor·L + shift, the weights unchanged."""
        return replace(self, values=factor * self.values + shift, infinite=factor * self.infinite)


def lognormal(variance: float, side: Side, resolution: int = 40) -> Ratio:
    """`L = exp(√g ζ − g/2)`, ζ ~ N(0, 1): one Gaussian whose mean moves by √g standard deviations."""
    g = number("variance", variance, at_least=0)
    if g == 0.0:
        return Ratio(np.ones(1), np.ones(1), 0.0, side)
    if g > LARGEST_VARIANCE:  # the two can be told apart: nothing is above the one, nothing below the other
        return (
            Ratio(np.zeros(1), np.ones(1), 1.0, side) if side == "upper" else Ratio(np.ones(1), np.ones(1), 0.0, side)
        )
    root = math.sqrt(g)
    points = np.linspace(-12.0, 12.0 + root, 12 * resolution + 1 + math.ceil(root * resolution / 2))
    edges = np.concatenate([[0.0], np.exp(root * points - g / 2)])
    cuts = np.concatenate([[-np.inf], points, [np.inf]])
    mass = cells(cuts)
    moment = cells(cuts - root)
    if side == "lower":
        kept = mass > 0
        return mean_one(Ratio(moment[kept] / mass[kept], mass[kept], 0.0, side))
    weights = np.zeros(len(edges))
    width = np.diff(edges)
    right = np.clip((moment[:-1] - edges[:-1] * mass[:-1]) / width, 0.0, mass[:-1])
    weights[:-1] += mass[:-1] - right
    weights[1:] += right
    weights[-1] += mass[-1]
    beyond = max(0.0, float(moment[-1] - edges[-1] * mass[-1]))
    return mean_one(Ratio(edges, weights, beyond, side))


def cells(cuts: Array) -> Array:
    """Probabilities of the cells of a standard normal, each from its nearer tail so that nothing cancels."""
    left, right = cuts[:-1], cuts[1:]
    return np.asarray(np.where(right <= 0, ndtr(right) - ndtr(left), ndtr(-left) - ndtr(-right)))


def mean_one(ratio: Ratio) -> Ratio:
    """Give back what rounding took: total mass 1, and on the upper side no mean lost (it goes to infinity)."""
    weights = ratio.weights / ratio.weights.sum()
    infinite = ratio.infinite
    if ratio.side == "upper":
        infinite = max(infinite, 1.0 - float(weights @ ratio.values))
    values, infinite = _capped(ratio.values, weights, infinite, ratio.side)
    return Ratio(values, weights, infinite, ratio.side)


def _capped(values: Array, weights: Array, infinite: float, side: Side) -> tuple[Array, float]:
    """No value above `LARGEST_VALUE`: an atom there is split into 0 and infinity, of the same mean, or made smaller."""
    far = values > LARGEST_VALUE
    if not far.any():
        return values, infinite
    if side == "upper":
        infinite += float(values[far] @ weights[far])
    return np.where(far, 0.0 if side == "upper" else LARGEST_VALUE, values), infinite


def subsampled(rate: float, variance: float, side: Side, resolution: int = 40) -> Ratio:
    """`L = 1 − q + q exp(√g ζ − g/2)`: a step that is taken with probability q."""
    rate = number("rate", rate, at_least=0, at_most=1)
    return lognormal(variance, side, resolution).scaled(rate, 1.0 - rate)


def add(first: Ratio, second: Ratio, resolution: int = 40) -> Ratio:
    """The sum of independent ones (of un-normalised ratios: their means add)."""
    infinite = first.infinite + second.infinite
    return _combine(first, second, np.add, infinite, resolution)


def multiply(first: Ratio, second: Ratio, resolution: int = 40) -> Ratio:
    """The product of independent ones: two releases together."""
    infinite = first.infinite + second.infinite - first.infinite * second.infinite
    return _combine(first, second, np.multiply, infinite, resolution)


def power(ratio: Ratio, times: int, operation: Callable[[Ratio, Ratio, int], Ratio], resolution: int = 40) -> Ratio:
    """`ratio` joined with itself `times` times by `add` or `multiply`."""
    times = whole("times", times)
    result: Ratio | None = None
    square = ratio
    while True:
        if times & 1:
            result = square if result is None else operation(result, square, resolution)
        times >>= 1
        if not times:
            return result  # type: ignore[return-value]
        square = operation(square, square, resolution)


def product(ratios: Iterable[Ratio], resolution: int = 40) -> Ratio:
    """All of them together, the small ones first."""
    queue = sorted(ratios, key=lambda r: len(r.values))
    result = queue[0]
    for ratio in queue[1:]:
        result = multiply(result, ratio, resolution)
    return result


def _combine(first: Ratio, second: Ratio, operation: np.ufunc, infinite: float, resolution: int) -> Ratio:
    if len(first.values) == 1 and operation is np.multiply and first.values[0] == 1.0:
        return replace(second, infinite=infinite)
    values = operation.outer(first.values, second.values).ravel()
    weights = np.multiply.outer(first.weights, second.weights).ravel()
    return _regrid(values, weights, infinite, first.side, resolution)


def _regrid(values: Array, weights: Array, infinite: float, side: Side, resolution: int) -> Ratio:
    """Round to a grid that is uniform in log L around the bulk and geometric (in log L) in the tails."""
    kept = weights > 0
    values, weights = values[kept], weights[kept]
    values, infinite = _capped(values, weights, infinite, side)
    positive = values > 0
    if not positive.any():
        return Ratio(np.zeros(1), np.array([weights.sum()]), infinite, side)
    logs = np.log(values[positive])
    mass = weights[positive]
    centre = float(np.average(logs, weights=mass))
    spread = math.sqrt(float(np.average((logs - centre) ** 2, weights=mass))) + 1e-12
    heavy = mass * (1.0 + values[positive]) > NEGLIGIBLE
    step, unit = 1.0 / (2 * resolution), 2.0 * spread
    place = np.arcsinh((logs - centre) / unit) / step
    low, high = math.floor(float(place[heavy].min())), math.floor(float(place[heavy].max())) + 1
    grid = np.concatenate([np.zeros(1), np.exp(centre + unit * np.sinh(step * np.arange(low, high + 1)))])
    cell = np.zeros(len(values), dtype=np.int64)
    cell[positive] = np.clip(np.floor(place).astype(np.int64) - low + 1, 0, len(grid) - 1)
    # the float place may be off by one cell next to an edge: settle it on the grid itself
    cell[values < grid[cell]] -= 1
    after = np.minimum(cell + 1, len(grid) - 1)
    cell[(after > cell) & (values >= grid[after])] += 1
    masses = np.asarray(np.bincount(cell, weights, len(grid)), dtype=np.float64)
    moments = np.asarray(np.bincount(cell, weights * values, len(grid)), dtype=np.float64)
    if side == "lower":
        used = masses > 0
        return Ratio(moments[used] / masses[used], masses[used], 0.0, side)
    last = len(grid) - 1
    right = np.clip((moments[:last] - grid[:last] * masses[:last]) / np.diff(grid), 0.0, masses[:last])
    result = np.zeros(len(grid))
    result[:last] += masses[:last] - right
    result[1:] += right
    result[last] += masses[last]
    beyond = max(0.0, float(moments[last] - grid[last] * masses[last]))
    return Ratio(grid, result, infinite + beyond, side)


def of_curve(points: Array) -> Ratio:
    """A ratio above L in the convex order, from upper bounds h of `E_Q (L − x)₊` at points (x, h), (0, 1) among them.

    The lower convex hull of bounds of a convex function is above it too, and its slopes are a distribution.
    """
    x, h = _hull(points)
    slopes = np.append(np.diff(h) / np.diff(x), 0.0)
    weights = np.diff(np.concatenate([[-1.0], slopes]))
    return Ratio(x, np.maximum(weights, 0.0), float(h[-1]), "upper")


def _hull(points: Array) -> tuple[Array, Array]:
    """The falling part of the lower convex hull, from left to right."""
    kept: list[tuple[float, float]] = []
    for x, y in points[np.argsort(points[:, 0], kind="stable")]:
        if kept and x <= kept[-1][0]:
            kept[-1] = (x, min(y, kept[-1][1]))
            continue
        if kept and y >= kept[-1][1]:
            continue
        while len(kept) > 1 and (kept[-1][1] - kept[-2][1]) * (x - kept[-2][0]) >= (y - kept[-2][1]) * (
            kept[-1][0] - kept[-2][0]
        ):
            kept.pop()
        kept.append((float(x), float(y)))
    result = np.array(kept)
    return result[:, 0], result[:, 1]


class RatioAccount:
    """An account from two likelihood ratios, one on either side of the truth. `estimate` is the upper end.

    `build` makes the ratio of a side, when it is first needed.
    """

    mu: float | None = None

    def __init__(self, build: Callable[[Side], Ratio], method: str, failure_probability: float = 0.0) -> None:
        self._build = build
        self._sides: dict[Side, Ratio] = {}
        self.method, self.failure_probability = method, failure_probability

    def ratio(self, side: Side) -> Ratio:
        """The loss distribution as a likelihood ratio, to compose with others."""
        if side not in self._sides:
            self._sides[side] = self._build(side)
        return self._sides[side]

    def upper_delta(self, epsilon: float) -> float:
        return self.ratio("upper").delta(epsilon)

    def delta(self, epsilon: float) -> Bracket:
        epsilon = number("epsilon", epsilon, at_least=0)
        upper = self.upper_delta(epsilon)
        return Bracket(min(upper, self.ratio("lower").delta(epsilon)), upper, upper)

    def epsilon(self, delta: float) -> Bracket:
        delta = number("delta", delta, above=0, below=1, do="1e-5 is common")
        upper = self.ratio("upper").epsilon(delta)
        if math.isinf(upper):
            raise InputError(f"delta {delta:g} is below what this account resolves at this noise: give a larger one")
        return Bracket(min(upper, self.ratio("lower").epsilon(delta)), upper, upper)
