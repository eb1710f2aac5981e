"""Strategies whose C is lower-triangular Toeplitz: C[i, j] = c_{i−j}, c_0 = 1. One power series tells everything."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import toeplitz

from momentree.errors import whole
from momentree.strategy.base import Array, Instruction, Source, Term
from momentree.strategy.series import reciprocal


@dataclass(frozen=True, eq=False)
class Toeplitz(ABC):
    """C[i, j] = c_{i−j} with c_0 = 1; base row t − 1 is drawn at step t = 1 … T."""

    steps: int

    def __post_init__(self) -> None:
        whole("steps", self.steps)

    @property
    @abstractmethod
    def name(self) -> str:
        """The name on the command line."""

    @property
    @abstractmethod
    def coefficients(self) -> Array:
        """c_0 = 1, c_1, …, c_{p−1}; p ≤ T, entries further down are 0."""

    @property
    @abstractmethod
    def noise_vectors(self) -> int:
        """How many model-sized vectors the program keeps between steps."""

    @abstractmethod
    def instruction(self, step: int) -> Instruction:
        """The program at step t = 1 … T."""

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Name and parameters, enough to build it again."""

    @cached_property
    def non_negative(self) -> bool:
        """Whether c ≥ 0, read off the very numbers that are used."""
        return bool(np.all(self.coefficients >= 0.0))

    @property
    def rows(self) -> int:
        """How many base rows there are: one a step."""
        return self.steps

    def rows_by(self, step: int) -> int:
        """How many base rows have been drawn when step t is over."""
        return step

    def inverse_coefficients(self, length: int | None = None) -> Array:
        """The first coefficients of C⁻¹ (T of them by default)."""
        return reciprocal(self.coefficients, self.steps if length is None else length)

    def column(self, step: int) -> Array:
        """Column t of C, one entry a base row."""
        column = np.zeros(self.steps)
        part = self.coefficients[: self.steps - step + 1]
        column[step - 1 : step - 1 + len(part)] = part
        return column

    def matrix(self) -> Array:
        """C, T × T."""
        return _lower(self.coefficients, self.steps)

    def decoder(self) -> Array:
        """C⁻¹, T × T."""
        return _lower(self.inverse_coefficients(), self.steps)


def ring(step: int, steps: int, weights: Array, kept: Source) -> Instruction:
    """w_t = z_t + Σ_{k=1}^{p−1} weights[k] v_{t−k}, where v, `kept`, is the outputs or the base rows; the last p − 1 of
    them lie in a ring, v_t where v_{t−p+1} was.
    """
    slots = len(weights) - 1
    earlier: list[Term] = [
        ("slot", (step - k - 1) % slots, float(weights[k])) for k in range(1, min(slots, step - 1) + 1)
    ]
    store: tuple[tuple[int, tuple[Term, ...]], ...] = ()
    if slots and step < steps:
        store = (((step - 1) % slots, ((kept, 0, 1.0),)),)
    return Instruction(fresh=(step - 1,), output=(("fresh", 0, 1.0), *earlier), store=store)


def _lower(coefficients: Array, steps: int) -> Array:
    column = np.pad(coefficients, (0, steps - len(coefficients)))
    return np.asarray(toeplitz(column, np.zeros(steps)))
