"""Accounts of unamplified releases: against what neighbours really change, and calibrated on the private side."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from momentree.errors import InputError, NoProofError
from momentree.order import Shape, make
from momentree.privacy.account import rounded_up
from momentree.privacy.account_of import account, calibrate, calibrated, factor, release_sensitivity
from momentree.privacy.events import Release
from momentree.privacy.gaussian import GaussianAccount
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense
from momentree.strategy.identity import Identity
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from privacy_strategies import draw_any

KEY = bytes(range(32))


def shapes(rng: np.random.Generator, epochs: int) -> Shape:
    batch = int(rng.integers(1, 4))
    return Shape(int(rng.integers(batch, 6 * batch + 1)), batch, epochs)


def moved_most(matrix: np.ndarray, order, adjacency: str) -> float:
    """The farthest that one row moves the noiseless release, over every pattern that the order can draw.

    zero-out: contributions of norm 1 against none; replace-one: 1 against −1. Both equal at every step.
    """
    shape = order.shape
    n, T = shape.steps_per_epoch, shape.steps
    if order.participation == "fixed":
        patterns = [tuple(range(j, T, n)) for j in range(n)]
    else:
        patterns = list(itertools.product(*(range(e * n, (e + 1) * n) for e in range(shape.epochs))))
    scale = {"zero-out": 1.0, "replace-one": 2.0}[adjacency]
    return scale * max(float(np.linalg.norm(matrix[:, list(p)].sum(axis=1))) for p in patterns)


def test_three_hundred_random_releases_against_brute_force():
    rng = np.random.default_rng(0)
    exact = 0
    for i in range(330):
        name = ("fixed", "reshuffled", "single-pass")[i % 3]
        shape = shapes(rng, 1 if name == "single-pass" else int(rng.integers(1, 5)))
        if shape.steps_per_epoch**shape.epochs > 1300:
            shape = replace(shape, epochs=3)
        order = make(name, shape)
        strategy = draw_any(shape.steps, rng)
        adjacency = ("zero-out", "replace-one")[i // 3 % 2]
        sigma = float(rng.uniform(0.3, 5))
        release = Release(strategy, order, adjacency, sigma)
        truth = moved_most(strategy.matrix(), order, adjacency)
        found = account(release)
        assert found.mu is not None
        assert found.mu >= truth / sigma * (1 - 1e-12)
        if release_sensitivity(release).exact:
            exact += 1
            assert found.mu == pytest.approx(truth / sigma, rel=1e-9)
    assert exact > 200


def test_every_row_of_the_real_orders_moves_no_more_than_claimed():
    """Batches as they are drawn, the short last one included, divided by the public batch size."""
    rng = np.random.default_rng(1)
    for name in ("fixed", "reshuffled", "single-pass"):
        for _ in range(10):
            shape = Shape(int(rng.integers(5, 30)), 4, 1 if name == "single-pass" else 3)
            order = make(name, shape)
            strategy = draw_any(shape.steps, rng)
            matrix = strategy.matrix()
            taken = np.zeros((shape.steps, shape.examples))
            for t in range(1, shape.steps + 1):
                taken[t - 1, order.batch(t, KEY)] = 1.0
            moved = np.linalg.norm(matrix @ taken, axis=0)  # in units of clip / batch_size
            claim = release_sensitivity(Release(strategy, order, "zero-out", 1.0)).value
            assert moved.max() <= claim * (1 + 1e-12)


def test_what_is_printed_is_never_below_the_figure():
    for value, text in (
        (1.0, "1"),
        (0.1, "0.1"),
        (1e-5, "1e-05"),
        (1.23401, "1.235"),
        (0.99999999, "1"),
        (8, "8"),
        (2980.9579, "2981"),
        (0.0, "0"),
    ):
        assert rounded_up(value) == text
    for value in np.random.default_rng(0).lognormal(0, 6, 2000):
        assert value <= float(rounded_up(value)) <= value * 1.0011
    assert rounded_up(math.inf) == "inf"


def test_the_figure_of_two_epochs():
    order = make("fixed", Shape(1000, 50, 2))
    found = account(Release(Identity(40), order, "zero-out", 1.0))
    assert found.mu == pytest.approx(math.sqrt(2), rel=1e-11)
    assert found.epsilon(1e-5).upper == pytest.approx(6.57, abs=5e-3)
    bracket = found.epsilon(1e-5)
    assert bracket.lower <= bracket.estimate <= bracket.upper


def random_release(rng: np.random.Generator) -> Release:
    kind = int(rng.integers(4))
    shape = Shape(int(rng.integers(20, 300)), int(rng.integers(1, 20)), int(rng.integers(1, 6)))
    steps = shape.steps
    strategy = (
        Identity(steps),
        Tree(steps, float(rng.random())),
        TreeFull(steps, float(rng.random())),
        Bsr(steps, np.r_[1.0, np.sort(rng.random(min(steps, int(rng.integers(1, 9))) - 1))[::-1]]),
    )[kind]
    name = str(rng.choice(["fixed", "reshuffled"]))
    scales = (1.0, *[float(rng.random())] * (shape.epochs - 1)) if name == "fixed" and rng.random() < 0.3 else ()
    group = int(rng.integers(1, 4)) if rng.random() < 0.3 else 1
    adjacency = str(rng.choice(["zero-out", "replace-one"]))
    return Release(strategy, make(name, shape), adjacency, 1.0, scales, group)  # type: ignore[arg-type]


def calibrations(rng: np.random.Generator, count: int) -> None:
    for _ in range(count):
        release = random_release(rng)
        epsilon, delta = float(10 ** rng.uniform(-2, 2)), float(10 ** rng.uniform(-12, -2))
        sigma = calibrate(release, epsilon, delta)
        assert account(replace(release, noise_multiplier=sigma)).epsilon(delta).upper <= epsilon
        assert account(replace(release, noise_multiplier=0.99 * sigma)).epsilon(delta).lower > epsilon


def test_calibrated_noise_never_gives_more_than_asked_and_a_percent_less_does():
    calibrations(np.random.default_rng(2), 400)
    release = random_release(np.random.default_rng(3))
    assert calibrated(release, 1.0, 1e-5).noise_multiplier == calibrate(release, 1.0, 1e-5)


@pytest.mark.verify
def test_ten_thousand_calibrations():
    calibrations(np.random.default_rng(4), 10_000)


@pytest.mark.parametrize("name", ["fixed", "reshuffled"])
def test_a_likelihood_ratio_test_measures_the_claim_and_would_notice_a_wrong_one(name):
    """Simulated releases of a worst-case pair: the empirical loss is that of μ, and not of 0.9 μ."""
    shape = Shape(12, 3, 3)
    strategy = Tree(shape.steps, 0.9)
    release = Release(strategy, make(name, shape), "zero-out", 2.0)
    claimed = account(release)
    rng = np.random.default_rng(5)
    n = shape.steps_per_epoch
    patterns = (
        [tuple(range(j, shape.steps, n)) for j in range(n)]
        if name == "fixed"
        else list(itertools.product(*(range(e * n, (e + 1) * n) for e in range(3))))
    )
    matrix = strategy.matrix()
    shift = max((matrix[:, list(p)].sum(axis=1) for p in patterns), key=np.linalg.norm)
    noise = rng.normal(0, 2.0, size=(200_000, len(shift)))
    loss = (noise @ shift) / 4.0 + float(shift @ shift) / 8.0  # log dP/dQ under P
    mu = claimed.mu
    assert mu is not None
    assert stats.kstest(loss, "norm", args=(mu * mu / 2, mu)).pvalue > 1e-3
    assert stats.kstest(loss, "norm", args=(0.81 * mu * mu / 2, 0.9 * mu)).pvalue < 1e-6
    delta = claimed.delta(1.0)
    empirical = np.maximum(0.0, -np.expm1(1.0 - loss))
    assert empirical.mean() - 4 * empirical.std() / math.sqrt(len(loss)) < delta.upper
    assert empirical.mean() > 0.95 * delta.lower


def test_adjacency_factors():
    release = Release(Tree(12, 0.9), make("fixed", Shape(12, 3, 3)), "zero-out", 1.5)
    one, two = account(release), account(replace(release, adjacency="replace-one"))
    assert one.mu is not None
    assert two.mu == pytest.approx(2 * one.mu, rel=1e-12)
    assert factor("zero-out") == 1.0
    with pytest.raises(NoProofError):
        factor("add-remove")
    with pytest.raises(NoProofError):
        account(replace(release, adjacency="add-remove"))


def test_refusals_of_accounts():
    fixed = make("fixed", Shape(12, 3, 3))
    with pytest.raises(InputError, match="noise_multiplier"):
        account(Release(Tree(12, 0.9), fixed, "zero-out", 0.0))
    with pytest.raises(NoProofError, match="loss distribution"):
        release_sensitivity(Release(Tree(12, 0.9), make("balls-in-bins", Shape(12, 3, 3)), "zero-out", 1.0))
    with pytest.raises(InputError, match="epsilon"):
        calibrate(Release(Tree(12, 0.9), fixed, "zero-out", 1.0), 0.0, 1e-5)
    signed = Release(Dense(np.array([[1.0, 0.0], [-0.5, 1.0]])), make("fixed", Shape(2, 2, 2)), "zero-out", 1.0)
    assert not release_sensitivity(signed).exact
    assert isinstance(account(signed), GaussianAccount)
