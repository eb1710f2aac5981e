"""The account of a release under an amplified order, and the noise that a target needs.

Guarantee: `amplified_account` prices what `entitlement` covers and nothing else; a person's k rows that draw one place
together count as one example of k times the sensitivity. `calibrate_amplified` returns a σ whose account, certified on
a sample that had no part in choosing σ, says ε or less: the pilots name up to `ATTEMPTS` candidates, each slightly
larger than the last; then the fresh sample of the same seed is drawn and the first candidate that it certifies is
taken. Every account spends a quarter of its failure probability, so the four claims hold together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from scipy.optimize import brentq

from momentree.errors import InputError, NoProofError, number
from momentree.order import BallsInBins, CyclicPoisson, Poisson, RandomAllocation
from momentree.privacy.account import Account
from momentree.privacy.balls_in_bins import balls_in_bins, places_gram
from momentree.privacy.compose import compose
from momentree.privacy.entitlement import check_release
from momentree.privacy.events import Release
from momentree.privacy.monte_carlo import ATTEMPTS, FAILURE, MonteCarloAccount
from momentree.privacy.poisson import PoissonAccount, cyclic_poisson
from momentree.privacy.random_allocation import allocation_of, checked_noise, random_allocation
from momentree.privacy.ratio import RatioAccount
from momentree.strategy.toeplitz import Toeplitz

__all__ = [
    "Calibrated",
    "account_maker",
    "amplified_account",
    "calibrate_amplified",
    "calibrate_release",
    "calibrated_release",
    "compose",
    "upper_delta",
]

MakeAccount = Callable[[float, int], Account]
"""(σ, seed) → account. A deterministic account ignores the seed."""
ROOMS = (0.001, 0.004, 0.01, 0.03)
"""How far above the σ of the pilots the candidates lie."""


def amplified_account(
    release: Release, *, seed: int, samples: int | None = None, failure_probability: float = FAILURE
) -> Account:
    """The account of a release under `poisson`, `cyclic-poisson`, `balls-in-bins` or `random-allocation`."""
    return account_maker(release, samples=samples, failure_probability=failure_probability)(
        checked_noise(release.noise_multiplier), seed
    )


def account_maker(release: Release, *, samples: int | None = None, failure_probability: float = FAILURE) -> MakeAccount:
    """(σ, seed) → account of the release at that σ; what does not depend on σ is worked out once."""
    check_release(release)
    order, strategy, k = release.order, release.strategy, float(release.group_size)
    sampling = {"failure_probability": failure_probability} | ({} if samples is None else {"samples": samples})
    if isinstance(order, Poisson):
        rate = order.shape.batch_size / order.shape.examples
        return lambda sigma, seed: PoissonAccount(rate, strategy.steps, sigma, release.adjacency, sensitivity=k)
    if isinstance(order, CyclicPoisson):
        assert isinstance(strategy, Toeplitz)
        return lambda sigma, seed: cyclic_poisson(
            strategy.coefficients, strategy.steps, order.parts, order.rate, sigma, sensitivity=k
        )
    if isinstance(order, BallsInBins):
        gram = places_gram(strategy, order.shape.steps_per_epoch)
        return lambda sigma, seed: balls_in_bins(gram, sigma / k, seed=seed, **sampling)  # type: ignore[arg-type]
    if isinstance(order, RandomAllocation):
        n = order.shape.steps_per_epoch
        return lambda sigma, seed: random_allocation(
            allocation_of(strategy, n, sigma / k),
            seed=seed,
            **sampling,  # type: ignore[arg-type]
        )
    raise NoProofError(f"{order.name} is not amplified: its account is Gaussian and rests on a sensitivity")


@dataclass(frozen=True)
class Calibrated:
    """A σ, the account that was certified at it, and the seed that the certificate needs."""

    noise_multiplier: float
    account: Account
    seed: int


def calibrate_amplified(
    make_account: MakeAccount, epsilon: float, delta: float, *, seed: int, start: float = 1.0
) -> Calibrated:
    """The smallest σ found at which the account says at most ε at δ; certified on draws not used to choose it."""
    epsilon = number("epsilon", epsilon, above=0, do="1 to 8 is common")
    delta = number("delta", delta, above=0, below=1, do="1e-5 is common")
    trial = make_account(start, seed)
    if not isinstance(trial, MonteCarloAccount):
        return _calibrate_computed(make_account, epsilon, delta, seed, start)
    chosen: list[int | None] = [None]
    near: int | None = None

    def excess(log_sigma: float) -> float:
        nonlocal near
        account = make_account(math.exp(log_sigma), seed)
        assert isinstance(account, MonteCarloAccount)
        promised, near = account.sketch(epsilon, chosen[0], near)
        return math.log(max(promised, 1e-300) / delta)

    bracket = _bracketed(excess, math.log(start))
    for close in (0.3, 0.01):
        root = _crossing(excess, *bracket, close)
        account = make_account(math.exp(root), seed)
        assert isinstance(account, MonteCarloAccount)
        chosen[0] = account.sketch(epsilon)[1]
        bracket = _bracketed(excess, root, 0.02) if chosen[0] is not None and close > 0.1 else bracket
    for room in ROOMS[:ATTEMPTS]:
        sigma = math.exp(root) * (1 + room)
        account = make_account(sigma, seed)
        try:
            if account.epsilon(delta).upper <= epsilon:
                return Calibrated(sigma, account, seed)
        except InputError:
            continue
    raise InputError(
        f"epsilon {epsilon:g} at delta {delta:g} could not be certified in {ATTEMPTS} attempts, as many as were "
        "allowed for beforehand: give more samples or a larger delta"
    )


def _bracketed(
    excess: Callable[[float], float], start: float, width: float = 0.35
) -> tuple[float, float, float, float]:
    """log σ on both sides of the target and how far δ is above it there: (low, high, excess there, excess there)."""
    low = high = start
    above = below = excess(start)
    while below > 0:
        low, above = high, below
        high, width = high + width, 1.6 * width
        below = excess(high)
        if high > start + 40:
            raise InputError("no noise reaches this epsilon and delta with this many samples: give more samples")
    while above <= 0:
        high, below = low, above
        low, width = low - width, 1.6 * width
        above = excess(low)
        if low < start - 40:
            raise InputError("the target is met with next to no noise: ask for a smaller epsilon or delta")
    return low, high, above, below


def _crossing(
    excess: Callable[[float], float], low: float, high: float, above: float, below: float, close: float
) -> float:
    """Where a (noisy, falling) excess crosses 0, by interpolation that stays away from the ends; on the lower side."""
    while below < -close and high - low > 1e-4:
        share = min(max(above / (above - below), 0.1), 0.9) if math.isfinite(above) else 0.5
        middle = low + share * (high - low)
        value = excess(middle)
        if value > 0:
            low, above = middle, value
        else:
            high, below = middle, value
    return high


def _calibrate_computed(make_account: MakeAccount, epsilon: float, delta: float, seed: int, start: float) -> Calibrated:
    def excess(log_sigma: float) -> float:
        return math.log(max(upper_delta(make_account(math.exp(log_sigma), seed), epsilon), 1e-300) / delta)

    low, high, _, _ = _bracketed(excess, math.log(start))
    room = 3e-6
    log_sigma = float(brentq(excess, low, high, xtol=room, rtol=1e-9)) + room
    while True:
        account = make_account(math.exp(log_sigma), seed)
        if account.delta(epsilon).upper <= delta and account.epsilon(delta).upper <= epsilon:
            return Calibrated(math.exp(log_sigma), account, seed)
        log_sigma, room = log_sigma + room, 2 * room


def upper_delta(account: Account, epsilon: float) -> float:
    """`account.delta(epsilon).upper`, without the lower end where that costs extra."""
    if isinstance(account, PoissonAccount | RatioAccount):
        return account.upper_delta(epsilon)
    return account.delta(epsilon).upper


def calibrate_release(
    release: Release,
    epsilon: float,
    delta: float,
    *,
    seed: int,
    samples: int | None = None,
    failure_probability: float = FAILURE,
) -> Calibrated:
    """`calibrate_amplified` for a release; what it says of σ is only where the search starts."""
    maker = account_maker(release, samples=samples, failure_probability=failure_probability)
    return calibrate_amplified(maker, epsilon, delta, seed=seed, start=checked_noise(release.noise_multiplier))


def calibrated_release(release: Release, found: Calibrated) -> Release:
    """The release at the σ that was found."""
    return replace(release, noise_multiplier=found.noise_multiplier)
