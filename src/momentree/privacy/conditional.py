"""One secret place of n, step by step: conditional composition. Both directions, no sampling.

Row r of the pair shows y_r ~ N(h_rj, 1) for the secret place j (σ = 1), or N(0, 1). Given the rows before, the place
has a posterior; the pair of row r is the mixture of the N(h_rj, 1) under it against N(0, 1), and it is dominated by the
mixture under any law of h that is stochastically larger. Outside an event of probability at most `bad`, bounded before
anything is drawn, the posterior weight of every set {j : h_rj > v} stays below a number, and so there is one such law
a row for all histories; the pairs of the rows compose (Choquette-Choo, Ganesh, Steinke & Thakurta, arXiv 2310.15526;
Schuchardt & Kalinin, arXiv 2601.21636, for balls-in-bins). The proof, and where it pays (noise so large that a
posterior hardly moves), are in docs/guarantees/amplified.md.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from momentree.privacy.ratio import Array, Ratio, cells, multiply, power, product

Present = Literal["present", "absent"]
LEVELS = 4
SHARE = 0.1
"""Of δ, given to the bad event."""
RESOLUTION = 40
COARSER = 1.03
"""Posterior weights are rounded up to powers of this, so that rows fall into few kinds."""


@dataclass(frozen=True, eq=False)
class Conditional:
    """`forward` and `reverse`: what the rows compose to, outside an event of probability `bad` under the first law."""

    ahead: Ratio
    back: Ratio
    bad: float

    def forward(self, epsilon: float) -> float:
        return min(1.0, self.ahead.forward(epsilon) + self.bad)

    def reverse(self, epsilon: float) -> float:
        return min(1.0, self.back.reverse(epsilon) + self.bad)


def conditional(rows: Array, delta: float) -> Conditional | None:
    """The bound for `rows[r, j] = h_rj/σ ≥ 0`, made for about this δ; None where it cannot help."""
    rows = rows[rows.max(axis=1) > 0]
    sets = _sets(rows)
    if sets is None:
        return None
    bad = SHARE * delta
    kinds: dict[Present, Ratio] = {}
    which: Present
    for which in ("absent", "present"):
        laws = _laws(rows, sets, bad, which)
        if _vacuous(rows, sets, laws):
            return None
        counted = Counter(map(tuple, laws))
        parts = [power(_ratio(sets.tops, np.array(law)), k, multiply, RESOLUTION) for law, k in sorted(counted.items())]
        kinds[which] = product(parts, RESOLUTION)
    return Conditional(kinds["present"], kinds["absent"], bad)


@dataclass(frozen=True, eq=False)
class _Sets:
    """The sets {j : h_rj > v_{k−1}} of all rows r and levels k, equal ones once. `tops`: v_1 < … < v_K."""

    tops: Array
    members: NDArray[np.bool_]
    of_row: NDArray[np.int64]
    """Which set a row has at a level (rows × levels); the empty set is number −1."""


def _sets(rows: Array) -> _Sets | None:
    positive = rows[rows > 0]
    if not positive.size:
        return None
    tops = np.unique(np.quantile(positive, np.linspace(0, 1, LEVELS + 1)[1:], method="higher"))
    of_row = np.full((len(rows), len(tops)), -1, dtype=np.int64)
    found: dict[bytes, int] = {}
    members: list[NDArray[np.bool_]] = []
    for k, low in enumerate(np.concatenate([[0.0], tops[:-1]])):
        for r, inside in enumerate(rows > low):
            if not inside.any():
                continue
            key = np.packbits(inside).tobytes()
            if key not in found:
                found[key] = len(members)
                members.append(inside)
            of_row[r, k] = found[key]
    return _Sets(tops, np.array(members), of_row)


def _laws(rows: Array, sets: _Sets, bad: float, which: Present) -> Array:
    """For every row the posterior weights, at most, of {h > v_0}, {h > v_1}, …: falling in k."""
    n = rows.shape[1]
    gram = rows.T @ rows
    norms = np.diag(gram)
    # the mean over all places: log of it is at least the mean of the logs, a Gaussian walk with a known drift
    centre, spread = -float(norms.mean()) / 2, math.sqrt(float(gram.mean()))
    floor = math.exp(centre + spread * float(ndtri(bad / 8)))
    each = bad * 0.75 / len(sets.members)
    heights = np.linspace(0.0, 4.0 + float(gram.max()) + 14.0 * math.sqrt(float(norms.max())), 4000)
    tails = _tail(float(norms.max()), heights)
    shares = np.empty(len(sets.members))
    for a, inside in enumerate(sets.members):
        # what the place J adds to the logarithms of the set
        moved = gram[inside].max(axis=0) if which == "present" else np.zeros(1)
        shifts, counts = np.unique(moved, return_counts=True)
        # P(the set's mean passes exp(height)), at each height, rounded up to the left end of its cell
        cells = np.searchsorted(heights, heights[:, None] - shifts, side="right") - 1
        chance = np.where(cells >= 0, tails[np.maximum(cells, 0)], 1.0) @ (counts / counts.sum())
        reached = np.flatnonzero(chance <= each)
        top = math.exp(float(heights[reached[0]])) if len(reached) else math.inf
        shares[a] = min(1.0, inside.sum() / n * top / floor)
    rounded = np.minimum(1.0, COARSER ** np.ceil(np.log(shares) / math.log(COARSER)))
    laws = np.where(sets.of_row >= 0, rounded[sets.of_row], 0.0)
    return np.asarray(np.minimum.accumulate(laws, axis=1))


def _tail(variance: float, heights: Array) -> Array:
    """At least P(sup of a mean of `exp(√g ζ − g/2)`s over time ≥ exp(height)): Doob's inequality for (X − s)₊, and one
    lognormal of the largest variance is larger than any such mean in the convex order."""
    root = math.sqrt(variance)
    best = np.ones(len(heights))
    for gap in np.geomspace(0.005, 3.0, 40) * max(root, 1e-9):
        strike = heights - gap  # log s
        call = ndtr(-strike / root + root / 2) - np.exp(strike) * ndtr(-strike / root - root / 2)
        best = np.minimum(best, np.maximum(call, 0.0) / (-np.expm1(-gap) * np.exp(heights)))
    return np.asarray(np.minimum.accumulate(np.minimum(1.0, best + 1e-18)))


def _vacuous(rows: Array, sets: _Sets, laws: Array) -> bool:
    """Whether rows that are as good as unsampled add up to more than one place without any amplification."""
    steps = np.diff(np.concatenate([[0.0], sets.tops]))
    return float(((laws @ steps) ** 2).sum()) >= float((rows**2).sum(axis=0).max())


def _ratio(tops: Array, law: Array) -> Ratio:
    """`1 − w_1 + Σ_k (w_k − w_{k+1}) exp(v_k ζ − v_k²/2)`, rounded to larger ones in the convex order."""
    masses = law - np.append(law[1:], 0.0)
    top = float(tops[-1])
    points = np.linspace(-12.0, 12.0 + top, 12 * RESOLUTION + 1 + math.ceil(top * RESOLUTION / 2))
    edges = np.concatenate([[1 - law[0]], 1 - law[0] + np.exp(np.outer(points, tops) - tops**2 / 2) @ masses])
    cuts = np.concatenate([[-np.inf], points, [np.inf]])
    mass = cells(cuts)
    moment = (1 - law[0]) * mass + sum(m * cells(cuts - v) for m, v in zip(masses, tops, strict=True))
    width = np.maximum(np.diff(edges), 1e-300)
    right = np.clip((moment[:-1] - edges[:-1] * mass[:-1]) / width, 0.0, mass[:-1])
    weights = np.zeros(len(edges))
    weights[:-1] += mass[:-1] - right
    weights[1:] += right
    weights[-1] += mass[-1]
    weights /= weights.sum()
    beyond = max(0.0, float(moment[-1] - edges[-1] * mass[-1]), 1.0 - float(weights @ edges))
    return Ratio(edges, weights, beyond, "upper")
