"""What an order is: who takes part when, declared before the run, and what the account may assume of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Participation = Literal["fixed", "one-per-epoch", "amplified"]
"""What a worst-case sensitivity may assume of one example: `fixed`: the same place in every epoch;
`one-per-epoch`: any place, drawn anew every epoch; `amplified`: places are random, secret and independent between
examples, and the account is a loss distribution instead of a sensitivity."""


@dataclass(frozen=True)
class Shape:
    """The public numbers of a run: N examples, batches of B, E epochs; n = ⌈N/B⌉ steps an epoch, T = nE steps."""

    examples: int
    batch_size: int
    epochs: int

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.examples // self.batch_size)

    @property
    def steps(self) -> int:
        return self.steps_per_epoch * self.epochs


class Order(Protocol):
    """An order of participation. Public facts are fields; what has to stay secret is an argument (`key`)."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> Shape: ...

    @property
    def participation(self) -> Participation: ...

    @property
    def secret(self) -> bool:
        """Whether the account needs the realised order to stay secret for ever."""

    def batch(self, step: int, key: bytes) -> Indices:
        """Row indices that take part at step t = 1 … T, a pure function of (facts, step, key). Never truncated."""

    def describe(self) -> dict[str, object]: ...
