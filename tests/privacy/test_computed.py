"""Accounts of secret places that nothing is sampled for: never below quadrature, brute force or sampling."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

import places_oracle as oracle
from momentree.order import BallsInBins, RandomAllocation
from momentree.order.base import Shape
from momentree.privacy import comparison, conditional, factored, renyi
from momentree.privacy import mixtures as sampling
from momentree.privacy.amplified import account_maker
from momentree.privacy.balls_in_bins import places_gram
from momentree.privacy.compose import compose
from momentree.privacy.computed import ComputedAccount, Places
from momentree.privacy.events import Release
from momentree.privacy.gaussian import GaussianAccount, delta_of, epsilon_of
from momentree.privacy.monte_carlo import MonteCarloAccount
from momentree.strategy.bsr import Bsr
from momentree.strategy.restarted import Restarted
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from momentree.strategy.workload import iterate_workload

EPSILONS = (0.0, 0.3, 1.0, 2.5)


def some_gram(generator, n, largest=None):
    rows = generator.random((n + 2, n)) * (generator.random((n + 2, n)) < 0.7)
    gram = rows.T @ rows
    return gram / gram.max() * (largest or math.exp(generator.uniform(-2.5, 1.5)))


# moments


@pytest.mark.parametrize("seed", range(4))
def test_moments_are_the_sum_over_tuples_where_nothing_is_cut_off(seed):
    generator = np.random.default_rng(seed)
    for n, band, group in ((1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 4, 1), (3, 1, 3), (4, 1, 4)):
        gram = some_gram(generator, n)
        found = renyi.log_moments(gram, band, 5, group)
        truth = [oracle.moment(gram, alpha) for alpha in range(2, 6)]
        assert np.allclose(found, truth, rtol=1e-8, atol=1e-8)


def test_moments_are_exact_for_a_band_over_a_constant():
    c = np.array([1.0, 0.8, 0.3])
    rows = np.array([[c[i - j] if 0 <= i - j < 3 else 0.0 for j in range(5)] for i in range(7)])
    gram = 0.4 * rows.T @ rows + 0.25
    truth = [oracle.moment(gram, alpha) for alpha in range(2, 6)]
    assert np.allclose(renyi.log_moments(gram, 3, 5), truth, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_moments_are_never_below_the_sum_over_tuples(seed):
    generator = np.random.default_rng(seed)
    gram = some_gram(generator, 5)
    truth = np.array([oracle.moment(gram, alpha) for alpha in range(2, 6)])
    for band, group in ((1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (1, 4)):
        assert np.all(renyi.log_moments(gram, band, 5, group) >= truth)
    assert np.all(renyi.moments(gram).logs[:4] >= truth)
    ring = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    wide = 0.9 ** np.minimum(ring, 12 - ring)
    thinned = renyi.moments(wide).logs[:2]
    assert np.all(thinned >= [oracle.moment(wide, 2), oracle.moment(wide, 3)])


def test_conversion_and_reverse_are_the_closed_forms_of_one_gaussian():
    g = 0.7
    one = renyi.moments(np.array([[g]]))
    orders = np.arange(2, len(one.logs) + 2)
    assert np.allclose(one.logs, orders * (orders - 1) / 2 * g, rtol=1e-8)
    for epsilon in EPSILONS:
        exact = delta_of(math.sqrt(g), epsilon)
        assert exact <= one.forward(epsilon) <= max(12 * exact, 1e-3)
        assert one.reverse(epsilon) == pytest.approx(exact, rel=1e-8)
    twice = one.times(2)
    assert twice.reverse(1.0) == pytest.approx(delta_of(math.sqrt(2 * g), 1.0), rel=1e-8)
    assert one.joined(one).logs == pytest.approx(twice.logs)


# comparison


def test_the_oracle_itself():
    for epsilon in EPSILONS:
        assert oracle.divergences([[0.8]], epsilon) == pytest.approx([delta_of(math.sqrt(0.8), epsilon)] * 2)
        nearly = np.full((3, 3), 0.8) + 1e-4 * np.eye(3)  # three places that are nearly one
        assert oracle.divergences(nearly, epsilon) == pytest.approx([delta_of(math.sqrt(0.8), epsilon)] * 2, rel=3e-3)


@pytest.mark.parametrize("seed", range(12))
def test_comparisons_and_moments_hold_the_truth_between_them(seed):
    generator = np.random.default_rng(100 + seed)
    gram = some_gram(generator, 2 + seed % 2)
    account = ComputedAccount(Places(((gram, 1),)), 1.0, 1e-3)
    for epsilon in EPSILONS:
        forward, reverse = oracle.divergences(gram, epsilon)
        for name, (ahead, back) in account.bounds(epsilon).items():
            assert ahead >= forward * (1 - 1e-6), name
            assert back >= reverse * (1 - 1e-6), name
        lower = account.ratio("lower")
        assert lower.forward(epsilon) <= forward * (1 + 1e-6) + 1e-12
        assert lower.reverse(epsilon) <= reverse * (1 + 1e-6) + 1e-12
        bracket = account.delta(epsilon)
        assert bracket.lower <= max(forward, reverse) * (1 + 1e-6) + 1e-12
        assert bracket.upper >= max(forward, reverse) * (1 - 1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_every_cover_is_a_bound(seed):
    generator = np.random.default_rng(seed)
    gram = some_gram(generator, 3)
    parts = (np.array([0]), np.array([1, 2]))
    kinds = [
        comparison.whole_cover(3),
        comparison.spaced(3, 2),
        comparison.Cover(parts, (1 / 3, 2 / 3)),
        *comparison.in_turn(3),
    ]
    for epsilon in EPSILONS:
        forward, reverse = oracle.divergences(gram, epsilon)
        for cover in kinds:
            ratio = comparison.of_cover(gram, cover, 12)
            assert ratio.values @ ratio.weights + ratio.infinite == pytest.approx(1.0)
            assert ratio.forward(epsilon) >= forward * (1 - 1e-6)
            assert ratio.reverse(epsilon) >= reverse * (1 - 1e-6)


def test_nested_places_are_priced_as_they_are():
    """Where the Gram matrix is nested itself, nothing but the grid is lost."""
    gram = np.array([[1.5, 1.0, 0.2], [1.0, 1.5, 0.2], [0.2, 0.2, 1.5]])
    account = ComputedAccount(Places(((gram, 1),)), 1.0, 1e-3)
    for epsilon in EPSILONS:
        forward, reverse = oracle.divergences(gram, epsilon)
        ahead, back = account.bounds(epsilon)["comparison"]
        assert ahead == pytest.approx(forward, rel=1e-2)
        assert back == pytest.approx(reverse, rel=1e-2)


def test_covers_are_fair():
    """Every place counts for 1/n in all of them: that is what convexity asks."""
    for n in (2, 7, 24):
        covers = [comparison.whole_cover(n), *comparison.in_turn(n)]
        covers += [c for k in (2, 3, 5) if k <= n for c in (comparison.spaced(n, k), *comparison.clustered(n, k))]
        for cover in covers:
            share = np.zeros(n)
            for subset, weight in zip(cover.subsets, cover.weights, strict=True):
                assert len(set(subset)) == len(subset)
                share[subset] += weight / len(subset)
            assert np.allclose(share, 1 / n)


@pytest.mark.parametrize("seed", range(5))
def test_a_nested_matrix_is_above_the_one_it_is_made_for(seed):
    """Its entries are the heights at which leaves part; leaves are matched by trying every order."""
    generator = np.random.default_rng(seed)
    gram = some_gram(generator, 6)
    edges = comparison._linkage(gram)
    least = np.diag(np.diag(gram)).copy()
    for i in range(6):
        for j in range(i):
            # the height at which they meet: the largest h with a path of entries ≥ h
            groups = {k: {k} for k in range(6)}
            for height, a, b in edges:
                joined = groups[a] | groups[b]
                for k in joined:
                    groups[k] = joined
                if j in groups[i]:
                    least[i, j] = least[j, i] = height
                    break
    assert np.all(least >= gram - 1e-12)
    for i in range(6):
        for j in range(6):
            for k in range(6):
                if len({i, j, k}) == 3:
                    assert least[i, j] >= min(least[i, k], least[k, j])
    shape = comparison.nested(gram, (10, 10))
    depth: list[float] = []

    def walk(node, height):
        depth.append(height + node[0]) if not node[1] else [walk(child, height + node[0]) for child in node[1]]

    walk(shape, 0.0)
    expected = [max(gram[j, j], np.delete(least[j], j).max()) for j in range(6)]
    assert sorted(depth) == pytest.approx(sorted(expected))


# a shared factor


@pytest.mark.parametrize("seed", range(4))
def test_a_shared_factor_leaves_a_covariance_and_its_moments(seed):
    generator = np.random.default_rng(seed)
    gram = some_gram(generator, 4, largest=0.8)
    shared, rest = factored.split(gram)
    assert shared >= 0
    assert np.linalg.eigvalsh(rest).min() >= -1e-12
    assert np.all(rest + shared >= gram - 1e-15)
    assert np.allclose(rest + shared, gram, atol=1e-8)
    assert np.linalg.eigvalsh(rest).min() < 1e-2  # no more could have been shared
    raw = [math.exp(oracle.moment(rest, k)) for k in (2, 3, 4)]
    variance, fourth = factored.moments_of(rest)
    assert variance == pytest.approx(raw[0] - 1, rel=1e-8, abs=1e-9)
    assert fourth == pytest.approx(raw[2] - 4 * raw[1] + 6 * raw[0] - 3, rel=1e-6, abs=1e-9)
    assert variance >= raw[0] - 1 - 1e-15


@pytest.mark.parametrize("seed", range(6))
def test_the_curve_of_the_rest_holds_its_truth(seed):
    generator = np.random.default_rng(40 + seed)
    gram = some_gram(generator, 2 + seed % 2)
    ratio = factored.factored(gram, comparison.whole_cover(len(gram)))
    _, rest = factored.split(gram)
    whole = comparison.whole_cover(len(gram))
    curve = factored._curve(rest, comparison.of_cover(np.maximum(rest, 0), whole, 20))
    assert curve.values @ curve.weights + curve.infinite == pytest.approx(1.0)
    for epsilon in (0.0, 0.02, 0.1, 0.5, 2.0):
        for bound, matrix in ((curve, rest), (ratio, gram)):
            forward, reverse = oracle.divergences(matrix, epsilon)
            assert bound.forward(epsilon) >= forward * (1 - 1e-6) - 1e-9
            assert bound.reverse(epsilon) >= reverse * (1 - 1e-6) - 1e-9


def test_moments_bound_every_variable_that_has_them():
    """The two inequalities that the curve of the rest is made of, on random discrete variables of mean one."""
    generator = np.random.default_rng(1)
    for _ in range(200):
        values = generator.gamma(generator.uniform(0.2, 5), size=6)
        weights = generator.dirichlet(np.ones(6))
        values /= values @ weights
        variance, fourth = (float(weights @ (values - 1) ** k) for k in (2, 4))
        for c in (0.1, 0.6, 0.95, 1.05, 1.7, 4.0):
            truth = float(weights @ np.maximum(values - c, 0.0))
            assert truth <= (math.sqrt(variance + (1 - c) ** 2) + 1 - c) / 2 + 1e-12
            assert truth <= max(0.0, 1 - c) + 27 / 256 * fourth / abs(c - 1) ** 3 + 1e-12


@pytest.mark.parametrize("band", [6, 24])
def test_wide_bands_are_priced_within_3_per_cent(band):
    n, epochs, sigma = 24, 5, {6: 16.0, 24: 24.0}[band]
    gram = places_gram(Bsr(n * epochs, iterate_workload(n * epochs, 0.9).square_root(band)), n)
    sampled = MonteCarloAccount(sampling.Places(gram / sigma**2), seed=5, samples=60_000).epsilon(1e-5)
    computed = ComputedAccount(Places(((gram, 1),)), sigma, 1e-5).epsilon(1e-5)
    assert sampled.lower <= computed.upper <= 1.03 * sampled.upper
    assert 0.93 * sampled.lower <= computed.lower <= sampled.upper


# conditional composition


@pytest.mark.parametrize("seed", range(6))
def test_conditional_composition_is_a_bound_in_both_directions(seed):
    generator = np.random.default_rng(seed)
    rows = generator.random((4, 3)) * (generator.random((4, 3)) < 0.7) * math.exp(generator.uniform(-3, -1))
    for delta in (1e-2, 1e-4):
        found = conditional.conditional(rows, delta)
        if found is None:
            continue
        for epsilon in (0.0, 0.05, 0.2, 0.6):
            forward, reverse = oracle.divergences(rows.T @ rows, epsilon)
            assert found.forward(epsilon) >= forward * (1 - 1e-6)
            assert found.reverse(epsilon) >= reverse * (1 - 1e-6)
        # however large ε is, the bad event is paid for
        assert found.bad == conditional.SHARE * delta
        assert min(found.forward(50.0), found.reverse(50.0)) >= found.bad


@pytest.mark.parametrize("which", ["present", "absent"])
def test_posteriors_stay_below_their_weights(which):
    """Simulated histories leave the bounds as seldom as promised, and bounds a third lower are left."""
    generator = np.random.default_rng(3)
    n, steps, bad = 10, 40, 0.2
    rows = np.array([[0.08 if (r - j) % n < 2 else 0.0 for j in range(n)] for r in range(steps)])
    sets = conditional._sets(rows)
    laws = conditional._laws(rows, sets, bad, which)
    count = 4000
    place = generator.integers(n, size=count)
    y = generator.standard_normal((count, steps))
    if which == "present":
        y += rows[:, place].T
    logs = np.zeros((count, n))
    left, closer = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    for r in range(steps):
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        active = weights[:, rows[r] > 0].sum(axis=1)
        left |= active > laws[r, 0] * (1 + 1e-12)
        closer |= active > laws[r, 0] * 2 / 3
        logs += y[:, r : r + 1] * rows[r] - rows[r] ** 2 / 2
    assert laws.max() < 1
    assert left.mean() <= bad + 4 * math.sqrt(bad * (1 - bad) / count)
    assert closer.mean() > left.mean()


def test_a_place_that_is_taken_adds_to_its_own_weight():
    """What the place adds to the logarithm of its own weight is ‖h‖²."""
    rows = np.vstack([0.5 * np.eye(40)] * 2)
    sets = conditional._sets(rows)
    present, absent = (conditional._laws(rows, sets, 1e-3, which) for which in ("present", "absent"))
    assert absent.max() < present.max() < 1
    assert math.log(present.max() / absent.max()) <= 2 * 0.5**2 + 2 * math.log(conditional.COARSER)


def test_conditional_composition_nears_the_truth_as_the_noise_grows():
    """One epoch, one row a place: it must approach the comparison, and stay above it."""
    rows = np.eye(20) / 400
    account = ComputedAccount(Places(((rows.T @ rows, 1),), lambda: rows), 1.0, 1e-6)
    found = account.conditional
    truth = account.ratio("lower")
    assert found is not None
    at = brentq(lambda e: truth.forward(e) - 1e-6, 0, 1)
    assert truth.forward(at) <= found.forward(at)
    assert brentq(lambda e: found.forward(e) - 1e-6, 0, 1) <= 1.15 * at
    assert brentq(lambda e: found.reverse(e) - 1e-6, 0, 1) <= 1.15 * at


def test_conditional_composition_steps_back_where_it_says_nothing():
    rows = np.array([[2.0, 0.0], [1.0, 2.0]])
    assert conditional.conditional(rows, 1e-6) is None
    assert conditional.conditional(np.zeros((2, 3)), 1e-6) is None


# accounts


def test_one_place_is_the_gaussian_mechanism():
    account = ComputedAccount(Places(((np.array([[1.3]]), 1),)), 1.0, 1e-5)
    exact = epsilon_of(math.sqrt(1.3), 1e-5)
    bracket = account.epsilon(1e-5)
    assert bracket.lower <= exact.upper
    assert exact.lower <= bracket.upper <= 1.002 * exact.upper


def test_epochs_of_different_places_multiply():
    """Gaussian parts, one of them twice: the whole is the Gaussian of all of them."""
    parts = ((np.array([[0.5]]), 2), (np.array([[0.3]]), 1))
    account = ComputedAccount(Places(parts), 1.0, 1e-4)
    for epsilon in EPSILONS:
        exact = delta_of(math.sqrt(1.3), epsilon)
        bracket = account.delta(epsilon)
        assert bracket.lower <= exact * (1 + 1e-9)
        assert exact * (1 - 1e-9) <= bracket.upper <= 1.01 * exact + 1e-9
        for name, both in account.bounds(epsilon).items():
            assert min(both) >= exact * (1 - 1e-9), name
        assert account.bounds(epsilon)["comparison"][0] <= 1.05 * exact
        assert account.bounds(epsilon)["Rényi"][1] <= 1.05 * exact


def test_orthogonal_places_are_what_the_loss_distribution_says():
    gram = 2.0 * np.eye(20)
    bracket = ComputedAccount(Places(((gram, 1),)), 1.0, 1e-5).epsilon(1e-5)
    assert bracket.lower <= 3.606
    assert 3.603 <= bracket.upper <= 3.62


SAMPLED = [
    (12, 10, lambda steps: Bsr(steps, iterate_workload(steps, 0.9).square_root(12)), 12.0),
    (10, 2, lambda steps: Tree(steps, 0.9), 3.0),
    (16, 1, lambda steps: TreeFull(steps, 0.5), 2.0),
    (9, 3, lambda steps: Bsr(steps, np.array([1.0, 0.6, 0.2])), 2.5),
]


@pytest.mark.parametrize(("n", "epochs", "make", "sigma"), SAMPLED)
def test_never_below_what_sampling_has_certified(n, epochs, make, sigma):
    strategy = make(n * epochs)
    release = Release(strategy, BallsInBins(Shape(n * 5, 5, epochs)), "zero-out", sigma)
    sampled = account_maker(release, samples=20_000)(sigma, 3).epsilon(1e-4)
    computed = ComputedAccount(Places(((places_gram(strategy, n), 1),)), sigma, 1e-4).epsilon(1e-4)
    assert computed.upper >= sampled.lower
    assert computed.lower <= sampled.upper
    assert computed.upper <= 1.6 * sampled.upper


def test_restarts_compose_over_the_epochs():
    inner, epochs = Bsr(8, np.array([1.0, 0.7, 0.4])), 4
    release = Release(Restarted(inner, epochs), RandomAllocation(Shape(40, 5, epochs)), "zero-out", 3.0)
    sampled = account_maker(release, samples=20_000)(3.0, 3).epsilon(1e-4)
    computed = ComputedAccount(Places(((places_gram(inner, 8), epochs),)), 3.0, 1e-4).epsilon(1e-4)
    assert sampled.lower <= computed.upper <= 1.4 * sampled.upper
    assert computed.lower <= sampled.upper


def test_composes_with_others():
    gram = np.array([[1.0, 0.3], [0.3, 1.0]])
    account = ComputedAccount(Places(((gram, 1),)), 1.0, 1e-5)
    together = compose([account, GaussianAccount(0.5)]).epsilon(1e-5)
    assert together.upper > account.epsilon(1e-5).upper
    assert together.upper <= epsilon_of(math.hypot(1.0, 0.5), 1e-5).upper * 1.01
    assert together.lower <= together.upper
    alone = compose([account, GaussianAccount(1e-6)]).epsilon(1e-5).upper
    assert alone == pytest.approx(account.ratio("upper").epsilon(1e-5), rel=0.01)
