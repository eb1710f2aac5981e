"""Certificates that were once written still follow from their facts: a change of any figure has to be meant.

`python tests/test_gold.py` writes them anew; look at the difference before you keep it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from momentree.certificate import RunFacts, certificate, run_facts_dict, verify
from momentree.plan import Plan

GOLD = Path(__file__).parent / "gold"
SIZES = {"examples": 120, "batch_size": 20, "epochs": 3, "delta": 1e-4, "epsilon": 1.5}
PLANS: dict[str, dict[str, Any]] = {
    "nsgd-fixed-tree": {**SIZES, "strategy": "tree"},
    "nsgd-reshuffled-bsr": {**SIZES, "order": "reshuffled", "strategy": "bsr", "band": 5},
    "ftrl-replace-one": {**SIZES, "algorithm": "dp-ftrl", "strategy": "tree-full", "adjacency": "replace-one"},
    "sr-nsgd": {**SIZES, "algorithm": "sr-nsgd", "leak": 0.2, "difference_clip": 0.1},
    "epoch-lag": {**SIZES, "algorithm": "epoch-lag", "strategy": "identity"},
    "sgd-poisson": {**SIZES, "algorithm": "dp-sgd"},
    "bins-tree": {**SIZES, "order": "balls-in-bins", "strategy": "tree-full", "epochs": 2},
}


def made(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The record's facts and the certificate of one plan."""
    plan = Plan(**PLANS[name])
    run = RunFacts(steps_done=plan.steps, finished=True, holdout="none")
    facts = {"plan": plan.request.facts(), "run": run_facts_dict(run)}
    return facts, certificate(plan, run)


@pytest.mark.parametrize("name", PLANS)
def test_a_certificate_of_old_still_follows_from_its_facts(name: str) -> None:
    kept = json.loads((GOLD / f"{name}.json").read_text(encoding="utf-8"))
    assert verify(kept["record"], kept["certificate"]) == []
    claim = kept["certificate"]["epsilon"]
    assert claim <= 1.5
    lower = kept["certificate"] | {"epsilon": claim * (1 - 1e-6)}
    assert any(line.startswith("epsilon:") for line in verify(kept["record"], lower))


def test_the_bound_says_how_far_a_search_has_come() -> None:
    facts = Plan(examples=1000, batch_size=10, epochs=10, epsilon=1, order="reshuffled", strategy="blt").to_dict()
    assert facts["sensitivity_is"] == "upper bound"
    assert facts["sensitivity"] / 1.05 <= facts["sensitivity_found"] <= facts["sensitivity"]


if __name__ == "__main__":
    for name in PLANS:
        record, promise = made(name)
        text = json.dumps({"record": record, "certificate": promise}, indent=2, ensure_ascii=False)
        (GOLD / f"{name}.json").write_text(text + "\n", encoding="utf-8")
