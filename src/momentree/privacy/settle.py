"""The account that a plan takes for an amplified release: computed where that is nearly as sharp, else sampled.

A certified Monte Carlo account is wrong with a small probability; a computed one never is, and costs some ε. The
computed one is taken where its ε is at most `CLOSE` times the sampled one's, and where sampling cannot reach δ at all;
otherwise it is kept beside the other. Which one is settled by the release, δ and the seed alone, so that a check finds
it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from momentree.errors import InputError
from momentree.order import BallsInBins, RandomAllocation
from momentree.privacy.account import Account, epsilon_within
from momentree.privacy.amplified import Calibrated, account_maker, calibrate_amplified
from momentree.privacy.balls_in_bins import places_gram, places_rows
from momentree.privacy.computed import LARGEST, ComputedAccount, Places
from momentree.privacy.events import Release
from momentree.privacy.monte_carlo import MonteCarloAccount
from momentree.privacy.random_allocation import allocation_of, checked_noise

CLOSE = 1.03
GRID = 0.001
"""A σ that a computed account decides is a whole power of exp(GRID), so that it does not depend on where one looked."""


@dataclass(frozen=True)
class Settled:
    """σ, the account that is taken, and the computed one where another was taken."""

    noise_multiplier: float
    account: Account
    computed: ComputedAccount | None


def settled_account(release: Release, delta: float, *, seed: int, failure_probability: float) -> Settled:
    """The account of the release at its own σ."""
    sigma = checked_noise(release.noise_multiplier)
    account = account_maker(release, failure_probability=failure_probability)(sigma, seed)
    places = places_of(release) if isinstance(account, MonteCarloAccount) else None
    if places is None:
        return Settled(sigma, account, None)
    computed = ComputedAccount(places, sigma / release.group_size, delta)
    try:
        close = computed.upper_epsilon(delta) <= CLOSE * epsilon_within(account, delta).upper
    except InputError:  # the sample cannot carry this δ
        close = True
    return Settled(sigma, computed if close else account, None if close else computed)


def settled_calibration(
    release: Release, epsilon: float, delta: float, *, seed: int, failure_probability: float
) -> Settled:
    """The least σ at which the account that is taken says at most ε at δ; the search starts at the release's own."""
    start, k = checked_noise(release.noise_multiplier), release.group_size
    maker = account_maker(release, failure_probability=failure_probability)
    trial = maker(start, seed)
    places = places_of(release) if isinstance(trial, MonteCarloAccount) else None
    left = delta - trial.failure_probability
    found: Calibrated | None = None
    try:
        found = calibrate_amplified(maker, epsilon, left, seed=seed, start=start)
    except InputError:
        if places is None:
            raise
    if places is None:
        assert found is not None
        return Settled(found.noise_multiplier, found.account, None)
    sigma = start if found is None else found.noise_multiplier
    nearby = math.exp(round(math.log(sigma) / (50 * GRID)) * 50 * GRID)  # covers, too, are to depend on little
    covers = ComputedAccount(places, nearby / k, delta).covers
    first = ComputedAccount(places, sigma / k, delta, covers=covers)
    if found is not None and first.upper_epsilon(delta) > CLOSE * epsilon:
        return Settled(sigma, found.account, first)
    again = partial(ComputedAccount, places, delta=delta, covers=covers)
    sigma, computed = _enough(lambda s: again(s / k), epsilon, delta, sigma)
    return Settled(sigma, computed, None)


def _enough(
    make: Callable[[float], ComputedAccount], epsilon: float, delta: float, start: float
) -> tuple[float, ComputedAccount]:
    """The smallest σ = exp(k · GRID) that is enough, wherever the search starts; ε falls in σ."""
    known: dict[int, tuple[float, ComputedAccount]] = {}

    def excess(k: int) -> float:
        if k not in known:
            account = make(math.exp(k * GRID))
            known[k] = math.log(max(account.upper_epsilon(delta), 1e-6) / epsilon), account
        return known[k][0]

    low = high = round(math.log(start) / GRID)
    while excess(high) > 0:  # at about 1.3 the power, a step a little beyond the crossing
        low, high = high, high + max(1, math.ceil(min(1.0, excess(high)) / (0.9 * GRID)))
        if high * GRID > 60:
            raise InputError(
                f"no noise was found that reaches epsilon {epsilon:g} at delta {delta:g}: give a larger one"
            )
    while excess(low) <= 0:
        low, high = low - max(1, math.ceil(min(1.0, -excess(low)) / (0.9 * GRID))), low
    while high - low > 1:
        above, below = excess(low), -excess(high)
        k = low + math.ceil((high - low) * above / (above + below))
        k = min(max(k, low + 1), high - 1)
        low, high = (k, high) if excess(k) > 0 else (low, k)
    return math.exp(high * GRID), known[high][1]


def places_of(release: Release) -> Places | None:
    """What a computed account needs, or None where there is none: neighbouring epochs meet, or it would take long."""
    order, strategy = release.order, release.strategy
    n = order.shape.steps_per_epoch
    if n > LARGEST:
        return None
    if isinstance(order, BallsInBins):
        return Places(((places_gram(strategy, n), 1),), partial(places_rows, strategy, n))
    if isinstance(order, RandomAllocation):
        blocks = allocation_of(strategy, n, 1.0).blocks
        if any(block.meeting is not None for block in blocks):
            return None
        counts: dict[int, int] = {}
        for block in blocks:
            counts[id(block.gram)] = counts.get(id(block.gram), 0) + 1
        distinct = {id(block.gram): block.gram for block in blocks}
        return Places(tuple((distinct[key], times) for key, times in counts.items()))
    return None
