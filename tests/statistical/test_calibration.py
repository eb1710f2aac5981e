"""Calibrated plans over everything that can be combined: ε is met, and hardly less noise would miss it."""

from __future__ import annotations

import random

import pytest

import momentree as mt
from momentree.errors import MomentreeError
from momentree.presets import ALGORITHMS
from momentree.privacy.account import Bracket, epsilon_within

CHOICES = {
    "algorithm": list(ALGORITHMS),
    "order": ["fixed", "reshuffled", "single-pass"],
    "strategy": [None, "identity", "tree", "tree-full", "tree-ls", "bsr", "bisr", "blt", "dense", "auto"],
    "adjacency": ["zero-out", "replace-one"],
    "momentum": [None, 0.0, 0.5, 0.99],
    "restart_every": [None, None, None, 1, 2],
    "band": [None, None, None, 1, 3],
    "measure": ["iterates", "momentum"],
    "schedule": ["constant", "linear", "cosine"],
    "rows_per_person": [1, 1, 2, 5, 70],
    "leak": [None, 1.0, 0.5, 1e-3],
    "difference_clip": [None, 0.01, 1.0, 3.0],
}


def some_plan(rng: random.Random) -> tuple[mt.Plan, dict[str, object]] | None:
    facts = {name: rng.choice(values) for name, values in CHOICES.items()}
    examples = rng.randint(1, 60)
    facts |= {"examples": examples, "batch_size": rng.randint(1, examples), "epochs": rng.randint(1, 5)}
    facts |= {"epsilon": 10 ** rng.uniform(-1.5, 1.7), "delta": 10 ** rng.uniform(-9, -0.5)}
    if ALGORITHMS[facts["algorithm"]].full_batch:
        facts["batch_size"] = None
    if facts["order"] == "single-pass":
        facts["epochs"] = 1
    facts = {name: value for name, value in facts.items() if value is not None}
    try:
        return mt.Plan(**facts), facts
    except MomentreeError:
        return None  # what has no proof is refused in one line; anything else fails the test


def check(seed: int, count: int) -> None:
    rng, done = random.Random(seed), 0
    while done < count:
        found = some_plan(rng)
        if found is None:
            continue
        (plan, facts), done = found, done + 1
        asked = facts.pop("epsilon")
        assert plan.bracket.upper <= asked, facts
        again = mt.Plan(**facts, noise_multiplier=plan.noise_multiplier)
        assert again.mu == pytest.approx(plan.mu, rel=1e-9), facts
        assert mt.Plan(**facts, noise_multiplier=0.99 * plan.noise_multiplier).bracket.lower > asked, facts


def test_random_plans() -> None:
    check(0, 60)


@pytest.mark.verify
def test_many_random_plans() -> None:
    check(1, 1000)


AMPLIFIED = [
    ("poisson", "identity", {}),
    ("cyclic-poisson", "bsr", {"parts": 5, "band": 3}),
    ("balls-in-bins", "identity", {}),
    ("balls-in-bins", "tree", {}),
    ("balls-in-bins", "bsr", {"band": 4}),
    ("random-allocation", "identity", {}),
    ("random-allocation", "bsr", {"band": 4}),
]


def amplified(order: str, strategy: str, more: dict[str, object], **facts: object) -> mt.Plan:
    given = {"examples": 200, "batch_size": 20, "epochs": 2, "delta": 1e-4, "order": order, "strategy": strategy}
    return mt.Plan(**given | more | facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(("order", "strategy", "more"), AMPLIFIED[:3])
def test_amplified_plans(order: str, strategy: str, more: dict[str, object]) -> None:
    plan = amplified(order, strategy, more, epsilon=2.0)
    assert plan.bracket.upper <= 2.0
    assert plan.bracket.lower > 1.9
    less = amplified(order, strategy, more, noise_multiplier=0.99 * plan.noise_multiplier)
    assert less.bracket.upper > 2.0


@pytest.mark.verify
@pytest.mark.parametrize(("order", "strategy", "more"), AMPLIFIED)
@pytest.mark.parametrize("rows", [1, 2])
def test_more_amplified_plans(order: str, strategy: str, more: dict[str, object], rows: int) -> None:
    plan = amplified(order, strategy, more, epsilon=2.0, rows_per_person=rows)
    assert plan.bracket.upper <= 2.0
    again = amplified(order, strategy, more, noise_multiplier=plan.noise_multiplier, rows_per_person=rows)
    assert again.bracket.upper <= 2.0 * (1 + 1e-12)
    assert amplified(order, strategy, more, epsilon=2.0, rows_per_person=rows).digest() == plan.digest()
    less = amplified(order, strategy, more, noise_multiplier=0.95 * plan.noise_multiplier, rows_per_person=rows)
    assert less.bracket.upper > 2.0


class Sampled:
    """An account that is wrong with a known probability."""

    mu = None
    method = "sampled"
    failure_probability = 1e-6
    asked: float = 0.0

    def epsilon(self, delta: float) -> Bracket:
        self.asked = delta
        return Bracket(1.0, 1.0, 1.0)

    def delta(self, epsilon: float) -> Bracket:
        return Bracket(0.0, 0.0, 0.0)


def test_the_chance_of_a_wrong_certificate_is_part_of_delta() -> None:
    given = Sampled()
    assert epsilon_within(given, 1e-5).upper == 1.0
    assert given.asked == pytest.approx(9e-6)
    with pytest.raises(mt.InputError, match="wrong"):
        epsilon_within(given, 1e-6)
    plan = amplified("balls-in-bins", "tree", {}, noise_multiplier=3.0)
    assert 0 < plan.account.failure_probability <= plan.delta / 100
    assert amplified("balls-in-bins", "tree", {}, noise_multiplier=3.0, delta=1e-7).account.failure_probability <= 1e-9


def test_algorithm_2_has_no_restarts() -> None:
    with pytest.raises(mt.NoProofError, match="restart"):
        mt.Plan(examples=30, batch_size=5, epochs=3, algorithm="sr-nsgd", epsilon=1.0, restart_every=1)
