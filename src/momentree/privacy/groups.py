"""Sensitivity of a person who holds at most k rows, under the unamplified orders.

The k rows together add at most k times what one adds (triangle inequality), for every strategy, sign and scale. It is
attained where all k can sit in the batches of a worst pattern; a batch that holds fewer than k rows makes it a bound.
"""

from __future__ import annotations

from dataclasses import replace

from momentree.errors import whole
from momentree.order.base import Order
from momentree.privacy.sensitivity import Sensitivity
from momentree.strategy.base import Strategy


def person_sensitivity(
    one: Sensitivity, strategy: Strategy, order: Order, rows: int, *, scales: tuple[float, ...] = ()
) -> Sensitivity:
    """From one row's sensitivity to that of a person with at most `rows` rows."""
    k = min(whole("group_size", rows), order.shape.examples)
    if k == 1:
        return one
    shape = order.shape
    smallest = shape.examples - (shape.steps_per_epoch - 1) * shape.batch_size
    fits = k <= (smallest if shape.steps_per_epoch > 1 else shape.examples)
    return replace(
        one,
        value=k * one.value,
        exact=one.exact and fits,
        method=f"{one.method}; {k} rows in one batch",
        local_search=None if one.local_search is None else k * one.local_search,
    )
