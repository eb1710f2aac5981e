"""What an update is: arithmetic on the released stream, and nothing else.

Guarantee: an update sees the released, noisy numbers and the public weights only. Whatever it computes from them is
post-processing, so no update, step size, schedule or momentum can break the account; it can only waste the noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

State = dict[str, Tensor | int | float]
"""Tensors go to safetensors, numbers to JSON. A key names what it is: `momentum.3` belongs to parameter 3."""


@runtime_checkable
class Update(Protocol):
    """One step of a trainable model, given what was released for it."""

    @property
    def name(self) -> str: ...

    def step_(self, parameters: Sequence[Tensor], released: Sequence[Tensor]) -> None:
        """Move `parameters` in place. `released` has their shapes, and is not kept: its memory is used again."""

    def hand_over(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """The weights that the run hands over: the last iterate, an average, a drawn one. Shares no promise of copy."""

    def state_dict(self) -> State:
        """All that the next step depends on, besides the parameters. Empty lists of tensors before the first step."""

    def load_state_dict(self, state: Mapping[str, Tensor | int | float]) -> None:
        """Go on exactly where `state_dict` was taken: the next step has the same bits."""

    def describe(self) -> dict[str, object]:
        """The public facts, for the record."""


def named(prefix: str, tensors: Sequence[Tensor] | None) -> State:
    """A list of tensors under names, one for each parameter."""
    return {f"{prefix}.{i}": tensor for i, tensor in enumerate(tensors or ())}


def listed(prefix: str, state: Mapping[str, Tensor | int | float]) -> list[Tensor] | None:
    """The list that `named` took apart, copied; None where there was none."""
    found: list[Tensor] = []
    while isinstance(value := state.get(f"{prefix}.{len(found)}"), Tensor):
        found.append(value.clone())
    return found or None


def on_device_of(tensors: list[Tensor] | None, parameters: Sequence[Tensor]) -> list[Tensor]:
    """A kept list, moved to where the parameters live (a checkpoint is read on the CPU); zeros where there is none."""
    if tensors is None:
        return [torch.zeros_like(p, memory_format=torch.contiguous_format) for p in parameters]
    return [kept.to(device=p.device) for kept, p in zip(tensors, parameters, strict=True)]
