"""Noise through a linear system over a span of steps: four small matrices, and they compose.

Over a span the state obeys ξ_end = Φ ξ_start + ρ, ρ of covariance P, and the outputs o = h·ξ add up to
Σ E[o²] = ξ_startᵀ Q ξ_start + κ. Two spans in a row are a span again (`then`), so T equal steps cost O(log T) products,
all of them of non-negative quantities: nothing cancels. Arrays may carry leading axes (many systems at once).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from momentree.strategy.base import Array


@dataclass(frozen=True, eq=False)
class Span:
    """Φ (`transition`), P (`covariance`), Q (`gramian`) and κ (`energy`), at noise of variance 1 a base row."""

    transition: Array
    covariance: Array
    gramian: Array
    energy: Array

    def then(self, later: Span) -> Span:
        """This span, and after it another."""
        phi, phi_t = later.transition, np.swapaxes(later.transition, -1, -2)
        first_t = np.swapaxes(self.transition, -1, -2)
        crossed = np.sum(later.gramian * self.covariance, axis=(-1, -2))  # tr(Q P), both symmetric
        return Span(
            phi @ self.transition,
            phi @ self.covariance @ phi_t + later.covariance,
            self.gramian + first_t @ later.gramian @ self.transition,
            self.energy + later.energy + crossed,
        )

    def power(self, times: int) -> Span:
        """`times` ≥ 1 of this span in a row."""
        result, square = None, self
        while True:
            if times & 1:
                result = square if result is None else result.then(square)
            times >>= 1
            if times == 0:
                assert result is not None
                return result
            square = square.then(square)

    def restrict(self, size: int) -> Span:
        """Only the first `size` coordinates of the state, the others being 0 at the start and forgotten at the end."""
        keep = np.s_[..., :size, :size]
        return Span(self.transition[keep], self.covariance[keep], self.gramian[keep], self.energy)

    def take(self, index: int | slice) -> Span:
        """Some of the systems along the first axis."""
        return Span(self.transition[index], self.covariance[index], self.gramian[index], self.energy[index])


def step_span(transition: Array, inlet: Array, outlet: Array) -> Span:
    """One step ξ' = Φ ξ + inlet·z with o = outlet·ξ', z of variance 1."""
    seen = np.sum(outlet * inlet, axis=-1)
    row = np.einsum("...i,...ij->...j", np.broadcast_to(outlet, inlet.shape), transition)
    return Span(transition, inlet[..., :, None] * inlet[..., None, :], row[..., :, None] * row[..., None, :], seen**2)


def concatenate(spans: list[Span]) -> Span:
    """Stacks of systems joined along the first axis."""
    return Span(
        np.concatenate([s.transition for s in spans]),
        np.concatenate([s.covariance for s in spans]),
        np.concatenate([s.gramian for s in spans]),
        np.concatenate([s.energy for s in spans]),
    )
