"""What a stop costs: an optimal stopper against the prefix's account, and against the planned one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from momentree.plan import Plan
from momentree.training.stopping import epsilon_so_far, prefix_epsilon, prefix_points


def looks(epochs: int, delta: float) -> Plan:
    """One look an epoch, each at an independent release of the whole data."""
    return Plan(examples=10, batch_size=10, epochs=epochs, strategy="identity", epsilon=1.0, delta=delta, order="fixed")


def best_delta(plan: Plan, claims: np.ndarray) -> float:
    """sup over stopping rules τ of E_P (1 - e^{claim_τ - L_τ})₊, L the privacy loss: backwards over a fine grid.

    L moves by N(μ²/2, μ²) a step under P. Whoever may stop after looking reaches this δ at the ε that is claimed.
    """
    mu = 1 / plan.noise_multiplier
    h = mu / 40
    grid = np.arange(-8, 8, h) * max(1.0, mu * np.sqrt(plan.steps))
    h = float(grid[1] - grid[0])
    width = int(8 * mu / h) + 1
    steps = h * np.arange(-width, width + 1)
    weights = norm.cdf((steps + h / 2 - mu**2 / 2) / mu) - norm.cdf((steps - h / 2 - mu**2 / 2) / mu)
    value = np.zeros_like(grid)
    for t in range(plan.steps, 0, -1):
        now = np.maximum(0.0, -np.expm1(np.minimum(claims[t - 1] - grid, 0.0)))
        later = np.convolve(value, weights[::-1], mode="same") if t < plan.steps else value
        value = np.maximum(now, later)
    first = np.convolve(value, weights[::-1], mode="same")
    return float(np.interp(0.0, grid, first))


@pytest.mark.parametrize("count", [20, 60])
def test_an_optimal_stopper_breaks_the_prefix_and_not_the_plan(count: int) -> None:
    plan = looks(count, 1e-4)
    prefixes = np.array([epsilon_so_far(plan, t, stop_fixed_in_advance=True) for t in range(1, count + 1)])
    planned = np.array([epsilon_so_far(plan, t, stop_fixed_in_advance=False) for t in range(1, count + 1)])
    assert best_delta(plan, prefixes) > 5 * plan.delta
    assert best_delta(plan, planned) < 1.02 * plan.delta
    never_early = np.where(np.arange(count) < count - 1, np.inf, prefixes)
    assert best_delta(plan, never_early) == pytest.approx(plan.delta, rel=0.02)  # the grid is right


def test_the_prefix_is_the_account_of_a_shorter_run() -> None:
    for strategy in ("identity", "tree"):
        facts = {"examples": 40, "batch_size": 8, "noise_multiplier": 2.0, "strategy": strategy, "delta": 1e-5}
        plan = Plan(epochs=6, **facts)
        for epochs in (1, 2, 3, 5):
            shorter = Plan(epochs=epochs, **facts)
            found = prefix_epsilon(plan, 5 * epochs)
            assert found is not None
            assert found >= shorter.bracket.upper * (1 - 1e-9)
            assert found <= (1.000001 if strategy == "identity" else 1.25) * shorter.bracket.upper


def test_the_planned_epsilon_stands_for_whoever_looked() -> None:
    plan = looks(5, 1e-5)
    assert epsilon_so_far(plan, 2, stop_fixed_in_advance=False) == plan.epsilon
    assert epsilon_so_far(plan, 5, stop_fixed_in_advance=True) == plan.epsilon
    assert epsilon_so_far(plan, 0, stop_fixed_in_advance=True) == 0
    assert 0 < epsilon_so_far(plan, 2, stop_fixed_in_advance=True) < plan.epsilon
    points = prefix_points(plan, 5)
    assert [step for step, _ in points] == [1, 2, 3, 4, 5]
    reshuffled = Plan(
        examples=10, batch_size=5, epochs=3, strategy="identity", epsilon=1.0, delta=1e-5, order="reshuffled"
    )
    assert epsilon_so_far(reshuffled, 2, stop_fixed_in_advance=True) == reshuffled.epsilon
