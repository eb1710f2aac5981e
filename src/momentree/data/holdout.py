"""Rows outside the private N, declared public or unprotected: a random fraction, or those that a column names.

Guarantee: whether a row is held out depends on its place and the seed (a fraction), on its group id and the seed (a
fraction where there are groups), or on its own cell (a column): no other row moves it. Never stratified: that would
let one person's answer move another. A cell that cannot be read leaves its row private.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from momentree.data.ingest import NO_GROUP
from momentree.errors import InputError


@dataclass(frozen=True)
class Holdout:
    """Either a fraction or a column and the value that marks a row."""

    fraction: float | None = None
    column: str | None = None
    value: str | None = None

    @classmethod
    def parse(cls, text: str) -> Holdout:
        """`0.2` or `split=test`."""
        column, equals, value = text.partition("=")
        if equals:
            if not column.strip() or not value.strip():
                raise InputError(
                    f"holdout {text!r} names no column or no value: write COLUMN=VALUE, such as split=test"
                )
            return cls(column=column.strip(), value=value.strip())
        try:
            fraction = float(text)
        except ValueError:
            raise InputError(f"holdout {text!r} is neither: write a FRACTION such as 0.2, or COLUMN=VALUE") from None
        if not 0 < fraction < 1:
            raise InputError(f"holdout {text} is out of range: give a fraction above 0 and below 1")
        return cls(fraction=fraction)

    def describe(self) -> str:
        """For the certificate."""
        if self.column is not None:
            return f"rows whose {self.column} is {self.value}"
        return f"a random {self.fraction:g} of the rows"

    def rows(
        self, count: int, seed: int, group: NDArray[np.int64] | None, held: NDArray[np.bool_] | None
    ) -> NDArray[np.bool_]:
        """Which rows are held out."""
        if held is not None:
            out = np.array(held, np.bool_)
        elif group is not None:
            out = by_group(group, float(self.fraction or 0), seed)
        else:
            out = np.zeros(count, np.bool_)
            chosen = round(count * float(self.fraction or 0))
            out[np.random.Generator(np.random.PCG64(seed)).permutation(count)[:chosen]] = True
        if not out.any() or out.all():
            which = "no row" if not out.any() else "every row"
            raise InputError(f"holdout ({self.describe()}) takes {which}: it has to leave some on both sides")
        return out


def by_group(group: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Each group by its own hash with the seed, rows without a group stay private."""
    distinct, place = np.unique(group, return_inverse=True)
    key = hashlib.blake2b(str(seed).encode(), digest_size=16).digest()
    drawn = np.array(
        [
            int.from_bytes(
                hashlib.blake2b(int(one).to_bytes(8, "little", signed=True), key=key, digest_size=8).digest(), "big"
            )
            / 2.0**64
            for one in distinct
        ]
    )
    out: NDArray[np.bool_] = (drawn < fraction)[place.ravel()] & (group != NO_GROUP)
    return out
