"""A strategy that starts afresh every so many steps: C is block-diagonal, one block a restart.

Blocks share nothing, so an example's parts in two blocks are orthogonal; and a run can be accounted block by block.
The last block may be cut: then it is the leading part of the block, nodes or rows not complete by then are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from momentree.errors import InputError, whole
from momentree.strategy.base import Array, Instruction, Strategy


class Restartable(Strategy, Protocol):
    """A strategy that can say how many of its base rows belong to its first steps, and hand out single columns."""

    @property
    def rows(self) -> int: ...

    def rows_by(self, step: int) -> int: ...

    def column(self, step: int) -> Array: ...


@dataclass(frozen=True, eq=False)
class Restarted:
    """`times` blocks of `inner`, the last one only `last` steps long (all of inner's by default)."""

    inner: Restartable
    times: int
    last: int | None = None

    def __post_init__(self) -> None:
        whole("times", self.times)
        if isinstance(self.inner, Restarted):
            raise InputError("a restarted strategy cannot be restarted again: give the shorter period only")
        if self.last is not None:
            whole("last", self.last, at_most=self.inner.steps)

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def last_steps(self) -> int:
        """The length of the last block."""
        return self.inner.steps if self.last is None else self.last

    @property
    def steps(self) -> int:
        return self.inner.steps * (self.times - 1) + self.last_steps

    @property
    def rows(self) -> int:
        """How many base rows there are in all blocks."""
        return self.inner.rows * (self.times - 1) + self.inner.rows_by(self.last_steps)

    def rows_by(self, step: int) -> int:
        """How many base rows there are up to step t."""
        block, place = divmod(step - 1, self.inner.steps)
        return block * self.inner.rows + self.inner.rows_by(place + 1)

    @property
    def noise_vectors(self) -> int:
        return self.inner.noise_vectors

    @property
    def non_negative(self) -> bool:
        return self.inner.non_negative

    def instruction(self, step: int) -> Instruction:
        """The inner program at the place within the block; its base rows are new ones in every block.

        The first steps of a block read no slot that the block has not written, so nothing has to be cleared.
        """
        block, place = divmod(step - 1, self.inner.steps)
        instruction = self.inner.instruction(place + 1)
        first = block * self.inner.rows
        return replace(instruction, fresh=tuple(first + row for row in instruction.fresh))

    def column(self, step: int) -> Array:
        """Column t of C, one entry a base row: the inner column within its block."""
        block, place = divmod(step - 1, self.inner.steps)
        column, first = np.zeros(self.rows), block * self.inner.rows
        part = self.inner.column(place + 1)[: self.rows - first]
        column[first : first + len(part)] = part
        return column

    def matrix(self) -> Array:
        """C, block-diagonal."""
        return self._blocks(self.inner.matrix(), transposed=False)

    def decoder(self) -> Array:
        """C⁺, block-diagonal."""
        return self._blocks(self.inner.decoder(), transposed=True)

    def _blocks(self, block: Array, *, transposed: bool) -> Array:
        rows, columns = (self.steps, self.rows) if transposed else (self.rows, self.steps)
        result = np.zeros((rows, columns))
        height, width = block.shape
        for k in range(self.times):
            part = result[k * height : (k + 1) * height, k * width : (k + 1) * width]
            part[...] = block[: part.shape[0], : part.shape[1]]
        return result

    def describe(self) -> dict[str, object]:
        inner = self.inner.describe()
        return {"name": self.name, "steps": self.steps, "times": self.times, "last": self.last, "inner": inner}
