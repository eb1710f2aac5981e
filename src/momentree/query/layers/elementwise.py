"""Parameters that are added to or multiplied with activations directly: position tables, scales, shifts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from momentree.query.layers.base import Piece, Vector
from momentree.query.norms import wide


@dataclass(slots=True, eq=False)
class BroadcastUse:
    """`x + p` (`x` None here) or `x * p`, with `p` broadcast over the examples."""

    edge: Any
    x: Tensor | None
    sign: float
    shape: torch.Size
    weight: int

    def indices(self) -> list[int]:
        return [self.weight]

    def pieces(self, grad: Tensor) -> list[tuple[int, Piece]]:
        grad = wide(grad)
        return [(self.weight, Vector(self._reduced(grad if self.x is None else grad * wide(self.x))))]

    def difference(self, other: BroadcastUse, grad: Tensor, other_grad: Tensor) -> list[tuple[int, Piece]]:
        change = wide(grad) - wide(other_grad)
        if self.x is not None and other.x is not None:
            change = change * wide(self.x) + wide(other_grad) * (wide(self.x) - wide(other.x))
        return [(self.weight, Vector(self._reduced(change)))]

    def _reduced(self, value: Tensor) -> Tensor:
        """Summed over what the parameter was broadcast over, the examples excepted."""
        shape = list(self.shape)
        if len(shape) == value.dim():
            shape = shape[1:]
        extra = value.dim() - 1 - len(shape)
        if extra:
            value = value.flatten(1, extra).sum(1) if extra > 1 else value.sum(1)
        small = [i + 1 for i, size in enumerate(shape) if size == 1 and value.shape[i + 1] != 1]
        value = value.sum(small, keepdim=True) if small else value
        return self.sign * value if self.sign != 1.0 else value


def added(capture: Any, out: Tensor, input: Any, other: Any, *, alpha: float = 1, **_: Any) -> None:
    """Records `input + alpha * other` where one of them is a parameter."""
    _broadcast(capture, out, input, other, None, (1.0, float(alpha)))


def multiplied(capture: Any, out: Tensor, input: Any, other: Any, **_: Any) -> None:
    """Records `input * other` where one of them is a parameter."""
    _broadcast(capture, out, input, other, (other, input), (1.0, 1.0))


def expanded(capture: Any, out: Tensor, input: Tensor, *sizes: Any, **_: Any) -> None:
    """Records a parameter that is copied for every example (a class token)."""
    place = capture.index(input)
    fits = out.shape[0] == capture.examples and (input.dim() < out.dim() or input.shape[0] == 1)
    same = tuple(out.shape[out.dim() - input.dim() :])[1 if input.dim() == out.dim() else 0 :]
    if fits and same == tuple(input.shape)[1 if input.dim() == out.dim() else 0 :]:
        capture.record(BroadcastUse, out, None, 1.0, input.shape, place)
    else:
        capture.refuse((place,), "it is copied along other dimensions than that of the examples")


def _broadcast(capture: Any, out: Tensor, input: Any, other: Any, factors: Any, signs: tuple[float, float]) -> None:
    for side, parameter in enumerate((input, other)):
        place = capture.index(parameter)
        if place is None:
            continue
        partner = other if side == 0 else input
        fits = (
            isinstance(partner, Tensor)
            and capture.index(partner) is None
            and out.shape == partner.shape
            and out.shape[0] == capture.examples
            and (parameter.dim() < out.dim() or (parameter.dim() == out.dim() and parameter.shape[0] == 1))
        )
        if not fits:
            capture.refuse((place,), "it meets something that is not a batch of activations of the result's shape")
            continue
        x = factors[side] if factors is not None else None
        capture.record(BroadcastUse, out, x, signs[side], parameter.shape, place)
