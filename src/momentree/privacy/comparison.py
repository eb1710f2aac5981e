"""Both divergences of one secret place of n, bounded by a field of Gaussians that is nested: no sampling.

`L = (1/n) Σ_j exp(v_j − G_jj/2)`, v ~ N(0, G), G ≥ 0. Guarantee: `above` is larger than L in the convex order and
`below` smaller, so that they bound both divergences, and compose, as any `Ratio` of their side does. Three steps
(proofs in docs/guarantees/amplified.md):

1. *Comparison* (Kahane 1985): E φ(L) grows, for every convex φ, with every entry of G.
2. *Nesting*: if G'_ij is the height at which i and j part in a tree of places, everything above that height is a common
   factor: L' of a node is a lognormal times the mean of the L' of its children, all independent. The least such G' ≥ G
   joins places by single linkage.
3. *Covering*: where every place is in equally many of the subsets S (by weight), `φ(L) ≤ Σ_S w_S φ(L_S)` for the means
   L_S over these subsets. Leaving out the places in between keeps the others apart, which nesting alone cannot.

Which covering is best is tried on a coarse grid; every one of them is a bound, so nothing rests on the choice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from momentree.privacy.ratio import Array, Ratio, Side, add, cells, lognormal, mean_one, multiply, power

Indices = NDArray[np.int64]
Shape = tuple[float, tuple["Shape", ...]]
"""A node of the tree of places: the variance it adds, and its children (none: a place)."""
COARSE, FINE = 10, 40
HEIGHTS, NORMS = 6, 4
"""So many different heights and column norms are kept apart; the others are rounded away from the truth."""
WORK = 6e7
"""Cells that the last evaluation may combine: about a second."""
LARGEST_IN_TURN, FINALISTS = 300, 3
SPREADS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32, 50, 64)


def projected(gram: Array, resolution: int = FINE) -> Ratio:
    """A ratio below L: what the component of y along the mean of the h_j shows alone, (1/n) Σ_j N(m_j, 1)."""
    total = float(gram.sum())
    if total == 0.0:
        return lognormal(0.0, "lower")
    means = gram.sum(axis=1) / math.sqrt(total)
    points = np.linspace(-12.0, 12.0 + float(means.max()), 24 * resolution + 1)
    cuts = np.concatenate([[-np.inf], points, [np.inf]])
    mass = cells(cuts)
    moment = np.mean([cells(cuts - m) for m in means], axis=0)
    kept = mass > 0
    return mean_one(Ratio(moment[kept] / mass[kept], mass[kept], 0.0, "lower"))


@dataclass(frozen=True, eq=False)
class Cover:
    """Subsets of places and their weights. `joint`: their Gram matrices are replaced by their entrywise maximum."""

    subsets: tuple[Indices, ...]
    weights: tuple[float, ...]
    joint: bool = False

    def grams(self, gram: Array) -> list[tuple[float, Array]]:
        if not self.joint:
            return [(w, gram[np.ix_(s, s)]) for w, s in zip(self.weights, self.subsets, strict=True)]
        first = self.subsets[0]
        top = gram[first[:, None], first]
        for subset in self.subsets[1:]:
            np.maximum(top, gram[subset[:, None], subset], out=top)
        return [(1.0, top)]


def above(gram: Array, cover: Cover) -> Ratio:
    """A ratio above L in the convex order, on a grid as fine as a second allows."""
    shapes = [(w, nested(part)) for w, part in cover.grams(gram)]
    steps = sum(_operations(shape, set()) for _, shape in shapes)
    resolution = int(min(FINE, max(COARSE, math.sqrt(WORK / (400.0 * max(1, steps))))))
    return _mixture([(w, _law(shape, "upper", resolution)) for w, shape in shapes])


def best_cover(gram: Array, score: Callable[[Ratio], float]) -> Cover:
    """The cover whose bound has the smallest score, on a coarse grid. Any cover is a bound."""
    n = len(gram)
    tried: list[tuple[float, int, Cover]] = []

    def consider(cover: Cover) -> None:
        tried.append((score(of_cover(gram, cover, COARSE, (3, 2))), len(tried), cover))

    counts = [k for k in SPREADS if k <= n]
    for cover in [whole_cover(n), *(spaced(n, k) for k in counts)]:
        consider(cover)
    count = [1, *counts][min(tried)[1]]
    for cover in [*clustered(n, count), *in_turn(n)]:
        consider(cover)
    finalists = [cover for _, _, cover in sorted(tried, key=lambda one: one[:2])[:FINALISTS]]
    return min(finalists, key=lambda cover: score(of_cover(gram, cover, COARSE)))


def of_cover(gram: Array, cover: Cover, resolution: int, kept: tuple[int, int] = (HEIGHTS, NORMS)) -> Ratio:
    """The bound of one cover."""
    return _mixture([(w, _law(nested(part, kept), "upper", resolution)) for w, part in cover.grams(gram)])


def below(gram: Array, resolution: int = FINE) -> Ratio:
    """A ratio below L in the convex order: halves of halves, each pair as little correlated as the least of them."""
    return _law(_halves(gram), "lower", resolution)


def whole_cover(n: int) -> Cover:
    return Cover((np.arange(n),), (1.0,))


def spaced(n: int, count: int) -> Cover:
    """So many places at equal distances, at all their shifts."""
    return _shifted((np.arange(count) * n) // count, n)


def clustered(n: int, count: int) -> Iterator[Cover]:
    """About so many clusters of two or three places each, at all their shifts."""
    for clusters in sorted({max(1, round(count * share)) for share in (0.4, 0.6, 0.8, 1.0)}):
        starts, gap = (np.arange(clusters) * n) // clusters, n // clusters
        for offsets in ((0, 2), (0, 4), (0, 8), (0, 2, 4)):
            if 2 * offsets[-1] < gap:
                yield _shifted((starts[:, None] + np.array(offsets)).ravel(), n)


def in_turn(n: int) -> Iterator[Cover]:
    """Every so many blocks of neighbours, a subset for each turn."""
    for block, every in ((1, 2), (2, 3), (3, 3), (3, 4), (1, 6)):
        if block * every < n <= LARGEST_IN_TURN:
            turn = (np.arange(n) // block) % every
            subsets = tuple(np.flatnonzero(turn == k) for k in range(every))
            yield Cover(subsets, tuple(len(s) / n for s in subsets))


def _shifted(pattern: Indices, n: int) -> Cover:
    shifts = tuple((pattern + s) % n for s in range(n))
    return Cover(shifts, (1.0 / n,) * n, joint=True)


def nested(gram: Array, kept: tuple[int, int] = (HEIGHTS, NORMS)) -> Shape:
    """The tree of places whose Gram matrix is the least nested one above `gram`, heights and norms rounded up."""
    n = len(gram)
    edges = _linkage(gram)
    heights = _rounded_up(np.array([h for h, _, _ in edges]), kept[0])
    norms = _rounded_up(np.diag(gram), kept[1])
    owner = list(range(n))
    # a group: (height at which its parts meet, parts); a part is a group or a place
    groups: dict[int, tuple[float, list[object]]] = {j: (math.inf, [j]) for j in range(n)}

    def root(j: int) -> int:
        while owner[j] != j:
            owner[j] = owner[owner[j]]
            j = owner[j]
        return j

    for (_, a, b), height in zip(edges, heights, strict=True):
        first, second = root(a), root(b)
        parts: list[object] = []
        for group in (groups.pop(first), groups.pop(second)):
            parts += group[1] if group[0] == height or math.isinf(group[0]) else [group]
        owner[second] = first
        groups[first] = (float(height), parts)
    return _shape(groups[root(0)], 0.0, norms)


def _shape(group: object, base: float, norms: Array) -> Shape:
    if isinstance(group, int):
        return (max(0.0, float(norms[group]) - base), ())
    assert isinstance(group, tuple)
    height, parts = group
    if math.isinf(height):  # one place alone
        return _shape(parts[0], base, norms)
    children = sorted(_shape(part, height, norms) for part in parts)
    return (max(0.0, height - base), tuple(children))


def _linkage(gram: Array) -> list[tuple[float, int, int]]:
    """A spanning tree of largest entries, largest first (Prim): i and j meet at the least entry between them."""
    n = len(gram)
    best, nearest = gram[0].copy(), np.zeros(n, dtype=np.int64)
    outside = np.ones(n, dtype=bool)
    outside[0] = False
    edges = []
    for _ in range(n - 1):
        j = int(np.argmax(np.where(outside, best, -np.inf)))
        edges.append((float(best[j]), int(nearest[j]), j))
        outside[j] = False
        closer = gram[j] > best
        nearest[closer] = j
        best = np.maximum(best, gram[j])
    return sorted(edges, key=lambda edge: -edge[0])


def _rounded_up(values: Array, kept: int) -> Array:
    """Every value replaced by one of `kept` that is not smaller; the order stays."""
    if len(np.unique(values)) <= kept:
        return values
    grid = np.unique(np.quantile(values, np.linspace(0, 1, kept + 1)[1:], method="higher"))
    return np.asarray(grid[np.searchsorted(grid, values)])


def _halves(gram: Array) -> Shape:
    """Halving down to single places; every level's height is the least entry that parts at it or below."""
    n, heights = len(gram), []
    spans = [(0, n)]
    while any(b - a > 1 for a, b in spans):
        cuts = [(a, (a + b) // 2, b) for a, b in spans if b - a > 1]
        heights.append(min(float(gram[a:m, m:b].min()) for a, m, b in cuts))
        spans = [span for a, m, b in cuts for span in ((a, m), (m, b))]
    heights.append(float(np.diag(gram).min()))
    falling = np.minimum.accumulate(np.array(heights[::-1]))[::-1]

    def shape(size: int, level: int, base: float) -> Shape:
        height = float(falling[-1]) if size == 1 else float(falling[level])
        if size == 1:
            return (height - base, ())
        parts = sorted(shape(k, level + 1, height) for k in (size // 2, size - size // 2))
        return (height - base, tuple(parts))

    return shape(n, 0, 0.0)


def _law(shape: Shape, side: Side, resolution: int) -> Ratio:
    """The distribution of L' of a tree of places, equal subtrees worked out once."""
    known: dict[Shape, tuple[Ratio, int]] = {}

    def sums(node: Shape) -> tuple[Ratio, int]:
        """(Σ over the node's places, how many they are)."""
        if node in known:
            return known[node]
        extra, children = node
        if not children:
            found = lognormal(extra, side, resolution), 1
        else:
            total, places = None, 0
            for child, times in sorted(Counter(children).items()):
                one, size = sums(child)
                part = power(one, times, add, resolution)
                total = part if total is None else add(total, part, resolution)
                places += size * times
            assert total is not None
            common = lognormal(extra, side, resolution)
            found = (total if extra == 0.0 else multiply(common, total, resolution)), places
        known[node] = found
        return found

    law, places = sums(shape)
    return law.scaled(1 / places, 0.0)


def _operations(shape: Shape, known: set[Shape]) -> int:
    """How many sums and products `_law` makes."""
    if shape in known:
        return 0
    known.add(shape)
    children = Counter(shape[1])
    return len(children) + sum(2 * math.ceil(math.log2(t + 1)) + _operations(c, known) for c, t in children.items())


def _mixture(parts: Sequence[tuple[float, Ratio]]) -> Ratio:
    if len(parts) == 1:
        return parts[0][1]
    return Ratio(
        np.concatenate([r.values for _, r in parts]),
        np.concatenate([w * r.weights for w, r in parts]),
        sum(w * r.infinite for w, r in parts),
        parts[0][1].side,
    )
