"""The square tree: only the nodes that a prefix sum uses. Row t is the decayed sum over (t − lowbit(t), t].

The prefix at t is the node that ends at t and those of the prefix at t − lowbit(t) (a Fenwick tree), so every node
that is ever used ends at a step of its own: C is square. With N_t the noise on Σ_{s≤t} β^{t−s} g_s,
N_t = z_t + β^{lowbit(t)} N_{t−lowbit(t)}, and the noise on one gradient is N_t − β N_{t−1} = z_t − Σ β^{t−j} z_j over
the nodes j that step t drops: levels k < v₂(t), ended at t − 2^k. A node waits in the slot of its level.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from momentree.errors import number, whole
from momentree.strategy.base import Array, Instruction, Term
from momentree.strategy.series import powers


def level_of(step: int) -> int:
    """v₂(t): the level of the longest node that ends at step t, of length lowbit(t) = 2^level."""
    return (step & -step).bit_length() - 1


def decayed(decay: float, distance: int) -> float:
    """decay^distance, 0 below 1e-290 (0⁰ = 1)."""
    power = float(decay) ** distance
    return power if power >= 1e-290 else 0.0


@dataclass(frozen=True)
class Tree:
    """C[t, s] = decay^{t−s} for s in (t − lowbit(t), t], else 0; decay 1 is the tree of DP-FTRL, decay 0 is I."""

    steps: int
    decay: float

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        number("decay", self.decay, at_least=0.0, at_most=1.0)

    @property
    def name(self) -> str:
        return "tree"

    @property
    def all_nodes(self) -> bool:
        """Whether rows of C that no prefix uses are counted too."""
        return False

    @property
    def non_negative(self) -> bool:
        return bool(self.decay >= 0.0)

    @cached_property
    def noise_vectors(self) -> int:
        return levels_kept(self.steps, self.decay)

    @property
    def rows(self) -> int:
        """How many base rows there are: one a step."""
        return self.steps

    def rows_by(self, step: int) -> int:
        """How many base rows there are up to step t."""
        return step

    def instruction(self, step: int) -> Instruction:
        """w_t = z_t − Σ_{k<v₂(t)} β^{2^k} slot_k; z_t waits in its level's slot until step t + lowbit(t)."""
        output: list[Term] = [("fresh", 0, 1.0)]
        kept = self.noise_vectors
        for k in range(min(level_of(step), kept)):
            output.append(("slot", k, -decayed(self.decay, 2**k)))
        store: tuple[tuple[int, tuple[Term, ...]], ...] = ()
        if waits(step, self.steps, kept):
            store = ((level_of(step), (("fresh", 0, 1.0),)),)
        return Instruction(fresh=(self.row(step),), output=tuple(output), store=store)

    def row(self, step: int) -> int:
        """The base row of the longest node that ends at step t."""
        return step - 1

    def column(self, step: int) -> Array:
        """Column t of C, one entry a base row: the nodes that hold step t."""
        column = np.zeros(self.rows)
        for k in range(self.steps.bit_length()):
            end = -(-step // 2**k) * 2**k
            below = level_of(end) - k
            if end <= self.steps and (below == 0 or self.all_nodes):
                column[self.row(end) - below] = decayed(self.decay, end - step)
        return column

    def matrix(self) -> Array:
        """C: T × T."""
        result = np.zeros((self.steps, self.steps))
        for t in range(1, self.steps + 1):
            result[t - 1] = node(self.steps, t, level_of(t), self.decay)
        return result

    def decoder(self) -> Array:
        """C⁻¹: T × T."""
        prefixes = np.zeros((self.steps + 1, self.rows))
        for t in range(1, self.steps + 1):
            length = t & -t
            prefixes[t] = decayed(self.decay, length) * prefixes[t - length]
            prefixes[t, self.row(t)] += 1.0
        return prefixes[1:] - self.decay * prefixes[:-1]

    def describe(self) -> dict[str, object]:
        return {"name": self.name, "steps": self.steps, "decay": self.decay}


def node(steps: int, end: int, level: int, decay: float) -> Array:
    """One row of C: decay^{end−s} for s in (end − 2^level, end]."""
    row = np.zeros(steps)
    row[end - 2**level : end] = powers(decay, 2**level)[::-1]
    return row


def levels_kept(steps: int, decay: float) -> int:
    """Slots: the levels 0, 1, … whose nodes are dropped at a step ≤ T with a factor decay^(2^k) above 0."""
    kept = 0
    while 2 ** (kept + 1) <= steps and decayed(decay, 2**kept) > 0.0:
        kept += 1
    return kept


def waits(step: int, steps: int, kept: int) -> bool:
    """Whether the node that ends at `step` is needed again, when step + lowbit(step) drops it."""
    return level_of(step) < kept and step + (step & -step) <= steps
