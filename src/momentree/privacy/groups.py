"""Sensitivity of a person who holds at most k rows, under the unamplified orders.

The k rows together add at most k times what one adds (triangle inequality), for every strategy, sign and scale, and
that is attained where all k fit into the batches of a worst pattern. Where a batch holds fewer than k rows, they
cannot all sit in one place, and with x_t ≤ b_t the number of them in step t (Σ x_t = k in every epoch, or over all
places of a kept order)

    Σ_{t,u} x_t x_u |⟨C_t, C_u⟩|  ≤  Σ_t x_t r_t,     r_t = max_x Σ_u x_u |⟨C_t, C_u⟩|,

each maximum by filling the best places first. The smaller of the two bounds is taken; it is attained where the places
that the second one fills reach it.

Guarantee: never below the worst case over all ways to seat the k rows. Which rows belong to whom is private, so the
worst case is taken over it, also where the order is public.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from momentree.errors import whole
from momentree.order.base import Order, Shape
from momentree.privacy.fixed import ROUNDING, weights_of
from momentree.privacy.reshuffled import LARGEST_MATRIX
from momentree.privacy.sensitivity import Sensitivity
from momentree.strategy.base import Array, Strategy

Index = NDArray[np.int64]


def person_sensitivity(
    one: Sensitivity, strategy: Strategy, order: Order, rows: int, *, scales: tuple[float, ...] = ()
) -> Sensitivity:
    """From one row's sensitivity to that of a person with at most `rows` rows."""
    shape = order.shape
    k = min(whole("group_size", rows), shape.examples)
    if k == 1:
        return one
    reached = None if one.local_search is None else k * one.local_search
    method = f"{one.method}; {k} rows in one batch"
    together = replace(one, value=k * one.value, method=method, local_search=reached)
    if k <= smallest_batch(shape):
        return together
    if strategy.steps > LARGEST_MATRIX:
        return replace(together, exact=False, local_search=None)
    fixed = order.participation == "fixed"
    n = shape.steps_per_epoch
    gram, groups, non_negative = place_gram(strategy, n, scales) if fixed else step_gram(strategy, n)
    room = np.full(n, shape.batch_size)
    room[-1] = shape.examples - (n - 1) * shape.batch_size
    capacity = room if fixed else np.concatenate([room[: len(g)] for g in groups])
    value, attained = spread(gram, groups, capacity, k)
    if math.sqrt(value) >= together.value:
        return replace(together, exact=False, local_search=None)
    exact = attained and non_negative
    return Sensitivity(math.sqrt(value) * (1 + ROUNDING), exact, f"{k} rows of a person over batches of fewer rows")


def smallest_batch(shape: Shape) -> int:
    """Rows in the last batch of an epoch."""
    return shape.examples - (shape.steps_per_epoch - 1) * shape.batch_size


def place_gram(strategy: Strategy, n: int, scales: tuple[float, ...]) -> tuple[Array, list[Index], bool]:
    """G_jl = Σ |inner products| of what places j and l add over all epochs; one group; whether none was negative."""
    matrix = strategy.matrix()
    steps = matrix.shape[1]
    x = weights_of(scales, steps, n)
    scaled = matrix if x is None else matrix * x
    product = scaled.T @ scaled
    member = np.zeros((steps, n))
    member[np.arange(steps), np.arange(steps) % n] = 1.0
    return member.T @ np.abs(product) @ member, [np.arange(n)], bool(np.all(product >= 0))


def step_gram(strategy: Strategy, n: int) -> tuple[Array, list[Index], bool]:
    """|⟨C_t, C_u⟩| for all steps; a group an epoch; whether none was negative."""
    matrix = strategy.matrix()
    product = matrix.T @ matrix
    groups = [np.arange(low, min(low + n, len(product))) for low in range(0, len(product), n)]
    return np.abs(product), groups, bool(np.all(product >= 0))


def fill(values: Array, capacity: Index, k: int) -> Index:
    """How many of k rows sit where, the largest values first."""
    seated: Index = np.zeros(len(values), dtype=np.int64)
    left = k
    for place in np.argsort(-values, kind="stable"):
        seated[place] = min(left, int(capacity[place]))
        left -= int(seated[place])
        if left == 0:
            break
    return seated


def spread(gram: Array, groups: list[Index], capacity: Index, k: int) -> tuple[float, bool]:
    """(bound, whether it is attained) for k rows in every group, at most `capacity` in a step."""
    reach = np.zeros(len(gram))
    for t in range(len(gram)):
        for group in groups:
            reach[t] += gram[t, group] @ fill(gram[t, group], capacity[group], k)
    seated: Index = np.zeros(len(gram), dtype=np.int64)
    for group in groups:
        seated[group] = fill(reach[group], capacity[group], k)
    bound = float(reach @ seated)
    return bound, bool(seated @ gram @ seated >= bound * (1 - 1e-12))
