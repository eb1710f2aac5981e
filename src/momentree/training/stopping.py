"""What a run has cost when it ends before its last step.

The account of the first t steps is a claim only where the stop at t was fixed without looking at the run, not even at
what it has released: whoever looks can stop exactly when the release says most about someone, and the prefix's δ is
then several times too small (an optimal stopper reaches 6 to 14 times δ = 1e-5 with 20 to 1,000 looks). The planned ε
holds for every way of stopping, because a stopped run is a function of the whole one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from momentree.errors import whole
from momentree.privacy.account_of import ROUNDING
from momentree.privacy.entitlement import FACTOR
from momentree.privacy.fixed import weights_of
from momentree.privacy.gaussian import GaussianAccount
from momentree.privacy.sensitivity import place_squares, rounded


def epsilon_so_far(plan: Any, step: int, *, stop_fixed_in_advance: bool) -> float:
    """ε at the plan's δ of a run that ends after `step` steps; the planned one unless the stop was fixed beforehand."""
    planned = float(plan.epsilon)
    step = whole("step", step, at_least=0, at_most=plan.shape.steps)
    if not stop_fixed_in_advance or step == plan.shape.steps:
        return planned
    if step == 0:
        return 0.0
    prefix = prefix_epsilon(plan, step)
    return planned if prefix is None else min(planned, prefix)


def prefix_epsilon(plan: Any, step: int) -> float | None:
    """The account of the first `step` steps, an upper bound; None where only the whole run has one.

    Rows of C that reach beyond `step` are counted with what they hold of it, which is more than was released.
    """
    release = plan.release(plan.noise_multiplier)
    known = plan.order.participation == "fixed" and release.group_size == 1 and not getattr(plan, "families", ())
    if not known or release.adjacency not in FACTOR:
        return None
    steps, n = release.strategy.steps, plan.shape.steps_per_epoch
    weights = weights_of(release.scales, steps, n)
    kept = np.where(np.arange(steps) < step, 1.0 if weights is None else weights, 0.0)
    squares, _ = place_squares(release.strategy, n, kept)
    moved = rounded(float(np.max(squares))) * FACTOR[release.adjacency]
    account = GaussianAccount(moved / release.noise_multiplier * (1 + ROUNDING))
    return float(account.epsilon(plan.delta).upper)


def prefix_points(plan: Any, done: int, points: int = 20) -> list[list[float]]:
    """(step, ε of the prefix had the stop been fixed beforehand) for the record."""
    steps = sorted({max(1, round(done * k / points)) for k in range(1, points + 1)}) if done else []
    found = []
    for step in steps:
        epsilon = epsilon_so_far(plan, step, stop_fixed_in_advance=True)
        found.append([float(step), epsilon])
    return found
