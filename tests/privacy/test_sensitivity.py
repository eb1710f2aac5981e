"""Worst-case sensitivities against brute force over every pattern, every strategy, both participations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from momentree.errors import InputError, NoProofError
from momentree.privacy import fixed
from momentree.privacy.gaussian import epsilon_of, largest_mu
from momentree.privacy.sensitivity import sensitivity
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense
from momentree.strategy.identity import Identity
from momentree.strategy.restarted import Restarted
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from oracles import patterns, worst_absolute, worst_norm, worst_vectors
from privacy_strategies import KINDS, draw, draw_any, root


def held_against_brute_force(rng: np.random.Generator, count: int) -> dict[str, int]:
    seen = {"fixed": 0, "one-per-epoch": 0, "exact": 0, "bounds": 0}
    for _ in range(count):
        n, epochs = int(rng.integers(1, 7)), int(rng.integers(1, 5))
        steps = int(rng.integers((epochs - 1) * n + 1, n * epochs + 1))  # a last epoch that is cut short, too
        strategy = draw_any(steps, rng)
        matrix = strategy.matrix()
        entries = steps if rng.random() < 0.3 else epochs  # one a step, or one an epoch
        scales = tuple(float(s) for s in rng.random(entries)) if rng.random() < 0.4 else ()
        for participation in ("fixed", "one-per-epoch"):
            given = scales if participation == "fixed" else ()
            x = np.array(given) if len(given) == steps else np.repeat(given or (1.0,) * epochs, n)[:steps]
            found = sensitivity(strategy, participation, n, scales=given)
            equal, absolute = worst_norm(matrix, participation, n, x), worst_absolute(matrix, participation, n, x)
            assert found.value >= absolute * (1 - 1e-12), (strategy.describe(), n, participation)
            if found.exact:
                assert found.value == pytest.approx(equal, rel=1e-9), (strategy.describe(), n, participation)
            else:
                assert found.value <= 1.25 * absolute
            seen[participation] += 1
            seen["exact" if found.exact else "bounds"] += 1
    return seen


def test_brute_force_over_every_pattern():
    seen = held_against_brute_force(np.random.default_rng(0), 350)
    assert seen["fixed"] >= 300
    assert seen["one-per-epoch"] >= 300
    assert seen["exact"] > 400
    assert seen["bounds"] > 20


@pytest.mark.verify
def test_brute_force_at_length():
    held_against_brute_force(np.random.default_rng(1), 8000)


def test_an_adversary_with_vectors_never_gets_above():
    rng = np.random.default_rng(2)
    gained = []
    for i in range(60):
        n, epochs = int(rng.integers(1, 4)), int(rng.integers(2, 5))
        steps = n * epochs
        kind = ("signed", "signed-dense", *KINDS)[i % (2 + len(KINDS))]
        strategy = draw(kind, steps, rng)
        matrix = strategy.matrix()
        for participation in ("fixed", "one-per-epoch"):
            found = sensitivity(strategy, participation, n)
            ones = np.ones(steps)
            tried = max(worst_vectors(matrix, p, ones, rng, 15) for p in list(patterns(participation, steps, n))[:40])
            assert tried <= found.value * (1 + 1e-9)
            equal = worst_norm(matrix, participation, n)
            gained.append(tried / equal)
            # wherever the signs matter, equal contributions are not the worst: pricing them alone would be too low
    assert max(gained) > 1.05


def test_adaptive_contributions_do_not_get_above_either():
    """Contributions that react to what was released: every realised sequence obeys the same bound, row by row."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        strategy = draw("signed-dense", 8, rng)
        matrix = strategy.matrix()
        bound = sensitivity(strategy, "fixed", 2).value
        moved = np.zeros((8, 3))
        released = np.zeros((0, 3))
        contributions = np.zeros((8, 3))
        for t in range(8):
            if t % 2 == 0:
                direction = -matrix[t, :t] @ contributions[:t] + (released[-1] if t else rng.normal(size=3))
                contributions[t] = direction / max(np.linalg.norm(direction), 1e-12)
            moved[t] = matrix[t] @ contributions
            released = np.vstack([released, moved[t] + rng.normal(size=3)])
        assert np.linalg.norm(moved) <= bound * (1 + 1e-12)


CHECK = [
    (TreeFull, 5, 3, 1.0, 17.0),
    (TreeFull, 3, 5, 1.0, 27.0),
    (TreeFull, 100, 10, 1.0, 186.0),
    (Tree, 5, 3, 1.0, 11.0),
    (Tree, 3, 5, 1.0, 21.0),
    (Tree, 4, 3, 1.0, 12.0),
    (Tree, 100, 10, 1.0, 126.0),
    (Tree, 5, 3, 0.9, 8.788521),
    (Tree, 6, 4, 0.9, 12.56131247),
    (TreeFull, 5, 3, 0.9, 13.34704200),
    (TreeFull, 6, 4, 0.9, 21.71755924),
]


@pytest.mark.parametrize(("kind", "n", "epochs", "decay", "square"), CHECK)
def test_reshuffled_tree_values(kind, n, epochs, decay, square):
    found = sensitivity(kind(n * epochs, decay), "one-per-epoch", n)
    assert found.value**2 == pytest.approx(square, rel=1e-8)
    assert found.exact


def test_reshuffled_toeplitz_values():
    first = sensitivity(Bsr(15, root(4, 0.0)), "one-per-epoch", 5)
    second = sensitivity(Bsr(24, root(6, 0.9)), "one-per-epoch", 6)
    assert first.exact
    assert first.value**2 == pytest.approx(6.07421875, rel=1e-9)
    assert second.exact
    assert second.value**2 == pytest.approx(34.75372640, rel=1e-9)


def test_the_same_trees_on_a_fixed_order_and_with_no_order_at_all():
    assert sensitivity(TreeFull(1000, 1.0), "fixed", 100).value ** 2 == pytest.approx(141)
    assert sensitivity(Tree(1000, 1.0), "fixed", 100).value ** 2 == pytest.approx(104)
    # any place ten times: all ten picks next to each other, 734 for the full tree
    gram = (lambda c: c.T @ c)(TreeFull(1000, 1.0).matrix())
    best = max(gram[s : s + 10, s : s + 10].sum() for s in range(991))
    assert best == pytest.approx(734)


def test_several_participations_are_priced():
    """Sensitivity 1 whatever the number of epochs is a known defect elsewhere."""
    assert sensitivity(Identity(12), "fixed", 4).value == pytest.approx(np.sqrt(3), rel=1e-11)
    assert sensitivity(Identity(12), "one-per-epoch", 4).value == pytest.approx(np.sqrt(3), rel=1e-11)
    assert sensitivity(Identity(12), "fixed", 1).value == pytest.approx(np.sqrt(12), rel=1e-11)


@pytest.mark.parametrize(("level", "truth"), [(0.1, 1.6), (0.03, 4.6), (0.01, 16.8)])
def test_two_sensitivities_of_difference_queries(level, truth):
    """s₁ = 1 and then (1 − γ)ρ + γ: one small s for all 20 epochs would claim ε = 1 where far more is true."""
    share = (1 - level) * level + level
    found = sensitivity(Identity(20 * 5), "fixed", 5, scales=(1.0, *[share] * 19))
    assert found.value == pytest.approx(np.sqrt(1 + 19 * share**2), rel=1e-11)
    sigma = share * np.sqrt(20) / largest_mu(1.0, 1e-5)
    assert epsilon_of(found.value / sigma, 1e-5).upper == pytest.approx(truth, rel=0.02)


def test_scales_count_from_the_first_epoch_and_in_restarts():
    rng = np.random.default_rng(5)
    scales = (1.0, 0.2, 0.3, 0.7)
    for kind in KINDS:
        strategy = Restarted(draw(kind, 6, rng), 2, None)
        x = np.repeat(scales, 3)
        found = sensitivity(strategy, "fixed", 3, scales=scales)
        assert found.value >= worst_norm(strategy.matrix(), "fixed", 3, x) * (1 - 1e-12)
        assert found.value == pytest.approx(worst_absolute(strategy.matrix(), "fixed", 3, x), rel=1e-9)
        twisted = sensitivity(strategy, "fixed", 3, scales=scales[::-1])
        assert twisted.value == pytest.approx(worst_absolute(strategy.matrix(), "fixed", 3, x[::-1]), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_prefix_costs_no_more_than_the_whole(kind):
    rng = np.random.default_rng(6)
    for participation in ("fixed", "one-per-epoch"):
        whole = draw(kind, 24, rng)
        values = [sensitivity(cut(whole, t), participation, 5).value for t in (1, 5, 7, 12, 20, 24)]
        if whole.non_negative:
            assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(values))


def cut(strategy, steps):
    if isinstance(strategy, Tree):
        return type(strategy)(steps, strategy.decay)
    return Dense(strategy.matrix()[:steps, :steps])


def test_long_runs_by_place_equal_columns_drawn_at_random():
    """T in the tens of thousands against single columns made by hand, for every closed form."""
    rng = np.random.default_rng(7)
    n, steps = 300, 20_000
    for decay, everything in ((1.0, True), (0.999, False), (0.9, True)):
        squares = fixed.tree_squares(steps, n, decay, everything)
        for place in rng.integers(0, n, 3):
            picks = np.arange(int(place), steps, n)
            total = 0.0
            for level in range(15):
                size = 2**level
                nodes: dict[int, float] = {}
                for t in picks:
                    i = int(t) // size
                    if (i + 1) * size <= steps and (everything or i % 2 == 0):
                        nodes[i] = nodes.get(i, 0.0) + decay ** (((i + 1) * size - 1) - int(t))
                total += sum(v * v for v in nodes.values())
            assert squares[place] == pytest.approx(total, rel=1e-11)
    c = root(5000, 0.99)
    squares, _ = fixed.toeplitz_squares(c, steps, n)
    for place in rng.integers(0, n, 3):
        column = np.zeros(steps)
        for t in range(int(place), steps, n):
            column[t : t + len(c)] += c[: steps - t]
        assert squares[place] == pytest.approx(float(column @ column), rel=1e-11)


def test_blocked_sums_are_sums():
    values = np.random.default_rng(8).random((1237, 3))
    np.testing.assert_allclose(fixed.cumulative(values), np.cumsum(values, axis=0), rtol=1e-13)
    np.testing.assert_allclose(fixed.cumulative(values[:1]), values[:1])


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: sensitivity(Tree(12, 0.9), "one-per-epoch", 4, scales=(1.0, 0.1, 0.1)), NoProofError, "fixed"),
        (lambda: sensitivity(Tree(12, 0.9), "amplified", 4), NoProofError, "loss distribution"),
        (lambda: sensitivity(Tree(12, 0.9), "fixed", 4, scales=(1.0, 0.1)), InputError, "3 epochs of 12 steps"),
        (lambda: sensitivity(Tree(12, 0.9), "fixed", 4, scales=(1.0, -0.1, 0.0)), InputError, "negative"),
        (lambda: sensitivity(Tree(12, 0.9), "fixed", 0), InputError, "steps_per_epoch"),
        (
            lambda: sensitivity(Restarted(Bsr(700, root(30, 0.9)), 10, None), "one-per-epoch", 500),
            NoProofError,
            "border of an epoch",
        ),
    ],
)
def test_refusals(call, error, says):
    with pytest.raises(error, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
