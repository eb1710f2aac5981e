"""What the sampled orders share: places drawn independently by rows, or by persons, and kept secret for ever."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from momentree.errors import InputError, whole
from momentree.order.base import Indices, Participation, Shape
from momentree.order.draws import below, words


@dataclass(frozen=True)
class Sampled:
    """Base of the orders whose batches vary in size.

    `shape.examples` is N, a public number: every rate and the number of steps come from it. `declared` says that it
    was declared and not counted; only then may two neighbouring data sets differ in their number of rows, and
    `batch` may be told how many `rows` there really are. `together`: all rows of one person draw one place together;
    `batch` then has to be told who is who (`units`: a person's number for each row, −1 for a row without one, which
    never takes part).

    Guarantee: what a row (or person) draws does not depend on any other row, nor on how many there are. Which rows
    sit in a batch, and how many, is secret for ever.
    """

    shape: Shape
    declared: bool = False
    together: bool = False

    name = "sampled"
    secret = True

    @property
    def participation(self) -> Participation:
        return "amplified"

    def _drawers(self, rows: int | None, units: Indices | None) -> tuple[int, Indices | None]:
        """How many draws there are, and whose draw each row takes (None: its own)."""
        if self.together != (units is not None):
            raise InputError(
                f"{self.name} {'needs' if self.together else 'was given'} `units`: "
                "persons draw together exactly where the order says together=True"
            )
        if units is not None:
            unit = np.asarray(units, dtype=np.int64)
            if unit.ndim != 1 or (unit.size and unit.min() < -1):
                raise InputError("units has to be one number a row: 0, 1, … a person, -1 for a row without one")
            rows = unit.size if rows is None else rows
            if rows != unit.size:
                raise InputError(f"units has {unit.size} entries for {rows} rows: give one a row")
            unit = numbered(unit)
            drawers = int(unit.max(initial=-1)) + 1
        else:
            unit = None
            rows = self.shape.examples if rows is None else whole("rows", rows, at_least=0)
            drawers = rows
        if rows != self.shape.examples and not self.declared:
            raise InputError(
                f"{self.name} was planned for {self.shape.examples} counted examples and the data has another number "
                "of rows: plan for this data, or declare N"
            )
        return drawers, unit

    def describe(self) -> dict[str, object]:
        return {**self.shape.describe(), "order": self.name, "declared": self.declared, "together": self.together}


def numbered(units: Indices) -> Indices:
    """The same persons by smaller numbers, where a number is beyond the number of rows: a draw is made for each number.

    Renumbering moves nobody's chances: draws are alike in law, whichever number they go by.
    """
    if units.max(initial=-1) < units.size:
        return units
    distinct, place = np.unique(units, return_inverse=True)
    return place.reshape(units.shape).astype(np.int64) - int(distinct[0] == -1)


def counted(units: Indices, most: int) -> NDArray[np.bool_]:
    """The first `most` rows of every person, by place in the data; a unit below 0 is nobody, and none of it counts.

    Whether a row counts depends on its own person's rows only, so replacing one person moves nobody else.
    """
    order = np.argsort(units, kind="stable")
    ranked = units[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=ranked[:1] - 1))
    rank = np.arange(len(ranked)) - np.repeat(starts, np.diff(starts, append=len(ranked)))
    allowed = np.empty(len(units), bool)
    allowed[order] = (rank < most) & (ranked >= 0)
    return allowed


def members(chosen: np.ndarray, unit: Indices | None) -> Indices:
    """Rows whose drawer was chosen, in the order of the data."""
    if unit is not None:
        chosen = np.append(chosen, False)[unit]  # −1 reads the appended entry: never chosen
    return np.flatnonzero(chosen).astype(np.int64, copy=False)


@lru_cache(maxsize=2)
def places(sub: bytes, count: int, bins: int) -> Indices:
    """A place in 0 … bins−1 for each of `count` drawers, independent and uniform."""
    drawn = below(words(sub, count), bins)
    drawn.flags.writeable = False
    return drawn
