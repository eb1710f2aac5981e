"""`fixed`: one random order, drawn once; an example keeps its place in every epoch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from momentree.errors import whole
from momentree.order.base import Indices, Participation, Shape
from momentree.order.draws import permutation, public_key, subkey


@dataclass(frozen=True)
class Fixed:
    """One order for all epochs, from a public seed.

    Guarantee: row i takes part at steps j + en for one place j, in every epoch e. The account is the worst case over
    the place, so it holds for every order that does not depend on the rows, and the order may be known to anyone.
    The last place holds the rest, N − (n−1)B rows; divide by B there too.
    """

    shape: Shape
    seed: int = 0

    name = "fixed"
    secret = False

    def __post_init__(self) -> None:
        whole("seed", self.seed, at_least=0)

    @property
    def participation(self) -> Participation:
        return "fixed"

    def batch(self, step: int, key: bytes = b"") -> Indices:
        _, place = self.shape.where(step)
        size = self.shape.batch_size
        return permutation(_public(self.seed, self.shape.examples), self.shape.examples)[
            place * size : (place + 1) * size
        ]

    def describe(self) -> dict[str, object]:
        return {**self.shape.describe(), "order": self.name, "seed": self.seed}


@lru_cache(maxsize=8)
def _public(seed: int, examples: int) -> bytes:
    """The subkey of a public seed, which may be kept for ever."""
    return subkey(public_key(seed), Fixed.name, examples)
