"""Convolutions: per-example weight gradients from a strided view of the input and `bmm`, never through `F.unfold`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from momentree.query.layers.base import NOT_BATCH, Piece, Vector, joined
from momentree.query.layers.linear import Outer, gram_squares, summed_products
from momentree.query.layers.sides import Change, Cleaned, Formed, Mixed, Room, Side, reduced, same, scaled, whole
from momentree.query.norms import Memo, chunk, wide


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where a kernel of some size looks. `pads` are as `torch.nn.functional.pad` takes them."""

    pads: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def patches(self, x: Tensor, out: Sequence[int]) -> Tensor:
        """What each kernel entry sees: a view `(B, channels, *kernel, *out)` of a padded `x`, no copy."""
        first, channel, *places = x.stride()
        taps = [s * d for s, d in zip(places, self.dilation, strict=True)]
        steps = [s * d for s, d in zip(places, self.stride, strict=True)]
        shape = (x.shape[0], x.shape[1], *self.kernel, *out)
        return x.as_strided(shape, (first, channel, *taps, *steps), x.storage_offset())

    def padded(self, x: Tensor) -> Tensor:
        return F.pad(x, self.pads) if any(self.pads) else x


@dataclass(slots=True, eq=False)
class Patches:
    """The weight's gradient of a convolution: input `(B, C, *space)`, output gradients `(B, O, *out)`."""

    x: Side
    b: Side
    shape: torch.Size
    geometry: Geometry

    @property
    def numel(self) -> int:
        return self.shape.numel()

    @property
    def places(self) -> int:
        return self.b.shape[2:].numel()

    @property
    def width(self) -> int:
        """How many inputs an output entry sees: channels of a group times the kernel."""
        return self.shape[1:].numel()

    def columns(self, start: int, stop: int, room: Room) -> Tensor:
        """`(examples · groups, width, places)`: what each output entry sees, copied."""
        padded = self.geometry.padded(wide(self.x[start:stop]))
        patches = self.geometry.patches(padded, self.b.shape[2:])
        shape = ((stop - start) * self.geometry.groups, self.width, self.places)
        copied = room.empty(id(self.x), shape, patches)
        copied.view(patches.shape).copy_(patches)
        return copied

    def rows(self, start: int, stop: int) -> Tensor:
        """`(examples · groups, outputs of a group, places)`."""
        b = wide(self.b[start:stop])
        return b.reshape((stop - start) * self.geometry.groups, -1, self.places)

    def squares(self, memo: Memo) -> Tensor | None:
        groups = self.geometry.groups
        outputs = self.b.shape[1] // groups
        if 3 * self.places * (self.width + outputs) >= self.width * outputs:
            return None
        examples = self.x.shape[0]
        step = chunk(examples, 8 * groups * self.places * (self.width + outputs + self.places), self.x.device)
        norms, room = [], Room()
        for start in range(0, examples, step):
            stop = min(start + step, examples)
            a = self.columns(start, stop, room).transpose(1, 2)
            b = self.rows(start, stop).transpose(1, 2)
            norms.append(gram_squares([Outer(a, b)]).view(stop - start, groups).sum(1))
        return joined(norms)

    def each(self) -> int:
        return self.geometry.groups * self.width * self.places

    def example(self, start: int, stop: int, total: Tensor | None, room: Room) -> Tensor:
        if id(self.x) not in room.columns:
            room.columns[id(self.x)] = self.columns(start, stop, room)
        columns = room.columns[id(self.x)].transpose(1, 2)
        rows = self.rows(start, stop)
        out = None if total is None else total.view(rows.shape[0], rows.shape[1], self.width)
        return summed_products(rows, columns, out, room).view(stop - start, -1)

    def add_(self, total: Tensor, scale: Tensor | None) -> None:
        b = scaled(whole(self.b).to(total.dtype), scale, isinstance(self.b, Formed))
        x, pads = whole(self.x).to(total.dtype), self.geometry.pads[::-1]
        dimensions = len(self.geometry.kernel)
        if pads[::2] != pads[1::2]:
            x, pads = self.geometry.padded(x), (0,) * len(pads)
        gradient = torch.ops.aten.convolution_backward(
            b,
            x,
            total,
            None,
            self.geometry.stride,
            pads[::2],
            self.geometry.dilation,
            False,
            [0] * dimensions,
            self.geometry.groups,
            [False, True, False],
        )[1]
        total += gradient

    def joined(self, scale: Tensor, other: Piece, other_scale: Tensor) -> Piece | None:
        if not isinstance(other, Patches) or not same(self.x, other.x):
            return None
        return replace(self, b=Mixed(self.b, scale, other.b, other_scale))

    def cleaned(self, good: Tensor) -> Patches:
        return replace(self, x=Cleaned(self.x, good), b=Cleaned(self.b, good))

    def small(self) -> bool:
        return self.x.shape[0] * self.numel <= (self.x.shape.numel() + self.b.shape.numel()) // 2


@dataclass(slots=True, eq=False)
class ConvolutionUse:
    edge: Any
    x: Tensor
    shape: torch.Size
    geometry: Geometry
    weight: int | None
    bias: int | None

    def indices(self) -> list[int]:
        return [i for i in (self.weight, self.bias) if i is not None]

    def pieces(self, grad: Tensor) -> list[tuple[int, Piece]]:
        found: list[tuple[int, Piece]] = []
        if self.weight is not None:
            found.append((self.weight, Patches(self.x, grad, self.shape, self.geometry)))
        if self.bias is not None:
            found.append((self.bias, Vector(reduced(grad, _over_places))))
        return found

    def difference(self, other: ConvolutionUse, grad: Tensor, other_grad: Tensor) -> list[tuple[int, Piece]]:
        """As for linear maps: δb with the first input, and the other output gradient with δx."""
        change = Change(grad, other_grad)
        found: list[tuple[int, Piece]] = []
        if self.weight is not None:
            found.append((self.weight, Patches(self.x, change, self.shape, self.geometry)))
            if not same(self.x, other.x):
                moved = Change(self.x, other.x)
                found.append((self.weight, Patches(moved, other_grad, self.shape, self.geometry)))
        if self.bias is not None:
            found.append((self.bias, Vector(reduced(change, _over_places))))
        return found


def _over_places(x: Tensor) -> Tensor:
    return x.flatten(2).sum(2)


def convolution(
    capture: Any,
    out: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> None:
    """Records `torch.nn.functional.conv1d`, `conv2d`, `conv3d`."""
    places = capture.index(weight), capture.index(bias)
    dimensions = weight.dim() - 2
    if input.dim() != weight.dim() or input.shape[0] != capture.examples:
        capture.refuse(places, NOT_BATCH)
        return
    kernel = tuple(weight.shape[2:])
    stride, dilation = _each(stride, dimensions), _each(dilation, dimensions)
    pads: list[int] = []
    for size, apart, pad in zip(kernel, dilation, _paddings(padding, dimensions), strict=True):
        both = apart * (size - 1)
        before, after = (both // 2, both - both // 2) if pad is None else (pad, pad)
        pads = [before, after, *pads]
    geometry = Geometry(tuple(pads), kernel, stride, dilation, groups)
    capture.record(ConvolutionUse, out, input, weight.shape, geometry, *places)


def _each(value: Any, dimensions: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dimensions if len(values) == 1 else values


def _paddings(padding: Any, dimensions: int) -> tuple[int | None, ...]:
    """One number for each dimension; None where the padding keeps the size."""
    if isinstance(padding, str):
        return (0 if padding == "valid" else None,) * dimensions
    return _each(padding, dimensions)
