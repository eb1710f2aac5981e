"""What a query is: something asked of a batch whose sensitivity is bounded by construction, and who says so itself."""

from __future__ import annotations

from typing import Literal, Protocol

Adjacency = Literal["zero-out", "replace-one", "add-remove"]
ADJACENCIES: tuple[Adjacency, ...] = ("zero-out", "replace-one", "add-remove")


class Query(Protocol):
    """A bounded query: the norm of one example's contribution to what it returns never exceeds its sensitivity."""

    def sensitivity(self, adjacency: Adjacency) -> float:
        """Bound on how much one example moves the batch's sum, under the adjacency, in the units of the sum."""
