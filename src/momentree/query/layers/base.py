"""What a layer hands over: pieces, each the per-example gradient of one parameter by one use, in factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from momentree.query.norms import Memo, chunk, squares, wide

NOT_BATCH = "the first dimension of its input is not the batch"


class Piece(Protocol):
    """The gradients of all examples of a batch with respect to one parameter, by one use of it."""

    @property
    def numel(self) -> int:
        """How many entries the parameter has."""

    def squares(self, memo: Memo) -> Tensor | None:
        """‖g_i‖² in float64 where a closed form is cheaper than multiplying out, otherwise None."""

    def example(self, start: int, stop: int) -> Tensor:
        """The gradients of some examples, multiplied out: `(stop - start, numel)`."""

    def add_(self, total: Tensor, scale: Tensor) -> None:
        """`total += Σ_i scale_i g_i`."""

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


def mixed(x: Tensor, scale: Tensor, y: Tensor, other_scale: Tensor) -> Tensor:
    """scale_i x_i + other_scale_i y_i for every example."""
    shape = (-1, *[1] * (x.dim() - 1))
    return (x * scale.view(shape)).addcmul_(y, other_scale.view(shape))


def zeroed(x: Tensor, good: Tensor) -> Tensor:
    """`x` with the rows of bad examples replaced (multiplying would keep their NaN)."""
    return torch.where(good.view(-1, *[1] * (x.dim() - 1)), x, torch.zeros((), dtype=x.dtype, device=x.device))


@dataclass(slots=True, eq=False)
class Vector:
    """Gradients that are small enough to be held for every example: biases, scales, whatever torch.func gave."""

    values: Tensor
    """`(examples, *shape)`"""

    @property
    def numel(self) -> int:
        return self.values[0].numel()

    def squares(self, memo: Memo) -> Tensor | None:
        return squares(self.values, memo)

    def example(self, start: int, stop: int) -> Tensor:
        return wide(self.values[start:stop].flatten(1))

    def add_(self, total: Tensor, scale: Tensor) -> None:
        flat = self.values if self.values.dim() == 2 else self.values.flatten(1)
        flat = flat if flat.dtype == total.dtype else flat.to(total.dtype)
        if total.dim() == 1:
            total.addmv_(flat.t(), scale)
        elif total.is_contiguous():
            total.view(-1).addmv_(flat.t(), scale)
        else:
            total += torch.mv(flat.t(), scale).view(total.shape)

    def joined(self, scale: Tensor, other: Piece, other_scale: Tensor) -> Piece | None:
        return None

    def cleaned(self, good: Tensor) -> Vector:
        return Vector(zeroed(self.values, good))

    def small(self) -> bool:
        return True


def materialised_squares(pieces: list[Piece], examples: int, device: torch.device, keep: bool) -> tuple[Tensor, Any]:
    """‖Σ_pieces g_i‖² by multiplying out, chunk by chunk; with `keep`, also all of it as one `Vector`."""
    numel = pieces[0].numel
    step = chunk(examples, 4 * numel, device)
    norms, kept = [], []
    for start in range(0, examples, step):
        stop = min(start + step, examples)
        gradient = pieces[0].example(start, stop)
        for piece in pieces[1:]:
            gradient = gradient + piece.example(start, stop)
        norms.append(squares(gradient))
        if keep:
            kept.append(gradient)
    norm = norms[0] if len(norms) == 1 else torch.cat(norms)
    if not keep:
        return norm, None
    return norm, Vector(kept[0] if len(kept) == 1 else torch.cat(kept))
