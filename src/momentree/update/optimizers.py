"""Momentum, Nesterov, Adam, AdamW, and any other optimizer of torch, fed with the released stream through `.grad`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from momentree.errors import InputError, number
from momentree.update.base import State
from momentree.update.schedule import Schedule

Factory = Callable[[Sequence[Tensor]], torch.optim.Optimizer]


class TorchOptimizer:
    """A torch optimizer on the released stream. It may be anything: what it reads is released already.

    `make` builds it from the list of parameters. `.grad` holds the released gradient during the step only; it is None
    before and after, so nothing can be left in it.
    """

    def __init__(
        self,
        make: Factory,
        *,
        name: str = "torch-optimizer",
        schedule: Schedule | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        self.name = name
        self.schedule = schedule or Schedule()
        self._make = make
        self._facts = dict(facts or {})
        self._step = 0
        self._optimizer: torch.optim.Optimizer | None = None
        self._base_rates: list[float] = []
        self._waiting: dict[str, Tensor | int | float] | None = None

    def _bound(self, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        if self._optimizer is None:
            optimizer = self._make(list(parameters))
            self._optimizer = optimizer
            self._base_rates = [float(group["lr"]) for group in optimizer.param_groups]
            if self._waiting is not None:
                self._restore(optimizer, self._waiting)
                self._waiting = None
        return self._optimizer

    @torch.no_grad()
    def step_(self, parameters: Sequence[Tensor], released: Sequence[Tensor]) -> None:
        optimizer = self._bound(parameters)
        self._step += 1
        factor = self.schedule(self._step)
        for group, rate in zip(optimizer.param_groups, self._base_rates, strict=True):
            group["lr"] = rate * factor
        for w, g in zip(parameters, released, strict=True):
            w.grad = g
        try:
            optimizer.step()
        finally:
            for w in parameters:
                w.grad = None

    def hand_over(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        return list(parameters)

    def state_dict(self) -> State:
        if self._optimizer is None:
            return dict(self._waiting) if self._waiting is not None else {"step": self._step}
        state: State = {"step": self._step}
        for index, entries in self._optimizer.state_dict()["state"].items():
            for key, value in entries.items():
                if value is None:
                    continue
                if not isinstance(value, Tensor | int | float):
                    raise InputError(
                        f"the optimizer keeps {key!r}, a {type(value).__name__}: a checkpoint holds tensors and "
                        "numbers only; use an optimizer of torch.optim"
                    )
                state[f"{index}.{key}"] = value
        return state

    def load_state_dict(self, state: Mapping[str, Tensor | int | float]) -> None:
        if self._optimizer is None:
            self._waiting = dict(state)
            self._step = int(state["step"])
        else:
            self._restore(self._optimizer, state)

    def _restore(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor | int | float]) -> None:
        self._step = int(state["step"])
        entries: dict[int, dict[str, Any]] = {}
        for key, value in state.items():
            index, _, what = key.partition(".")
            if what:
                entries.setdefault(int(index), {})[what] = value.clone() if isinstance(value, Tensor) else value
        optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})

    def describe(self) -> dict[str, object]:
        return {"name": self.name, **self._facts, "schedule": self.schedule.describe()}


def momentum(
    learning_rate: float,
    momentum: float = 0.9,
    *,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    schedule: Schedule | None = None,
) -> TorchOptimizer:
    """m ← βm + (1-β)ĝ, w ← w - ηm; with `nesterov` the step is η(βm + (1-β)ĝ) after the same m.

    torch's SGD with dampening starts from m = ĝ instead of (1-β)ĝ; without dampening and at the rate η(1-β) it is this
    recursion from zero, which is the one that the strategies are made for. Weight decay is decoupled.
    """
    rate = number("learning_rate", learning_rate, above=0)
    beta = number("momentum", momentum, at_least=0, below=1)
    decay = number("weight_decay", weight_decay, at_least=0)
    if nesterov and beta == 0:
        raise InputError("nesterov with momentum 0 is plain descent: give a momentum above 0 or leave nesterov out")

    def make(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        return DecayedSGD(parameters, lr=rate * (1 - beta), momentum=beta, nesterov=nesterov, decay=rate * decay)

    facts = {"learning_rate": rate, "momentum": beta, "nesterov": nesterov, "weight_decay": decay}
    return TorchOptimizer(make, name="nesterov" if nesterov else "momentum", schedule=schedule, facts=facts)


class DecayedSGD(torch.optim.SGD):
    """torch's SGD with decoupled weight decay: w ← (1 - decay · lr/lr₀) w before the step."""

    def __init__(self, parameters: Sequence[Tensor], *, lr: float, decay: float, **rest: Any) -> None:
        super().__init__(list(parameters), lr=lr, **rest)
        self._decay_per_rate = decay / lr

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        if self._decay_per_rate:
            for group in self.param_groups:
                torch._foreach_mul_(group["params"], 1 - group["lr"] * self._decay_per_rate)
        return super().step(closure)


def adam(
    learning_rate: float = 1e-3,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    schedule: Schedule | None = None,
) -> TorchOptimizer:
    """Adam on the noisy stream; with `weight_decay` it is AdamW. The second moment holds the noise's variance too."""
    rate = number("learning_rate", learning_rate, above=0)
    first = number("betas[0]", betas[0], at_least=0, below=1)
    second = number("betas[1]", betas[1], at_least=0, below=1)
    small = number("eps", eps, above=0)
    decay = number("weight_decay", weight_decay, at_least=0)

    def make(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        kind = torch.optim.AdamW if decay else torch.optim.Adam
        return kind(list(parameters), lr=rate, betas=(first, second), eps=small, weight_decay=decay)

    facts = {"learning_rate": rate, "betas": [first, second], "eps": small, "weight_decay": decay}
    return TorchOptimizer(make, name="adamw" if decay else "adam", schedule=schedule, facts=facts)
