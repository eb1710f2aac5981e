"""What `auto` takes under an amplified order, against plans made and certified one by one."""

import math

import pytest

from momentree import Plan
from momentree.privacy.rough import rough_noise

FACTS = {"examples": 1000, "batch_size": 50, "epochs": 4, "delta": 1e-4, "epsilon": 2.0, "budget_memory": 4}


def test_the_estimate_of_noise_is_near_what_is_certified():
    for order, strategy, start in (("balls-in-bins", "tree", 0.2), ("random-allocation", "bsr", 5.0)):
        plan = Plan(**FACTS, order=order, strategy=strategy, **({"band": 3} if strategy == "bsr" else {}))
        release = plan.release(start * plan.noise_multiplier)
        found = rough_noise(release, 2.0, 1e-4, seed=plan.request.account_seed)
        assert found == pytest.approx(plan.noise_multiplier, rel=0.06)


@pytest.mark.parametrize(("order", "others"), [("balls-in-bins", ("bsr", "identity", "tree")), ("cyclic-poisson", ())])
def test_auto_takes_the_least_noise_on_offer(order, others):
    parts = {"parts": 5} if order == "cyclic-poisson" else {}
    plan = Plan(**FACTS, order=order, **parts)
    assert plan.strategy.noise_vectors <= 4
    facts = plan.to_dict()
    listed = {row["strategy"]: row for row in facts["alternatives"]}
    assert plan.strategy.name not in listed
    assert all(row["noise_multiplier_is"] == "estimate" for row in listed.values())
    assert all(row["iterate_rmse"] > 0.97 * facts["iterate_rmse"] for row in listed.values())
    assert "least noise on the iterates" in plan.strategy_reason
    for name in others:
        if name != plan.strategy.name:
            made = Plan(**FACTS, order=order, strategy=name, **parts).to_dict(alternatives=False)
            assert made["iterate_rmse"] > 0.97 * facts["iterate_rmse"]
            if name in listed and name != "bsr":  # its band is chosen in another way where it is asked for by name
                assert listed[name]["noise_multiplier"] == pytest.approx(made["noise_multiplier"], rel=0.06)


def test_where_the_noise_is_given_a_band_is_taken_and_the_others_are_listed_at_its_epsilon():
    facts = {name: value for name, value in FACTS.items() if name != "epsilon"}
    plan = Plan(**facts, noise_multiplier=3.0, order="cyclic-poisson", parts=5)
    assert plan.strategy.name == "bsr"
    assert "none were compared" in plan.strategy_reason
    assert math.isfinite(plan.to_dict()["alternatives"][0]["iterate_rmse"])
