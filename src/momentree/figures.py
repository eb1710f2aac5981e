"""The figures of a plan: sensitivity, noise, error, memory; the same for what it did not take; the paper's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from momentree.paper.theorems import paper_constants_algorithm_1, paper_constants_algorithm_2
from momentree.strategy.base import Array, Strategy
from momentree.strategy.error import iterate_rmse, momentum_rmse
from momentree.strategy.toeplitz import Toeplitz

if TYPE_CHECKING:
    from momentree.plan import Plan

LARGEST_PROFILE = 2_000


def strategy_figures(plan: Plan, strategy: Strategy, noise_multiplier: float) -> dict[str, Any]:
    """What one strategy costs under the plan's order, at the given σ; errors in units of `clip / batch_size`."""
    amplified = plan.order.participation == "amplified"
    worst = None if amplified else plan.sensitivity_of(strategy)
    return {
        "strategy": strategy.name,
        "sensitivity": worst.value if worst else None,
        "sensitivity_is": None if worst is None else "exact" if worst.exact else "upper bound",
        "noise_multiplier": noise_multiplier,
        "momentum_rmse": noise_multiplier * momentum_rmse(strategy, plan.momentum),
        "iterate_rmse": noise_multiplier * iterate_rmse(strategy, plan.momentum),
        "noise_vectors": strategy.noise_vectors,
    }


def figures(plan: Plan) -> dict[str, Any]:
    """The plan's own figures."""
    bracket = plan.bracket
    return strategy_figures(plan, plan.strategy, plan.noise_multiplier) | {
        "mu": plan.mu,
        "epsilon_lower": bracket.lower,
        "epsilon_upper": bracket.upper,
        "account": plan.account.method,
        "failure_probability": plan.account.failure_probability,
        "gradients_per_step": plan.preset.gradients_per_step,
    }


def alternatives(plan: Plan) -> list[dict[str, Any]]:
    """The other strategies that fit the order, each at the σ that gives the same μ, so the same (ε, δ)."""
    if plan.mu is None:
        return []  # every strategy has a loss distribution of its own there: `plan` with its name works it out
    own = plan.sensitivity_of(plan.strategy).value
    return [
        strategy_figures(plan, c.strategy, plan.noise_multiplier * c.sensitivity / own)
        for c in plan.candidates
        if c.name != plan.strategy.name
    ]


def paper_figures(plan: Plan) -> dict[str, Any] | None:
    """The paper's own constants for these N, d, ε, δ, G, L, R, for the two algorithms that are the paper's.

    G is the clip unless a Lipschitz constant was given. `this_run` puts the printed noise beside the exact one.
    """
    request, epsilon = plan.request, plan.bracket.upper
    if plan.algorithm not in ("dp-nsgd", "sr-nsgd") or epsilon <= 0:
        return None
    facts = (plan.examples, request.dimension or 1, epsilon, plan.delta, request.lipschitz or plan.clip)
    gap = (request.smoothness, request.initial_gap)
    function = paper_constants_algorithm_2 if plan.algorithm == "sr-nsgd" else paper_constants_algorithm_1
    found: dict[str, Any] = function(*facts, *gap).to_dict()
    return found | {"conditions": list(found["conditions"])}


def noise_profile(strategy: Strategy) -> Array | None:
    """The standard deviation of one coordinate of (C⁺z)_t at σ = 1, t = 1 … T; None where it takes too long."""
    if isinstance(strategy, Toeplitz):
        return np.sqrt(np.cumsum(strategy.inverse_coefficients() ** 2))
    if strategy.steps > LARGEST_PROFILE:
        return None
    return np.asarray(np.linalg.norm(strategy.decoder(), axis=1))
