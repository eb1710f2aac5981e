"""`cyclic-poisson`: the data in p parts; each step samples from the part whose turn it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from momentree.errors import InputError, whole
from momentree.order.base import Indices
from momentree.order.draws import below, permutation, subkey, words
from momentree.order.poisson import bernoulli
from momentree.order.sampled import Sampled, members


@dataclass(frozen=True)
class CyclicPoisson(Sampled):
    """Step t takes each row of part (t−1) mod p with probability pB/N, independently.

    Guarantee: a row's part does not depend on what any row holds, and its possible steps are p apart. The rate is
    pB/N for every part, however many rows the part has: never B over the size of the part, which would tell the size.
    """

    parts: int = 1

    name = "cyclic-poisson"

    def __post_init__(self) -> None:
        whole("parts", self.parts)
        if self.parts * self.shape.batch_size > self.shape.examples:
            raise InputError(
                f"parts {self.parts} with batches of {self.shape.batch_size} of {self.shape.examples} examples is a "
                f"rate above 1: at most {self.shape.examples // self.shape.batch_size} parts"
            )

    @property
    def rate(self) -> float:
        return self.parts * self.shape.batch_size / self.shape.examples

    def _parts(self, key: bytes, drawers: int) -> Indices:
        """Rows within N are dealt evenly by a random order; rows beyond a declared N draw a part each."""
        inside = permutation(subkey(key, self.name, "parts"), self.shape.examples)[:drawers] % self.parts
        beyond = max(0, drawers - self.shape.examples)
        return np.concatenate([inside, below(words(subkey(key, self.name, "beyond"), beyond), self.parts)])

    def batch(self, step: int, key: bytes, rows: int | None = None, units: Indices | None = None) -> Indices:
        self.shape.where(step)
        drawers, unit = self._drawers(rows, units)
        sub = subkey(key, self.name, "coins", step)
        coins = bernoulli(sub, drawers, self.parts * self.shape.batch_size, self.shape.examples)
        return members(coins & (self._parts(key, drawers) == (step - 1) % self.parts), unit)

    def describe(self) -> dict[str, object]:
        return {**super().describe(), "parts": self.parts}
