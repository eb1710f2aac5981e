"""Buffered linear Toeplitz: c_k = Σ_i ω_i θ_i^{k−1}, so that C⁻¹z needs one vector a buffer, however long the run.

With u_i(t) = Σ_{k≥1} θ_i^{k−1} w_{t−k}: w_t = z_t − Σ_i ω_i u_i(t) and u_i(t+1) = θ_i u_i(t) + w_t.
Scales ω ≥ 0 and decays θ in [0, 1] make C ≥ 0 and c_1 ≥ c_2 ≥ …: required here, so every account may rely on it.
`blt_fit` finds the scales and decays. The form is due to Dvijotham, McMahan, Pillutla, Steinke & Thakurta (2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from momentree.errors import InputError
from momentree.strategy.base import Array, Instruction, Term
from momentree.strategy.series import frozen, powers
from momentree.strategy.toeplitz import Toeplitz


@dataclass(frozen=True, eq=False)
class Blt(Toeplitz):
    """c_0 = 1, c_k = Σ_i scales_i · decays_i^{k−1}; keeps one vector a buffer."""

    scales: Array
    decays: Array

    def __post_init__(self) -> None:
        super().__post_init__()
        scales, decays = frozen(self.scales, "scales"), frozen(self.decays, "decays")
        if scales.ndim != 1 or scales.shape != decays.shape:
            raise InputError(f"{scales.size} scales and {decays.size} decays: give one of each for every buffer")
        if scales.min() < 0.0:
            raise InputError(f"scale {scales.min():g} is negative: give scales of at least 0")
        if decays.min() < 0.0 or decays.max() > 1.0:
            raise InputError("a decay lies outside [0, 1]: give decays between 0 and 1")
        object.__setattr__(self, "scales", scales)
        object.__setattr__(self, "decays", decays)

    @property
    def name(self) -> str:
        return "blt"

    @property
    def buffers(self) -> int:
        """b, the number of buffers."""
        return len(self.scales)

    @cached_property
    def coefficients(self) -> Array:
        """All T of them, freed of trailing zeros. Powers under 1e-290 are taken as 0."""
        result = np.zeros(self.steps)
        result[0] = 1.0
        for scale, decay in zip(self.scales, self.decays, strict=True):
            result[1:] += scale * powers(float(decay), self.steps - 1)
        result = result[: int(np.flatnonzero(result)[-1]) + 1]
        result.setflags(write=False)
        return result

    @property
    def noise_vectors(self) -> int:
        return self.buffers if self.steps > 1 else 0

    def instruction(self, step: int) -> Instruction:
        """w_t = z_t − Σ ω_i u_i, then u_i ← θ_i u_i + w_t; at t = 1 no buffer has been written yet."""
        output: list[Term] = [("fresh", 0, 1.0)]
        store: list[tuple[int, tuple[Term, ...]]] = []
        for i, (scale, decay) in enumerate(zip(self.scales, self.decays, strict=True)):
            if step > 1:
                output.append(("slot", i, -float(scale)))
            if step < self.steps:
                kept: tuple[Term, ...] = (("slot", i, float(decay)),) if step > 1 else ()
                store.append((i, (*kept, ("output", 0, 1.0))))
        return Instruction(fresh=(step - 1,), output=tuple(output), store=tuple(store))

    def describe(self) -> dict[str, object]:
        scales, decays = self.scales.tolist(), self.decays.tolist()
        return {"name": self.name, "steps": self.steps, "scales": scales, "decays": decays}
