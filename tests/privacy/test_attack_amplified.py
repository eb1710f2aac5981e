"""Attacks on simulated releases: a likelihood-ratio test never finds more than the amplified accounts claim.

Releases are simulated pattern by pattern (`mixture_oracle`, which shares only C with the library). An attacker who
knows the law of the places, everything but the one example's place, and the strategy, ranks releases by their exact
likelihood ratio; both error rates of a threshold are bounded by Clopper and Pearson. That lower bound may not exceed
the claim, and a million releases have to come within 15% of it.
"""

import math

import numpy as np
import pytest

import mixture_oracle as oracle
from momentree.order import BallsInBins, CyclicPoisson, Poisson, RandomAllocation
from momentree.order.base import Shape
from momentree.privacy.amplified import account_maker
from momentree.privacy.confidence import binomial_lower, binomial_upper
from momentree.privacy.events import Release
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense
from momentree.strategy.identity import Identity
from momentree.strategy.restarted import Restarted
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from momentree.strategy.tree_ls import TreeLS

DELTA = 1e-3
SHAPE = Shape(12, 3, 2)  # n = 4, E = 2, T = 8
BAND = np.array([1.0, 0.6, 0.3])
WIDE = np.array([1.0, 0.7, 0.5, 0.4, 0.35, 0.3])

CASES = {
    "poisson, identity": (Poisson(SHAPE), Identity(8)),
    "cyclic-poisson, identity": (CyclicPoisson(SHAPE, parts=3), Identity(8)),
    "cyclic-poisson, bsr": (CyclicPoisson(SHAPE, parts=3), Bsr(8, BAND)),
    "balls-in-bins, identity": (BallsInBins(SHAPE), Identity(8)),
    "balls-in-bins, tree": (BallsInBins(SHAPE), Tree(8, 0.9)),
    "balls-in-bins, tree-full": (BallsInBins(SHAPE), TreeFull(8, 1.0)),
    "balls-in-bins, tree-ls": (BallsInBins(SHAPE), TreeLS(8, 0.8)),
    "balls-in-bins, bsr": (BallsInBins(SHAPE), Bsr(8, WIDE)),
    "balls-in-bins, dense": (BallsInBins(SHAPE), Dense(oracle.toeplitz(WIDE, 8) + np.diag([0, 0.2, 0, 0.1], -4))),
    "balls-in-bins, restarts": (BallsInBins(SHAPE), Restarted(Tree(4, 0.9), 2)),
    "random-allocation, identity": (RandomAllocation(SHAPE), Identity(8)),
    "random-allocation, bsr": (RandomAllocation(SHAPE), Bsr(8, BAND)),
    "random-allocation, dense": (RandomAllocation(SHAPE), Dense(oracle.toeplitz(BAND, 8))),
    "random-allocation, restarted tree": (RandomAllocation(SHAPE), Restarted(Tree(4, 0.9), 2)),
    "random-allocation, restarted tree-full": (RandomAllocation(SHAPE), Restarted(TreeFull(4, 1.0), 2)),
}


def law(order):
    rate = order.rate if isinstance(order, CyclicPoisson) else SHAPE.batch_size / SHAPE.examples
    parts = order.parts if isinstance(order, CyclicPoisson) else 1
    return oracle.patterns(order.name, SHAPE.steps_per_epoch, SHAPE.epochs, SHAPE.steps, rate, parts)


def simulated(order, strategy, sigma, generator, count, *, present):
    """ℓ of `count` releases with the example present or absent, by the oracle."""
    rows, weights = law(order)
    matrix = strategy.matrix()
    parts = []
    for low in range(0, count, 50_000):
        y = oracle.draw(matrix, sigma, rows, weights, generator, min(50_000, count - low), present=present)
        parts.append(oracle.log_ratio(matrix, sigma, rows, weights, y))
    return np.concatenate(parts)


def measured_epsilon(order, strategy, sigma, count, seed=0, level=1e-3):
    """A lower bound of ε at DELTA by a threshold on ℓ, both directions; the threshold is chosen on other releases."""
    generator = np.random.default_rng(seed)
    pilot, scores = (
        [simulated(order, strategy, sigma, generator, k, present=present) for present in (True, False)]
        for k in (min(count, 200_000), count)
    )
    best = 0.0
    for (first, second), (hits, misses) in ((pilot, scores), ((-pilot[1], -pilot[0]), (-scores[1], -scores[0]))):
        scale = count / len(first)
        promises = []
        for t in np.quantile(first, np.linspace(0.3, 0.9995, 150)):
            a, b = np.mean(first > t), np.mean(second > t)
            rooms = [3 * math.sqrt(max(x, 1 / len(first)) / (len(first) * scale)) for x in (a, b)]
            promises.append((math.log(max(a - rooms[0] - DELTA, 1e-12) / (b + rooms[1])), t))
        threshold = max(promises)[1]
        true = binomial_lower(int(np.sum(hits > threshold)), count, level / 4)
        false = binomial_upper(int(np.sum(misses > threshold)), count, level / 4)
        if true > DELTA:
            best = max(best, math.log((true - DELTA) / false))
    return best


def claim(order, strategy, sigma, seed=3):
    release = Release(strategy, order, "zero-out", 1.0)
    sampling = {} if isinstance(order, Poisson | CyclicPoisson) else {"samples": 60_000}
    return account_maker(release, **sampling)(sigma, seed).epsilon(DELTA)


@pytest.mark.parametrize("case", CASES)
def test_a_million_releases_do_not_beat_the_claim_and_come_close(case):
    order, strategy = CASES[case]
    sigma = 1.2 * float(np.linalg.norm(strategy.matrix()[:, 0]))
    bracket = claim(order, strategy, sigma)
    measured = measured_epsilon(order, strategy, sigma, 1_000_000)
    assert measured <= bracket.upper
    assert measured >= 0.85 * bracket.upper


@pytest.mark.parametrize("case", ["poisson, identity", "balls-in-bins, tree", "random-allocation, bsr"])
def test_a_claim_that_is_too_small_is_found_out(case):
    """The same attack refutes what the account says of half as much more noise."""
    order, strategy = CASES[case]
    sigma = 1.2 * float(np.linalg.norm(strategy.matrix()[:, 0]))
    assert measured_epsilon(order, strategy, sigma, 200_000) > claim(order, strategy, 1.5 * sigma).upper


def test_the_exact_divergence_of_small_mixtures_lies_in_the_bracket():
    """δ at the claimed ε from a plain sample of the exact ratio: within its error of the account's own bracket."""
    for case in ("balls-in-bins, tree", "random-allocation, bsr", "random-allocation, restarted tree-full"):
        order, strategy = CASES[case]
        rows, weights = law(order)
        matrix = strategy.matrix()
        sigma = 1.2 * float(np.linalg.norm(matrix[:, 0]))
        maker = account_maker(Release(strategy, order, "zero-out", 1.0), samples=60_000)
        bracket = maker(sigma, 5).delta(0.6)
        y = oracle.draw(matrix, sigma, rows, weights, np.random.default_rng(9), 300_000, present=True)
        values = np.maximum(-np.expm1(0.6 - oracle.log_ratio(matrix, sigma, rows, weights, y)), 0)
        error = 4 * values.std() / math.sqrt(len(values))
        assert bracket.lower - error <= values.mean() <= bracket.upper + error
        assert bracket.upper <= 1.1 * bracket.lower
