"""Embeddings: the gradient is a few rows of a table, and never more than that is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from momentree.query.layers.base import NOT_BATCH, Piece, materialised_squares
from momentree.query.layers.linear import Outer, outer_squares
from momentree.query.layers.sides import Cleaned, Mixed, Room, same, whole
from momentree.query.norms import Memo, chunk, squares, wide


@dataclass(slots=True, eq=False)
class Lookup:
    """Σ_t e_{index_t} b_tᵀ for a table of `size` rows: index `(B, T)`, b `(B, T, d)`."""

    index: Tensor
    b: Tensor
    size: int

    @property
    def numel(self) -> int:
        return self.size * self.b.shape[-1]

    def squares(self, memo: Memo) -> Tensor | None:
        return squares(self.gathered()) if self.index.shape[1] > 1 else squares(self.b, memo)

    def gathered(self) -> Tensor:
        """`b` with the places of one token added up, in the first of its slots: the sum's norm is the table's norm."""
        index, b = self.index, wide(self.b)
        ordered, order = index.sort(dim=1, stable=True)
        fresh = torch.zeros_like(ordered)
        fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        slot = torch.empty_like(index).scatter_(1, order, fresh.cumsum(1))
        examples, places, width = b.shape
        slot += torch.arange(examples, device=index.device)[:, None] * places
        total = torch.zeros(examples * places, width, dtype=b.dtype, device=b.device)
        return total.index_add_(0, slot.view(-1), b.reshape(-1, width)).view(examples, places, width)

    def each(self) -> int:
        return self.numel

    def example(self, start: int, stop: int, total: Tensor | None, room: Room) -> Tensor:
        index, b = self.index[start:stop], wide(self.b[start:stop])
        table = b.new_zeros(stop - start, self.numel) if total is None else total
        table.view(stop - start, self.size, -1).scatter_add_(1, index.unsqueeze(2).expand_as(b), b)
        return table

    def add_(self, total: Tensor, scale: Tensor | None) -> None:
        b = self.b.to(total.dtype)
        b = b if scale is None else b * scale[:, None, None]
        total.index_add_(0, self.index.reshape(-1), b.flatten(0, 1))

    def joined(self, scale: Tensor, other: Piece, other_scale: Tensor) -> Piece | None:
        if not isinstance(other, Lookup) or not same(self.index, other.index):
            return None
        return Lookup(self.index, whole(Mixed(self.b, scale, other.b, other_scale)), self.size)

    def cleaned(self, good: Tensor) -> Lookup:
        return Lookup(self.index, whole(Cleaned(self.b, good)), self.size)

    def small(self) -> bool:
        return False


def tied_squares(lookups: list[Lookup], outers: list[Outer]) -> Tensor:
    """‖table gradient + Σ_t b_t a_tᵀ‖² for a table that is a linear map too (tied input and output embeddings).

    The cross term is 2 Σ_{t,s} b_t[index_s] ⟨a_t, e_s⟩ for lookups (index_s, e_s): nothing of table size is formed.
    """
    table = merged(lookups)
    examples, slots = table.index.shape
    own = outer_squares(outers, {})
    if own is None:
        ((own, _),) = materialised_squares([list(outers)], examples, table.b.device)
    total = squares(table.gathered()) + own
    for outer in outers:
        a, b = (x if x.dim() == 3 else x.unsqueeze(1) for x in (whole(outer.right()), whole(outer.left())))
        row = 8 * (a.shape[1] * (a.shape[2] + 2 * slots) + slots * a.shape[2])
        step = chunk(examples, row, a.device)
        for start in range(0, examples, step):
            part = slice(start, start + step)
            inner = torch.bmm(a[part].double(), table.b[part].double().transpose(1, 2))
            index = table.index[part].unsqueeze(1).expand(-1, b.shape[1], -1)
            total[part] += 2 * (b[part].gather(2, index).double() * inner).sum((1, 2))
    return total.clamp(min=0)


def merged(lookups: list[Lookup]) -> Lookup:
    """Several lookups in one table as a single one."""
    if len(lookups) == 1:
        return lookups[0]
    return Lookup(torch.cat([x.index for x in lookups], 1), torch.cat([wide(x.b) for x in lookups], 1), lookups[0].size)


@dataclass(slots=True, eq=False)
class EmbeddingUse:
    edge: Any
    index: Tensor
    padding: int | None
    size: int
    weight: int

    def indices(self) -> list[int]:
        return [self.weight]

    def lookup(self, b: Tensor) -> Lookup:
        b = b.reshape(*self.index.shape, b.shape[-1])
        if self.padding is not None:
            b = b.masked_fill((self.index == self.padding).unsqueeze(2), 0.0)
        return Lookup(self.index, b, self.size)

    def pieces(self, grad: Tensor) -> list[tuple[int, Piece]]:
        return [(self.weight, self.lookup(grad))]

    def difference(self, other: EmbeddingUse, grad: Tensor, other_grad: Tensor) -> list[tuple[int, Piece]]:
        if same(self.index, other.index):
            return [(self.weight, self.lookup(wide(grad) - wide(other_grad)))]
        return [(self.weight, self.lookup(wide(grad))), (self.weight, other.lookup(-wide(other_grad)))]


def embedding(
    capture: Any,
    out: Tensor,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> None:
    """Records `torch.nn.functional.embedding`."""
    place = capture.index(weight)
    if max_norm is not None:
        capture.refuse((place,), "an embedding with max_norm writes to its weight in the forward pass")
    elif scale_grad_by_freq:
        capture.refuse((place,), "scale_grad_by_freq makes gradients depend on the other examples of the batch")
    else:
        examples = capture.examples
        if input.shape[0] % examples:
            capture.refuse((place,), NOT_BATCH)
            return
        if padding_idx is not None and padding_idx < 0:
            padding_idx += weight.shape[0]
        capture.record(EmbeddingUse, out, input.reshape(examples, -1), padding_idx, weight.shape[0], place)
