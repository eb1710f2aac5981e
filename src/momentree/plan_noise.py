"""The noise that reaches the momentum, step by step: what `Plan.noise_stream` gives.

The base rows are those of stream 0 under a subkey of their own, so no run ever releases them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from momentree.errors import InputError
from momentree.figures import LARGEST_PROFILE, noise_of_differences
from momentree.noise.keys import derive_subkey
from momentree.noise.normals import KeyedNormals
from momentree.noise.stream import NoiseStream
from momentree.strategy.base import Array

if TYPE_CHECKING:
    from momentree.plan import Plan


def noise_on_momentum(plan: Plan, dimension: int, key: bytes) -> Iterator[Array]:
    """One vector a step, in units of `clip / batch_size`; its root mean square is the plan's `momentum_rmse`.

    The methods that rebuild gradients have a recursion between the stream and m̂: theirs is written out as a matrix, for
    as many steps as the plan states a `momentum_rmse`, and all its base rows are kept.
    """
    source = KeyedNormals(derive_subkey(key, plan_digest=plan.digest(), purpose="noise stream"))
    if plan.preset.query == "gradient":
        return _streamed(plan, source, dimension)
    if plan.steps > LARGEST_PROFILE:
        raise InputError(
            f"noise stream of {plan.algorithm} with {plan.steps} steps: its recursion is written out for at most "
            f"{LARGEST_PROFILE}; plan fewer"
        )
    return _written_out(plan, source, dimension)


def _streamed(plan: Plan, source: KeyedNormals, dimension: int) -> Iterator[Array]:
    stream = NoiseStream(plan.strategy, source, [dimension], dtype=torch.float64)
    noise = torch.zeros(dimension, dtype=torch.float64)
    for _ in range(plan.steps):
        noise.mul_(plan.momentum)
        stream.add_([noise], (1 - plan.momentum) * plan.noise_multiplier)
        yield noise.numpy().copy()


def _written_out(plan: Plan, source: KeyedNormals, dimension: int) -> Iterator[Array]:
    profile = noise_of_differences(plan, plan.strategy, plan.noise_multiplier)
    rows = torch.empty(profile.shape[1], dimension, dtype=torch.float64)
    for row, block in enumerate(rows):
        source.fill_(block, 0, row, 0)
    for line in profile:
        yield line @ rows.numpy()
