"""What an account answers: ε at δ, and δ at ε, each with a numerical bracket around the truth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import Protocol

from momentree.errors import InputError, number


def rounded_up(value: float, digits: int = 4) -> str:
    """An ε, or whatever must not be understated, as text of so many digits: never below it."""
    if not math.isfinite(value):
        return f"{value:g}"
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))):.{digits}g}"


@dataclass(frozen=True)
class Bracket:
    """`lower ≤ truth ≤ upper`. What is published is `upper`; `estimate` is the best guess between them."""

    lower: float
    estimate: float
    upper: float

    def __post_init__(self) -> None:
        if not self.lower <= self.estimate <= self.upper:
            raise ValueError("a bracket needs lower ≤ estimate ≤ upper")


class Account(Protocol):
    """The price of one release. `mu` is None where the release is not Gaussian.

    `failure_probability`: how likely `upper` may be wrong because it was certified on a random sample (0: it cannot).
    """

    mu: float | None
    method: str
    failure_probability: float

    def epsilon(self, delta: float) -> Bracket: ...

    def delta(self, epsilon: float) -> Bracket: ...


def epsilon_within(account: Account, delta: float) -> Bracket:
    """ε at δ, the chance that a sampled account is wrong included in δ: what may be published.

    An account that fails with probability at most β leaves (ε, δ − β) + β: with probability β nothing is promised.
    """
    delta = number("delta", delta, above=0, below=1, do="1e-5 is common")
    left = delta - account.failure_probability
    if left <= 0:
        raise InputError(
            f"delta {delta:g} is not above {account.failure_probability:g}, the chance that this account, certified on "
            "a random sample, is wrong: give a larger delta"
        )
    return account.epsilon(left)
