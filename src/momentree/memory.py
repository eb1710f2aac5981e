"""What a run keeps besides the model, in vectors of the model's size: declared before it starts, printed by the plan.

`epoch-lag` keeps the iterate and the released stream of every step of an epoch (2n vectors). `sr-nsgd` keeps Ĝ and W
of an epoch, and two trees whose windows reach back an epoch, n vectors each (4n). That is n·d numbers, so they wait in
memory only while that is small, and on disk otherwise; either way the count is here and not a surprise.

Not counted: the model, its gradients and activations, and the noise's buffers of one chunk (noise/pieces.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

DEFAULT_BYTES = 2**30
"""Vectors of earlier steps stay in memory up to this size where no budget is given."""


@dataclass(frozen=True)
class Memory:
    """Model-sized vectors. `waiting`: of earlier steps, in memory or on disk; the others are always in memory."""

    sums: int
    noise: int
    update: int
    waiting: int
    where: Literal["memory", "disk", "nowhere"]
    dimension: int

    @property
    def vectors_in_memory(self) -> int:
        return self.sums + self.noise + self.update + (self.waiting if self.where == "memory" else 0)

    @property
    def floats_in_memory(self) -> int:
        """Numbers held in memory besides the model, its gradient and its activations."""
        return self.vectors_in_memory * self.dimension

    @property
    def floats_on_disk(self) -> int:
        return self.waiting * self.dimension if self.where == "disk" else 0

    def describe(self) -> dict[str, object]:
        return {
            "vectors": {"sums": self.sums, "noise": self.noise, "update": self.update, "waiting": self.waiting},
            "waiting_in": self.where,
            "vectors_in_memory": self.vectors_in_memory,
            "floats_in_memory": self.floats_in_memory,
            "floats_on_disk": self.floats_on_disk,
        }


def waiting_vectors(kind: str, steps_per_epoch: int, epochs: int) -> int:
    """How many vectors of earlier steps are kept at most: the exact number, once an epoch or two have passed."""
    n = steps_per_epoch
    if kind == "gradient":
        return 0
    if kind in ("storm", "spider"):
        return 2
    if kind == "epoch-lag":
        return 2 * n
    return 2 * n if epochs == 1 else 4 * n


def memory_floats(plan: Any, dimension: int, *, update_vectors: int | None = None) -> Memory:
    """What a run of this plan keeps for a model of `dimension` trainable parameters, with the plan's own update."""
    kind = query_kind(plan)
    n, epochs = plan.shape.steps_per_epoch, plan.shape.epochs
    waiting = waiting_vectors(kind, n, epochs)
    where: Literal["memory", "disk", "nowhere"] = "nowhere"
    if waiting:
        where = "memory" if waiting <= budget_vectors(plan, dimension) else "disk"
    noise = int(plan.strategy.noise_vectors)
    sums = 8 if kind == "sensitivity-reduced" else 1
    update = vectors_of_update(plan) if update_vectors is None else update_vectors
    return Memory(sums, noise, update, waiting, where, dimension)


def vectors_of_update(plan: Any) -> int:
    """What the plan's own update keeps: m̂, Adam's two moments, or the iterate that may be handed over."""
    kind = str(plan.request.update or plan.preset.update)
    if kind in ("momentum", "nesterov"):
        return 1 if plan.momentum > 0 and query_kind(plan) != "sensitivity-reduced" else 0  # its release is m̂ already
    return {"normalised": 1, "adam": 2, "random-round": 1}.get(kind, 0)


def budget_vectors(plan: Any, dimension: int) -> float:
    """How many vectors may wait in memory: the plan's budget, or as many as fit into the default."""
    given = getattr(getattr(plan, "request", None), "budget_memory", None)
    return float(given) if given is not None else DEFAULT_BYTES / (4.0 * max(1, dimension))


def query_kind(plan: Any) -> str:
    """What the plan's algorithm asks of a batch."""
    return str(getattr(getattr(plan, "preset", None), "query", "gradient"))
