"""Puts a run's parts together from its plan: query, noise, release. What is secret comes in as an argument."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from momentree.errors import InputError, NoProofError
from momentree.noise.normals import KeyedNormals
from momentree.noise.stream import NoiseStream
from momentree.query.clipped import ClippedGradients
from momentree.training.releases.base import Release
from momentree.training.releases.single import Single


def release_of(
    plan: Any,
    model: torch.nn.Module,
    loss: Callable[..., Any] | None,
    *,
    loss_of_batch: Callable[..., Any] | None,
    subkey: bytes,
    waiting: Path,
    made_up: tuple[Any, Any],
) -> tuple[Release, Any]:
    """The release of the plan's algorithm, and the query whose parameters are trained."""
    kind = getattr(getattr(plan, "preset", None), "query", "gradient")
    source = KeyedNormals(subkey)
    query = ClippedGradients(model, loss, loss_of_batch=loss_of_batch, clip=plan.clip)
    parameters = list(query.parameters)
    if not parameters:
        raise InputError("the model has no trainable parameter: set requires_grad on what is to be trained")
    check_sensitivity(plan, query)
    query.check(*made_up)
    shapes = [tuple(p.shape) for p in parameters]
    noise = NoiseStream(plan.strategy, source, shapes, dtype=torch.float32, device=parameters[0].device)
    if kind == "gradient":
        scale = plan.noise_multiplier * plan.clip
        return Single(query, noise, noise_scale=scale, batch_size=plan.shape.batch_size), query
    raise NoProofError(f"{plan.algorithm} asks for {kind} queries, which cannot be trained yet: use dp-nsgd")


def check_sensitivity(plan: Any, query: Any) -> None:
    """The account took `clip` for the norm of one example's contribution; the query has to say the same itself."""
    bound = float(query.sensitivity("zero-out"))
    if not bound <= plan.clip * (1 + 1e-9):
        raise NoProofError(
            f"the query's sensitivity is {bound:g} and the plan was accounted for {plan.clip:g}: give a clip of that "
            "size, or another query"
        )
