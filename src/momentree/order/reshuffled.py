"""`reshuffled`: a new random order in every epoch."""

from __future__ import annotations

from dataclasses import dataclass

from momentree.order.base import Indices, Participation, Shape
from momentree.order.draws import permutation, subkey


@dataclass(frozen=True)
class Reshuffled:
    """A permutation an epoch, each drawn anew from the key.

    Guarantee: every row takes part exactly once in every epoch, at any place. The account is the worst case over one
    place an epoch, whatever the permutations are, as long as they do not depend on the rows; they need not stay
    secret, and being secret buys nothing (a permutation that moves one row moves others too).
    """

    shape: Shape

    name = "reshuffled"
    secret = False

    @property
    def participation(self) -> Participation:
        return "one-per-epoch"

    def batch(self, step: int, key: bytes) -> Indices:
        epoch, place = self.shape.where(step)
        sub = subkey(key, self.name, self.shape.examples, epoch)
        size = self.shape.batch_size
        return permutation(sub, self.shape.examples)[place * size : (place + 1) * size]

    def describe(self) -> dict[str, object]:
        return {**self.shape.describe(), "order": self.name}
