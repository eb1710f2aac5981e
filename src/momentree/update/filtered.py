"""A low-pass filter on the released stream that looks ahead, after DiSK (Zhang et al. 2024).

DiSK is a simplified Kalman filter for private optimizers. With x the iterate, d its last move, g̃ the filtered gradient:

    g̃_t = (1-κ) g̃_{t-1} + κ ĝ_t,   x_{t+1} = x_t - η g̃_t,   the next gradient is asked at x_{t+1} + γ d_t.

DiSK asks for a mixture of two gradients, at x and at x + γd, with weight (1-κ)/(κγ) on the second. At γ = (1-κ)/κ that
weight is one and a single gradient is left: g̃ then follows the gradient along the path without lagging behind it. The
query is an ordinary clipped gradient at a released point, and everything else is post-processing, so the account does
not change. While training the model holds the point of the next query; `hand_over` gives x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from momentree.errors import number
from momentree.update.base import State, listed, named, on_device_of
from momentree.update.schedule import Schedule


class Filtered:
    """Descent along the filtered gradient; κ = 1 is plain descent."""

    name = "filtered"

    def __init__(self, learning_rate: float, kappa: float = 0.7, *, schedule: Schedule | None = None) -> None:
        self.learning_rate = number("learning_rate", learning_rate, above=0)
        self.kappa = number("kappa", kappa, above=0, at_most=1)
        self.schedule = schedule or Schedule()
        self._step = 0
        self._filtered: list[Tensor] | None = None
        self._iterate: list[Tensor] | None = None

    @torch.no_grad()
    def step_(self, parameters: Sequence[Tensor], released: Sequence[Tensor]) -> None:
        first = self._step == 0
        self._step += 1
        eta = self.learning_rate * self.schedule(self._step)
        ahead = (1 - self.kappa) / self.kappa
        self._filtered = on_device_of(self._filtered, parameters)
        self._iterate = [w.clone() for w in parameters] if first else on_device_of(self._iterate, parameters)
        # the first gradient is taken as it is: a filter that starts from zero would halve the first moves
        torch._foreach_lerp_(self._filtered, list(released), 1.0 if first else self.kappa)
        torch._foreach_add_(self._iterate, self._filtered, alpha=-eta)
        for w, x, g in zip(parameters, self._iterate, self._filtered, strict=True):
            w.copy_(x).add_(g, alpha=-eta * ahead)

    def hand_over(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        return list(parameters) if self._iterate is None else on_device_of(self._iterate, parameters)

    def state_dict(self) -> State:
        return {"step": self._step, **named("filtered", self._filtered), **named("iterate", self._iterate)}

    def load_state_dict(self, state: Mapping[str, Tensor | int | float]) -> None:
        self._step = int(state["step"])
        self._filtered = listed("filtered", state)
        self._iterate = listed("iterate", state)

    def describe(self) -> dict[str, object]:
        return {
            "name": self.name,
            "learning_rate": self.learning_rate,
            "kappa": self.kappa,
            "schedule": self.schedule.describe(),
        }
