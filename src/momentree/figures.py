"""The figures of a plan: sensitivity, noise, error, memory; the same for what it did not take; the paper's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from momentree.memory import memory_floats
from momentree.paper.reconstruction import reconstruction_weights
from momentree.paper.theorems import paper_constants_algorithm_1, paper_constants_algorithm_2
from momentree.privacy.account_of import factor, release_sensitivity
from momentree.privacy.sensitivity import Sensitivity
from momentree.strategy.base import Array, Strategy
from momentree.strategy.error import iterate_rmse, momentum_rmse
from momentree.strategy.toeplitz import Toeplitz

if TYPE_CHECKING:
    from momentree.plan import Plan

LARGEST_PROFILE = 2_000


def strategy_figures(plan: Plan, strategy: Strategy, noise_multiplier: float | None = None) -> dict[str, Any]:
    """What one strategy costs under the plan's order, at the given σ or else at the plan's μ; errors in units of
    `clip / batch_size`.
    """
    worst = None if plan.amplified else moved(plan, strategy)
    if noise_multiplier is None:
        assert worst is not None  # only unamplified plans compare strategies
        assert plan.mu is not None
        noise_multiplier = worst.value / plan.mu
    on_momentum, on_iterates = errors(plan, strategy, noise_multiplier)
    return {
        "strategy": strategy.name,
        "sensitivity": worst.value if worst else None,
        "sensitivity_is": None if worst is None else "exact" if worst.exact else "upper bound",
        "noise_multiplier": noise_multiplier,
        "momentum_rmse": on_momentum,
        "iterate_rmse": on_iterates,
        "noise_vectors": strategy.noise_vectors,
    }


def moved(plan: Plan, strategy: Strategy, *, search: bool = False) -> Sensitivity:
    """‖C‖ under the order and the adjacency, for the plan's unit of privacy: μ is this over σ."""
    found = release_sensitivity(plan.release(1.0, strategy), search=search)
    times = factor(plan.adjacency)
    reached = None if found.local_search is None else times * found.local_search
    return replace(found, value=times * found.value, local_search=reached)


def errors(plan: Plan, strategy: Strategy, noise_multiplier: float) -> tuple[float | None, float | None]:
    """Noise on m̂ and on Σ m̂; None where a difference method has too many steps for its recursion to be written out."""
    query = plan.preset.query
    if query == "gradient":
        return (
            noise_multiplier * momentum_rmse(strategy, plan.momentum),
            noise_multiplier * iterate_rmse(strategy, plan.momentum),
        )
    if plan.steps > LARGEST_PROFILE:
        return None, None
    noise = noise_of_differences(plan, strategy, noise_multiplier)
    return tuple(float(np.sqrt((m**2).sum() / plan.steps)) for m in (noise, np.cumsum(noise, axis=0)))  # type: ignore[return-value]


def noise_of_differences(plan: Plan, strategy: Strategy, noise_multiplier: float) -> Array:
    """The noise on m̂_t, one row a step, one column a base row, for the methods that rebuild gradients."""
    n, alpha, steps = plan.steps_per_epoch, 1 - plan.momentum, plan.steps
    if plan.preset.query == "sensitivity-reduced":
        rows = [
            reconstruction_weights(alpha=alpha, gamma=plan.leak, t=t, steps_per_epoch=n) for t in range(1, steps + 1)
        ]
        sigma = {f.name: f.noise_multiplier for f in plan.families}
        return _dense(rows, lambda family, end: _reduced_noise(sigma, family, end, n))
    lag = n if plan.preset.query == "epoch-lag" else 1
    leak = 0.0 if plan.preset.query == "spider" else plan.leak
    decoder = strategy.decoder()
    rebuilt = np.zeros_like(decoder)
    momentum = np.zeros_like(decoder)
    last = np.zeros(decoder.shape[1])
    for t in range(steps):
        fresh = {"epoch-lag": t < n, "storm": t == 0, "spider": t % n == 0}[plan.preset.query]
        share = 1.0 if fresh or plan.preset.query == "epoch-lag" else plan.share
        rebuilt[t] = noise_multiplier * share * decoder[t] + (0.0 if fresh else (1 - leak) * rebuilt[t - lag])
        last = plan.momentum * last + alpha * rebuilt[t]
        momentum[t] = last
    return momentum


def _reduced_noise(sigma: dict[str, float], family: str, end: int, n: int) -> float:
    if family == "G":
        return sigma["gradient-early"] if end <= 2 * n else sigma["gradient"]
    return sigma["anchor-difference" if family == "Delta" else "iterate-difference"]


def _dense(rows: list[dict[tuple[str, int, int], float]], noise: Callable[[str, int], float]) -> Array:
    keys = sorted({key for row in rows for key in row})
    place = {key: k for k, key in enumerate(keys)}
    out = np.zeros((len(rows), len(keys)))
    for t, row in enumerate(rows):
        for key, weight in row.items():
            out[t, place[key]] = weight * noise(key[0], key[2])
    return out


def all_facts(plan: Plan, *, alternatives: bool) -> dict[str, Any]:
    """What `Plan.to_dict` gives: settings, figures, reasons; the other strategies if wanted, which takes longer."""
    facts: dict[str, Any] = {
        "algorithm": plan.algorithm,
        "order": plan.order.name,
        "strategy": plan.strategy.name,
        "adjacency": plan.adjacency,
        "examples": plan.examples,
        "dimension": plan.dimension,
        "batch_size": plan.batch_size,
        "steps_per_epoch": plan.steps_per_epoch,
        "epochs": plan.epochs,
        "steps": plan.steps,
        "momentum": plan.momentum,
        "clip": plan.clip,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "seed": plan.seed,
        "learning_rate": plan.learning_rate,
    }
    facts |= figures(plan)
    facts["strategy_reason"] = plan.strategy_reason
    facts["strategy_facts"] = plan.strategy.describe()
    facts["entitlement"] = plan.entitlement
    if alternatives:
        facts["alternatives"] = other_strategies(plan)
    facts["paper"] = paper_figures(plan)
    facts["warnings"] = list(plan.warnings)
    return facts


def figures(plan: Plan) -> dict[str, Any]:
    """The plan's own figures."""
    bracket = plan.bracket
    found = strategy_figures(plan, plan.strategy, plan.noise_multiplier)
    if plan.preset.query == "sensitivity-reduced":
        times = factor(plan.adjacency) * min(plan.request.rows_per_person, plan.examples)
        found["sensitivity"] = {f.name: times * f.sensitivity.value for f in plan.families}
        found["noise_multiplier"] = {f.name: f.noise_multiplier for f in plan.families}
    elif plan.families:
        found["noise_multiplier"] = {f.name: f.noise_multiplier for f in plan.families}
    if found["sensitivity_is"] == "upper bound" and plan.steps <= LARGEST_PROFILE:
        # how far the truth may be below the bound: the worst pattern that a search has found
        found["sensitivity_found"] = moved(plan, plan.strategy, search=True).local_search
    if plan.computed is not None:  # what holds with certainty, be it the plan's own account or not
        found["epsilon_deterministic"] = plan.computed.upper_epsilon(plan.delta)
    return found | {
        "mu": plan.mu,
        "epsilon_lower": bracket.lower,
        "epsilon_upper": bracket.upper,
        "account": plan.account.method,
        "failure_probability": plan.account.failure_probability,
        "gradients_per_step": plan.preset.gradients_per_step,
        "memory": None if plan.dimension is None else memory_floats(plan, plan.dimension).describe(),
    }


def other_strategies(plan: Plan) -> list[dict[str, Any]]:
    """The other strategies that fit the order, each at the σ that gives the same (ε, δ).

    Where the order is amplified every strategy has a loss distribution of its own, and that σ is an estimate, certified
    only when a plan is made with that strategy's name.
    """
    if plan.preset.query == "sensitivity-reduced" or not plan.bracket.upper > 0:
        return []
    others = [c for c in plan.candidates if c.name != plan.strategy.name]
    if plan.amplified:
        return [strategy_figures(plan, c.strategy, c.scale) | {"noise_multiplier_is": "estimate"} for c in others]
    return [strategy_figures(plan, c.strategy) for c in others]


def paper_figures(plan: Plan) -> dict[str, Any] | None:
    """The paper's own constants for these N, d, ε, δ, G, L, R, for the two algorithms that are the paper's.

    G is the clip unless a Lipschitz constant was given.
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
