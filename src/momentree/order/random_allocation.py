"""`random-allocation`: each example draws a fresh place in every epoch; batch sizes vary."""

from __future__ import annotations

from dataclasses import dataclass

from momentree.order.base import Indices
from momentree.order.draws import subkey
from momentree.order.sampled import Sampled, members, places


@dataclass(frozen=True)
class RandomAllocation(Sampled):
    """A place in 0 … n−1 for each row in each epoch, uniform, independent of other rows and of other epochs.

    Guarantee: given everybody else, a row's places are independent and uniform, one in every epoch.
    """

    name = "random-allocation"

    def batch(self, step: int, key: bytes, rows: int | None = None, units: Indices | None = None) -> Indices:
        epoch, place = self.shape.where(step)
        drawers, unit = self._drawers(rows, units)
        return members(places(subkey(key, self.name, epoch), drawers, self.shape.steps_per_epoch) == place, unit)
