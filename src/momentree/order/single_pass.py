"""`single-pass`: one epoch, every example once."""

from __future__ import annotations

from dataclasses import dataclass

from momentree.errors import InputError
from momentree.order.base import Indices, Participation, Shape
from momentree.order.draws import permutation, subkey


@dataclass(frozen=True)
class SinglePass:
    """One random order, gone through once.

    Guarantee: every row takes part in one step of the whole run; the account is the worst case over that step.
    """

    shape: Shape

    name = "single-pass"
    secret = False

    def __post_init__(self) -> None:
        if self.shape.epochs != 1:
            raise InputError(
                f"single-pass with {self.shape.epochs} epochs: it has exactly 1; "
                "set epochs to 1, or take the fixed or the reshuffled order"
            )

    @property
    def participation(self) -> Participation:
        return "fixed"

    def batch(self, step: int, key: bytes) -> Indices:
        _, place = self.shape.where(step)
        sub = subkey(key, self.name, self.shape.examples)
        size = self.shape.batch_size
        return permutation(sub, self.shape.examples)[place * size : (place + 1) * size]

    def describe(self) -> dict[str, object]:
        return {**self.shape.describe(), "order": self.name}
