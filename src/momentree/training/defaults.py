"""The update that an algorithm comes with, where none is given."""

from __future__ import annotations

import math
from typing import Any

from momentree.errors import InputError
from momentree.update import Drawn, Keeping, NormalisedMomentum, Update, adam, momentum


def learning_rate(plan: Any) -> float:
    """What was asked; for normalised steps otherwise the paper's η = 1/√(nT), so that the path is √E long."""
    if plan.learning_rate is not None:
        return float(plan.learning_rate)
    if kind(plan) == "normalised":
        return 1 / math.sqrt(plan.shape.steps_per_epoch * plan.shape.steps)
    return 1e-3 if kind(plan) == "adam" else 0.1


def kind(plan: Any) -> str:
    """The preset's word for its update."""
    preset = getattr(plan, "preset", None)
    return str(getattr(preset, "update", "normalised"))


def default_update(plan: Any, *, momentum_included: bool) -> Update:
    """The algorithm's own update. Where the release is m̂ already, the update adds no momentum."""
    name, eta = kind(plan), learning_rate(plan)
    beta = 0.0 if momentum_included else float(plan.momentum)
    if name == "normalised":
        return NormalisedMomentum(eta, beta)
    if name in ("momentum", "nesterov"):
        return momentum(eta, beta, nesterov=name == "nesterov")
    if name in ("sgd", "descent", "plain"):
        return momentum(eta, 0.0)
    if name == "adam":
        return adam(eta)
    if name in ("drawn", "random-round"):
        return Keeping(momentum(eta, 0.0), Drawn(plan.seed))
    raise InputError(f"the update {name!r} of {plan.algorithm} is unknown: give an update= of your own")
