"""Banded square root: C is the square root of the workload's Toeplitz matrix, cut after p diagonals.

For the momentum C(x) = (1 − βx)^{−1/2}, for its running sum C(x) = ((1 − x)(1 − βx))^{−1/2}; `Workload.square_root`
has the others. Noise is C⁻¹z, so with w the noise already given out, w_t = z_t − Σ_{k=1}^{p−1} c_k w_{t−k}.
Non-negative for the workloads here (their logarithms have no negative coefficient); checked on the numbers used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from momentree.errors import InputError
from momentree.strategy.base import Array, Instruction
from momentree.strategy.series import frozen
from momentree.strategy.toeplitz import Toeplitz, ring


@dataclass(frozen=True, eq=False)
class Bsr(Toeplitz):
    """Banded C with the given c_0 = 1, c_1, …; keeps the last p − 1 outputs in a ring."""

    band_coefficients: Array

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "band_coefficients", leading_one("coefficients", self.band_coefficients, self.steps))

    @property
    def name(self) -> str:
        return "bsr"

    @property
    def coefficients(self) -> Array:
        return self.band_coefficients

    @property
    def band(self) -> int:
        """p, the number of diagonals."""
        return len(self.band_coefficients)

    @property
    def noise_vectors(self) -> int:
        return self.band - 1

    def instruction(self, step: int) -> Instruction:
        """w_t = z_t − Σ_k c_k w_{t−k}; w_t goes where w_{t−p+1} was."""
        return ring(step, self.steps, -self.band_coefficients, "output")

    def describe(self) -> dict[str, object]:
        return {"name": self.name, "steps": self.steps, "coefficients": self.band_coefficients.tolist()}


def leading_one(name: str, given: object, steps: int) -> Array:
    """A series that starts with 1, cut to T entries and freed of trailing zeros."""
    array = frozen(given, name)
    if array.ndim != 1 or array[0] != 1.0:
        raise InputError(f"{name} must be one list of numbers that starts with 1: divide by the first")
    array = array[:steps]
    last = int(np.flatnonzero(array)[-1]) + 1
    return array[:last]
