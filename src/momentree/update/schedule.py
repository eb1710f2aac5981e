"""Step-size schedules: public functions of the step number, a factor on the learning rate."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal

from momentree.errors import InputError, number, one_of, whole

Kind = Literal["constant", "cosine", "linear"]
KINDS: tuple[Kind, ...] = ("constant", "cosine", "linear")


@dataclass(frozen=True)
class Schedule:
    """Factor on the learning rate at step t = 1 … T.

    `warm_up` steps rise linearly to 1 (t / warm_up, so the first step is not empty). After them `constant` stays at 1,
    `cosine` follows half a cosine and `linear` a line, both down to `end` at t = T. Past T the last factor stays.
    """

    kind: Kind = "constant"
    steps: int = 0
    warm_up: int = 0
    end: float = 0.0

    def __post_init__(self) -> None:
        one_of("schedule", self.kind, KINDS)
        whole("warm_up", self.warm_up, at_least=0, do="count it in steps")
        number("end", self.end, at_least=0, at_most=1)
        if self.kind != "constant":
            whole("steps", self.steps, at_least=1, do=f"a {self.kind} schedule has to know where it ends")
            if self.warm_up >= self.steps:
                raise InputError(f"warm_up {self.warm_up} leaves nothing of {self.steps} steps: give fewer")

    def __call__(self, step: int) -> float:
        if step <= self.warm_up:
            return step / self.warm_up
        if self.kind == "constant":
            return 1.0
        span = self.steps - self.warm_up
        done = min(1.0, (step - self.warm_up) / span)
        shape = 0.5 * (1 + math.cos(math.pi * done)) if self.kind == "cosine" else 1 - done
        return self.end + (1 - self.end) * shape

    def describe(self) -> dict[str, object]:
        return asdict(self)
