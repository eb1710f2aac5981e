"""Every node of the tree, as the paper prints it: the release counts nodes that no prefix ever uses.

Rows are ordered by the step at which a node ends, then by level; nodes that are not complete by step T do not exist.
The decoder is that of `tree`, the other nodes have weight 0 and need not be drawn. Kept for comparison, and because
windows (which do use right children) need all nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from momentree.strategy.base import Array
from momentree.strategy.tree import Tree, level_of, node


def rows_before(step: int) -> int:
    """How many nodes end before step t: Σ_{s<t} (1 + v₂(s)) = 2(t − 1) − the number of ones of t − 1."""
    return 2 * (step - 1) - (step - 1).bit_count()


def all_rows(steps: int, decay: float) -> Array:
    """C with a row for every complete node, by end and level: (2T − ones of T) × T."""
    rows = [node(steps, t, k, decay) for t in range(1, steps + 1) for k in range(level_of(t) + 1)]
    return np.array(rows)


@dataclass(frozen=True)
class TreeFull(Tree):
    """C has a row for every complete node; only the nodes of COMPOSE(1, t) are drawn."""

    @property
    def name(self) -> str:
        return "tree-full"

    @property
    def all_nodes(self) -> bool:
        return True

    @property
    def rows(self) -> int:
        """How many base rows there are: one for every complete node."""
        return rows_before(self.steps + 1)

    def rows_by(self, step: int) -> int:
        """How many nodes are complete when step t is over."""
        return rows_before(step + 1)

    def row(self, step: int) -> int:
        """The base row of the longest node that ends at step t; the shorter ones come just before it."""
        return rows_before(step) + level_of(step)

    def matrix(self) -> Array:
        """C: (2T − ones of T) × T."""
        return all_rows(self.steps, self.decay)
