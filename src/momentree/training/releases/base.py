"""What a release is: one step's batch in, noisy numbers out. The only place where private sums exist.

Guarantee: `ask_` returns released quantities only. A sum without its noise lives inside `ask_`, in buffers that hold
the noise as well when it returns, and that are zeroed where it fails; no state holds one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from momentree.training.pieces import Pieces

State = dict[str, Tensor | int | float]


class Release(Protocol):
    """One algorithm's queries and noise."""

    momentum_included: bool
    """Whether what comes back is m̂ already (sr-nsgd), so that the update adds no momentum of its own."""

    def ask_(self, step: int, pieces: Pieces) -> list[Tensor]:
        """What the update gets for step t. The tensors are valid until the next call."""

    def shown(self) -> Sequence[Tensor]:
        """Everything that this step has released: what a replay has to repeat bit for bit."""

    def clear(self) -> None:
        """The step was broken off: nothing of it may be read from the buffers."""

    def state(self) -> State: ...

    def load_state(self, state: Mapping[str, Tensor | int | float], step: int) -> None: ...

    def settle(self) -> None:
        """A checkpoint is durable."""


def buffers(parameters: Sequence[Tensor]) -> list[Tensor]:
    """Zeros of the parameters' shapes in float32 (float64 where they are): sums and noise are never kept in less."""
    return [
        torch.zeros(p.shape, dtype=torch.promote_types(p.dtype, torch.float32), device=p.device, requires_grad=False)
        for p in parameters
    ]


@contextmanager
def private(*sums: Sequence[Tensor]) -> Iterator[None]:
    """Zeros the buffers on entry, and again if anything fails before the noise is in them."""
    for each in sums:
        torch._foreach_zero_(list(each))
    try:
        yield
    except BaseException:
        for each in sums:
            torch._foreach_zero_(list(each))
        raise


class Scratch:
    """One flat vector, and views of it in the parameters' shapes: a row of noise is drawn in one call."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        kind = torch.float64 if any(p.dtype == torch.float64 for p in parameters) else torch.float32
        sizes = [p.numel() for p in parameters]
        self.flat = torch.zeros(sum(sizes), dtype=kind, device=parameters[0].device)
        views = torch.split(self.flat, sizes)
        self.blocks = [view.view(p.shape) for view, p in zip(views, parameters, strict=True)]
