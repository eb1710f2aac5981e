"""Banded inverse square root: C⁻¹ is cut after p diagonals, so the noise is a short moving sum of base rows.

C⁻¹(x) is ((1 − x)(1 − βx))^{1/2} for the running sum of the momentum, (1 − βx)^{1/2} for the momentum, cut; then
w_t = Σ_{k=0}^{p−1} d_k z_{t−k}. The last p − 1 base rows are kept: drawing them again would cost p − 1 draws a step.
C = 1/d is full. d_0 = 1 and d_k ≤ 0 afterwards make C ≥ 0 by induction; checked on the numbers used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from momentree.strategy.base import Array, Instruction
from momentree.strategy.bsr import leading_one
from momentree.strategy.series import reciprocal
from momentree.strategy.toeplitz import Toeplitz, ring


@dataclass(frozen=True, eq=False)
class Bisr(Toeplitz):
    """C with the banded inverse d_0 = 1, d_1, …; keeps the last p − 1 base rows in a ring."""

    inverse: Array

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "inverse", leading_one("inverse", self.inverse, self.steps))

    @property
    def name(self) -> str:
        return "bisr"

    @cached_property
    def coefficients(self) -> Array:
        full = reciprocal(self.inverse, self.steps)
        if np.all(self.inverse[1:] <= 0.0):  # then c_k = Σ −d_j c_{k−j} ≥ 0: what an FFT left below 0 is rounding
            full = np.maximum(full, 0.0)
        full.setflags(write=False)
        return full

    def inverse_coefficients(self, length: int | None = None) -> Array:
        length = self.steps if length is None else length
        return np.pad(self.inverse[:length], (0, max(0, length - len(self.inverse))))

    @property
    def band(self) -> int:
        """p, the number of diagonals of C⁻¹."""
        return len(self.inverse)

    @property
    def noise_vectors(self) -> int:
        return self.band - 1

    def instruction(self, step: int) -> Instruction:
        """w_t = Σ_k d_k z_{t−k}; z_t goes where z_{t−p+1} was."""
        return ring(step, self.steps, self.inverse, "fresh")

    def describe(self) -> dict[str, object]:
        return {"name": self.name, "steps": self.steps, "inverse": self.inverse.tolist()}
