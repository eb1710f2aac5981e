"""Which order may price which strategy under which adjacency: every rule in one place, and the sentence that says why.

`entitlement` returns the reason why a combination is covered, or raises NoProofError with the reason why it is not.
What is not listed is refused; nothing is priced by something that looks similar.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from momentree.errors import NoProofError, one_of
from momentree.order import (
    ORDERS,
    SAMPLED,
    BallsInBins,
    CyclicPoisson,
    Fixed,
    Order,
    Poisson,
    RandomAllocation,
    Reshuffled,
    Shape,
    SinglePass,
)
from momentree.order.sampled import Sampled
from momentree.privacy.events import Release
from momentree.query.base import ADJACENCIES, Adjacency
from momentree.strategy.base import Strategy
from momentree.strategy.dense import Dense
from momentree.strategy.restarted import Restarted
from momentree.strategy.toeplitz import Toeplitz
from momentree.strategy.tree import Tree

FACTOR: dict[Adjacency, float] = {"zero-out": 1.0, "replace-one": 2.0}
"""Sensitivity of an unamplified release under the adjacency, relative to zero-out."""


def entitlement(order: Order, strategy: Strategy, adjacency: Adjacency) -> str:
    """Why this combination has a proof; NoProofError, one line, where it has none."""
    one_of("adjacency", adjacency, ADJACENCIES)
    kind = ORDERS[order.name].kind if order.name in ORDERS else None
    if kind is None or type(order) is not kind:
        raise NoProofError(
            f"order {order.name!r} is not one of this library's: its account rests on how places are drawn, so batches "
            "made elsewhere cannot be priced; shuffled batches of equal size are at best the reshuffled order"
        )
    if isinstance(order, Fixed | Reshuffled | SinglePass):
        return _unamplified(order, adjacency)
    assert isinstance(order, Sampled)
    if adjacency == "add-remove" and not order.declared:
        raise NoProofError(
            f"add-remove with {order.name} and an N that was counted: rate and number of steps come from N, so one row "
            "more changes everyone's; declare N as a public number, or take zero-out"
        )
    if adjacency == "replace-one" and not (isinstance(order, Poisson) and is_identity(strategy)):
        raise NoProofError(
            f"replace-one with {order.name} and strategy {strategy.name}: twice the sensitivity is no bound under "
            "amplification, and no proof is at hand; take zero-out, or poisson with identity"
        )
    if isinstance(order, Poisson):
        if is_identity(strategy):
            return "independent coins and independent noise: the loss of one subsampled step, composed"
        raise NoProofError(
            f"poisson with strategy {strategy.name}: its account is for independent noise only, and with correlated "
            "noise one example's steps add up; take identity, or cyclic-poisson, balls-in-bins, random-allocation"
        )
    if not strategy.non_negative:
        raise NoProofError(
            f"{order.name} with a strategy {strategy.name} that has negative entries: the proof needs C ≥ 0; "
            "take another strategy, or the fixed order"
        )
    if isinstance(order, CyclicPoisson):
        return _cyclic(order, strategy)
    if isinstance(order, BallsInBins):
        return "one place for all epochs, drawn independently, and C ≥ 0: the mixture over places dominates"
    assert isinstance(order, RandomAllocation)
    return _allocation(order, strategy)


def _unamplified(order: Order, adjacency: Adjacency) -> str:
    if adjacency == "add-remove":
        raise NoProofError(
            f"add-remove with {order.name}: one row more moves every other row to another place, and the number of "
            "steps may change; take zero-out or replace-one, where N is public"
        )
    return "the worst case over places that do not depend on the rows, Gaussian in closed form"


def _cyclic(order: CyclicPoisson, strategy: Strategy) -> str:
    width = band(strategy)
    if not isinstance(strategy, Toeplitz):
        raise NoProofError(
            f"cyclic-poisson with strategy {strategy.name}: its account is for banded Toeplitz C; take bsr with a band "
            f"of at most {order.parts}, or balls-in-bins"
        )
    if width > order.parts:
        raise NoProofError(
            f"cyclic-poisson with {order.parts} parts and strategy {strategy.name}, whose C has {width} diagonals: the "
            "steps of one example must not share a row, so the band is at most the number of parts"
        )
    return "an example's possible steps share no row of C: the loss of one subsampled column, composed"


def _allocation(order: RandomAllocation, strategy: Strategy) -> str:
    n = order.shape.steps_per_epoch
    if isinstance(strategy, Restarted) and strategy.inner.steps == n:
        return "restarted every epoch: epochs are independent, one epoch's loss composes"
    if strategy.steps <= n:
        return "one epoch: one place, drawn independently, and C ≥ 0"
    width = band(strategy)
    if width <= n and not isinstance(strategy.inner if isinstance(strategy, Restarted) else strategy, Tree):
        return "bands of C up to n: only neighbouring epochs meet, and the forward recursion is exact"
    if isinstance(strategy, Restarted):
        raise NoProofError(  # wide, and two epochs in a block: places of one epoch would tell about the other's
            f"random-allocation with strategy {strategy.name} restarted every {strategy.inner.steps} steps, where an "
            f"epoch has {n}: no account, restart every epoch exactly"
        )
    raise NoProofError(
        f"random-allocation with strategy {strategy.name}, whose C has {width} diagonals where an epoch has {n} steps: "
        f"at most {n} are accounted; choose a narrower band, or restart every epoch"
    )


def is_identity(strategy: Strategy) -> bool:
    """Whether C is the identity, by its numbers and not by its name."""
    return band(strategy) == 1 and isinstance(strategy, Toeplitz | Restarted)


def band(strategy: Strategy) -> int:
    """How many diagonals of C are in use; T where the form does not say (a tree's nodes grow with T)."""
    if isinstance(strategy, Toeplitz):
        used = np.flatnonzero(strategy.coefficients)
        return int(used[-1]) + 1 if len(used) else 1
    if isinstance(strategy, Restarted):
        return band(strategy.inner)
    if isinstance(strategy, Dense):
        rows, columns = np.nonzero(strategy.entries)
        return int((rows - columns).max()) + 1
    return strategy.steps


def check_release(release: Release) -> str:
    """`entitlement` of a whole release, its numbers included."""
    reason = entitlement(release.order, release.strategy, release.adjacency)
    shape = release.order.shape
    if release.strategy.steps > shape.steps:
        raise NoProofError(
            f"a strategy over {release.strategy.steps} steps with an order of {shape.steps}: they have to be the same "
            "run (a prefix may be shorter, never longer)"
        )
    amplified = release.order.participation == "amplified"
    if release.group_size > 1 and amplified and not getattr(release.order, "together", False):
        raise NoProofError(
            f"groups of {release.group_size} rows with {release.order.name}: amplification is proved for one place a "
            "person; let a person's rows draw together, or take an unamplified order"
        )
    if any(s != 1.0 for s in release.scales) and release.order.participation != "fixed":
        raise NoProofError(
            f"difference queries with {release.order.name}: their sensitivity is proved where an example keeps its "
            "place and the worst case is taken; take the fixed order"
        )
    return reason


def check_loader(order_name: str, sizes: Sequence[int], shape: Shape) -> None:
    """Whether batches that come from elsewhere, of these sizes, may be declared as this order; NoProofError if not.

    Only orders that are priced by their worst case can be declared: what an amplified account needs, independent places
    from a secret key that nobody sees, cannot be read off batches.
    """
    one_of("order", order_name, ORDERS)
    n, rest = shape.steps_per_epoch, shape.examples - (shape.steps_per_epoch - 1) * shape.batch_size
    epoch = [shape.batch_size] * (n - 1) + [rest]
    partition = list(sizes) == (epoch * shape.epochs)[: len(sizes)]
    if ORDERS[order_name].kind in SAMPLED:
        what = (
            "batches of equal size are a shuffled partition, where one row's place tells about another's"
            if partition
            else "what its account needs, independent places that stay secret, cannot be read off them"
        )
        raise NoProofError(
            f"batches made elsewhere declared as {order_name}: {what}; let this library draw them, or declare "
            "reshuffled, or fixed where every epoch has the same order"
        )
    if not partition:
        raise NoProofError(
            f"batches declared as {order_name} with sizes other than {shape.batch_size} (and {rest} at the end of an "
            "epoch): a row would take part twice in an epoch, or not be where the account has it"
        )
