"""The paper's step (Tran & Cutkosky 2022, Algorithms 1 and 2): m̂ ← (1-α) m̂ + α ĝ, then w ← w - η m̂ / ‖m̂‖.

The noise is in ĝ already, so with the tree strategy m̂ is the paper's m̂, noise included; all of it is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from momentree.errors import number
from momentree.update.base import State, listed, named, on_device_of
from momentree.update.schedule import Schedule


class NormalisedMomentum:
    """Momentum β = 1-α in the dampened form, normalised steps of length η.

    The norm is taken over all parameters together. A zero m̂ gives no step. `weight_decay` λ is decoupled:
    w ← (1 - η_t λ) w before the step.
    """

    name = "normalised-momentum"

    def __init__(
        self,
        learning_rate: float,
        momentum: float = 0.9,
        *,
        schedule: Schedule | None = None,
        weight_decay: float = 0.0,
    ) -> None:
        self.learning_rate = number("learning_rate", learning_rate, above=0)
        self.momentum = number("momentum", momentum, at_least=0, below=1)
        self.schedule = schedule or Schedule()
        self.weight_decay = number("weight_decay", weight_decay, at_least=0)
        self._step = 0
        self._kept: list[Tensor] | None = None

    @property
    def momentum_estimate(self) -> list[Tensor] | None:
        """m̂ after the last step: a released quantity. None before the first step."""
        return self._kept

    @torch.no_grad()
    def step_(self, parameters: Sequence[Tensor], released: Sequence[Tensor]) -> None:
        self._step += 1
        alpha = 1 - self.momentum
        eta = self.learning_rate * self.schedule(self._step)
        if self._step == 1 or self._kept is None or self._kept[0].device != parameters[0].device:
            self._kept = on_device_of(self._kept, parameters)
        m_hat = self._kept
        torch._foreach_lerp_(m_hat, list(released), alpha)
        if self.weight_decay:
            torch._foreach_mul_(list(parameters), 1 - eta * self.weight_decay)
        norms = torch._foreach_norm(m_hat)
        if parameters[0].device.type == "cpu":
            length = math.hypot(*map(float, norms))
            torch._foreach_add_(list(parameters), m_hat, alpha=-eta / length if length > 0 else 0.0)
            return
        norm = torch.linalg.vector_norm(torch.stack(list(norms)))
        # on the device, without asking the host: 0/0 becomes a step of length zero
        scale = torch.where(norm > 0, -eta / norm, torch.zeros_like(norm))
        for w, m in zip(parameters, m_hat, strict=True):
            w.addcmul_(m, scale.to(dtype=m.dtype))

    def hand_over(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        return list(parameters)

    def state_dict(self) -> State:
        return {"step": self._step, **named("momentum", self._kept)}

    def load_state_dict(self, state: Mapping[str, Tensor | int | float]) -> None:
        self._step = int(state["step"])
        self._kept = listed("momentum", state)

    def describe(self) -> dict[str, object]:
        return {
            "name": self.name,
            "learning_rate": self.learning_rate,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
            "schedule": self.schedule.describe(),
        }
