"""Linear maps: the weight's gradient is Σ_t b_t a_tᵀ over the places t, for layer inputs a and output gradients b."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from momentree.query.layers.base import NOT_BATCH, Piece, Vector, joined
from momentree.query.layers.sides import (
    Change,
    Cleaned,
    Formed,
    Mixed,
    Room,
    Side,
    reduced,
    same,
    scaled,
    side_squares,
    taken,
    whole,
)
from momentree.query.norms import BLOCK, Memo, chunk, squares, wide


@dataclass(slots=True, eq=False)
class Outer:
    """Σ_t b_t a_tᵀ, or its transpose for a weight that is used as `x @ W`. Either `(B, in)` or `(B, T, in)`."""

    a: Side
    b: Side
    transposed: bool = False

    @property
    def places(self) -> int:
        return 1 if len(self.a.shape) == 2 else self.a.shape[1]

    @property
    def numel(self) -> int:
        return self.a.shape[-1] * self.b.shape[-1]

    def left(self) -> Side:
        return self.a if self.transposed else self.b

    def right(self) -> Side:
        return self.b if self.transposed else self.a

    def squares(self, memo: Memo) -> Tensor | None:
        if self.places == 1:
            return side_squares(self.a, memo) * side_squares(self.b, memo)
        return gram_squares([self]) if self.prefers_gram() else None

    def prefers_gram(self) -> bool:
        wide_sides = self.a.shape[-1] + self.b.shape[-1]
        return 3 * self.places * wide_sides < self.numel

    def each(self) -> int:
        return self.places * (self.a.shape[-1] + self.b.shape[-1])

    def example(self, start: int, stop: int, total: Tensor | None, room: Room) -> Tensor:
        left, right = wide(self.left()[start:stop]), wide(self.right()[start:stop])
        if self.places == 1:
            left, right = left.reshape(stop - start, 1, -1), right.reshape(stop - start, 1, -1)
        out = None if total is None else total.view(stop - start, left.shape[-1], right.shape[-1])
        return summed_products(left.transpose(1, 2), right, out, room).view(stop - start, -1)

    def add_(self, total: Tensor, scale: Tensor | None) -> None:
        left, right, kind = self.left(), self.right(), total.dtype
        fewer = left.shape[-1] <= right.shape[-1]
        if len(self.a.shape) == 2:
            one, two = whole(left), whole(right)
            if fewer:
                one = scaled(one, scale, isinstance(left, Formed))
            else:
                two = scaled(two, scale, isinstance(right, Formed))
            total.addmm_(one.to(kind).t(), two.to(kind))
            return
        examples = self.a.shape[0]
        row = self.places * min(left.shape[-1], right.shape[-1]) * total.element_size()
        longest = 4 * BLOCK  # rows of one product: float32 chains stay short
        step = min(chunk(examples, row, total.device), max(1, longest // self.places))
        for start in range(0, examples, step):
            stop = min(start + step, examples)
            one, two = taken(left, start, stop), taken(right, start, stop)
            c = None if scale is None else scale[start:stop]
            if fewer:
                one = scaled(one, c, isinstance(left, Formed))
            else:
                two = scaled(two, c, isinstance(right, Formed))
            one, two = one.to(kind), two.to(kind)
            for place in range(0, self.places, longest):
                part = slice(place, place + longest)
                total.addmm_(one[:, part].flatten(0, 1).t(), two[:, part].flatten(0, 1))

    def joined(self, scale: Tensor, other: Piece, other_scale: Tensor) -> Piece | None:
        if not isinstance(other, Outer) or self.transposed != other.transposed or not same(self.a, other.a):
            return None
        return Outer(self.a, Mixed(self.b, scale, other.b, other_scale), self.transposed)

    def cleaned(self, good: Tensor) -> Outer:
        return Outer(Cleaned(self.a, good), Cleaned(self.b, good), self.transposed)

    def small(self) -> bool:
        return self.places > 1 and self.a.shape[0] * self.numel <= (self.a.shape.numel() + self.b.shape.numel()) // 2


def summed_products(left: Tensor, right: Tensor, total: Tensor | None, room: Room) -> Tensor:
    """`left @ right` for every example, over at most `BLOCK` places at a time: a longer float32 chain may lose 1%.

    Added to `total`, if it is given.
    """
    if total is not None and 4 * right.shape[1] <= BLOCK:  # of four pieces at most: their chains may be one
        return total.baddbmm_(left, right)
    shape = (left.shape[0], left.shape[1], right.shape[2])
    found = room.empty(total is None, shape, left)
    torch.bmm(left[:, :, :BLOCK], right[:, :BLOCK], out=found)
    for start in range(BLOCK, right.shape[1], BLOCK):
        found += torch.bmm(left[:, :, start : start + BLOCK], right[:, start : start + BLOCK])
    return found if total is None else total.add_(found)


def gram_squares(pieces: list[Outer]) -> Tensor:
    """‖Σ_pieces Σ_t b_t a_tᵀ‖² = Σ_{t,s} ⟨a_t, a_s⟩⟨b_t, b_s⟩ over all places of all pieces, in float64."""
    first = pieces[0]
    examples = first.a.shape[0]
    if all(piece.places == 1 for piece in pieces):
        a = [whole(p.a).reshape(examples, -1).double() for p in pieces]
        b = [whole(p.b).reshape(examples, -1).double() for p in pieces]
        total = squares(a[0]) * squares(b[0])
        for i in range(1, len(pieces)):
            total += squares(a[i]) * squares(b[i])
            for j in range(i):
                total.addcmul_((a[i] * a[j]).sum(1), (b[i] * b[j]).sum(1), value=2)
        return total.clamp_(min=0)
    places = sum(piece.places for piece in pieces)
    row = 8 * places * (first.a.shape[-1] + first.b.shape[-1] + 2 * places)
    step = chunk(examples, row, first.a.device)
    norms = []
    for start in range(0, examples, step):
        a_part = _joined([p.a for p in pieces], start, step)
        b_part = _joined([p.b for p in pieces], start, step)
        inner = torch.bmm(a_part, a_part.transpose(1, 2))
        inner *= torch.bmm(b_part, b_part.transpose(1, 2))
        norms.append(inner.sum((1, 2)).clamp(min=0))
    return joined(norms)


def _joined(sides: list[Side], start: int, step: int) -> Tensor:
    parts = [x[start : start + step].double() for x in sides]
    parts = [x if x.dim() == 3 else x.unsqueeze(1) for x in parts]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _pair_squares(one: Outer, two: Outer, memo: Memo) -> Tensor | None:
    """‖b₁a₁ᵀ + b₂a₂ᵀ‖² in float32, unless the two cancel so far that it would lose more than a digit."""
    inner = _inner(two.a, one.a, memo).double() * _inner(one.b, two.b, memo)
    own = side_squares(one.a, memo) * side_squares(one.b, memo)
    own.addcmul_(side_squares(two.a, memo), side_squares(two.b, memo))
    total = own.add(inner, alpha=2)
    return None if bool((total < 0.1 * own).any()) else total


def _inner(x: Side, y: Side, memo: Memo) -> Tensor:
    """⟨x_i, y_i⟩ for every example, with `x` formed once for it and for its own norm."""
    formed, other = wide(whole(x)), wide(whole(y))
    if id(x) not in memo:
        memo[id(x)] = x, squares(formed)
    return scaled_by(formed, other, isinstance(x, Formed)).sum(1)


def scaled_by(x: Tensor, y: Tensor, own: bool) -> Tensor:
    """x·y entry by entry, in place where `x` is the caller's own."""
    return x.mul_(y) if own else x * y


def outer_squares(pieces: list[Outer], memo: Memo) -> Tensor | None:
    """The norm of the *sum* over several uses, where Gram matrices are the cheaper way."""
    if (
        len(pieces) == 2
        and pieces[0].a.device.type == "cpu"
        and all(p.places == 1 and len(p.a.shape) == 2 for p in pieces)
    ):
        total = _pair_squares(pieces[0], pieces[1], memo)
        if total is not None:
            return total
    places = sum(piece.places for piece in pieces)
    sides = pieces[0].a.shape[-1] + pieces[0].b.shape[-1]
    return gram_squares(pieces) if 3 * places * sides < pieces[0].numel or places <= 4 else None


@dataclass(slots=True, eq=False)
class LinearUse:
    """One application of `x @ Wᵀ + bias` (or `x @ W`): `a` as `(B, in)` or `(B, T, in)`."""

    edge: Any
    a: Tensor
    rows: Any
    weight: int | None
    bias: int | None
    transposed: bool = False

    def indices(self) -> list[int]:
        return [i for i in (self.weight, self.bias) if i is not None]

    def pieces(self, grad: Tensor) -> list[tuple[int, Piece]]:
        b = self.rows(grad)
        found: list[tuple[int, Piece]] = []
        if self.weight is not None:
            found.append((self.weight, Outer(self.a, b, self.transposed)))
        if self.bias is not None:
            found.append((self.bias, Vector(b if b.dim() == 2 else b.sum(1, dtype=wide(b[:0]).dtype))))
        return found

    def difference(self, other: LinearUse, grad: Tensor, other_grad: Tensor) -> list[tuple[int, Piece]]:
        """b₁a₁ᵀ - b₂a₂ᵀ = δb·a₁ᵀ + b₂·δaᵀ, with δa and δb formed first."""
        other_b = other.rows(other_grad)
        change = Change(self.rows(grad), other_b)
        found: list[tuple[int, Piece]] = []
        if self.weight is not None:
            found.append((self.weight, Outer(self.a, change, self.transposed)))
            if not same(self.a, other.a):
                found.append((self.weight, Outer(Change(self.a, other.a), other_b, self.transposed)))
        if self.bias is not None:
            found.append((self.bias, Vector(change if len(change.shape) == 2 else reduced(change, _over_places))))
        return found


def _over_places(x: Tensor) -> Tensor:
    return x.sum(1)


def linear(capture: Any, out: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Records `torch.nn.functional.linear`."""
    places = capture.index(weight), capture.index(bias)
    if weight.dim() != 2:
        capture.refuse(places, "a linear map with a vector for a weight")
        return
    if not capture.batched(input):
        capture.refuse(places, NOT_BATCH)
        return
    capture.record(LinearUse, out, capture.rows(input), capture.rows, *places)


def product(capture: Any, out: Tensor, input: Tensor, other: Tensor) -> None:
    """Records `x @ W` for a parameter W of shape (in, out)."""
    left, right = capture.index(input), capture.index(other)
    if left is not None or other.dim() != 2 or input.dim() < 2:
        capture.refuse((left, right), "a matrix product that is not activations times a matrix of parameters")
        return
    if not capture.batched(input):
        capture.refuse((right,), NOT_BATCH)
        return
    capture.record(LinearUse, out, capture.rows(input), capture.rows, right, None, True)
