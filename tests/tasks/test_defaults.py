"""The rule for what is not given: every number follows from public ones, and each branch is taken where it says."""

from __future__ import annotations

import math

import pytest

from momentree.plan import Plan
from momentree.privacy.gaussian import largest_mu
from momentree.tasks import defaults

BASE = {"examples": 8000, "epsilon": 0.3, "delta": 1e-5}


def ratio(examples: int, dimension: int, epsilon: float = 0.3) -> float:
    return examples * largest_mu(epsilon, 1e-5) / math.sqrt(dimension)


def test_equal_steps_where_noise_drowns_the_gradient() -> None:
    many, few = 16_386, 90
    assert ratio(8000, many) < defaults.DROWNED < ratio(8000, few)
    drowned, why = defaults.fill({**BASE, "dimension": many})
    assert (drowned["schedule"], drowned["batch_size"]) == ("constant", 1000)
    assert f"{ratio(8000, many):.3g}, below 70" in " ".join(why)
    clear, _ = defaults.fill({**BASE, "dimension": few})
    assert (clear["schedule"], clear["batch_size"]) == ("linear", 250)


def test_the_border_is_where_it_is_said_to_be() -> None:
    border = (8000 * largest_mu(0.3, 1e-5) / 70) ** 2
    for dimension, schedule in ((math.floor(border), "linear"), (math.ceil(border), "constant")):
        assert defaults.fill({**BASE, "dimension": dimension})[0]["schedule"] == schedule


@pytest.mark.parametrize(
    "other",
    [
        {"dimension": None},
        {"epsilon": None, "noise_multiplier": 40.0},
        {"algorithm": "dp-nsgd"},
        {"algorithm": "dp-sgd"},
        {"update": "adam"},
    ],
)
def test_elsewhere_steps_fall(other: dict[str, object]) -> None:
    facts, _ = defaults.fill({**BASE, "dimension": 16_386, **other})
    assert (facts["schedule"], facts["batch_size"]) == ("linear", 250)


def test_a_number_takes_falling_steps() -> None:
    assert defaults.fill({**BASE, "dimension": 16_386}, kind="bounded")[0]["schedule"] == "linear"


def test_a_person_of_several_rows_drowns_sooner() -> None:
    facts = {**BASE, "dimension": 90}
    assert defaults.fill(facts)[0]["schedule"] == "linear"
    assert defaults.fill({**facts, "rows_per_person": 10})[0]["schedule"] == "constant"


def test_what_is_given_is_kept() -> None:
    given = {"batch_size": 7, "epochs": 3, "clip": 2.0, "schedule": "cosine"}
    facts, why = defaults.fill({**BASE, "dimension": 16_386, **given})
    assert {name: facts[name] for name in given} == given
    assert len(why) == 1


def test_fewer_rows_than_steps() -> None:
    facts, _ = defaults.fill({"examples": 5, "epsilon": 1.0, "dimension": 1000})
    assert facts["batch_size"] == 1


def test_rows_of_another_norm_are_the_same_training() -> None:
    """Rows R times as long: a clip R times as large and steps R² times smaller leave every score where it was."""
    for kind in ("classes", "bounded"):
        for dimension in (16_386, 90):
            facts, _ = defaults.fill({**BASE, "dimension": dimension}, kind=kind)
            long, _ = defaults.fill({**BASE, "dimension": dimension}, row_norm=4.0, kind=kind)
            assert long["clip"] == pytest.approx(4 * facts["clip"])
            one, other = Plan(**facts), Plan(**long)
            assert one.noise_multiplier == other.noise_multiplier
            rate = defaults.learning_rate(one, kind)
            assert defaults.learning_rate(other, kind, row_norm=4.0) == pytest.approx(rate / 16)


@pytest.mark.parametrize(
    ("schedule", "kind", "allowed"),
    [
        ("linear", "classes", 2.5),
        ("constant", "classes", 0.8),
        ("linear", "bounded", 0.5),
        ("constant", "bounded", 0.5),
    ],
)
def test_the_noise_of_a_step_on_a_score(schedule: str, kind: str, allowed: float) -> None:
    plan = Plan(**defaults.fill({**BASE, "schedule": schedule, "batch_size": 250})[0])
    noise = plan.to_dict()["iterate_rmse"]
    assert defaults.learning_rate(plan, kind) == pytest.approx(allowed * 250 / noise / 0.3, rel=1e-6)


def test_a_step_is_never_longer_than_it_may_be() -> None:
    plan = Plan(**defaults.fill({"examples": 10**6, "epsilon": 8.0})[0])
    assert defaults.learning_rate(plan) == pytest.approx(256 / 0.3)
    assert defaults.learning_rate(plan, "bounded") == pytest.approx(24 / 0.3)
