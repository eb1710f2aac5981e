"""What an order is: who takes part when, declared before the run, and what the account may assume of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from momentree.errors import whole

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

    def __post_init__(self) -> None:
        whole("examples", self.examples, do="give the number of rows, or the declared one")
        whole("batch_size", self.batch_size, at_most=self.examples, do="a batch holds at most every example")
        whole("epochs", self.epochs)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.examples // self.batch_size)

    @property
    def steps(self) -> int:
        return self.steps_per_epoch * self.epochs

    def describe(self) -> dict[str, object]:
        return {"examples": self.examples, "batch_size": self.batch_size, "epochs": self.epochs}

    def where(self, step: int) -> tuple[int, int]:
        """(epoch, place) of step t = 1 … T, both counted from 0."""
        whole("step", step, at_most=self.steps, do="steps are counted from 1")
        return divmod(step - 1, self.steps_per_epoch)


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
