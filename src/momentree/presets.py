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


UPDATES = ("normalised", "momentum", "nesterov", "adam", "sgd")
SCHEDULES = ("constant", "linear", "cosine")


@dataclass(frozen=True)
class Algorithm:
    """`gradients_per_step`: per example. `orders[0]` and `strategy` are the defaults; empty `strategies`: any.

    `decayed`: a tree's nodes are decayed by β (dp-nsgd) or plain sums (dp-ftrl). `full_batch`: B = N.
    """

    name: str
    summary: str
    query: Query = "gradient"
    update: str = "normalised"
    gradients_per_step: int = 1
    orders: tuple[str, ...] = EVERY_ORDER
    strategy: str = "auto"
    strategies: tuple[str, ...] = ()
    momentum: float = 0.9
    decayed: bool = True
    full_batch: bool = False


ALGORITHMS: dict[str, Algorithm] = {
    a.name: a
    for a in (
        Algorithm(
            "dp-nsgd",
            "momentum with correlated noise and normalised steps (the paper's Algorithm 1)",
        ),
        Algorithm(
            "dp-ftrl",
            "correlated noise made for prefix sums, momentum on what is released",
            update="momentum",
            decayed=False,
        ),
        Algorithm(
            "dp-sgd",
            "independent noise at every step",
            update="momentum",
            orders=("poisson", *(name for name in EVERY_ORDER if name != "poisson")),
            strategy="identity",
            strategies=("identity",),
            momentum=0.0,
        ),
        Algorithm(
            "dp-gd",
            "the whole data set at every step, independent noise (Wang, Chen & Xu 2018)",
            update="sgd",
            orders=("fixed",),
            strategy="identity",
            strategies=("identity",),
            momentum=0.0,
            full_batch=True,
        ),
        Algorithm(
            "rrsgd",
            "independent noise, and an iterate drawn uniformly is handed over (Zhang et al. 2017)",
            update="random-round",
            orders=("poisson", *(name for name in EVERY_ORDER if name != "poisson")),
            strategy="identity",
            strategies=("identity",),
            momentum=0.0,
        ),
    )
}
