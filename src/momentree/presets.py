"""The named algorithms: what each asks, how it steps, and what it may be combined with. A few lines each.

An algorithm is a choice of query and update; order and strategy stay free within what it is proved for. Whether a pair
of order and strategy has an account at all is decided in `privacy/entitlement.py`, not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Query = Literal["gradient", "epoch-lag", "sensitivity-reduced"]
EVERY_ORDER = (
    "fixed",
    "reshuffled",
    "single-pass",
    "poisson",
    "cyclic-poisson",
    "balls-in-bins",
    "random-allocation",
)


@dataclass(frozen=True)
class Algorithm:
    """`gradients_per_step`: per example. `orders[0]` and `strategy` are the defaults; empty `strategies`: any."""

    name: str
    summary: str
    query: Query = "gradient"
    update: str = "normalised"
    gradients_per_step: int = 1
    orders: tuple[str, ...] = EVERY_ORDER
    strategy: str = "auto"
    strategies: tuple[str, ...] = ()
    momentum: float = 0.9
    fixed_momentum: bool = False
    decayed: bool = True
    """Whether a tree's nodes are decayed by β (dp-nsgd) or plain sums (dp-ftrl)."""


ALGORITHMS: dict[str, Algorithm] = {
    a.name: a
    for a in (
        Algorithm(
            "dp-nsgd",
            "momentum with correlated noise and normalised steps (the paper's Algorithm 1)",
        ),
    )
}
