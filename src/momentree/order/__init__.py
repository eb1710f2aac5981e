"""Who takes part when: one order a file."""

from __future__ import annotations

from dataclasses import dataclass

from momentree.errors import InputError, one_of
from momentree.order.balls_in_bins import BallsInBins
from momentree.order.base import Indices, Order, Participation, Shape
from momentree.order.cyclic_poisson import CyclicPoisson
from momentree.order.draws import permutation
from momentree.order.fixed import Fixed
from momentree.order.physical import Mask, physical
from momentree.order.poisson import Poisson
from momentree.order.random_allocation import RandomAllocation
from momentree.order.reshuffled import Reshuffled
from momentree.order.sampled import places
from momentree.order.single_pass import SinglePass


@dataclass(frozen=True)
class Entry:
    """What `momentree list orders` says of an order."""

    kind: type
    description: str
    entitled: str


ORDERS: dict[str, Entry] = {
    "fixed": Entry(Fixed, "one random order, the same in every epoch", "any strategy, worst case over the place"),
    "reshuffled": Entry(Reshuffled, "a new order in every epoch", "any strategy, worst case over a place an epoch"),
    "single-pass": Entry(SinglePass, "one epoch, every example once", "any strategy, worst case over the step"),
    "poisson": Entry(Poisson, "each example with probability B/N at each step", "identity, amplified"),
    "cyclic-poisson": Entry(
        CyclicPoisson, "p parts in turn, Poisson within a part", "bands of C up to the cycle, amplified"
    ),
    "balls-in-bins": Entry(BallsInBins, "one random place for all epochs, sizes vary", "any C ≥ 0, amplified"),
    "random-allocation": Entry(
        RandomAllocation,
        "a fresh random place in every epoch, sizes vary",
        "bands up to n, or a restart every epoch, C ≥ 0, amplified",
    ),
}


def make(
    name: str,
    shape: Shape,
    *,
    seed: int | None = None,
    parts: int | None = None,
    declared: bool = False,
    together: bool = False,
) -> Order:
    """The order of that name. Options that it does not have are refused."""
    kind = ORDERS[one_of("order", name, ORDERS)].kind
    options: dict[str, object] = {}
    if name == "fixed":
        options["seed"] = 0 if seed is None else seed
    if name == "cyclic-poisson":
        if parts is None:
            raise InputError(
                f"cyclic-poisson without parts: give the number of parts, 1 to {shape.examples // shape.batch_size}"
            )
        options["parts"] = parts
    elif parts is not None:
        raise InputError(f"parts {parts} with order {name}: only cyclic-poisson has parts; leave it out")
    if issubclass(kind, SAMPLED):
        options.update(declared=declared, together=together)
    elif together:
        raise InputError(f"together with order {name}: only the sampled orders draw persons' rows together")
    order: Order = kind(shape, **options)
    return order


def forget() -> None:
    """Drop the permutations and places that are kept between steps: they are as secret as the key they came from."""
    permutation.cache_clear()
    places.cache_clear()


SAMPLED = (Poisson, CyclicPoisson, BallsInBins, RandomAllocation)

__all__ = [
    "ORDERS",
    "SAMPLED",
    "BallsInBins",
    "CyclicPoisson",
    "Entry",
    "Fixed",
    "Indices",
    "Mask",
    "Order",
    "Participation",
    "Poisson",
    "RandomAllocation",
    "Reshuffled",
    "Shape",
    "SinglePass",
    "forget",
    "make",
    "physical",
]
