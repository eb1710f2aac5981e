"""Persons with several rows, against every way to seat them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from momentree.order import Shape, make
from momentree.privacy.account_of import release_sensitivity
from momentree.privacy.events import Release
from momentree.privacy.groups import fill, spread
from privacy_strategies import draw

KINDS = ("identity", "tree", "bsr", "dense", "signed-dense", "tree-full")


def worst_person(gram: np.ndarray, shape: Shape, k: int, kept: bool, x: np.ndarray) -> float:
    """√ of the largest Σ y_t y_u |⟨C_t, C_u⟩| over every seating of k rows, the number of rows in step t in y."""
    n = shape.steps_per_epoch
    places = [row // shape.batch_size for row in range(shape.examples)]
    seats = {tuple(sorted(places[i] for i in chosen)) for chosen in itertools.combinations(range(shape.examples), k)}
    best = 0.0
    for seating in [(s,) * shape.epochs for s in seats] if kept else itertools.product(seats, repeat=shape.epochs):
        y = np.zeros(shape.steps)
        for e, epoch in enumerate(seating):
            for place in epoch:
                y[e * n + place] += 1
        y *= x
        best = max(best, float(y @ gram @ y))
    return float(np.sqrt(best))


def test_every_seating():
    rng = np.random.default_rng(0)
    exact = {"fixed": 0, "reshuffled": 0}
    for i in range(150):
        batch = int(rng.integers(1, 4))
        shape = Shape(int(rng.integers(batch, 3 * batch + 1)), batch, int(rng.integers(1, 4)))
        k = min(int(rng.integers(2, 4)), shape.examples)
        strategy = draw(KINDS[i % len(KINDS)], shape.steps, rng)
        matrix = strategy.matrix()
        gram = np.abs(matrix.T @ matrix)
        for name in ("fixed", "reshuffled"):
            if name == "reshuffled" and shape.epochs * k * shape.steps_per_epoch > 18:
                continue
            scales = tuple(rng.random(shape.epochs)) if name == "fixed" and rng.random() < 0.3 else ()
            x = np.repeat(scales or (1.0,) * shape.epochs, shape.steps_per_epoch)
            truth = worst_person(gram, shape, k, name == "fixed", x)
            found = release_sensitivity(Release(strategy, make(name, shape), "zero-out", 1.0, scales, k))
            assert found.value >= truth * (1 - 1e-12)
            assert found.value <= truth * 1.25
            if found.exact:
                exact[name] += 1
                assert found.value == pytest.approx(truth, rel=1e-9)
    assert min(exact.values()) > 40


def test_k_rows_in_one_batch_weigh_k_times():
    order = make("fixed", Shape(100, 10, 3))
    strategy = draw("tree", 30, np.random.default_rng(1))
    one, four = (release_sensitivity(Release(strategy, order, "zero-out", 1.0, (), k)) for k in (1, 4))
    assert four.value == pytest.approx(4 * one.value)
    assert four.exact
    assert four.value > 1.9 * 2 * one.value  # √k would be far too low


def test_seats_are_filled_best_first():
    assert fill(np.array([1.0, 3.0, 2.0]), np.array([2, 1, 2]), 4).tolist() == [1, 1, 2]
    bound, attained = spread(np.eye(3), [np.arange(3)], np.array([1, 1, 1]), 2)
    assert bound == pytest.approx(2.0)
    assert attained
