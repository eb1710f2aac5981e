"""`poisson`: each example takes part in each step with probability B/N, independently."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from momentree.order.base import Indices
from momentree.order.draws import subkey, words
from momentree.order.sampled import Sampled, members


def bernoulli(sub: bytes, count: int, numerator: int, denominator: int) -> np.ndarray:
    """`count` independent coins of probability ⌊2⁶⁴·numerator/denominator⌋/2⁶⁴: never above the rate asked."""
    threshold = (numerator << 64) // denominator
    if threshold >> 64:
        return np.ones(count, dtype=bool)
    return words(sub, count) < np.uint64(threshold)


@dataclass(frozen=True)
class Poisson(Sampled):
    """Independent coins of rate B/N for every row and step.

    Guarantee: given everybody else and everything released, a row's steps are independent coins of the public rate.
    """

    name = "poisson"

    @property
    def rate(self) -> float:
        return self.shape.batch_size / self.shape.examples

    def batch(self, step: int, key: bytes, rows: int | None = None, units: Indices | None = None) -> Indices:
        self.shape.where(step)
        drawers, unit = self._drawers(rows, units)
        sub = subkey(key, self.name, step)
        return members(bernoulli(sub, drawers, self.shape.batch_size, self.shape.examples), unit)
