"""Every strategy by name: what it is in one line, and how it is made for a setting.

A builder gets the setting and a `Scorer`, which knows the price of a strategy (error on the target × the sensitivity
that the caller computes for the order at hand), and returns the strategy of one block; `make` repeats it where the
setting asks for restarts. To add one: a file with the strategy, a builder here, a line in `STRATEGIES`, a formula in
`error.span_of`, a branch in `rebuild`; the conformance suite picks it up from `STRATEGIES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from momentree.errors import InputError, NoProofError, one_of, whole
from momentree.strategy.base import Array, Strategy
from momentree.strategy.bisr import Bisr
from momentree.strategy.blt import Blt
from momentree.strategy.blt_fit import Shape, fit_blt
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense, unpack
from momentree.strategy.dense_fit import fit_dense
from momentree.strategy.error import rms_error
from momentree.strategy.identity import Identity
from momentree.strategy.participation import fixed_sensitivity
from momentree.strategy.restarted import Restartable, Restarted
from momentree.strategy.setting import MOST_BUFFERS, Setting
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from momentree.strategy.tree_ls import TreeLS

Sensitivity = Callable[[Strategy], float]
USUAL_BUFFERS = 4
SCHEDULE_STEPS = 2_000
"""Bands and buffers of longer runs are chosen by the schedule's average; figures are always those of the schedule."""
ENOUGH = 1.002
"""A smaller band, or fewer buffers, is taken where the loss is within this factor of the best."""


@dataclass(frozen=True)
class Scorer:
    """What a strategy costs in a setting; strategies that the order has no proof for cost infinity."""

    setting: Setting
    sensitivity: Sensitivity
    refusals: list[NoProofError] = field(default_factory=list)

    def loss(self, block: Restartable) -> float:
        """Error on the target × sensitivity of the block, repeated as the setting says."""
        strategy = repeat(block, self.setting)
        try:
            scale = self.sensitivity(strategy)
        except NoProofError as refusal:
            self.refusals.append(refusal)
            return math.inf
        target = self.setting.target
        return scale * rms_error(strategy, target if target.steps <= SCHEDULE_STEPS else target.averaged())


Builder = Callable[[Setting, Scorer, int | None], Restartable]


@dataclass(frozen=True)
class Entry:
    """A strategy on offer: one line about it, and its builder (setting, scorer, most vectors) → one block."""

    description: str
    build: Builder


def repeat(block: Restartable, setting: Setting) -> Restartable:
    """The block, restarted as often as the setting asks."""
    if setting.blocks == 1:
        return block
    last = setting.steps - setting.block_steps * (setting.blocks - 1)
    return Restarted(block, setting.blocks, None if last == setting.block_steps else last)


def make(name: str, setting: Setting, sensitivity: Sensitivity, *, budget_vectors: int | None = None) -> Restartable:
    """The strategy of that name, made for the setting.

    `sensitivity`: ‖C‖ under the order at hand, by whoever accounts for it (or anything proportional to the noise that a
    strategy needs); bands and buffers that the setting leaves open are chosen by it. `budget_vectors`: most model-sized
    vectors that a chosen band or number of buffers may keep (a band or number that is given is taken as it is).
    """
    entry = STRATEGIES[one_of("strategy", name, STRATEGIES)]
    if budget_vectors is not None:
        whole("budget_vectors", budget_vectors, at_least=0)
    scorer = Scorer(setting, sensitivity)
    return repeat(entry.build(setting, scorer, budget_vectors), setting)


def _banded(
    setting: Setting, scorer: Scorer, budget: int | None, series: Callable[[int], Array], kind: type
) -> Restartable:
    steps = setting.block_steps
    if setting.band is not None:
        return kind(steps, series(min(setting.band, steps)))  # type: ignore[no-any-return]
    limit = steps if budget is None else min(steps, budget + 1)
    full = series(limit)
    limit = int(np.flatnonzero(full)[-1]) + 1
    found: dict[int, float] = {}

    def try_bands(bands: set[int]) -> int:
        for band in sorted(bands - found.keys()):
            found[band] = scorer.loss(kind(steps, full[:band]))
        return min(found, key=lambda band: (found[band], band))

    best = try_bands(_coarse(limit, setting.steps_per_epoch))
    if math.isinf(found[best]):
        raise scorer.refusals[-1]
    while True:  # halve the gaps on both sides of the best until they are under 2% of it
        tried = sorted(found)
        at = tried.index(best)
        sides = [tried[k] for k in (at - 1, at + 1) if 0 <= k < len(tried)]
        halves = {(best + side) // 2 for side in sides if abs(side - best) > max(1, best // 50)}
        if not halves - found.keys():
            break
        best = try_bands(halves)
    band = min(b for b in found if found[b] <= ENOUGH * found[best])
    return kind(steps, full[:band])  # type: ignore[no-any-return]


def _coarse(limit: int, steps_per_epoch: int) -> set[int]:
    """Bands tried first: small ones, a geometric grid, and the ends of the first epochs, where the loss has dents."""
    bands, band = set(range(1, min(limit, 9) + 1)), 9.0
    while (band := band * 1.35) < limit:
        bands.add(int(band))
    bands.update(k * steps_per_epoch for k in (1, 2, 3, 4, 6, 8) if k * steps_per_epoch <= limit)
    return bands | {limit}


def _bsr(setting: Setting, scorer: Scorer, budget: int | None) -> Restartable:
    return _banded(setting, scorer, budget, setting.target.square_root, Bsr)


def _bisr(setting: Setting, scorer: Scorer, budget: int | None) -> Restartable:
    return _banded(setting, scorer, budget, setting.target.inverse_square_root, Bisr)


def _blt(setting: Setting, scorer: Scorer, budget: int | None) -> Restartable:
    steps, n = setting.block_steps, setting.steps_per_epoch
    workload = setting.target.averaged().over(steps)
    most = min(USUAL_BUFFERS if budget is None else budget, MOST_BUFFERS)
    counts = [setting.buffers] if setting.buffers is not None else list(range(1, most + 1))
    if not counts:
        raise InputError("a budget of 0 vectors has no room for a buffer: choose identity or allow 1")

    def fit(count: int, apart: int, shape: Shape) -> tuple[Blt, float]:
        return fit_blt(workload, apart, count, shape, blocks=setting.blocks)

    fits: list[tuple[Blt, float]] = []
    for count in counts:
        fits.append(fit(count, n, "fixed"))
        if steps == 1:
            return fits[0][0]
        if len(fits) > 2 and fits[-1][1] * ENOUGH > fits[-3][1]:
            break  # two more buffers gained nothing
    best = min(loss for _, loss in fits)
    chosen = next(blt for blt, loss in fits if loss <= ENOUGH * best)
    own = scorer.loss(chosen)
    if math.isclose(own, Scorer(setting, lambda c: fixed_sensitivity(c, n)).loss(chosen), rel_tol=1e-6):
        return chosen  # the order is the fixed one
    others = [fit(chosen.buffers, n, "one-per-epoch")[0], fit(chosen.buffers, steps, "fixed")[0]]
    losses = [own, *(scorer.loss(other) for other in others)]
    if math.isinf(min(losses)):
        raise scorer.refusals[-1]
    return [chosen, *others][losses.index(min(losses))]


STRATEGIES: dict[str, Entry] = {
    "identity": Entry("independent noise at every step, C = I", lambda s, _, __: Identity(s.block_steps)),
    "tree": Entry(
        "the tree's nodes that a prefix uses, one a step; keeps log2 T vectors",
        lambda s, _, __: Tree(s.block_steps, s.tree_decay),
    ),
    "tree-full": Entry(
        "every node of the tree, as the paper prints it; for comparison",
        lambda s, _, __: TreeFull(s.block_steps, s.tree_decay),
    ),
    "tree-ls": Entry(
        "every node of the tree, best causal decoding; keeps log2 T vectors",
        lambda s, _, __: TreeLS(s.block_steps, s.tree_decay),
    ),
    "bsr": Entry("banded square root of the workload; keeps band − 1 vectors", _bsr),
    "bisr": Entry("banded inverse square root of the workload; keeps band − 1 vectors", _bisr),
    "blt": Entry("buffered linear Toeplitz, optimised; keeps one vector a buffer", _blt),
    "dense": Entry(
        "the best lower-triangular C for the fixed order, T ≤ 2,000; keeps T − 1 vectors",
        lambda s, _, __: fit_dense(s.target, s.steps_per_epoch, block=s.block_steps).strategy,
    ),
}
"""Name → description and builder; `auto` is no entry, see `choose`."""


def rebuild(facts: dict[str, object]) -> Restartable:
    """The strategy whose `describe()` these are: the same numbers bit for bit."""
    try:
        name, steps = facts["name"], facts["steps"]
        if "inner" in facts:
            inner = rebuild(facts["inner"])  # type: ignore[arg-type]
            return Restarted(inner, facts["times"], facts["last"])  # type: ignore[arg-type]
        kinds: dict[object, Callable[[], Restartable]] = {
            "identity": lambda: Identity(steps),  # type: ignore[arg-type]
            "tree": lambda: Tree(steps, facts["decay"]),  # type: ignore[arg-type]
            "tree-full": lambda: TreeFull(steps, facts["decay"]),  # type: ignore[arg-type]
            "tree-ls": lambda: TreeLS(steps, facts["decay"]),  # type: ignore[arg-type]
            "bsr": lambda: Bsr(steps, facts["coefficients"]),  # type: ignore[arg-type]
            "bisr": lambda: Bisr(steps, facts["inverse"]),  # type: ignore[arg-type]
            "blt": lambda: Blt(steps, facts["scales"], facts["decays"]),  # type: ignore[arg-type]
            "dense": lambda: Dense(unpack(steps, facts["entries"]), facts["gap"]),  # type: ignore[arg-type]
        }
        return kinds[one_of("strategy", name, kinds.keys())]()  # type: ignore[arg-type]
    except KeyError as missing:
        raise InputError(f"the facts of a strategy lack {missing}: the record is damaged") from None
