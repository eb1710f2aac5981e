"""Which strategy under an amplified order, where no sensitivity ranks them: each has an account of its own.

A candidate's `scale` is the σ that it is likely to need (`privacy/rough.py`), right to a few per cent; the chosen one's
is calibrated and certified afterwards, so a wrong guess costs accuracy and never privacy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from momentree.errors import InputError, NoProofError
from momentree.order import CyclicPoisson, Poisson, RandomAllocation
from momentree.privacy.entitlement import entitlement
from momentree.privacy.gaussian import largest_mu
from momentree.privacy.rough import rough_noise
from momentree.strategy.base import Strategy
from momentree.strategy.build import make
from momentree.strategy.choose import Candidate
from momentree.strategy.error import rms_error
from momentree.strategy.restarted import Restartable
from momentree.strategy.setting import Setting

if TYPE_CHECKING:
    from momentree.plan import Plan

WIDEST_BAND = 16
"""Of a band that nothing was compared with."""
BANDS = (2, 3, 5, 9, 16, 33)
WIDE = 65
"""Beyond this many diagonals a band is compared only where memory allows it and an epoch is as long."""


def widest_band(plan: Plan) -> tuple[Strategy, str]:
    """A band as wide as order and memory allow, and why: where no ε says at what privacy to compare."""
    if isinstance(plan.order, Poisson):
        return make("identity", plan.setting, plan.kept_place), "the only one that poisson has an account for"
    widest = plan.order.parts if isinstance(plan.order, CyclicPoisson) else plan.steps_per_epoch
    band = min(widest, plan.budget_vectors + 1, WIDEST_BAND)
    setting = replace(plan.setting, band=min(band, plan.steps))
    why = f"a band of {band}, the widest that order, budget and a cap of {WIDEST_BAND} allow; none were compared"
    return make("bsr", setting, plan.kept_place), why


def candidates(plan: Plan, epsilon: float) -> list[Candidate]:
    """Every strategy that the algorithm, order and memory allow, each name at its best, least noise first."""
    best: dict[str, Candidate] = {}
    for name, strategy in _offered(plan):
        try:
            entitlement(plan.order, strategy, plan.adjacency)
            start = 0.5 * plan.request.rows_per_person * plan.kept_place(strategy) / largest_mu(epsilon, plan.delta)
            sigma = rough_noise(plan.release(start, strategy), epsilon, plan.delta, seed=plan.request.account_seed)
        except (NoProofError, InputError):
            continue
        setting = plan.setting
        on_momentum = sigma * rms_error(strategy, setting.momentum_workload)
        on_iterates = sigma * rms_error(strategy, setting.iterate_workload)
        loss = sigma * rms_error(strategy, setting.target)
        found = Candidate(name, strategy, sigma, on_momentum, on_iterates, loss, True)
        if name not in best or loss < best[name].loss:
            best[name] = found
    return sorted(best.values(), key=lambda c: (c.loss, c.noise_vectors))


def _offered(plan: Plan) -> Iterator[tuple[str, Restartable]]:
    names, setting, budget = plan.preset.strategies, plan.setting, plan.budget_vectors

    def built(name: str, setting: Setting) -> Iterator[tuple[str, Restartable]]:
        if names and name not in names:
            return
        strategy = make(name, setting, plan.kept_place, budget_vectors=budget)
        if strategy.noise_vectors <= budget:
            yield name, strategy

    yield from built("identity", setting)
    if isinstance(plan.order, Poisson):
        return
    reach = plan.steps_per_epoch if isinstance(plan.order, RandomAllocation) else setting.block_steps
    reach = plan.order.parts if isinstance(plan.order, CyclicPoisson) else reach
    widest = min(reach, budget + 1, setting.block_steps)
    bands = [b for b in BANDS if b < widest] + [widest]
    if isinstance(plan.order, RandomAllocation | CyclicPoisson):  # accounts take seconds, wide bands are alike
        bands = [b for b in bands if b in (bands[len(bands) // 2], widest)]
    for band in bands:
        if 1 < band <= WIDE:
            yield from built("bsr", replace(setting, band=band))
    if isinstance(plan.order, CyclicPoisson):
        return
    if budget > 0:
        yield from built("blt", setting)
        yield from built("bisr", replace(setting, band=min(budget + 1, setting.block_steps)))
    yield from built("tree", setting)
    yield from built("tree-ls", setting)
