"""What was released, said apart from anyone who prices it. Frozen, public, and enough to recompute every claim."""

from __future__ import annotations

from dataclasses import dataclass

from momentree.order.base import Order
from momentree.query.base import Adjacency
from momentree.strategy.base import Strategy


@dataclass(frozen=True)
class Release:
    """`g_t + σ·(C⁺ z)_t` for t = 1 … T, in units of `clip / batch_size`: everything that a run gives away.

    `scales`: s_e, the sensitivity of epoch e's query relative to the clip, one entry an epoch (or one a step); empty
    means 1 for all.
    `group_size`: at most this many rows of one unit of privacy (1: the example itself).
    """

    strategy: Strategy
    order: Order
    adjacency: Adjacency
    noise_multiplier: float
    scales: tuple[float, ...] = ()
    group_size: int = 1
