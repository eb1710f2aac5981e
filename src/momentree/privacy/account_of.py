"""The account of a release under an unamplified order, and the noise that a target needs.

Guarantee: under zero-out (one example's contribution removed, N public) and replace-one (another example in its
place, twice the sensitivity by the triangle inequality) the release is μ-GDP with μ = factor · ‖C‖_order / σ, for
adaptive inputs too; what cannot be proved is refused by `momentree.privacy.entitlement`.
"""

from __future__ import annotations

from dataclasses import replace

from momentree.errors import NoProofError, number
from momentree.privacy.account import Account
from momentree.privacy.entitlement import FACTOR, check_release
from momentree.privacy.events import Release
from momentree.privacy.gaussian import GaussianAccount, epsilon_of, largest_mu
from momentree.privacy.groups import person_sensitivity
from momentree.privacy.sensitivity import Sensitivity, sensitivity
from momentree.query.base import Adjacency

ROUNDING = 1e-15


def release_sensitivity(release: Release, *, search: bool = False) -> Sensitivity:
    """‖C‖ of a release under its order, for one unit of privacy, zero-out."""
    check_release(release)
    order = release.order
    if order.participation == "amplified":
        raise NoProofError(f"{order.name} is amplified: its account is a loss distribution and not a sensitivity")
    one = sensitivity(
        release.strategy,
        order.participation,
        order.shape.steps_per_epoch,
        scales=release.scales,
        search=search,
    )
    return person_sensitivity(one, release.strategy, order, release.group_size, scales=release.scales)


def account(release: Release) -> Account:
    """The exact Gaussian account of an unamplified release (of an upper bound where the sensitivity is one)."""
    sigma = number("noise_multiplier", release.noise_multiplier, above=0, do="without noise nothing is private")
    moved = release_sensitivity(release).value * FACTOR[release.adjacency]
    return GaussianAccount(moved / sigma * (1 + ROUNDING))


def noise_for(moved: float, epsilon: float, delta: float) -> float:
    """The smallest σ at which a Gaussian release of sensitivity `moved` is (ε, δ)-DP, on the private side."""
    sigma = moved / largest_mu(epsilon, delta)
    step = 1e-15
    while epsilon_of(moved / sigma * (1 + ROUNDING), delta).upper > epsilon:
        sigma, step = sigma * (1 + step), 2 * step
    return sigma


def calibrate(release: Release, epsilon: float, delta: float) -> float:
    """σ for the target: what `release` says of σ is ignored. The account at this σ never exceeds ε."""
    return noise_for(release_sensitivity(release).value * FACTOR[release.adjacency], epsilon, delta)


def calibrated(release: Release, epsilon: float, delta: float) -> Release:
    """The release with the noise that the target needs."""
    return replace(release, noise_multiplier=calibrate(release, epsilon, delta))


def factor(adjacency: Adjacency) -> float:
    """What an unamplified sensitivity is multiplied by."""
    if adjacency not in FACTOR:
        raise NoProofError(f"{adjacency} has no sensitivity under an unamplified order: take zero-out or replace-one")
    return FACTOR[adjacency]
