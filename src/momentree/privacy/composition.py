"""Several releases on the same data, each free to depend on what the ones before have shown.

Gaussian accounts add exactly: k releases with μ_1 … μ_k are together √Σμ_i²-GDP and no better (Dong, Roth & Su 2019).
For accounts that are not Gaussian, whoever prices them registers how they compose (`also`); without that they are
refused, never added up by something that looks similar. All accounts must speak of the same adjacency and the same
unit; that is the caller's to check, and `certificate` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from momentree.errors import InputError, NoProofError
from momentree.privacy.account import Account
from momentree.privacy.gaussian import GaussianAccount, composed_mu

Composer = Callable[[Sequence[Account]], Account | None]
"""Composes accounts of which at least one is not Gaussian, or answers None where it does not know one of them."""

_composers: list[Composer] = []


def also(composer: Composer) -> Composer:
    """Register a way to compose accounts that are not Gaussian."""
    if composer not in _composers:
        _composers.append(composer)
    return composer


def compose(accounts: Sequence[Account]) -> Account:
    """The account of all of them together, for someone who took part in all."""
    if not accounts:
        raise InputError("nothing to compose: give at least one account")
    if len(accounts) == 1:
        return accounts[0]
    mus = [account.mu for account in accounts if isinstance(account, GaussianAccount)]
    if len(mus) == len(accounts):
        return GaussianAccount(composed_mu(*(mu for mu in mus if mu is not None)) * (1 + 1e-15))
    for composer in _composers:
        together = composer(accounts)
        if together is not None:
            return together
    methods = ", ".join(sorted({account.method for account in accounts if not isinstance(account, GaussianAccount)}))
    raise NoProofError(f"no proof is at hand for composing accounts by {methods}: compose Gaussian runs, or one by one")
