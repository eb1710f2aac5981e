"""Every cell of order × strategy × adjacency is priced or refused, and the table is written here a second time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from momentree.errors import NoProofError
from momentree.order import ORDERS, SAMPLED, Fixed, Shape, make
from momentree.privacy.entitlement import check_loader, check_release, entitlement
from momentree.privacy.events import Release
from momentree.query.base import ADJACENCIES
from momentree.strategy.bisr import Bisr
from momentree.strategy.blt import Blt
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense
from momentree.strategy.identity import Identity
from momentree.strategy.restarted import Restarted
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from momentree.strategy.tree_ls import TreeLS
from privacy_strategies import root

SHAPE = Shape(60, 10, 4)  # n = 6, T = 24
T, N = SHAPE.steps, SHAPE.steps_per_epoch
STRATEGIES = {
    "identity": Identity(T),
    "tree": Tree(T, 0.9),
    "tree-full": TreeFull(T, 0.9),
    "tree-ls": TreeLS(T, 0.9),
    "bsr of 3": Bsr(T, root(3, 0.9)),
    "bsr of 6": Bsr(T, root(6, 0.9)),
    "bsr of 7": Bsr(T, root(7, 0.9)),
    "signed bsr": Bsr(T, np.array([1.0, -0.5])),
    "bisr": Bisr(T, np.array([1.0, -0.5, -0.1])),
    "blt": Blt(T, np.array([0.3]), np.array([0.9])),
    "dense": Dense(np.tril(np.ones((T, T)))),
    "tree, every epoch": Restarted(Tree(N, 0.9), 4, None),
    "tree, every 2 epochs": Restarted(Tree(2 * N, 0.9), 2, None),
    "blt, every epoch": Restarted(Blt(N, np.array([0.3]), np.array([0.9])), 4, None),
    "blt, every 2 epochs": Restarted(Blt(2 * N, np.array([0.3]), np.array([0.9])), 2, None),
    "bsr of 3, every 2 epochs": Restarted(Bsr(2 * N, root(3, 0.9)), 2, None),
}
EVERY_EPOCH = {"tree, every epoch", "blt, every epoch"}
NARROW = {"identity", "bsr of 3", "bsr of 6", "bsr of 3, every 2 epochs"}


def built(name: str, declared: bool = False):
    shape = Shape(60, 10, 1) if name == "single-pass" else SHAPE
    return make(name, shape, parts=3 if name == "cyclic-poisson" else None, declared=declared)


def allowed(order: str, strategy: str, adjacency: str, declared: bool) -> bool:
    """The table, said in another way than the code says it."""
    if order in ("fixed", "reshuffled", "single-pass"):
        return adjacency != "add-remove"
    if adjacency == "add-remove" and not declared:
        return False
    if adjacency == "replace-one" and (order, strategy) != ("poisson", "identity"):
        return False
    return {
        "poisson": strategy == "identity",
        "cyclic-poisson": strategy in ("identity", "bsr of 3"),
        "balls-in-bins": strategy != "signed bsr",
        "random-allocation": strategy in NARROW | EVERY_EPOCH,
    }[order]


@pytest.mark.parametrize("order", ORDERS)
def test_every_cell(order):
    cells = itertools.product(STRATEGIES, ADJACENCIES, (False, True))
    priced = 0
    for strategy, adjacency, declared in cells:
        one = built(order, declared)
        if allowed(order, strategy, adjacency, declared):
            assert len(entitlement(one, STRATEGIES[strategy], adjacency)) > 20
            priced += 1
        else:
            with pytest.raises(NoProofError) as caught:
                entitlement(one, STRATEGIES[strategy], adjacency)
            assert "\n" not in str(caught.value)
            assert order in str(caught.value)
    assert priced > 0


def refusal(call) -> str:
    with pytest.raises(NoProofError) as caught:
        call()
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_sentences_say_why():
    amplified = {name: built(name) for name in ("poisson", "cyclic-poisson", "balls-in-bins", "random-allocation")}
    assert "independent noise only" in refusal(
        lambda: entitlement(amplified["poisson"], STRATEGIES["bsr of 3"], "zero-out")
    )
    assert "banded" in refusal(lambda: entitlement(amplified["cyclic-poisson"], STRATEGIES["tree"], "zero-out"))
    assert "6 diagonals" in refusal(
        lambda: entitlement(amplified["cyclic-poisson"], STRATEGIES["bsr of 6"], "zero-out")
    )
    # "p-banded" is C and not its inverse: bisr has a full C
    assert "diagonals" in refusal(lambda: entitlement(amplified["cyclic-poisson"], STRATEGIES["bisr"], "zero-out"))
    assert "negative" in refusal(lambda: entitlement(amplified["balls-in-bins"], STRATEGIES["signed bsr"], "zero-out"))
    assert "at most 6" in refusal(
        lambda: entitlement(amplified["random-allocation"], STRATEGIES["bsr of 7"], "zero-out")
    )
    assert "every 12 steps" in refusal(
        lambda: entitlement(amplified["random-allocation"], STRATEGIES["blt, every 2 epochs"], "zero-out")
    )
    assert "twice the sensitivity" in refusal(
        lambda: entitlement(amplified["balls-in-bins"], STRATEGIES["tree"], "replace-one")
    )
    assert "add-remove" in refusal(lambda: entitlement(built("fixed"), STRATEGIES["tree"], "add-remove"))
    assert "counted" in refusal(lambda: entitlement(amplified["poisson"], STRATEGIES["identity"], "add-remove"))


def release(order, strategy="tree", **facts) -> Release:
    return Release(STRATEGIES[strategy], order, facts.pop("adjacency", "zero-out"), 1.0, **facts)


def test_groups_and_scales_and_lengths():
    assert "one place a person" in refusal(lambda: check_release(release(built("balls-in-bins"), group_size=2)))
    assert check_release(release(make("balls-in-bins", SHAPE, together=True), group_size=2))
    assert check_release(release(built("fixed"), group_size=5))
    assert "difference" in refusal(lambda: check_release(release(built("reshuffled"), scales=(1.0, 0.2, 0.2, 0.2))))
    assert "difference" in refusal(lambda: check_release(release(built("balls-in-bins"), scales=(1.0, 0.2, 0.2, 0.2))))
    assert check_release(release(built("fixed"), scales=(1.0, 0.2, 0.2, 0.2)))
    assert "never longer" in refusal(lambda: check_release(release(built("single-pass"))))


@dataclass(frozen=True)
class Foreign:
    """Batches of somebody's own, under a name that sounds right."""

    shape: Shape
    name: str = "balls-in-bins"
    participation: str = "amplified"
    secret: bool = True
    declared: bool = True

    def batch(self, step, key):
        return np.arange(self.shape.batch_size)

    def describe(self):
        return {}


class Sub(Fixed):
    pass


def test_orders_from_elsewhere_are_not_taken_at_their_word():
    for order in (Foreign(SHAPE), Foreign(SHAPE, "fixed", "fixed"), Sub(SHAPE)):
        assert "cannot be priced" in refusal(lambda order=order: entitlement(order, STRATEGIES["tree"], "zero-out"))
    equal = [10] * T
    assert "shuffled partition" in refusal(lambda: check_loader("balls-in-bins", equal, SHAPE))
    assert "secret" in refusal(lambda: check_loader("poisson", [9, 11, 10], SHAPE))
    check_loader("reshuffled", equal, SHAPE)
    check_loader("fixed", [10, 10, 5] * 2, Shape(25, 10, 2))
    assert "twice" in refusal(lambda: check_loader("fixed", [10, 5, 10], Shape(25, 10, 1)))
    for kind in SAMPLED:
        refusal(lambda kind=kind: check_loader(kind.name, equal, SHAPE))
