"""`random-allocation`: a fresh place of n in every epoch, drawn independently and kept secret.

Guarantee (zero-out; add-remove where N is declared): the mixture over all patterns, `n^−E Σ_u N(Cu, σ²I)` against
`N(0, σ²I)`, dominates every adaptive run (docs/guarantees/amplified.md). Where only neighbouring epochs share rows of
C (bands up to n) its likelihood ratio follows by a recursion and is sampled and certified. Where epochs share none
(restarts, identity) it is a product; for identity every factor's distribution is computed and composed.
"""

from __future__ import annotations

import numpy as np

from momentree.errors import InputError, number
from momentree.privacy.account import Account
from momentree.privacy.allocation import Allocation, EpochBlock, allocation, banded_allocation
from momentree.privacy.balls_in_bins import LARGEST_MATRIX, RESOLUTION, independent_places, orthogonal
from momentree.privacy.mixtures import Array
from momentree.privacy.monte_carlo import FAILURE, MonteCarloAccount
from momentree.privacy.ratio import Ratio, RatioAccount, Side, multiply, power
from momentree.strategy.base import Strategy
from momentree.strategy.restarted import Restarted
from momentree.strategy.toeplitz import Toeplitz

SAMPLES, LEAST_SAMPLES, WORK = 100_000, 20_000, 4e8
"""By default as many samples as keep samples × base rows below `WORK`, within these ends."""


def allocation_of(strategy: Strategy, steps_per_epoch: int, noise_multiplier: float) -> Allocation:
    """The mixture of a strategy over one or more epochs of n steps; the last epoch may be cut."""
    n, total = steps_per_epoch, strategy.steps
    epochs = -(-total // n)
    if isinstance(strategy, Toeplitz):
        return banded_allocation(strategy.coefficients, n, epochs, noise_multiplier, steps=total)
    if isinstance(strategy, Restarted) and strategy.inner.steps == n:
        last = total - n * (epochs - 1)
        cut = (last, strategy.inner.rows_by(last)) if last < n else None
        return restarted_allocation(strategy.inner.matrix(), epochs, noise_multiplier, cut)
    if total * total > LARGEST_MATRIX:
        raise InputError(
            f"random-allocation with strategy {strategy.name} over {total} steps: C is too large to be written out; "
            f"at most {int(LARGEST_MATRIX**0.5)} steps, a Toeplitz strategy, or a restart every epoch"
        )
    return allocation(strategy.matrix(), n, noise_multiplier)


def restarted_allocation(
    block: Array, epochs: int, noise_multiplier: float, cut: tuple[int, int] | None = None
) -> Allocation:
    """A block-diagonal C, the same block (rows × n) every epoch; `cut`: (steps, rows) of a shorter last epoch."""
    rows, n = block.shape
    scaled = np.ascontiguousarray(block / noise_multiplier)
    first = EpochBlock(slice(0, rows), scaled, None)
    blocks = [first]
    for e in range(1, epochs):
        one = EpochBlock(slice(e * rows, (e + 1) * rows), scaled, None)
        one.__dict__["gram"] = first.gram
        blocks.append(one)
    if cut is not None:
        steps, kept = cut
        short = np.where(np.arange(n) < steps, scaled[:kept], 0.0)
        blocks[-1] = EpochBlock(slice((epochs - 1) * rows, (epochs - 1) * rows + kept), short, None)
    return Allocation(tuple(blocks), blocks[-1].rows.stop)


def random_allocation(
    mixture: Allocation,
    *,
    seed: int,
    samples: int | None = None,
    failure_probability: float = FAILURE,
) -> Account:
    """The account of the mixture: deterministic where every epoch's places are orthogonal, else sampled."""
    independent = all(b.meeting is None and orthogonal(b.gram) for b in mixture.blocks)
    if independent:
        method = "loss distribution of one secret place an epoch, computed and composed"
        return RatioAccount(lambda side: _composed(mixture, side), method)
    if samples is None:
        samples = int(min(SAMPLES, max(LEAST_SAMPLES, WORK // mixture.rows)))
    what = f"a fresh secret place of {mixture.places} in each of {len(mixture.blocks)} epochs"
    return MonteCarloAccount(mixture, seed=seed, samples=samples, failure_probability=failure_probability, what=what)


def _composed(mixture: Allocation, side: Side) -> Ratio:
    kinds: dict[tuple[float, ...], int] = {}
    for block in mixture.blocks:
        key = tuple(np.sort(np.diag(block.gram)))
        kinds[key] = kinds.get(key, 0) + 1
    result: Ratio | None = None
    for variances, times in kinds.items():
        part = power(independent_places(np.array(variances), side), times, multiply, RESOLUTION)
        result = part if result is None else multiply(result, part, RESOLUTION)
    assert result is not None
    return result


def checked_noise(noise_multiplier: float) -> float:
    """σ, or one line that says what is allowed."""
    return number("noise_multiplier", noise_multiplier, above=0, do="without noise nothing is private")
