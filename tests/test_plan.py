"""The plan: figures against independent values, one direction and back, and what is refused."""

import itertools
import json
import math

import numpy as np
import pytest

import momentree as mt
from momentree.plan_file import plan_text, read_plan_facts
from momentree.privacy.gaussian import delta_of

SMALL = {"examples": 100, "batch_size": 10, "epochs": 3, "delta": 1e-5}


def test_independent_noise_on_a_fixed_order_is_priced_by_all_epochs() -> None:
    plan = mt.Plan(examples=1000, batch_size=50, epochs=2, noise_multiplier=1.0, strategy="identity", delta=1e-5)
    assert plan.mu == pytest.approx(math.sqrt(2), rel=1e-9)
    assert plan.epsilon_at(1e-5) == pytest.approx(6.5729700670, rel=1e-8)
    twice = mt.Plan(
        examples=1000,
        batch_size=50,
        epochs=2,
        noise_multiplier=1.0,
        strategy="identity",
        delta=1e-5,
        adjacency="replace-one",
    )
    assert twice.mu == pytest.approx(2 * math.sqrt(2), rel=1e-9)


EVERY = ("identity", "tree", "tree-full", "tree-ls", "bsr", "bisr", "blt", "dense", "auto")


@pytest.mark.parametrize("strategy", EVERY)
def test_calibration_ends_on_the_private_side_and_not_far_from_it(strategy: str) -> None:
    plan = mt.Plan(**SMALL, epsilon=1.5, strategy=strategy)
    again = mt.Plan(**SMALL, noise_multiplier=plan.noise_multiplier, strategy=plan.strategy.name)
    assert plan.bracket.upper <= 1.5
    assert plan.bracket.lower > 1.5 * (1 - 1e-6)
    if strategy != "auto":
        assert again.mu == pytest.approx(plan.mu, rel=1e-9)
        assert again.epsilon == again.bracket.upper
    less = mt.Plan(**SMALL, noise_multiplier=0.99 * plan.noise_multiplier, strategy=plan.strategy.name)
    assert less.epsilon > 1.5


def test_figures_follow_from_the_materialised_matrices() -> None:
    for strategy in ("identity", "tree", "tree-full", "tree-ls", "bsr", "blt"):
        plan = mt.Plan(**SMALL, epsilon=1.0, strategy=strategy, momentum=0.8)
        facts = plan.to_dict()
        C, decoder = plan.strategy.matrix(), plan.strategy.decoder()
        T, n = plan.steps, plan.steps_per_epoch
        places = [np.linalg.norm(C[:, j::n].sum(axis=1)) for j in range(n)]
        assert facts["sensitivity"] == pytest.approx(max(places), rel=1e-9)
        assert facts["mu"] == pytest.approx(max(places) / plan.noise_multiplier, rel=1e-9)
        assert delta_of(facts["mu"], 1.0) <= 1e-5
        lags = np.subtract.outer(np.arange(T), np.arange(T))
        A = np.where(lags >= 0, 0.2 * 0.8 ** np.maximum(lags, 0), 0.0)
        on_momentum = A @ decoder
        rms = math.sqrt((on_momentum**2).sum() / T)
        assert facts["momentum_rmse"] == pytest.approx(plan.noise_multiplier * rms, rel=1e-8)
        on_iterates = np.cumsum(on_momentum, axis=0)
        rms = math.sqrt((on_iterates**2).sum() / T)
        assert facts["iterate_rmse"] == pytest.approx(plan.noise_multiplier * rms, rel=1e-8)


def test_alternatives_are_at_the_same_privacy() -> None:
    facts = mt.Plan(**SMALL, epsilon=1.0, strategy="tree").to_dict()
    assert {row["strategy"] for row in facts["alternatives"]} >= {"identity", "tree-full", "bsr", "blt"}
    for row in facts["alternatives"]:
        assert row["sensitivity"] / row["noise_multiplier"] == pytest.approx(facts["mu"], rel=1e-9)
    assert json.loads(json.dumps(facts)) == facts


@pytest.mark.parametrize("strategy", ["identity", "tree", "bsr", "blt"])
@pytest.mark.parametrize("order", ["fixed", "reshuffled"])
@pytest.mark.parametrize(
    ("adjacency", "rows", "times"), [("zero-out", 1, 1), ("replace-one", 1, 2), ("replace-one", 3, 6)]
)
def test_sensitivity_is_that_of_the_adjacency_and_the_unit(
    strategy: str, order: str, adjacency: str, rows: int, times: int
) -> None:
    """Every pattern by brute force; ‖C‖ printed is the one that μ = ‖C‖ / σ holds with, for the alternatives too."""
    plan = mt.Plan(
        examples=20, batch_size=5, epochs=3, order=order, strategy=strategy, adjacency=adjacency, rows_per_person=rows,
        noise_multiplier=1.3, delta=1e-3, momentum=0.8,
    )  # fmt: skip
    C, n = plan.strategy.matrix(), plan.steps_per_epoch
    kept = [[place] * 3 for place in range(n)]
    patterns = kept if order == "fixed" else list(itertools.product(range(n), repeat=3))
    worst = max(np.linalg.norm(sum(C[:, e * n + p] for e, p in enumerate(pattern))) for pattern in patterns)
    facts = plan.to_dict()
    assert facts["sensitivity"] >= times * worst * (1 - 1e-12)
    if facts["sensitivity_is"] == "exact":
        assert facts["sensitivity"] == pytest.approx(times * worst, rel=1e-9)
    for row in (facts, *facts["alternatives"]):
        assert row["sensitivity"] / row["noise_multiplier"] == pytest.approx(facts["mu"], rel=1e-9)


def test_delta_defaults_to_a_power_of_ten_below_a_tenth_of_one_over_n() -> None:
    for examples, delta in ((10, 1e-2), (100, 1e-3), (999, 1e-4), (1000, 1e-4), (1001, 1e-5), (60_000, 1e-6)):
        assert mt.Plan(examples=examples, epsilon=1.0, epochs=1, strategy="identity").delta == delta
        assert delta <= 1 / (10 * examples)


def test_a_large_delta_is_a_warning() -> None:
    plan = mt.Plan(examples=50, epsilon=1.0, delta=0.02, epochs=1, strategy="identity")
    assert "1/examples" in plan.warnings[0]


def test_a_plan_file_makes_the_same_plan_again(tmp_path) -> None:
    plan = mt.Plan(**SMALL, epsilon=1.0, strategy="bsr", band=4, momentum=0.7, seed=3)
    path = tmp_path / "plan.toml"
    path.write_text(plan_text(plan))
    again = mt.Plan(**read_plan_facts(path))
    assert again.digest() == plan.digest()
    assert mt.Plan(**SMALL, epsilon=1.0, strategy="bsr", band=5, momentum=0.7, seed=3).digest() != plan.digest()


def test_a_plan_cannot_be_changed() -> None:
    plan = mt.Plan(**SMALL, epsilon=1.0, strategy="identity")
    with pytest.raises(AttributeError, match="cannot be changed"):
        plan.noise_multiplier = 0.0


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": math.nan}, "finite"),
        ({"epsilon": "one"}, "number"),
        ({"epsilon": 1, "noise_multiplier": 1}, "both"),
        ({}, "neither"),
        ({"epsilon": 1, "delta": 0}, "delta"),
        ({"epsilon": 1, "delta": 1}, "delta"),
        ({"epsilon": 1, "batch_size": 101}, "above examples"),
        ({"epsilon": 1, "epochs": 0}, "epochs"),
        ({"epsilon": 1, "momentum": 1}, "momentum"),
        ({"epsilon": 1, "momentum": -0.1}, "momentum"),
        ({"epsilon": 1, "clip": 0}, "clip"),
        ({"epsilon": 1, "algorithm": "dp-nsgdd"}, "did you mean dp-nsgd"),
        ({"epsilon": 1, "strategy": "bssr"}, "did you mean bsr"),
        ({"epsilon": 1, "order": "shuffled"}, "did you mean reshuffled"),
        ({"epsilon": 1, "epoch": 3}, "did you mean epochs"),
        ({"epsilon": 1, "adjacency": "add-remove"}, "add-remove"),
        ({"epsilon": 1, "order": "poisson", "strategy": "bsr"}, "identity"),
        ({"epsilon": 1, "budget_memory": "much"}, "no size"),
    ],
)
def test_bad_input_is_one_line_that_names_it(facts: dict[str, object], words: str) -> None:
    with pytest.raises(mt.InputError, match=words) as caught:
        mt.Plan(**({"examples": 100, "batch_size": 10} | facts))
    assert "\n" not in str(caught.value)


def test_a_band_asked_for_is_taken_under_an_amplified_order() -> None:
    facts = {"examples": 60, "batch_size": 10, "epochs": 1, "order": "balls-in-bins", "noise_multiplier": 2.0}
    plan = mt.Plan(**facts, band=3, delta=1e-3)
    assert (plan.strategy.name, plan.strategy.band) == ("bsr", 3)
