"""Which account a plan takes: computed where that is nearly as sharp as sampling, else both are shown."""

import math
from dataclasses import dataclass

import pytest

from momentree.errors import InputError
from momentree.order import BallsInBins, Fixed, Poisson, RandomAllocation
from momentree.order.base import Shape
from momentree.plan import Plan
from momentree.privacy.computed import ComputedAccount
from momentree.privacy.events import Release
from momentree.privacy.monte_carlo import MonteCarloAccount
from momentree.privacy.settle import CLOSE, _enough, places_of
from momentree.strategy.bsr import Bsr
from momentree.strategy.identity import Identity
from momentree.strategy.restarted import Restarted
from momentree.strategy.tree import Tree

WIDE = {"examples": 60, "batch_size": 5, "epochs": 6, "order": "balls-in-bins", "delta": 1e-5}


def test_a_close_one_is_taken_and_needs_no_chance():
    plan = Plan(**WIDE, strategy="bsr", band=12, noise_multiplier=12.0)
    assert plan.account is plan.computed
    assert isinstance(plan.account, ComputedAccount)
    facts = plan.to_dict(alternatives=False)
    assert facts["failure_probability"] == 0.0
    assert facts["epsilon_deterministic"] == facts["epsilon_upper"] == plan.epsilon
    sampled = MonteCarloAccount(_mixture(plan), seed=1, samples=40_000).epsilon(1e-5)
    assert sampled.lower <= plan.epsilon <= CLOSE * sampled.upper * 1.01


def _mixture(plan):
    from momentree.privacy.mixtures import Places

    (gram, times), *_ = places_of(plan.release(1.0)).grams
    assert times == 1
    return Places(gram / plan.noise_multiplier**2)


def test_a_noise_that_it_decides_is_enough():
    plan = Plan(**WIDE, strategy="bsr", band=12, epsilon=3.0)
    assert isinstance(plan.account, ComputedAccount)
    assert plan.bracket.upper <= 3.0
    less = ComputedAccount(places_of(plan.release(1.0)), plan.noise_multiplier * 0.99, 1e-5)
    assert less.upper_epsilon(1e-5) > 3.0


def test_another_is_shown_beside():
    plan = Plan(examples=100, batch_size=5, epochs=4, order="balls-in-bins", strategy="tree", noise_multiplier=1.5,
                delta=1e-4)  # fmt: skip
    assert isinstance(plan.account, MonteCarloAccount)
    facts = plan.to_dict(alternatives=False)
    assert facts["epsilon_deterministic"] > CLOSE * facts["epsilon_upper"]
    assert facts["failure_probability"] > 0


def test_it_steps_in_where_no_sample_reaches(monkeypatch):
    def refuse(*_, **__):
        raise InputError("so many samples cannot carry this delta")

    monkeypatch.setattr(MonteCarloAccount, "epsilon", refuse)
    monkeypatch.setattr(MonteCarloAccount, "sketch", refuse)
    facts = {"examples": 40, "batch_size": 5, "epochs": 3, "order": "random-allocation", "delta": 1e-8}
    plan = Plan(**facts, strategy="tree", restart_every=1, noise_multiplier=3.0)
    assert isinstance(plan.account, ComputedAccount)
    assert 0 < plan.bracket.lower <= plan.epsilon
    calibrated = Plan(**facts, strategy="tree", restart_every=1, epsilon=plan.epsilon)
    assert calibrated.noise_multiplier == pytest.approx(3.0, rel=0.01)
    # where there is none, the refusal stands
    with pytest.raises(InputError, match="cannot carry"):
        Plan(**facts, strategy="bsr", band=4, epsilon=2.0)


def test_who_has_none():
    shape = Shape(40, 5, 3)
    band = Bsr(24, [1.0, 0.5, 0.2])
    for order, strategy in (
        (Poisson(shape), Identity(24)),
        (Fixed(shape, seed=0), band),
        (RandomAllocation(shape), band),
    ):
        assert places_of(Release(strategy, order, "zero-out", 1.0)) is None
    places = places_of(Release(Restarted(Tree(8, 0.9), 3), RandomAllocation(shape), "zero-out", 1.0))
    assert [times for _, times in places.grams] == [3]
    assert places_of(Release(band, BallsInBins(shape), "zero-out", 1.0)).rows().shape == (24, 8)
    assert places_of(Release(Identity(2 * 1100), BallsInBins(Shape(1100, 1, 2)), "zero-out", 1.0)) is None


@dataclass(frozen=True)
class Power:
    """ε = 3 σ^−power."""

    sigma: float
    power: float

    def upper_epsilon(self, delta: float) -> float:
        return 3.0 * self.sigma**-self.power


@pytest.mark.parametrize("power", [0.4, 1.0, 2.5])
def test_noise_does_not_depend_on_where_the_search_starts(power):
    found = {_enough(lambda s: Power(s, power), 0.7, 1e-5, start)[0] for start in (0.01, 1.0, 3.3, 40.0)}
    assert len(found) == 1
    (sigma,) = found
    assert Power(sigma, power).upper_epsilon(1e-5) <= 0.7
    assert Power(sigma * math.exp(-0.00101), power).upper_epsilon(1e-5) > 0.7


def test_a_target_that_no_noise_reaches():
    with pytest.raises(InputError, match="no noise"):
        _enough(lambda s: Power(s, 1e-9), 0.7, 1e-5, 1.0)
