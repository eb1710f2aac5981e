"""What training needs of its neighbours: the plan, the query, the noise. Small protocols, so that each can be replaced.

Guarantee: a run releases what its plan was accounted for only if these keep their own: the query its sensitivity, the
noise stream its law, the order its places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from momentree.order.base import Order, Shape
from momentree.strategy.base import Strategy


class Plan(Protocol):
    """The public facts of a run. `momentree.plan.Plan` has them all."""

    @property
    def algorithm(self) -> str: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def order(self) -> Order: ...
    @property
    def strategy(self) -> Strategy: ...
    @property
    def momentum(self) -> float: ...
    @property
    def clip(self) -> float: ...
    @property
    def adjacency(self) -> Any: ...
    @property
    def noise_multiplier(self) -> float: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def learning_rate(self) -> float | None: ...
    @property
    def physical_batch_size(self) -> int | None: ...
    @property
    def steps(self) -> int: ...
    def digest(self) -> str: ...


class GradientQuery(Protocol):
    """Σ of clipped per-example gradients at the model's present weights: `momentree.query.clipped`."""

    @property
    def parameters(self) -> Sequence[Tensor]: ...

    def add_(
        self, sums: Sequence[Tensor], inputs: Any, targets: Any, weights: Tensor, *, seed: int, rows: Tensor
    ) -> None: ...


class LaggedQuery(Protocol):
    """Σ of (1-γ)·clip(difference) + γ·clip(gradient) against an earlier iterate: `momentree.query.differences`."""

    @property
    def parameters(self) -> Sequence[Tensor]: ...

    def add_lagged_(
        self, sums: Sequence[Tensor], inputs: Any, targets: Any, weights: Tensor,
        *, lagged: Sequence[Tensor] | None, leak: float, seed: int, rows: Tensor,
    ) -> None: ...  # fmt: skip


class AnchoredQuery(Protocol):
    """The three sums of the paper's Algorithm 2: `momentree.query.differences`."""

    @property
    def parameters(self) -> Sequence[Tensor]: ...

    def add_anchored_(
        self, gradients: Sequence[Tensor], changes: Sequence[Tensor] | None, residuals: Sequence[Tensor],
        inputs: Any, targets: Any, weights: Tensor,
        *, anchor: Sequence[Tensor], previous: Sequence[Tensor] | None, seed: int, rows: Tensor,
    ) -> None: ...  # fmt: skip


class Noise(Protocol):
    """Correlated noise, one row a step, added in place; `step` rows have been drawn."""

    step: int

    def add_(self, blocks: Sequence[Tensor], scale: float) -> None: ...

    def rebuild(self, step: int) -> None: ...


class Source(Protocol):
    """Base normals that can be drawn again: entry i of `out` is coordinate start + i of a row."""

    def fill_(self, out: Tensor, stream: int, row: int, start: int) -> Any: ...


class PlanWriter(Protocol):
    """Writes a plan so that a person and a later run can read it."""

    def __call__(self, plan: Any, path: Path) -> None: ...


Facts = Mapping[str, object]
