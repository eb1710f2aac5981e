"""Which weights a run hands over: the last iterate, an average of iterates, or one drawn uniformly (the paper's ŵ).

All of it is arithmetic on iterates, which are released, so it costs no privacy. An average keeps one more copy of the
model, and so does a drawn iterate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from momentree.errors import number, whole
from momentree.update.base import State, Update, listed, named, on_device_of


class Keeper(Protocol):
    """Keeps one model's worth of iterates. `before` sees w_t, `after` sees w_{t+1}, at step t = 1, 2, …"""

    name: str

    def before(self, step: int, parameters: Sequence[Tensor], kept: list[Tensor]) -> None: ...

    def after(self, step: int, parameters: Sequence[Tensor], kept: list[Tensor]) -> None: ...

    def describe(self) -> dict[str, object]: ...


def _copy_(kept: list[Tensor], parameters: Sequence[Tensor]) -> None:
    for to, of in zip(kept, parameters, strict=True):
        to.copy_(of)


class Uniform:
    """The average of all iterates after each step, w_2 … w_{T+1}; a `tail` of the last part only, from a public T."""

    name = "uniform-average"

    def __init__(self, *, tail: float = 1.0, steps: int | None = None) -> None:
        self.tail = number("tail", tail, above=0, at_most=1, do="it is the fraction of the steps that is averaged")
        self.steps = whole("steps", steps, do="a tail has to know where the run ends") if tail < 1 else 0
        self._first = math.floor((1 - self.tail) * self.steps) + 1

    def before(self, step: int, parameters: Sequence[Tensor], kept: list[Tensor]) -> None:
        return None

    def after(self, step: int, parameters: Sequence[Tensor], kept: list[Tensor]) -> None:
        if step <= self._first:
            _copy_(kept, parameters)
        else:
            torch._foreach_lerp_(kept, list(parameters), 1 / (step - self._first + 1))

    def describe(self) -> dict[str, object]:
        return {"name": self.name, "tail": self.tail}


class Exponential:
    """An exponential moving average that starts at the first iterate it sees."""

    name = "exponential-average"

    def __init__(self, decay: float = 0.99) -> None:
        self.decay = number("decay", decay, at_least=0, below=1)

    def before(self, step: int, parameters: Sequence[Tensor], kept: list[Tensor]) -> None:
        return None

    def after(self, step: int, parameters: Sequence[Tensor], kept: list[Tensor]) -> None:
        if step == 1:
            _copy_(kept, parameters)
        else:
            torch._foreach_lerp_(kept, list(parameters), 1 - self.decay)

    def describe(self) -> dict[str, object]:
        return {"name": self.name, "decay": self.decay}


class Drawn:
    """One of w_1 … w_t, each equally likely after every step t: a reservoir of one (the paper's ŵ).

    The draws are a function of (seed, step), so a resumed run draws the same. The seed is public: which iterate is
    handed over is no secret, all of them are released.
    """

    name = "drawn-iterate"

    def __init__(self, seed: int) -> None:
        self.seed = whole("seed", seed, at_least=0)

    def takes(self, step: int) -> bool:
        """Whether w_t replaces what is kept: with probability 1/t, apart for each step."""
        return bool(np.random.default_rng([self.seed, 0xD7A3, step]).random() * step < 1)

    def before(self, step: int, parameters: Sequence[Tensor], kept: list[Tensor]) -> None:
        if self.takes(step):
            _copy_(kept, parameters)

    def after(self, step: int, parameters: Sequence[Tensor], kept: list[Tensor]) -> None:
        return None

    def describe(self) -> dict[str, object]:
        return {"name": self.name, "seed": self.seed}


class Keeping:
    """An update that trains as `inner` does, and hands over what `keeper` keeps."""

    def __init__(self, inner: Update, keeper: Keeper) -> None:
        self.inner = inner
        self.keeper = keeper
        self._step = 0
        self._kept: list[Tensor] | None = None

    @property
    def name(self) -> str:
        return f"{self.inner.name}, {self.keeper.name}"

    @torch.no_grad()
    def step_(self, parameters: Sequence[Tensor], released: Sequence[Tensor]) -> None:
        self._step += 1
        self._kept = on_device_of(self._kept, parameters)
        self.keeper.before(self._step, parameters, self._kept)
        self.inner.step_(parameters, released)
        self.keeper.after(self._step, parameters, self._kept)

    def hand_over(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        return list(parameters) if self._kept is None else on_device_of(self._kept, parameters)

    def state_dict(self) -> State:
        inner = {f"inner.{key}": value for key, value in self.inner.state_dict().items()}
        return {"step": self._step, **named("kept", self._kept), **inner}

    def load_state_dict(self, state: Mapping[str, Tensor | int | float]) -> None:
        self._step = int(state["step"])
        self._kept = listed("kept", state)
        self.inner.load_state_dict({k[len("inner.") :]: v for k, v in state.items() if k.startswith("inner.")})

    def describe(self) -> dict[str, object]:
        return {**self.inner.describe(), "hands_over": self.keeper.describe()}
