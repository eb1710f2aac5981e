"""Reshuffled epochs from the inside: every branch against brute force, also those that only long runs take."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.linalg import block_diag, toeplitz

from momentree.privacy import autocorrelation, chains, gram, hull, local_search, reshuffled_toeplitz, reshuffled_tree
from momentree.privacy.sensitivity import sensitivity
from momentree.strategy.bisr import Bisr
from momentree.strategy.blt import Blt
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense
from momentree.strategy.restarted import Restarted
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from oracles import worst_absolute, worst_norm
from privacy_strategies import draw, root


def lower(c: np.ndarray, steps: int) -> np.ndarray:
    return toeplitz(np.pad(c, (0, steps - len(c))), np.zeros(steps))


def sizes(rng: np.random.Generator, patterns: int = 2000) -> tuple[int, int]:
    """(n, T) with few patterns, T not always a multiple of n."""
    n, epochs = int(rng.integers(1, 9)), int(rng.integers(1, 8))
    while n**epochs > patterns:
        epochs -= 1
    return n, int(rng.integers(max(1, (epochs - 1) * n + 1), n * epochs + 1))


def test_trees_equal_brute_force_also_when_they_restart_anywhere():
    rng = np.random.default_rng(0)
    for _ in range(120):
        n, steps = sizes(rng)
        decay = float(rng.choice([0.0, 0.3, 0.5, 0.9, 1.0]))
        blocks = [steps]
        if rng.random() < 0.5:
            length = int(rng.integers(1, steps + 1))
            blocks = [length] * (steps // length) + ([steps % length] if steps % length else [])
        for kind in (Tree, TreeFull):
            matrix = block_diag(*[kind(b, decay).matrix() for b in blocks])
            found = reshuffled_tree.squared(blocks, n, decay, kind is TreeFull)
            assert found == pytest.approx(worst_norm(matrix, "one-per-epoch", n) ** 2, rel=1e-10)


def falling(rng: np.random.Generator, p: int) -> np.ndarray:
    kind = int(rng.integers(4))
    if kind == 0:
        return np.r_[1.0, np.sort(rng.random(p - 1))[::-1]]
    if kind == 1:
        return np.r_[1.0, 2 * np.sort(rng.random(p - 1))[::-1]]
    if kind == 2:
        return np.r_[1.0, 0.7 ** np.arange(1, p)]
    return root(p, float(rng.random()))


@pytest.mark.parametrize(
    ("far", "table", "many"), [(64, 3000, 50_000), (2, 3000, 50_000), (3, 2, 50_000), (64, 2, 50_000), (2, 2, 2)]
)
def test_toeplitz_bounds_hold_on_every_branch(monkeypatch, far, table, many):
    """With the limits moved, small cases take the ways of long ones: grids, lines, the sum over very far epochs."""
    monkeypatch.setattr(reshuffled_toeplitz, "FAR", far)
    monkeypatch.setattr(autocorrelation, "LARGEST_TABLE", table)
    monkeypatch.setattr(reshuffled_toeplitz, "MANY_EPOCHS", many)
    rng = np.random.default_rng(1)
    worst = 1.0
    attained = 0
    for _ in range(60):
        n, steps = sizes(rng)
        c = falling(rng, int(rng.integers(1, steps + 1)))
        found, exact, pattern = reshuffled_toeplitz.squared(c, steps, n)
        truth = worst_norm(lower(c, steps), "one-per-epoch", n) ** 2
        assert found >= truth * (1 - 1e-12)
        if exact:
            attained += 1
            assert found == pytest.approx(truth, rel=1e-9)
            assert reshuffled_toeplitz.pattern_value(c, steps, pattern) == pytest.approx(truth, rel=1e-9)
        worst = max(worst, math.sqrt(found / truth))
    assert worst < 1.03
    assert attained > 15


def test_rising_and_signed_coefficients_are_bounded_too():
    rng = np.random.default_rng(2)
    for _ in range(60):
        n, steps = sizes(rng)
        c = np.r_[1.0, rng.normal(size=int(rng.integers(0, steps))) * 1.5]
        found, exact, _ = reshuffled_toeplitz.squared(c, steps, n)
        assert found >= worst_absolute(lower(c, steps), "one-per-epoch", n) ** 2 * (1 - 1e-12)
        if exact:
            assert found == pytest.approx(worst_norm(lower(c, steps), "one-per-epoch", n) ** 2, rel=1e-9)


def test_the_grid_is_never_below_the_table():
    rng = np.random.default_rng(3)
    for length in (1, 2, 7, 300, 900):
        c = np.r_[1.0, np.sort(rng.random(length - 1))[::-1]]
        exact, grid = autocorrelation.TableGamma(c), autocorrelation.GridGamma(c, 2 * length)
        d, r = rng.integers(0, length + 30, 500), rng.integers(0, length + 30, 500)
        truth = np.array([float(c[: max(0, length - i)][:j] @ c[i:][:j]) for i, j in zip(d, r, strict=True)])
        np.testing.assert_allclose(exact(d, r), truth, rtol=1e-12, atol=1e-15)
        assert np.all(grid(d, r) >= truth * (1 - 1e-12))
        assert np.all(grid(d, r) <= truth * 1.2 + 0.6)


def test_sums_over_very_far_epochs_are_what_they_say():
    rng = np.random.default_rng(4)
    for n, steps in ((3, 40), (7, 100), (2, 31)):
        c = np.r_[1.0, np.sort(rng.random(steps - 1))[::-1]]
        epochs = -(-steps // n)
        for beyond in (1, 2, 5):
            direct = 0.0
            for f in range(beyond + 1, epochs):
                rows = steps - f * n
                for k in range(beyond + 1, f + 1):
                    d = (k - 1) * n + 1
                    direct += 2 * float(c[: steps - d][:rows] @ c[d:][:rows])
            found = reshuffled_toeplitz.very_far_pairs(c, steps, n, epochs, beyond)
            assert found >= direct * (1 - 1e-12)
            assert found == pytest.approx(direct, rel=1e-9, abs=1e-9)


def test_lines_are_above_what_they_replace():
    rng = np.random.default_rng(5)
    n, epochs = 6, 7
    c = np.r_[1.0, np.sort(rng.random(n * epochs - 1))[::-1]]
    gamma = autocorrelation.TableGamma(c)
    constant, slope = reshuffled_toeplitz.far_pairs(gamma, n * epochs, n, epochs, 3, 6)
    for _ in range(300):
        p = rng.integers(0, n, epochs)
        true = 0.0
        for e, f in itertools.combinations(range(epochs), 2):
            if f - e >= 3:
                distance = np.array([(f - e) * n + p[f] - p[e]])
                true += 2 * float(gamma(distance, np.array([n * epochs - f * n - p[f]]))[0])
        assert constant + float(slope @ p) >= true * (1 - 1e-12)


def test_blocks_cut_an_epoch():
    for places in (*range(1, 40), 1000):
        for growth in (0.0, 0.25, 1.0):
            blocks = chains.geometric_blocks(places, growth)
            covered = [q for a, b in blocks for q in range(a, b + 1)]
            assert covered == list(range(places))
        for index in range(len(blocks)):
            halved = chains.split(blocks, index)
            assert [q for a, b in halved for q in range(a, b + 1)] == list(range(places))


def test_chains_equal_brute_force():
    rng = np.random.default_rng(6)
    for reach in (1, 2):
        for _ in range(25):
            n, epochs = int(rng.integers(1, 6)), int(rng.integers(2, 6))
            own = rng.random((epochs, n))
            near = rng.random((epochs, 3, n, n))

            def own_bound(e, blocks, own=own):
                return np.array([own[e, a : b + 1].max() for a, b in blocks])

            def pair_bound(e, apart, earlier, later, near=near):
                return np.array([[near[e, apart, a : b + 1, c : d + 1].max() for c, d in later] for a, b in earlier])

            truth = max(
                sum(own[e, p[e]] for e in range(epochs))
                + sum(near[e, k, p[e], p[e + k]] for k in range(1, reach + 1) for e in range(epochs - k))
                for p in itertools.product(range(n), repeat=epochs)
            )
            value, single, path = chains.solve([n] * epochs, reach, own_bound, pair_bound, growth=2.0)
            assert single
            assert value == pytest.approx(truth, rel=1e-12)
            assert np.all(path[:, 0] == path[:, 1])


def test_hulls_keep_every_point_that_can_win():
    rng = np.random.default_rng(7)
    for _ in range(60):
        points = [(rng.random(int(rng.integers(1, 12))), rng.random(12)) for _ in range(2)]
        clouds = [(s, v[: len(s)]) for s, v in points]
        hulls = [hull.trimmed(s[o], v[o]) for s, v in clouds for o in [np.lexsort((v, s))]]
        summed, united = hull.add(*hulls), hull.join(hulls)
        squared = hull.counted(united)
        for slope in (0.0, 0.3, 1.0, 4.0, 100.0):
            best = [max(v + slope * s) for s, v in clouds]
            assert [max(v + slope * s) for s, v in hulls] == pytest.approx(best)
            assert max(summed[1] + slope * summed[0]) == pytest.approx(sum(best))
            assert max(united[1] + slope * united[0]) == pytest.approx(max(best))
            with_square = max(max(v + s * s + slope * s) for s, v in clouds)
            assert max(squared[1] + slope * squared[0]) == pytest.approx(with_square)


def test_gram_bounds_hold_where_patterns_are_too_many_to_list(monkeypatch):
    monkeypatch.setattr(gram, "MOST_PATTERNS", 1)
    rng = np.random.default_rng(8)
    attained = 0
    for i in range(60):
        n, steps = sizes(rng)
        matrix = draw(("dense", "signed-dense", "rising")[i % 3], steps, rng).matrix()
        found, exact, pattern = gram.one_per_epoch(matrix.T @ matrix, n)
        truth = worst_absolute(matrix, "one-per-epoch", n) ** 2
        assert found >= truth * (1 - 1e-12)
        assert found <= truth * 1.25**2
        if exact:
            attained += 1
            assert found == pytest.approx(truth, rel=1e-9)
        assert np.all(pattern // n == np.arange(len(pattern)))
    assert attained > 20


def test_a_tournament_lets_every_pair_meet_once():
    for count in range(1, 12):
        games = gram.tournament(count)
        met = sorted((min(p), max(p)) for a, b in games for p in zip(a.tolist(), b.tolist(), strict=True))
        assert met == [(i, j) for i in range(count) for j in range(i + 1, count)]
        for a, b in games:
            assert len({*a.tolist(), *b.tolist()}) == 2 * len(a)


STRATEGIES = {
    "root": lambda n, t: Bsr(t, root(t, 0.9)),
    "root of the sum": lambda n, t: Bsr(t, root(t, 1.0)),
    "half a band": lambda n, t: Bsr(t, root(n // 2, 0.9)),
    "a band": lambda n, t: Bsr(t, root(n, 0.9)),
    "a band and a half": lambda n, t: Bsr(t, root(3 * n // 2, 0.9)),
    "two bands": lambda n, t: Bsr(t, root(2 * n + 1, 0.9)),
    "three bands": lambda n, t: Bsr(t, root(3 * n, 0.9)),
    "bisr": lambda n, t: Bisr(t, np.r_[1.0, -0.5, -0.12, -0.05, -0.03]),
    "blt": lambda n, t: Blt(t, np.array([0.3, 0.05]), np.array([0.99, 0.9999])),
    "dense": lambda n, t: Dense(lower(root(t, 0.95), t)),
    "restarted": lambda n, t: Restarted(Bsr(2 * n, root(2 * n, 0.9)), t // (2 * n), None),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_bounds_are_close_to_what_a_search_finds(name):
    n, epochs = 100, 10
    found = sensitivity(STRATEGIES[name](n, n * epochs), "one-per-epoch", n, search=True)
    assert found.local_search is not None
    assert found.local_search <= found.value
    assert found.value <= 1.05 * found.local_search
    if name in ("half a band", "a band", "a band and a half", "two bands", "restarted"):
        assert found.exact


def test_bands_next_to_the_limits_of_the_closed_form():
    rng = np.random.default_rng(9)
    for n in (2, 3, 4, 5, 6):
        for epochs in (2, 3, 4):
            for p in range(1, min(2 * n + 2, n * epochs) + 1):
                c = np.r_[1.0, np.sort(rng.random(p - 1))[::-1]]
                found, exact, _ = reshuffled_toeplitz.squared(c, n * epochs, n)
                assert found == pytest.approx(worst_norm(lower(c, n * epochs), "one-per-epoch", n) ** 2, rel=1e-9)
                assert exact or p > 2 * n + 1


LONG = [
    ("tree", 1000, 1000, lambda t: Tree(t, 0.999)),
    ("tree-full", 1009, 991, lambda t: TreeFull(t, 0.9)),
    ("root", 1000, 1000, lambda t: Blt(t, np.array([0.3, 0.05]), np.array([0.99, 0.99999]))),
    ("band", 1000, 1000, lambda t: Bsr(t, root(1500, 0.99))),
]


@pytest.mark.parametrize(("name", "n", "epochs", "make"), LONG)
def test_a_million_steps(name, n, epochs, make):
    steps = n * epochs
    found = sensitivity(make(steps), "one-per-epoch", n, search=True)
    fixed = sensitivity(make(steps), "fixed", n)
    assert fixed.value <= found.value * (1 + 1e-12)  # a kept place is one of the ways
    if found.local_search is not None:
        assert found.value <= 1.02 * found.local_search


@pytest.mark.verify
@pytest.mark.parametrize(("n", "epochs"), [(1000, 1000), (10_000, 100), (100, 10_000), (31, 32_258), (100_000, 10)])
def test_a_million_steps_of_everything(n, epochs):
    steps = n * epochs
    decay = np.r_[1.0, 1 / np.sqrt(np.arange(2, steps + 1))]
    for c in (decay, root(n, 0.9), root(min(steps, 2 * n), 0.999), decay[: 3 * n]):
        found = sensitivity(Bsr(steps, c), "one-per-epoch", n, search=True)
        assert found.local_search is not None
        assert found.local_search <= found.value <= 1.02 * found.local_search


def test_a_search_moves_uphill():
    rng = np.random.default_rng(10)
    matrix = np.tril(rng.random((40, 40)))
    product = matrix.T @ matrix
    column = local_search.gram_column(product)
    for start in local_search.starts(40, 8, 6):
        value, picks = local_search.climb(column, np.diag(product), 8, start)
        assert value >= product[np.ix_(start, start)].sum() * (1 - 1e-12)
        assert value == pytest.approx(product[np.ix_(picks, picks)].sum())
    c = root(40, 0.9)
    made = local_search.toeplitz_column(c, 40)
    full = lower(c, 40).T @ lower(c, 40)
    for t in (0, 7, 39):
        np.testing.assert_allclose(made(t), full[t], rtol=1e-9, atol=1e-12)
