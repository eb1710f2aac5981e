"""All pieces of one parameter: the norm of their *sum* over uses, and their weighted sum over examples."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from momentree.query.layers.base import Piece, Vector, materialised_squares
from momentree.query.layers.embedding import Lookup, merged, tied_squares
from momentree.query.layers.linear import Outer, outer_squares
from momentree.query.layers.sides import whole
from momentree.query.layers.views import Viewed, apart
from momentree.query.norms import Memo


@dataclass(slots=True, eq=False)
class Gradient:
    """The per-example gradients of one parameter, as the sum of the pieces that its uses gave."""

    pieces: list[Piece] = field(default_factory=list)

    def squares(self, memo: Memo, examples: int, device: torch.device) -> Tensor | None:
        """‖g_i‖² in float64, or None where the parameter was not used at all.

        Gradients that are small once multiplied out replace their pieces, so that adding them up is nearly free.
        """
        return measured([self], memo, examples, device)[0]

    def closed(self, memo: Memo, examples: int, device: torch.device) -> Tensor | None:
        """The same where it takes no multiplying out, otherwise None."""
        if len(self.pieces) > _MANY:
            self.pieces = _joined(self.pieces)
        closed = self.pieces[0].squares(memo) if len(self.pieces) == 1 else _closed(self.pieces, memo)
        if closed is not None:
            return closed
        views = [piece for piece in self.pieces if isinstance(piece, Viewed)]
        groups = apart(views) if len(views) == len(self.pieces) else None
        if groups is not None:
            parts = [Gradient(group).squares({}, examples, device) for group in groups]
            return torch.stack([part for part in parts if part is not None]).sum(0)
        return None

    def add_(self, total: Tensor, scale: Tensor | None, good: Tensor | None) -> None:
        """`total += Σ_i scale_i g_i`; with `good`, the other examples add exact zeros whatever they hold."""
        for piece in self.pieces:
            (piece if good is None else piece.cleaned(good)).add_(total, scale)


def measured(gradients: list[Gradient], memo: Memo, examples: int, device: torch.device) -> list[Tensor | None]:
    """`squares` of several gradients of one parameter; what they have in common is worked out once."""
    found = [gradient.closed(memo, examples, device) if gradient.pieces else None for gradient in gradients]
    left = [k for k, gradient in enumerate(gradients) if gradient.pieces and found[k] is None]
    if left:
        norms = materialised_squares([gradients[k].pieces for k in left], examples, device)
        for k, (norm, kept) in zip(left, norms, strict=True):
            found[k] = norm
            if kept is not None:
                gradients[k].pieces = [kept]
    return found


_MANY = 4
"""Pieces of a parameter beyond which outer products are laid side by side: a recurrent weight has one a time step."""


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Outer products of one kind as a single one over all their places, vectors added up."""
    found: list[Piece] = [p for p in pieces if not isinstance(p, Outer | Vector)]
    for transposed in (False, True):
        outers = [p for p in pieces if isinstance(p, Outer) and p.transposed is transposed]
        if outers:
            a, b = (
                [x if x.dim() == 3 else x.unsqueeze(1) for x in map(whole, side)]
                for side in zip(*[(p.a, p.b) for p in outers], strict=True)
            )
            found.append(Outer(torch.cat(a, 1), torch.cat(b, 1), transposed))
    vectors = [whole(p.values) for p in pieces if isinstance(p, Vector)]
    if vectors:
        found.append(Vector(torch.stack(vectors).sum(0)))
    return found


def add_both_(
    total: Tensor, one: Gradient, scale: Tensor, two: Gradient, other_scale: Tensor, good: Tensor | None
) -> None:
    """`total += Σ_i scale_i g_i + other_scale_i g'_i`, with one product for pieces that share a layer input."""
    left = list(two.pieces)
    for piece in one.pieces:
        for other in left:
            both = piece.joined(scale, other, other_scale)
            if both is not None:
                Gradient([both]).add_(total, None, good)
                left = [p for p in left if p is not other]
                break
        else:
            Gradient([piece]).add_(total, scale, good)
    Gradient(left).add_(total, other_scale, good)


def _closed(pieces: list[Piece], memo: Memo) -> Tensor | None:
    vectors = [p for p in pieces if isinstance(p, Vector)]
    outers = [p for p in pieces if isinstance(p, Outer)]
    lookups = [p for p in pieces if isinstance(p, Lookup)]
    if len({p.transposed for p in outers}) > 1:
        return None
    if len(outers) == len(pieces):
        return outer_squares(outers, memo)
    if len(lookups) == len(pieces):
        return merged(lookups).squares({})
    if lookups and len(lookups) + len(outers) == len(pieces):
        return tied_squares(lookups, outers)
    if len(vectors) == len(pieces):
        return Vector(torch.stack([whole(v.values) for v in vectors]).sum(0)).squares({})
    return None
