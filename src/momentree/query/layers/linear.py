"""Linear maps: the weight's gradient is Σ_t b_t a_tᵀ over the places t, for layer inputs a and output gradients b."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from momentree.query.layers.base import NOT_BATCH, Piece, Vector, mixed, zeroed
from momentree.query.norms import BLOCK, Memo, chunk, squares, wide


@dataclass(slots=True, eq=False)
class Outer:
    """Σ_t b_t a_tᵀ, or its transpose for a weight that is used as `x @ W`. Either `(B, in)` or `(B, T, in)`."""

    a: Tensor
    b: Tensor
    transposed: bool = False

    @property
    def places(self) -> int:
        return 1 if self.a.dim() == 2 else self.a.shape[1]

    @property
    def numel(self) -> int:
        return self.a.shape[-1] * self.b.shape[-1]

    def left(self) -> Tensor:
        return self.a if self.transposed else self.b

    def right(self) -> Tensor:
        return self.b if self.transposed else self.a

    def squares(self, memo: Memo) -> Tensor | None:
        if self.places == 1:
            return squares(self.a, memo) * squares(self.b, memo)
        return gram_squares([self]) if self.prefers_gram() else None

    def prefers_gram(self) -> bool:
        wide_sides = self.a.shape[-1] + self.b.shape[-1]
        return 3 * self.places * wide_sides < self.numel

    def example(self, start: int, stop: int) -> Tensor:
        left, right = wide(self.left()[start:stop]), wide(self.right()[start:stop])
        if self.places == 1:
            left, right = left.reshape(stop - start, 1, -1), right.reshape(stop - start, 1, -1)
        return summed_products(left.transpose(1, 2), right).flatten(1)

    def add_(self, total: Tensor, scale: Tensor) -> None:
        left, right, kind = self.left(), self.right(), total.dtype
        scale = scale.to(kind)
        fewer = left.shape[-1] <= right.shape[-1]
        if self.a.dim() == 2:
            if fewer:
                total.addmm_((left * scale[:, None]).t(), right.to(kind))
            else:
                total.addmm_(left.to(kind).t(), right * scale[:, None])
            return
        examples = self.a.shape[0]
        row = self.places * min(left.shape[-1], right.shape[-1]) * total.element_size()
        longest = 4 * BLOCK  # rows of one product: float32 chains stay short
        step = min(chunk(examples, row, total.device), max(1, longest // self.places))
        for start in range(0, examples, step):
            c = scale[start : start + step, None, None]
            for place in range(0, self.places, longest):
                part = slice(start, start + step), slice(place, place + longest)
                one, two = left[part], right[part]
                one, two = (one * c, two.to(kind)) if fewer else (one.to(kind), two * c)
                total.addmm_(one.flatten(0, 1).t(), two.flatten(0, 1))

    def joined(self, scale: Tensor, other: Piece, other_scale: Tensor) -> Piece | None:
        if not isinstance(other, Outer) or self.transposed != other.transposed or not same(self.a, other.a):
            return None
        return Outer(self.a, mixed(wide(self.b), scale, wide(other.b), other_scale), self.transposed)

    def cleaned(self, good: Tensor) -> Outer:
        return Outer(zeroed(self.a, good), zeroed(self.b, good), self.transposed)

    def small(self) -> bool:
        return self.places > 1 and self.a.shape[0] * self.numel <= (self.a.numel() + self.b.numel()) // 2


def summed_products(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """`left @ right` for every example, over at most `BLOCK` places at a time: a longer float32 chain may lose 1%."""
    places = right.shape[1]
    total = torch.bmm(left[:, :, :BLOCK], right[:, :BLOCK], out=out)
    for start in range(BLOCK, places, BLOCK):
        total += torch.bmm(left[:, :, start : start + BLOCK], right[:, start : start + BLOCK])
    return total


def gram_squares(pieces: list[Outer]) -> Tensor:
    """‖Σ_pieces Σ_t b_t a_tᵀ‖² = Σ_{t,s} ⟨a_t, a_s⟩⟨b_t, b_s⟩ over all places of all pieces, in float64."""
    first = pieces[0]
    examples = first.a.shape[0]
    if all(piece.places == 1 for piece in pieces):
        a = [p.a.reshape(examples, -1).double() for p in pieces]
        b = [p.b.reshape(examples, -1).double() for p in pieces]
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
    return norms[0] if len(norms) == 1 else torch.cat(norms)


def _joined(tensors: list[Tensor], start: int, step: int) -> Tensor:
    parts = [x[start : start + step].double() for x in tensors]
    parts = [x if x.dim() == 3 else x.unsqueeze(1) for x in parts]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _pair_squares(one: Outer, two: Outer, memo: Memo) -> Tensor | None:
    """‖b₁a₁ᵀ + b₂a₂ᵀ‖² in float32, unless the two cancel so far that it would lose more than a digit."""
    own = squares(one.a, memo) * squares(one.b, memo) + squares(two.a, memo) * squares(two.b, memo)
    cross = (one.a * two.a).sum(1).double() * (one.b * two.b).sum(1)
    total = own.add(cross, alpha=2)
    return None if bool((total < 0.1 * own).any()) else total


def outer_squares(pieces: list[Outer], memo: Memo) -> Tensor | None:
    """The norm of the *sum* over several uses, where Gram matrices are the cheaper way."""
    if len(pieces) == 2 and pieces[0].a.device.type == "cpu" and all(p.a.dim() == 2 for p in pieces):
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
        b, other_b = wide(self.rows(grad)), wide(other.rows(other_grad))
        change = b - other_b
        found: list[tuple[int, Piece]] = []
        if self.weight is not None:
            found.append((self.weight, Outer(self.a, change, self.transposed)))
            if not same(self.a, other.a):
                found.append((self.weight, Outer(wide(self.a) - wide(other.a), other_b, self.transposed)))
        if self.bias is not None:
            found.append((self.bias, Vector(change if change.dim() == 2 else change.sum(1))))
        return found


def same(x: Tensor, y: Tensor) -> bool:
    """Whether both are one and the same memory, so that their difference is exactly zero without looking."""
    return x is y or (x.data_ptr() == y.data_ptr() and x.shape == y.shape and x.stride() == y.stride())


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
