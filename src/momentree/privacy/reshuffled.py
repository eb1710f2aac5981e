"""Worst-case sensitivity of every form of C where an example takes one place in each epoch, any place.

Guarantee: `one_per_epoch` is never below max over (p_0 … p_{E−1}) of √Σ |⟨C_{en+p_e}, C_{fn+p_f}⟩|, which bounds what
an example can add (contributions of norm ≤ 1, adaptive). `attained` says that it is that maximum and that the inner
products that enter it are not negative, so that equal contributions reach it. A shuffled loader is covered because its
permutations do not depend on the rows: a mixture of releases, each of which is (ε, δ)-indistinguishable, is too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from momentree.errors import NoProofError
from momentree.privacy import gram, local_search, reshuffled_toeplitz, reshuffled_tree
from momentree.privacy.local_search import Pattern
from momentree.strategy.base import Array, Strategy
from momentree.strategy.restarted import Restarted
from momentree.strategy.toeplitz import Toeplitz
from momentree.strategy.tree import Tree

LARGEST_MATRIX = 3_000
"""Steps up to which the Gram matrix is written out."""


WORTH_GRAM = 1_200
MANY_EPOCHS = 40
"""Steps and epochs up to which the Gram matrix of a Toeplitz C ≥ 0 is worth its time: chains are within 1% anyway."""


@dataclass(frozen=True)
class Worst:
    """A bound on the sensitivity², whether it is attained, how it was found, and what a search reached (or None)."""

    square: float
    attained: bool
    method: str
    reached: float | None = None


def one_per_epoch(strategy: Strategy, n: int, search: bool = False) -> Worst:
    """The worst case over one step in every epoch."""
    if isinstance(strategy, Restarted):
        return _restarted(strategy, n, search)
    return _block(strategy, strategy.steps, n, search)


def materialised(strategy: Strategy, steps: int) -> Array:
    """C, cut to its first columns and the base rows drawn by then (all rows where the form does not say)."""
    if strategy.steps > LARGEST_MATRIX:
        raise NoProofError(
            f"strategy {strategy.name} over {strategy.steps} steps has no closed account under this order: at most "
            f"{LARGEST_MATRIX} steps, or choose blt, bsr or tree"
        )
    rows_by = getattr(strategy, "rows_by", None)
    return strategy.matrix()[: None if rows_by is None else rows_by(steps), :steps]


def _block(strategy: Strategy, steps: int, n: int, search: bool) -> Worst:
    """The first `steps` columns of a strategy that does not restart."""
    if isinstance(strategy, Tree):
        square = reshuffled_tree.squared([steps], n, strategy.decay, strategy.all_nodes)
        worst = Worst(square, True, "dynamic programme over the tree")
        return _searched(worst, strategy, steps, n, None) if search and steps <= LARGEST_MATRIX else worst
    if isinstance(strategy, Toeplitz):
        return _toeplitz(strategy, steps, n, search)
    return _gram(materialised(strategy, steps), n, search)


def _toeplitz(strategy: Toeplitz, steps: int, n: int, search: bool) -> Worst:
    c = strategy.coefficients[:steps]
    square, attained, pattern = reshuffled_toeplitz.squared(c, steps, n)
    if not attained and np.all(c >= 0):  # the pattern that the bound points at may reach it
        attained = reshuffled_toeplitz.pattern_value(c, steps, pattern) >= square * (1 - 1e-11)
    worst = Worst(square, attained, "chain of epochs" if attained else "chain of epochs, far epochs by lines")
    if not attained and steps <= LARGEST_MATRIX and (steps <= min(WORTH_GRAM, MANY_EPOCHS * n) or np.any(c < 0)):
        other = _gram(materialised(strategy, steps), n, False)
        if other.square < square or other.attained:
            worst = other
    if not search:
        return worst
    if steps <= LARGEST_MATRIX:
        return _searched(worst, strategy, steps, n, pattern)
    if np.all(c >= 0):
        patterns = [pattern, *local_search.starts(steps, n, 4)]
        reached = max(reshuffled_toeplitz.pattern_value(c, steps, p) for p in patterns)
        return Worst(worst.square, worst.attained, worst.method, reached)
    return worst


def _gram(matrix: Array, n: int, search: bool) -> Worst:
    product = matrix.T @ matrix
    square, attained, pattern = gram.one_per_epoch(product, n)
    signs = bool(np.all(product[np.ix_(pattern, pattern)] >= 0))
    worst = Worst(square, attained and signs, "Gram matrix")
    if not search:
        return worst
    return Worst(square, worst.attained, worst.method, _reached(product, n, pattern))


def _reached(product: Array, n: int, pattern: Pattern | None) -> float:
    column = local_search.gram_column(product)
    diagonal = np.abs(np.diag(product))
    found = [local_search.search(column, diagonal, n)[0]]
    if pattern is not None:
        found.append(local_search.climb(column, diagonal, n, pattern)[0])
    return max(found)


def _searched(worst: Worst, strategy: Strategy, steps: int, n: int, pattern: Pattern | None) -> Worst:
    matrix = materialised(strategy, steps)
    reached = _reached(matrix.T @ matrix, n, pattern)
    return Worst(worst.square, worst.attained, worst.method, reached)


def _restarted(strategy: Restarted, n: int, search: bool) -> Worst:
    """Blocks share no row. Where every restart is at the border of an epoch they share no pick either."""
    inner, length = strategy.inner, strategy.inner.steps
    if isinstance(inner, Tree):
        lengths = [length] * (strategy.times - 1) + [strategy.last_steps]
        square = reshuffled_tree.squared(lengths, n, inner.decay, inner.all_nodes)
        return Worst(square, True, "dynamic programme over the trees", square if search else None)
    if length % n == 0 or strategy.times == 1:
        whole = _block(inner, length, n, search) if strategy.times > 1 else None
        last = whole if whole and strategy.last_steps == length else _block(inner, strategy.last_steps, n, search)
        times = strategy.times - 1
        if whole is None:
            return last
        reached = None
        if whole.reached is not None and last.reached is not None:
            reached = times * whole.reached + last.reached
        return Worst(
            times * whole.square + last.square, whole.attained and last.attained, f"{whole.method}, by blocks", reached
        )
    if strategy.steps <= LARGEST_MATRIX:
        return _gram(strategy.matrix(), n, search)
    raise NoProofError(
        f"strategy {strategy.name} restarted every {length} steps, where an epoch has {n}: under the reshuffled order "
        "restart at the border of an epoch"
    )
