"""Layer, RMS and group normalisation: scales and shifts are vectors, multiplied out for every example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from momentree.query.layers.base import NOT_BATCH, Piece, Vector
from momentree.query.norms import chunk, wide


@dataclass(slots=True, eq=False)
class ScaleUse:
    """`normalised(x) * weight + bias`.

    `x` is viewed as `(B, T, G, width)`: statistics over the last dimension, one set for each of the others. The
    parameter has one entry for each of `(G, width)`; group normalisation adds up `spread` neighbours of it.
    """

    edge: Any
    x: Tensor
    epsilon: float
    centred: bool
    spread: int
    weight: int | None
    bias: int | None

    def indices(self) -> list[int]:
        return [i for i in (self.weight, self.bias) if i is not None]

    def pieces(self, grad: Tensor) -> list[tuple[int, Piece]]:
        grad = grad.reshape(self.x.shape)
        found: list[tuple[int, Piece]] = []
        if self.weight is not None:
            found.append((self.weight, Vector(self._total([(grad, _normalised, (self.x,))]))))
        if self.bias is not None:
            found.append((self.bias, Vector(self._total([(grad, None, ())]))))
        return found

    def difference(self, other: ScaleUse, grad: Tensor, other_grad: Tensor) -> list[tuple[int, Piece]]:
        """b₁x̂₁ - b₂x̂₂ = δb·x̂₁ + b₂·δx̂, with δx̂ from δx and not from the difference of the two."""
        grad, other_grad = wide(grad.reshape(self.x.shape)), wide(other_grad.reshape(self.x.shape))
        change = grad - other_grad
        found: list[tuple[int, Piece]] = []
        if self.weight is not None:
            terms = [(change, _normalised, (self.x,)), (other_grad, _normalised_change, (self.x, other.x))]
            found.append((self.weight, Vector(self._total(terms))))
        if self.bias is not None:
            found.append((self.bias, Vector(self._total([(change, None, ())]))))
        return found

    def _total(self, terms: list[tuple[Tensor, Any, tuple[Tensor, ...]]]) -> Tensor:
        """Σ_t of b (times what a function makes of x), as `(B, entries of the parameter)`, chunk by chunk."""
        examples, _, groups, width = self.x.shape
        step = chunk(examples, 4 * self.x[0].numel(), self.x.device)
        parts = []
        for start in range(0, examples, step):
            part = slice(start, start + step)
            total = None
            for b, function, arguments in terms:
                value = wide(b[part])
                if function is not None:
                    value = value * function(*(wide(x[part]) for x in arguments), self.epsilon, self.centred)
                value = value.sum(1)
                total = value if total is None else total + value
            assert total is not None
            parts.append(total.view(-1, groups * width // self.spread, self.spread).sum(2))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _centre(x: Tensor, epsilon: float, centred: bool) -> tuple[Tensor, Tensor]:
    centre = x - x.mean(-1, keepdim=True) if centred else x
    return centre, (centre.square().mean(-1, keepdim=True) + epsilon).rsqrt()


def _normalised(x: Tensor, epsilon: float, centred: bool) -> Tensor:
    centre, rate = _centre(x, epsilon, centred)
    return centre * rate


def _normalised_change(x: Tensor, y: Tensor, epsilon: float, centred: bool) -> Tensor:
    """normalised(x) - normalised(y), every term a product with something formed from x - y.

    With c the centred input and r = (mean c² + ε)^(-1/2): c₁r₁ - c₂r₂ = δc·r₁ + c₂·δr, and
    δr = -δv·r₁²r₂²/(r₁ + r₂) for δv = mean(δc·(c₁ + c₂)).
    """
    change = x - y
    if centred:
        change = change - change.mean(-1, keepdim=True)
    first, first_rate = _centre(x, epsilon, centred)
    second, second_rate = _centre(y, epsilon, centred)
    variance = (change * (first + second)).mean(-1, keepdim=True)
    rate = -variance * (first_rate * second_rate).square() / (first_rate + second_rate)
    return change * first_rate + second * rate


def layer_norm(
    capture: Any,
    out: Tensor,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> None:
    """Records `torch.nn.functional.layer_norm`."""
    _last_dimensions(capture, out, input, len(normalized_shape), weight, bias, eps, True)


def rms_norm(
    capture: Any,
    out: Tensor,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> None:
    """Records `torch.nn.functional.rms_norm`."""
    epsilon = torch.finfo(input.dtype).eps if eps is None else eps
    _last_dimensions(capture, out, input, len(normalized_shape), weight, None, epsilon, False)


def _last_dimensions(
    capture: Any,
    out: Tensor,
    x: Tensor,
    dimensions: int,
    weight: Tensor | None,
    bias: Tensor | None,
    epsilon: float,
    centred: bool,
) -> None:
    places = capture.index(weight), capture.index(bias)
    if x.shape[0] % capture.examples or x.dim() <= dimensions:
        capture.refuse(places, NOT_BATCH)
        return
    width = x.shape[-dimensions:].numel()
    flat = x.reshape(capture.examples, -1, 1, width)
    capture.record(ScaleUse, out, flat, epsilon, centred, 1, *places)


def group_norm(
    capture: Any,
    out: Tensor,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> None:
    """Records `torch.nn.functional.group_norm`."""
    places = capture.index(weight), capture.index(bias)
    if input.shape[0] != capture.examples:
        capture.refuse(places, NOT_BATCH)
        return
    spread = input.shape[2:].numel()
    flat = input.reshape(input.shape[0], 1, num_groups, -1)
    capture.record(ScaleUse, out, flat, eps, True, spread, *places)
