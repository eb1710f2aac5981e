"""Rows that share a person: at most k of them count; the rest, and rows without an id, contribute zero in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentree.data.table import Table
from momentree.order.sampled import counted


class People:
    """A table seen person by person: the same rows and places, with a mask that lets at most k rows a person count.

    Whether a row counts depends on its own person's rows only, so replacing one person moves nobody else.
    """

    def __init__(self, table: Table, most: int) -> None:
        self.table = table
        groups = table.groups
        assert groups is not None
        self.groups = groups
        self._counted = counted(groups, most)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> Any:
        return self.table[index]

    def batch(self, indices: NDArray[np.int64]) -> tuple[Any, Any, NDArray[np.bool_]]:
        x, y, usable = self.table.batch(indices)
        return x, y, usable & self._counted[np.asarray(indices, np.int64)]

    def digest_chunks(self) -> Any:
        yield from self.table.digest_chunks()
        yield np.packbits(self._counted).tobytes()
