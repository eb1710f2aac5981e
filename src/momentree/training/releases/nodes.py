"""The tree of one family of Algorithm 2: released decayed sums over dyadic windows, each with noise of its own.

F̂_[y,z] = Σ_{t=y}^z β^(z-t) g_t + ζ_[y,z] for every node of length ≤ n. A node is made from its two halves, which are
released already, and from noise drawn again:

    F̂_parent = β^half F̂_left + F̂_right + (ζ_parent - β^half ζ_left - ζ_right),

so the sum without noise is never formed; that is two fresh draws and one repeated one a step, amortised. Windows of the
last n steps are put together as COMPOSE does, O(log n) nodes each. A left child is dropped once its parent exists
(a window that begins where it does takes the parent), anything once no window reaches back to it: about n vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from momentree.strategy.tree import level_of
from momentree.strategy.tree_full import rows_before
from momentree.training.needs import Source
from momentree.training.releases.base import Scratch
from momentree.training.releases.store import Store


class NodeTree:
    """`scale(z)`: the noise's standard deviation in a node that ends at step z. `begins`: the family's first step."""

    def __init__(
        self,
        name: str,
        store: Store,
        source: Source,
        stream: int,
        *,
        beta: float,
        steps_per_epoch: int,
        scale: Callable[[int], float],
        begins: int = 1,
    ) -> None:
        self.name = name
        self.store = store
        self.source = source
        self.stream = stream
        self.beta = beta
        self.n = steps_per_epoch
        self.levels = steps_per_epoch.bit_length() - 1
        self.scale = scale
        self.begins = begins

    def noise_(self, out: Sequence[Tensor], level: int, end: int, factor: float, draw: Scratch) -> None:
        """out += factor · ζ of node (level, end). Its row is that of `tree-full`: by end, then by level."""
        self.source.fill_(draw.flat, self.stream, rows_before(end) + level, 0)
        torch._foreach_add_(list(out), draw.blocks, alpha=factor * self.scale(end))

    def name_of(self, level: int) -> str:
        return f"{self.name}{level}"

    def release_(self, step: int, leaf: Sequence[Tensor], scratch: Sequence[Tensor], draw: Scratch) -> None:
        """Keep the released leaf of this step and make every node that ends here."""
        self._forget(step)
        right = self.store.put(self.name_of(0), step, leaf)
        for level in range(1, min(level_of(step), self.levels) + 1):
            half = 2 ** (level - 1)
            if step - 2**level + 1 < self.begins:
                break
            left = self.store.get(self.name_of(level - 1), step - half)
            decay = self.beta**half
            torch._foreach_copy_(list(scratch), right)
            torch._foreach_add_(list(scratch), left, alpha=decay)
            self.noise_(scratch, level, step, 1.0, draw)
            self.noise_(scratch, level - 1, step - half, -decay, draw)
            self.noise_(scratch, level - 1, step, -1.0, draw)
            self.store.forget(self.name_of(level - 1), step - half)
            right = self.store.put(self.name_of(level), step, scratch)

    def _forget(self, step: int) -> None:
        """Nodes that begin before every window from this step on: their first step is step - n."""
        first = step - self.n
        if first < 1:
            return
        for level in range(self.levels + 1):
            if (first - 1) % 2**level == 0:
                self.store.forget(self.name_of(level), first + 2**level - 1)

    def window_(self, out: Sequence[Tensor], first: int, last: int, factor: float) -> None:
        """out += factor · Σ_{t=first}^last β^(last-t) ĝ_t, from the nodes of COMPOSE(first, last)."""
        while first <= last:
            level = self.levels if first == 1 else min(self.levels, level_of(first - 1))
            while first + 2**level - 1 > last:
                level -= 1
            end = first + 2**level - 1
            node = self.store.get(self.name_of(level), end)
            torch._foreach_add_(list(out), node, alpha=factor * self.beta ** (last - end))
            first = end + 1
