"""`balls-in-bins`: each example draws one place, and keeps it in every epoch; batch sizes vary."""

from __future__ import annotations

from dataclasses import dataclass

from momentree.order.base import Indices
from momentree.order.draws import subkey
from momentree.order.sampled import Sampled, members, places


@dataclass(frozen=True)
class BallsInBins(Sampled):
    """A place in 0 … n−1 for each row, uniform, independent of every other row, the same in every epoch.

    Guarantee: given everybody else, a row's place is uniform over the n places. Not so for a shuffled partition into
    batches of equal size, where one row's place tells about another's: that is the `fixed` order.
    """

    name = "balls-in-bins"

    def batch(self, step: int, key: bytes, rows: int | None = None, units: Indices | None = None) -> Indices:
        _, place = self.shape.where(step)
        drawers, unit = self._drawers(rows, units)
        return members(places(subkey(key, self.name), drawers, self.shape.steps_per_epoch) == place, unit)
