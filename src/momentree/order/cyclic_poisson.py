"""`cyclic-poisson`: the data in p parts; each step samples from the part whose turn it is."""

from __future__ import annotations

from dataclasses import dataclass

from momentree.errors import InputError, whole
from momentree.order.base import Indices
from momentree.order.draws import permutation, subkey
from momentree.order.poisson import bernoulli
from momentree.order.sampled import Sampled, members, places


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
        """With a counted N rows are dealt evenly, by a random order; with a declared N every row draws its own part.

        Where one row more or fewer is told apart, the later rows move up by one: their joint law has to be the same at
        every number of rows, and parts dealt evenly up to N are not.
        """
        sub = subkey(key, self.name, "parts")
        if self.declared:
            return places(sub, drawers, self.parts)
        return permutation(sub, self.shape.examples)[:drawers] % self.parts

    def batch(self, step: int, key: bytes, rows: int | None = None, units: Indices | None = None) -> Indices:
        self.shape.where(step)
        drawers, unit = self._drawers(rows, units)
        sub = subkey(key, self.name, "coins", step)
        coins = bernoulli(sub, drawers, self.parts * self.shape.batch_size, self.shape.examples)
        return members(coins & (self._parts(key, drawers) == (step - 1) % self.parts), unit)

    def describe(self) -> dict[str, object]:
        return {**super().describe(), "parts": self.parts}
