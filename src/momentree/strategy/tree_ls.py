"""Every node of the tree, decoded as well as causality allows: best linear unbiased prefix from completed nodes only.

A node of level k, complete at step t, is measured by its own row (variance 1) and once more by its two children
(Honaker 2015, here with decay): with h = 2^{k−1} and v_{k−1} the variance of a child's estimate, the children give
β^h Ŝ_left + Ŝ_right with variance u_k = (1 + β^{2h}) v_{k−1}. Weighing by inverse variance,
Ŝ_k = a_k y_k + b_k (β^h Ŝ_left + Ŝ_right), a_k = u_k / (1 + u_k), b_k = 1 / (1 + u_k), v_k = a_k, v_0 = 1.
The nodes of a prefix are disjoint and nothing above them is complete, so their sum is the best causal estimate of the
prefix. (The plain pseudo-inverse would use nodes that end later: it looks into the future and cannot be streamed.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from momentree.strategy.base import Array, Instruction, Term
from momentree.strategy.tree import decayed, level_of, waits
from momentree.strategy.tree_full import TreeFull, rows_before


def weights(levels: int, decay: float) -> tuple[list[float], list[float]]:
    """a_k and b_k for k = 0 … levels: own row, and children."""
    own, children = [1.0], [0.0]
    for k in range(1, levels + 1):
        u = (1.0 + decayed(decay, 2**k)) * own[-1]  # β^{2h} = β^{2^k}
        own.append(u / (1.0 + u))
        children.append(1.0 / (1.0 + u))
    return own, children


@dataclass(frozen=True)
class TreeLS(TreeFull):
    """C of `tree-full`, with the best causal decoder. Slots hold the estimates Ŝ of the prefix's nodes."""

    @property
    def name(self) -> str:
        return "tree-ls"

    def instruction(self, step: int) -> Instruction:
        """w_t = Ŝ − Σ_{k<v₂(t)} β^{2^k} slot_k, where Ŝ itself is made of the fresh rows and those slots."""
        level, kept = level_of(step), self.noise_vectors
        own, children = weights(level, self.decay)
        output: list[Term] = []
        above = 1.0  # what a node's estimate weighs in Ŝ of the longest node: Π b over the levels above it
        for k in range(level, -1, -1):
            output.append(("fresh", k, own[k] * above))
            above *= children[k]
            if 0 < k <= kept:
                output.append(("slot", k - 1, (above - 1.0) * decayed(self.decay, 2 ** (k - 1))))
        store: tuple[tuple[int, tuple[Term, ...]], ...] = ()
        if waits(step, self.steps, kept):
            back: list[Term] = [("slot", k, decayed(self.decay, 2**k)) for k in range(min(level, kept))]
            store = ((level, (("output", 0, 1.0), *back)),)
        first = rows_before(step)
        return Instruction(fresh=tuple(range(first, first + level + 1)), output=tuple(output), store=store)

    def decoder(self) -> Array:
        """C⁺: T rows, a column a node; each estimate made from its children's, level by level."""
        own, children = weights(self.steps.bit_length(), self.decay)
        prefixes = np.zeros((self.steps + 1, self.rows))
        estimate: dict[tuple[int, int], Array] = {}
        for t in range(1, self.steps + 1):
            for k in range(level_of(t) + 1):
                row = np.zeros(self.rows)
                row[rows_before(t) + k] = own[k]
                if k > 0:
                    half = 2 ** (k - 1)
                    left, right = estimate.pop((t - half, k - 1)), estimate.pop((t, k - 1))
                    row += children[k] * (decayed(self.decay, half) * left + right)
                estimate[t, k] = row
            length = t & -t
            prefixes[t] = estimate[t, level_of(t)] + decayed(self.decay, length) * prefixes[t - length]
        return prefixes[1:] - self.decay * prefixes[:-1]
