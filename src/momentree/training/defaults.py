"""The update that an algorithm comes with, where none is given."""

from __future__ import annotations

import math
from typing import Any

from momentree.errors import InputError
from momentree.update import Drawn, Keeping, NormalisedMomentum, Schedule, Update, adam, momentum


def learning_rate(plan: Any) -> float:
    """What was asked; for normalised steps otherwise the paper's η = 1/√(nT), so that the path is √E long."""
    if plan.learning_rate is not None:
        return float(plan.learning_rate)
    if kind(plan) == "normalised":
        return 1 / math.sqrt(plan.shape.steps_per_epoch * plan.shape.steps)
    return 1e-3 if kind(plan) == "adam" else 0.1


def kind(plan: Any) -> str:
    """What was asked for, or the preset's word for its update."""
    asked = getattr(getattr(plan, "request", None), "update", None)
    return str(asked or getattr(getattr(plan, "preset", None), "update", "normalised"))


def schedule(plan: Any) -> Schedule:
    """The plan's schedule over all of its steps; a falling one would reach its end one step after the last."""
    asked: Any = getattr(getattr(plan, "request", None), "schedule", "constant")
    return Schedule() if asked == "constant" else Schedule(asked, steps=plan.shape.steps + 1)


def default_update(plan: Any, *, momentum_included: bool, rate: float | None = None) -> Update:
    """The algorithm's own update. Where the release is m̂ already, the update adds no momentum."""
    name, eta, falling = kind(plan), learning_rate(plan) if rate is None else rate, schedule(plan)
    beta = 0.0 if momentum_included else float(plan.momentum)
    if name == "normalised":
        return NormalisedMomentum(eta, beta, schedule=falling)
    if name in ("momentum", "nesterov"):
        return momentum(eta, beta, nesterov=name == "nesterov", schedule=falling)
    if name == "sgd":
        return momentum(eta, 0.0, schedule=falling)
    if name == "adam":
        return adam(eta, schedule=falling)
    if name == "random-round":
        return Keeping(momentum(eta, 0.0, schedule=falling), Drawn(plan.seed))
    raise InputError(f"the update {name!r} of {plan.algorithm} is unknown: give an update= of your own")
