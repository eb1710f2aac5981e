"""Puts a run's parts together from its plan: query, noise, release. What is secret comes in as an argument."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from momentree.errors import NoProofError, number
from momentree.memory import memory_floats, query_kind
from momentree.noise.normals import KeyedNormals
from momentree.noise.stream import NoiseStream
from momentree.query.clipped import ClippedGradients
from momentree.query.differences import ClippedDifferences
from momentree.training.releases.base import Release
from momentree.training.releases.lagged import Lagged
from momentree.training.releases.reduced import STREAM_R, Reduced, Scales
from momentree.training.releases.single import Single
from momentree.training.releases.store import InMemory, OnDisk, Store


def release_of(
    plan: Any,
    model: nn.Module,
    loss: Callable[..., Any] | None,
    *,
    loss_of_batch: Callable[..., Any] | None,
    subkey: bytes,
    waiting: Path,
    made_up: tuple[Any, Any],
) -> tuple[Release, list[Tensor]]:
    """The release of the plan's algorithm, and the parameters that it trains."""
    kind = query_kind(plan)
    query: Any
    if kind == "gradient":
        query = ClippedGradients(model, loss, loss_of_batch=loss_of_batch, clip=plan.clip)
        check_sensitivity(plan, query.sensitivity("zero-out"), 1.0)
    else:
        rho = number("difference_clip", plan.difference_clip, above=0)
        query = ClippedDifferences(model, loss, loss_of_batch=loss_of_batch, clip=plan.clip, difference_clip=rho)
        check_sensitivity(plan, query.sensitivity("zero-out", "gradient"), 1.0)
        check_sensitivity(plan, query.sensitivity("zero-out", "difference"), rho)
        same_place(plan, kind)
    parameters: list[Tensor] = list(query.parameters)
    query.check(*made_up)
    source = KeyedNormals(subkey)

    def stream(strategy: Any, number_of: int = 0) -> Any:
        shapes = [tuple(p.shape) for p in parameters]
        kind_of = torch.float64 if parameters[0].dtype == torch.float64 else torch.float32
        return NoiseStream(strategy, source, shapes, dtype=kind_of, device=parameters[0].device, stream=number_of)

    batch, n = plan.shape.batch_size, plan.shape.steps_per_epoch
    scale = plan.noise_multiplier * plan.clip
    if kind == "gradient":
        return Single(query, stream(plan.strategy), noise_scale=scale, batch_size=batch), parameters
    store = store_of(plan, parameters, waiting)
    if kind == "sensitivity-reduced":
        release: Release = Reduced(
            query,
            source,
            stream(family(plan, "iterate-difference").strategy, STREAM_R),
            beta=plan.momentum,
            leak=plan.leak,
            steps_per_epoch=n,
            batch_size=batch,
            scales=reduced_scales(plan),
            store=store,
        )
        return release, parameters
    if kind not in ("epoch-lag", "storm", "spider"):
        raise NoProofError(f"{plan.algorithm} asks for {kind!r} queries, which no training step here answers")
    fresh: Mapping[str, Callable[[int], bool]] = {
        "epoch-lag": lambda t: t <= n,
        "storm": lambda t: t == 1,
        "spider": lambda t: (t - 1) % n == 0,
    }
    scales = {True: scale, False: scale}
    if families_of(plan):  # starts and differences with noise of their own
        scales = {
            True: family(plan, "gradient").noise_multiplier * plan.clip,
            False: family(plan, "difference").noise_multiplier * plan.clip,
        }
    starts = fresh[kind]
    lagged = Lagged(
        query,
        stream(plan.strategy),
        lag=n if kind == "epoch-lag" else 1,
        leak=0.0 if kind == "spider" else plan.leak,
        fresh=starts,
        noise_scale=lambda t: scales[starts(t)],
        batch_size=batch,
        store=store,
    )
    return lagged, parameters


def same_place(plan: Any, kind: str) -> None:
    """Looking one epoch back needs that the same rows stood there."""
    if kind in ("epoch-lag", "sensitivity-reduced") and plan.order.participation != "fixed":
        raise NoProofError(
            f"{plan.algorithm} with order {plan.order.name}: it compares a batch with itself one epoch ago, so every "
            "example has to keep its place; take the fixed order"
        )


def families_of(plan: Any) -> dict[str, Any]:
    """The plan's families of releases, by name; empty where there is one stream."""
    return {each.name: each for each in (getattr(plan, "families", None) or ())}


def family(plan: Any, name: str) -> Any:
    found = families_of(plan)
    if name not in found:
        raise NoProofError(f"the plan of {plan.algorithm} has no family {name!r}: make it with this release")
    return found[name]


def reduced_scales(plan: Any) -> Scales:
    """σ of each family of Algorithm 2, times the clip. G has one σ up to step 2n (`gradient-early`) and one after it.

    A family that a short run does not have is never asked for; its scale is NaN, so that a mistake could not hide.
    """
    found = families_of(plan)

    def scale(name: str) -> float:
        return float(found[name].noise_multiplier * plan.clip) if name in found else math.nan

    early, late, anchors = scale("gradient-early"), scale("gradient"), scale("anchor-difference")
    border = 2 * plan.shape.steps_per_epoch
    return Scales(
        gradient=lambda end: early if end <= border else late,
        anchors=lambda end: anchors,
        iterate=float(family(plan, "iterate-difference").noise_multiplier * plan.clip),
    )


def store_of(plan: Any, parameters: list[Tensor], waiting: Path) -> Store:
    """Memory or disk, as the plan's budget has it."""
    memory = memory_floats(plan, sum(p.numel() for p in parameters))
    like = [p.detach() for p in parameters]
    return OnDisk(like, waiting) if memory.where == "disk" else InMemory(like)


def check_sensitivity(plan: Any, bound: float, share: float) -> None:
    """The account took share · clip for the norm of one example's contribution; the query has to say the same."""
    if not bound <= share * plan.clip * (1 + 1e-9):
        raise NoProofError(
            f"the query's sensitivity is {bound:g} and the plan was accounted for {share * plan.clip:g}: give a clip "
            "of that size, or another query"
        )
