"""Any lower-triangular C, written out: the reference that the structured strategies are compared with.

Noise is C⁻¹z row by row: w_t = (z_t − Σ_{s<t} C[t, s] w_s) / C[t, t]. All earlier outputs down to the longest row's
first entry are kept. `dense_fit` finds the optimum for the fixed order.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from momentree.errors import InputError
from momentree.strategy.base import Array, Instruction, Term
from momentree.strategy.series import frozen

LARGEST = 2_000
"""Most steps that a dense strategy may have."""


@dataclass(frozen=True, eq=False)
class Dense:
    """C = entries: T × T, lower-triangular, its diagonal above 0. Entries may be negative: see `non_negative`."""

    entries: Array
    gap: float | None = None
    """Where it was fitted: how far error × ‖C‖ may be above the least possible, as a fraction (`dense_fit`)."""

    def __post_init__(self) -> None:
        entries = frozen(self.entries, "entries")
        if entries.ndim != 2 or entries.shape[0] != entries.shape[1]:
            raise InputError(f"entries of shape {entries.shape}: give a square matrix")
        if len(entries) > LARGEST:
            raise InputError(f"dense over {len(entries)} steps is too large: at most {LARGEST}; choose blt or bsr")
        if np.any(np.triu(entries, 1)) or np.any(np.diag(entries) <= 0.0):
            raise InputError("entries are not lower-triangular with a positive diagonal: give a causal C")
        object.__setattr__(self, "entries", entries)

    @property
    def name(self) -> str:
        return "dense"

    @property
    def steps(self) -> int:
        return len(self.entries)

    @property
    def rows(self) -> int:
        """How many base rows there are: one a step."""
        return self.steps

    def rows_by(self, step: int) -> int:
        """How many base rows have been drawn when step t is over."""
        return step

    @cached_property
    def non_negative(self) -> bool:
        """Whether C ≥ 0, read off the very numbers that are used."""
        return bool(np.all(self.entries >= 0.0))

    @cached_property
    def noise_vectors(self) -> int:
        """How far back the longest row reaches."""
        return int(np.max(np.arange(self.steps) - np.argmax(self.entries != 0.0, axis=1)))

    def instruction(self, step: int) -> Instruction:
        """w_t = (z_t − Σ C[t, s] w_s) / C[t, t]; the last outputs sit in a ring."""
        row, kept = self.entries[step - 1], self.noise_vectors
        own = float(row[step - 1])
        output: list[Term] = [("fresh", 0, 1.0 / own)]
        for s in range(max(1, step - kept), step):
            output.append(("slot", (s - 1) % kept, -float(row[s - 1]) / own))
        if kept == 0 or step == self.steps:
            return Instruction(fresh=(step - 1,), output=tuple(output))
        kept_term: Term = ("output", 0, 1.0)
        store = (((step - 1) % kept, (kept_term,)),)
        return Instruction(fresh=(step - 1,), output=tuple(output), store=store)

    def column(self, step: int) -> Array:
        """Column t of C, one entry a base row."""
        return self.entries[:, step - 1]

    def matrix(self) -> Array:
        """C, T × T."""
        return self.entries

    def decoder(self) -> Array:
        """C⁻¹, T × T."""
        return np.asarray(solve_triangular(self.entries, np.eye(self.steps), lower=True))

    def describe(self) -> dict[str, object]:
        """`entries`: the lower triangle row by row, little-endian float64, zlib, base64."""
        lower = self.entries[np.tril_indices(self.steps)].astype("<f8").tobytes()
        packed = base64.b64encode(zlib.compress(lower)).decode()
        return {"name": self.name, "steps": self.steps, "gap": self.gap, "entries": packed}


def unpack(steps: int, packed: str) -> Array:
    """The matrix back from `describe()["entries"]`."""
    try:
        lower = np.frombuffer(zlib.decompress(base64.b64decode(packed, validate=True)), dtype="<f8")
    except (ValueError, binascii.Error, zlib.error):
        raise InputError("entries of a dense strategy cannot be read: the record is damaged") from None
    if len(lower) != steps * (steps + 1) // 2:
        raise InputError(f"{len(lower)} entries for {steps} steps of a dense strategy: the record is damaged")
    entries = np.zeros((steps, steps))
    entries[np.tril_indices(steps)] = lower
    return entries
