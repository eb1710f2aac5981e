"""What a strategy is made for: the public facts of a run that its shape may depend on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from momentree.errors import InputError, number, one_of, whole
from momentree.strategy.base import Array
from momentree.strategy.series import frozen
from momentree.strategy.workload import Workload, iterate_workload, momentum_workload, path_workload

Measure = Literal["iterates", "momentum"]
MEASURES: tuple[Measure, ...] = ("iterates", "momentum")
MOST_BUFFERS = 8


@dataclass(frozen=True, eq=False)
class Setting:
    """n steps an epoch, E epochs, momentum β, and the measure that the strategy is made for.

    `band`: diagonals of `bsr` or `bisr` (None: chosen). `buffers`: of `blt` (None: 4, or chosen within a budget).
    `restart_every`: epochs between restarts (None: never). `decay`: of the trees (None: β; 1 for DP-FTRL).
    `schedule`: T public step sizes, for iterates Σ η_s m̂_s; `weight_decay`, `nesterov`: of the same iterates.
    """

    steps_per_epoch: int
    epochs: int
    momentum: float
    measure: Measure = "iterates"
    band: int | None = None
    buffers: int | None = None
    restart_every: int | None = None
    schedule: Array | None = None
    weight_decay: float = 0.0
    nesterov: bool = False
    decay: float | None = None

    def __post_init__(self) -> None:
        whole("steps_per_epoch", self.steps_per_epoch)
        whole("epochs", self.epochs)
        number("momentum", self.momentum, at_least=0.0, below=1.0)
        one_of("measure", self.measure, MEASURES)
        if self.band is not None:
            whole("band", self.band, at_most=self.steps, do="it counts diagonals of C, at most one a step")
        if self.buffers is not None:
            whole("buffers", self.buffers, at_most=MOST_BUFFERS)
        if self.restart_every is not None:
            whole("restart_every", self.restart_every, at_most=self.epochs, do="it counts epochs")
        if self.decay is not None:
            number("decay", self.decay, at_least=0.0, at_most=1.0)
        number("weight_decay", self.weight_decay, at_least=0.0)
        if self.schedule is not None:
            schedule = frozen(self.schedule, "schedule")
            if schedule.shape != (self.steps,):
                raise InputError(f"schedule has {schedule.size} step sizes: give {self.steps}, one for each step")
            if schedule.min() < 0.0 or schedule.max() == 0.0:
                raise InputError(f"schedule goes down to {schedule.min():g}: give step sizes ≥ 0, not all of them 0")
            object.__setattr__(self, "schedule", schedule)
        _ = self.target

    @property
    def steps(self) -> int:
        """T = nE."""
        return self.steps_per_epoch * self.epochs

    @property
    def block_steps(self) -> int:
        """Steps between restarts; T where there are none."""
        return self.steps_per_epoch * (self.restart_every or self.epochs)

    @property
    def blocks(self) -> int:
        """How many blocks between restarts there are; the last one may be shorter."""
        return -(-self.steps // self.block_steps)

    @property
    def tree_decay(self) -> float:
        """The decay of the trees: β unless another was given."""
        return self.momentum if self.decay is None else self.decay

    @cached_property
    def momentum_workload(self) -> Workload:
        """m̂, what `momentum_rmse` is measured on."""
        return momentum_workload(self.steps, self.momentum)

    @cached_property
    def iterate_workload(self) -> Workload:
        """Σ m̂, what `iterate_rmse` is measured on."""
        return iterate_workload(self.steps, self.momentum)

    @cached_property
    def target(self) -> Workload:
        """What strategies are made for and ranked by: the measure, with schedule, weight decay and Nesterov."""
        if self.measure == "momentum":
            return Workload(self.steps, self.momentum, nesterov=self.nesterov)
        plain = self.schedule is None
        sizes: float | Array = 1.0 if self.schedule is None else self.schedule
        if plain and self.weight_decay > 1.0:
            raise InputError(f"weight_decay {self.weight_decay:g} is out of range: at most 1 at step size 1")
        return path_workload(self.steps, self.momentum, sizes, weight_decay=self.weight_decay, nesterov=self.nesterov)
