"""Several releases of the same data together, each allowed to depend on the ones before: the one public `compose`.

Gaussian accounts add exactly: k releases with μ_1 … μ_k are together √Σμ_i²-GDP and no better (Dong, Roth & Su 2019).

Guarantee: where not all accounts are Gaussian, every account is turned into a discrete pair that dominates its own in
both directions (`ratio`; a certified curve where the account was sampled), and the product of the pairs dominates the
composition (Zhu, Dong & Wang 2022, Theorem 10). The direction is the same in every factor: an example takes part in
all of the runs, or in none. Failure probabilities add up. What has no such pair is refused, never added up by something
that looks similar. All accounts must speak of the same adjacency and the same unit of privacy: that is the caller's to
check, with `same_terms`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from momentree.errors import InputError, NoProofError
from momentree.privacy.account import Account
from momentree.privacy.computed import ComputedAccount
from momentree.privacy.gaussian import GaussianAccount, composed_mu
from momentree.privacy.monte_carlo import MonteCarloAccount
from momentree.privacy.poisson import PoissonAccount
from momentree.privacy.ratio import Ratio, RatioAccount, Side, lognormal, of_curve, product

RESOLUTION = 80
FORWARD, REVERSE = 64, 16
"""Points at which a sampled account's curve is certified."""
FLOOR = 1e-11
"""Where the forward curve of a sampled account is cut; what is left there counts as certain loss."""


def compose(accounts: Sequence[Account]) -> Account:
    """The account of all of them together, for someone who took part in all."""
    if not accounts:
        raise InputError("nothing to compose: give at least one account")
    if len(accounts) == 1:
        return accounts[0]
    gaussian = [a.mu for a in accounts if isinstance(a, GaussianAccount) and a.mu is not None]
    others = [a for a in accounts if not isinstance(a, GaussianAccount)]
    mu = composed_mu(*gaussian) * (1 + 1e-15)
    if not others:
        return GaussianAccount(mu)
    if not all(_composable(a) for a in others):
        methods = ", ".join(sorted({a.method for a in others if not _composable(a)}))
        raise NoProofError(
            f"no proof is at hand for composing accounts by {methods}: compose Gaussian runs, or one by one"
        )
    failure = sum(a.failure_probability for a in others)
    method = f"loss distributions of {len(accounts)} releases, multiplied"
    return RatioAccount(partial(_product, mu, others), method, failure)


def same_terms(terms: Sequence[tuple[str, int, str | None]]) -> None:
    """Refuses runs of different adjacency or unit: (adjacency, rows of a person, column that names the person) each.

    A budget for one example says nothing of a person with several, and one for a person of one column nothing of
    another's.
    """
    if len({adjacency for adjacency, _, _ in terms}) > 1:
        given = ", ".join(sorted({adjacency for adjacency, _, _ in terms}))
        raise InputError(f"the runs have different adjacencies, {given}: budgets add up for one adjacency only")
    if len({(rows, column) for _, rows, column in terms}) > 1:
        raise InputError(
            "the runs protect different units (one row, or a person with so many rows of some column): budgets add up "
            "for one unit only; plan them alike"
        )


def _composable(account: Account) -> bool:
    if isinstance(account, PoissonAccount):
        return account.adjacency != "replace-one"
    return isinstance(account, RatioAccount | ComputedAccount | MonteCarloAccount)


def _product(mu: float, others: Sequence[Account], side: Side) -> Ratio:
    ratios = [_ratio(a, side) for a in others]
    if mu > 0:
        ratios.append(lognormal(mu * mu, side, RESOLUTION))
    return product(ratios, RESOLUTION)


def _ratio(account: Account, side: Side) -> Ratio:
    if isinstance(account, PoissonAccount | RatioAccount | ComputedAccount):
        return account.ratio(side)
    assert isinstance(account, MonteCarloAccount)
    if side == "lower":  # a release that gives nothing away is below every other
        return Ratio(np.ones(1), np.ones(1), 0.0, side)
    return certified_ratio(account)


def certified_ratio(account: MonteCarloAccount) -> Ratio:
    """A discrete pair that dominates a sampled account's in both directions, with the account's failure probability.

    `h(x) = E_Q (L − x)₊` is convex, so the lower convex hull of certified upper bounds at points x_k, with h(0) = 1, is
    again above it, and its slopes are the distribution of an L̂ above L in the convex order. For x < 1 the bound comes
    from the other direction: `h(x) = 1 − x + x E_Q (1 − L/x)₊`.
    """
    forward, reverse = account.curve(FORWARD, REVERSE, FLOOR)
    points = [(0.0, 1.0)]
    points += [(math.exp(-e), min(1.0, -math.expm1(-e) + math.exp(-e) * d)) for e, d in reverse]
    points += [(math.exp(e), d) for e, d in forward]
    return of_curve(np.array(points))
