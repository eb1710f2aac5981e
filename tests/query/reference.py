"""Per-example gradients one by one, by plain differentiation: what every clipped sum is tested against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


def gradients(model: nn.Module, loss: Any, x: Tensor, y: Tensor, at: Sequence[Tensor] | None = None) -> list[Tensor]:
    """`(B, *shape)` for each trainable parameter; every example is given to the model alone."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    values = list(named.values()) if at is None else at
    rows = []
    for i in range(len(x)):
        leaves = [v.detach().requires_grad_() for v in values]
        value = loss(functional_call(model, dict(zip(named, leaves, strict=True)), (x[i : i + 1],)), y[i : i + 1])
        got = torch.autograd.grad(value, leaves, allow_unused=True)
        rows.append([torch.zeros_like(v) if g is None else g for g, v in zip(got, leaves, strict=True)])
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def norms(found: Sequence[Tensor]) -> Tensor:
    """The norm of every example's whole gradient, in float64."""
    return torch.cat([g.double().flatten(1) for g in found], 1).norm(dim=1)


def clipped_sum(found: Sequence[Tensor], level: float, weights: Tensor | None = None) -> list[Tensor]:
    """Σ_i w_i · g_i · min(1, level / ‖g_i‖)."""
    scale = (level / norms(found)).clamp(max=1.0)
    if weights is not None:
        scale = scale * weights
    return [torch.einsum("b,b...->...", scale, g.double()) for g in found]


def relative(given: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """‖given - wanted‖ / ‖wanted‖, all parameters together."""
    one = torch.cat([x.double().flatten() for x in given])
    two = torch.cat([x.double().flatten() for x in wanted])
    return float((one - two).norm() / two.norm())


def zeros(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(p) for p in parameters]
