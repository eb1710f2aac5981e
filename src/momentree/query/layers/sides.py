"""Sides of products that are formed where they are used, chunk by chunk: a difference need never lie in memory whole.

Each behaves like a tensor of which slices along the first dimension are taken, and gives the same numbers every time:
what is added up is exactly what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from momentree.query.norms import Memo, chunk, squares, wide


@dataclass(slots=True, eq=False)
class Formed:
    """What the sides below have in common: they are shaped like `x`."""

    x: Side

    @property
    def shape(self) -> torch.Size:
        return self.x.shape

    @property
    def device(self) -> torch.device:
        return self.x.device

    def __getitem__(self, part: slice) -> Tensor:
        raise NotImplementedError


Side = Tensor | Formed


@dataclass(slots=True, eq=False)
class Change(Formed):
    """x - y."""

    y: Side

    def __getitem__(self, part: slice) -> Tensor:
        return wide(self.x[part]) - wide(self.y[part])


@dataclass(slots=True, eq=False)
class Mixed(Formed):
    """scale_i x_i + other_scale_i y_i for every example."""

    scale: Tensor
    y: Side
    other_scale: Tensor

    def __getitem__(self, part: slice) -> Tensor:
        x, y = scaled(wide(self.x[part]), self.scale[part], isinstance(self.x, Formed)), self.y[part]
        return x.addcmul_(wide(y), broadcast(self.other_scale[part], y))


@dataclass(slots=True, eq=False)
class Cleaned(Formed):
    """x with exact zeros for the examples that are not good, whatever those hold (multiplying would keep NaN)."""

    good: Tensor

    def __getitem__(self, part: slice) -> Tensor:
        x = self.x[part]
        return torch.where(broadcast(self.good[part], x), x, torch.zeros((), dtype=x.dtype, device=x.device))


def whole(side: Side) -> Tensor:
    """All of it at once."""
    return side if isinstance(side, Tensor) else side[:]


def taken(side: Side, start: int, stop: int) -> Tensor:
    """Some examples of it."""
    return side if isinstance(side, Tensor) and stop - start == side.shape[0] else side[start:stop]


def broadcast(scale: Tensor, x: Tensor) -> Tensor:
    """One number an example, shaped to be multiplied with `x`."""
    return scale.view(-1, *[1] * (x.dim() - 1))


def scaled(x: Tensor, scale: Tensor | None, own: bool) -> Tensor:
    """scale_i x_i, in place where `x` is the caller's own."""
    if scale is None:
        return x
    scale = broadcast(scale, x)
    return x.mul_(scale) if own and x.dtype == scale.dtype else x * scale


class Room:
    """Memory for multiplying out, used again for every chunk: on a CPU fresh memory costs more than the arithmetic."""

    def __init__(self) -> None:
        self._held: dict[object, Tensor] = {}
        self.columns: dict[int, Tensor] = {}
        """What several pieces need of the chunk at hand: copies of what each output of a layer sees, by id of input."""

    def empty(self, key: object, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A tensor of this shape, of any content; the last one of this key is gone."""
        size = math.prod(shape)
        held = self._held.get(key)
        if held is None or held.numel() < size or held.dtype != like.dtype:
            held = self._held[key] = like.new_empty(size)
        return held[:size].view(shape)


def side_squares(side: Side, memo: Memo) -> Tensor:
    """As `squares`, without keeping what was formed for it."""
    if id(side) not in memo:
        memo[id(side)] = side, squares(whole(side))
    return memo[id(side)][1]


def reduced(side: Side, function: Callable[[Tensor], Tensor]) -> Tensor:
    """What a function gives for every example, chunk by chunk if the side has to be formed."""
    if isinstance(side, Tensor):
        return function(wide(side))
    examples = side.shape[0]
    step = chunk(examples, 4 * side.shape[1:].numel(), side.device)
    parts = [function(side[start : start + step]) for start in range(0, examples, step)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def same(x: Side, y: Side) -> bool:
    """Whether both are one and the same memory, so that their difference is exactly zero without looking."""
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        return x is y
    return x is y or (x.data_ptr() == y.data_ptr() and x.shape == y.shape and x.stride() == y.stride())
