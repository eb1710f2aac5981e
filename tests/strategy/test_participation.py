"""The norm of C under the fixed order: closed forms against every place and every sign."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from momentree.strategy.base import Array
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense
from momentree.strategy.participation import fixed_sensitivity, gram_squared, toeplitz_squared, tree_squared
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from momentree.strategy.tree_ls import TreeLS


def per_place(matrix: Array, n: int) -> Array:
    return np.array([np.sum(matrix[:, j::n].sum(axis=1) ** 2) for j in range(min(n, matrix.shape[1]))])


@pytest.mark.parametrize(("steps", "n"), [(1, 1), (7, 1), (12, 4), (13, 4), (37, 37), (60, 7), (64, 16), (100, 9)])
@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9, 1.0])
def test_trees_place_by_place(steps: int, n: int, decay: float) -> None:
    for strategy in (Tree(steps, decay), TreeFull(steps, decay), TreeLS(steps, decay)):
        expected = per_place(strategy.matrix(), n)
        np.testing.assert_allclose(tree_squared(strategy, n)[: len(expected)], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("steps", "n", "band"), [(1, 1, 1), (7, 1, 7), (12, 4, 3), (13, 4, 9), (60, 7, 60), (61, 7, 8)]
)
def test_toeplitz_is_worst_at_place_0(steps: int, n: int, band: int) -> None:
    coefficients = np.random.default_rng(band).uniform(0.0, 1.0, band)
    coefficients[0] = 1.0
    squares = per_place(Bsr(steps, coefficients).matrix(), n)
    assert squares.max() == pytest.approx(squares[0], rel=1e-14)
    assert toeplitz_squared(coefficients, steps, n) == pytest.approx(squares[0], rel=1e-12)


def test_known_values() -> None:
    """All nodes and nodes in use of the undecayed tree, 10 epochs of 100 steps, fixed order: 141 and 104."""
    assert np.max(tree_squared(TreeFull(1000, 1.0), 100)) == 141.0
    assert np.max(tree_squared(Tree(1000, 1.0), 100)) == 104.0


def test_mixed_signs_are_priced_by_absolute_inner_products() -> None:
    """Contributions that follow the signs reach what the plain sum of columns misses."""
    rng, missed = np.random.default_rng(3), 0
    for _ in range(20):
        matrix = np.tril(rng.standard_normal((12, 12)), -1) * 0.5 + np.eye(12)
        bound = fixed_sensitivity(Dense(matrix), 4)
        reached = max(
            float(np.linalg.norm(matrix[:, j::4] @ np.array(signs)))
            for j in range(4)
            for signs in itertools.product((1.0, -1.0), repeat=3)
        )
        assert bound >= reached * (1 - 1e-12)
        missed += bound**2 > 1.0001 * per_place(matrix, 4).max()
    assert missed >= 10
    toeplitz = Bsr(8, [1.0, 0.5, -0.3])
    assert not toeplitz.non_negative
    assert fixed_sensitivity(toeplitz, 2) == pytest.approx(np.sqrt(gram_squared(toeplitz.matrix(), 2).max()))
    assert fixed_sensitivity(toeplitz, 2) > np.sqrt(per_place(toeplitz.matrix(), 2).max())
