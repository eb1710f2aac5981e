"""The named algorithms: what each asks, how it steps, and what it may be combined with. A few lines each.

An algorithm is a choice of query and update; order and strategy stay free within what it is proved for. Whether a pair
of order and strategy has an account at all is decided in `privacy/entitlement.py`, not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Query = Literal["gradient", "epoch-lag", "storm", "spider", "sensitivity-reduced"]
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
        Algorithm(
            "sr-nsgd",
            "gradients at anchors and differences to them, three streams, normalised steps (the paper's Algorithm 2)",
            query="sensitivity-reduced",
            gradients_per_step=3,
            orders=("fixed",),
            strategy="tree-full",
            strategies=("tree-full",),
        ),
        Algorithm(
            "epoch-lag",
            "differences to the same batch one epoch ago, one stream, normalised steps",
            query="epoch-lag",
            gradients_per_step=2,
            orders=("fixed",),
        ),
        Algorithm(
            "dp-srm",
            "differences to the iterate before (STORM), independent noise (Wang et al. 2019)",
            query="storm",
            update="sgd",
            gradients_per_step=2,
            orders=("poisson", *(name for name in EVERY_ORDER if name != "poisson")),
            strategy="identity",
            strategies=("identity",),
            momentum=0.0,
        ),
        Algorithm(
            "dp-spider",
            "a gradient at the start of every epoch, differences after it, independent noise (Fang et al. 2018)",
            query="spider",
            gradients_per_step=2,
            orders=("poisson", *(name for name in EVERY_ORDER if name != "poisson")),
            strategy="identity",
            strategies=("identity",),
            momentum=0.0,
        ),
    )
}

LEAK, DIFFERENCE_CLIP = 0.1, 0.1
"""γ and ρ of the sensitivity-reduced methods where none are given."""
