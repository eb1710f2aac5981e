"""Independent noise: C = I. What DP-SGD adds; nothing is kept between steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from momentree.strategy.base import Array, Instruction
from momentree.strategy.toeplitz import Toeplitz


@dataclass(frozen=True, eq=False)
class Identity(Toeplitz):
    """C = I, T × T."""

    @property
    def name(self) -> str:
        return "identity"

    @property
    def coefficients(self) -> Array:
        return np.ones(1)

    @property
    def noise_vectors(self) -> int:
        return 0

    def instruction(self, step: int) -> Instruction:
        """w_t = z_t."""
        return Instruction(fresh=(step - 1,), output=(("fresh", 0, 1.0),))

    def describe(self) -> dict[str, object]:
        return {"name": self.name, "steps": self.steps}
