"""Parameters that are used through a view of themselves: a transpose, a slice of a position table, a chunk of weights.

A view without overlaps is a part of the parameter in another order, so norms are those of the view, and a sum is added
to the same view of the total.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from momentree.query.layers.base import Piece
from momentree.query.layers.linear import Outer
from momentree.query.layers.sides import Room
from momentree.query.norms import Memo


@dataclass(frozen=True, slots=True)
class View:
    """Where a view lies in its (contiguous) parameter, whose shape is `whole`."""

    place: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    whole: torch.Size

    @property
    def extent(self) -> tuple[int, int]:
        """The entries from the first to just after the last one that it touches."""
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return self.offset, self.offset + last + 1

    def of(self, total: Tensor) -> Tensor:
        """The same view of another contiguous tensor of the parameter's shape."""
        return total.as_strided(self.shape, self.stride, total.storage_offset() + self.offset)


def view_of(parameter: Tensor, place: int, view: Tensor) -> View | None:
    """The view, if it is a plain one: of a contiguous parameter, no entry twice, none of the view's making."""
    if not view._is_view() or view._base is not parameter or not parameter.is_contiguous() or not view.numel():
        return None
    reach = 1
    for step, size in sorted((step, size) for step, size in zip(view.stride(), view.shape, strict=True) if size > 1):
        if step < reach:
            return None
        reach = step * size
    offset = int(view.storage_offset()) - int(parameter.storage_offset())
    return View(place, tuple(view.shape), view.stride(), offset, parameter.shape)


@dataclass(slots=True, eq=False)
class Viewed:
    """The gradient with respect to a view, as one with respect to the parameter."""

    inner: Piece
    view: View

    @property
    def numel(self) -> int:
        return self.view.whole.numel()

    def squares(self, memo: Memo) -> Tensor | None:
        return self.inner.squares(memo)

    def each(self) -> int:
        return self.inner.each()

    def example(self, start: int, stop: int, total: Tensor | None, room: Room) -> Tensor:
        part = self.inner.example(start, stop, None, Room())  # the room may hold the total
        total = part.new_zeros(stop - start, self.numel) if total is None else total
        shape, stride = (stop - start, *self.view.shape), (self.numel, *self.view.stride)
        view = total.as_strided(shape, stride, total.storage_offset() + self.view.offset)
        view += part.view(shape)
        return total

    def add_(self, total: Tensor, scale: Tensor | None) -> None:
        self.inner.add_(self.view.of(total), scale)

    def joined(self, scale: Tensor, other: Piece, other_scale: Tensor) -> Piece | None:
        if not isinstance(other, Viewed) or self.view != other.view:
            return None
        inner = self.inner.joined(scale, other.inner, other_scale)
        return None if inner is None else Viewed(inner, self.view)

    def cleaned(self, good: Tensor) -> Viewed:
        return Viewed(self.inner.cleaned(good), self.view)

    def small(self) -> bool:
        return self.inner.small() and 2 * self.inner.numel >= self.numel


def through(piece: Piece, view: View) -> Piece:
    """A piece of a view as one of the parameter; a transpose of an outer product is one with its sides exchanged."""
    if isinstance(piece, Outer) and view.shape == tuple(reversed(view.whole)) and view.stride == (1, view.whole[1]):
        return Outer(piece.a, piece.b, not piece.transposed)
    return Viewed(piece, view)


def apart(pieces: list[Viewed]) -> list[list[Piece]] | None:
    """The pieces in groups of one view each, if no two of the views meet; then norms of the groups add up."""
    groups: dict[View, list[Piece]] = {}
    for piece in pieces:
        groups.setdefault(piece.view, []).append(piece.inner)
    extents = sorted(view.extent for view in groups)
    if any(before[1] > after[0] for before, after in pairwise(extents)):
        return None
    return list(groups.values())
