"""What a layer hands over: pieces, each the per-example gradient of one parameter by one use, in factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from momentree.query.layers.sides import Cleaned, Room, Side, side_squares, whole
from momentree.query.norms import Memo, chunk, squares, wide

NOT_BATCH = "the first dimension of its input is not the batch"


class Piece(Protocol):
    """The gradients of all examples of a batch with respect to one parameter, by one use of it."""

    @property
    def numel(self) -> int:
        """How many entries the parameter has."""

    def squares(self, memo: Memo) -> Tensor | None:
        """‖g_i‖² in float64 where a closed form is cheaper than multiplying out, otherwise None."""

    def each(self) -> int:
        """How many numbers multiplying out one example takes."""

    def example(self, start: int, stop: int, total: Tensor | None, room: Room) -> Tensor:
        """The gradients of some examples, multiplied out: `(stop - start, numel)`, added to `total` if it is given.

        Otherwise they lie in the room until the next ones are asked for.
        """

    def add_(self, total: Tensor, scale: Tensor | None) -> None:
        """`total += Σ_i scale_i g_i`, with 1 for a scale that is not given."""

    def joined(self, scale: Tensor, other: Piece, other_scale: Tensor) -> Piece | None:
        """A piece whose sum is Σ scale_i g_i + other_scale_i g'_i at the cost of one, where there is one."""

    def cleaned(self, good: Tensor) -> Piece:
        """The same with exact zeros for the examples that are not good, whatever those hold."""

    def small(self) -> bool:
        """Whether all examples' gradients multiplied out take little memory next to what the piece holds anyway."""


class Use(Protocol):
    """One use of one or two parameters in the forward pass; it becomes pieces when its output gradient is known."""

    edge: Any

    def indices(self) -> list[int]:
        """The parameters that it uses."""

    def pieces(self, grad: Tensor) -> list[tuple[int, Piece]]:
        """The pieces, with the index of the parameter that each belongs to."""

    def difference(self, other: Any, grad: Tensor, other_grad: Tensor) -> list[tuple[int, Piece]]:
        """The pieces of (this gradient - the other iterate's), formed from differences and never by cancellation."""


@dataclass(slots=True, eq=False)
class Vector:
    """Gradients that are small enough to be held for every example: biases, scales, whatever torch.func gave."""

    values: Side
    """`(examples, *shape)`"""

    @property
    def numel(self) -> int:
        return self.values.shape[1:].numel()

    def squares(self, memo: Memo) -> Tensor | None:
        return side_squares(self.values, memo)

    def each(self) -> int:
        return self.numel

    def example(self, start: int, stop: int, total: Tensor | None, room: Room) -> Tensor:
        values = wide(self.values[start:stop].flatten(1))
        return values.clone() if total is None else total.add_(values)

    def add_(self, total: Tensor, scale: Tensor | None) -> None:
        values = whole(self.values)
        flat = values if values.dim() == 2 else values.flatten(1)
        flat = flat if flat.dtype == total.dtype else flat.to(total.dtype)
        scale = flat.new_ones(flat.shape[0]) if scale is None else scale
        if total.dim() == 1:
            total.addmv_(flat.t(), scale)
        elif total.is_contiguous():
            total.view(-1).addmv_(flat.t(), scale)
        else:
            total += torch.mv(flat.t(), scale).view(total.shape)

    def joined(self, scale: Tensor, other: Piece, other_scale: Tensor) -> Piece | None:
        return None

    def cleaned(self, good: Tensor) -> Vector:
        return Vector(Cleaned(self.values, good))

    def small(self) -> bool:
        return True


def materialised_squares(
    gradients: list[list[Piece]], examples: int, device: torch.device
) -> list[tuple[Tensor, Vector | None]]:
    """‖Σ_pieces g_i‖² of gradients of one parameter, by multiplying out, chunk by chunk.

    Where all examples' gradients take little memory, also all of them as one `Vector`.
    """
    step = chunk(examples, 4 * max(max(p.numel, p.each()) for pieces in gradients for p in pieces), device)
    room = Room()
    norms: list[list[Tensor]] = [[] for _ in gradients]
    kept: list[list[Tensor]] = [[] for _ in gradients]
    keep = [all(piece.small() for piece in pieces) for pieces in gradients]
    for start in range(0, examples, step):
        stop = min(start + step, examples)
        room.columns.clear()
        for k, pieces in enumerate(gradients):
            total = None
            for piece in pieces:
                total = piece.example(start, stop, total, room)
            assert total is not None
            norms[k].append(squares(total))
            if keep[k]:
                kept[k].append(total.clone())
    return [
        (joined(norm), Vector(joined(values)) if values else None) for norm, values in zip(norms, kept, strict=True)
    ]


def joined(parts: list[Tensor]) -> Tensor:
    """Parts of a batch as one."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)
