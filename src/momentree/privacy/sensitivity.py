"""How much one example can move a release: ‖C‖ under an order, in units of clip / batch_size, zero-out adjacency.

Guarantee: `value` is never below the supremum, over every pattern of participation that the order allows and all
contributions of norm at most s_e (1 without scales) that may depend on whatever was released before, of the norm of
what the example adds to `Cg`. `exact` says that the supremum is attained. Rounding is included, upwards. The release
is then μ-GDP with μ = value · factor / σ (`momentree.privacy.account_of`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from momentree.errors import NoProofError, whole
from momentree.order.base import Participation
from momentree.privacy import fixed
from momentree.privacy.fixed import ROUNDING, Flags
from momentree.privacy.reshuffled import materialised, one_per_epoch
from momentree.strategy.base import Array, Strategy
from momentree.strategy.restarted import Restarted
from momentree.strategy.toeplitz import Toeplitz
from momentree.strategy.tree import Tree


@dataclass(frozen=True)
class Sensitivity:
    """‖C‖ under an order. `local_search`: the largest value that a search has found, None where none was asked for."""

    value: float
    exact: bool
    method: str
    local_search: float | None = None


def sensitivity(
    strategy: Strategy,
    participation: Participation,
    steps_per_epoch: int,
    *,
    scales: tuple[float, ...] = (),
    search: bool = False,
) -> Sensitivity:
    """The worst-case sensitivity of a strategy under a participation."""
    n = whole("steps_per_epoch", steps_per_epoch)
    if participation == "fixed":
        squares, exact = place_squares(strategy, n, fixed.weights_of(scales, strategy.steps, n))
        place = int(np.argmax(squares))
        return Sensitivity(rounded(squares[place]), bool(exact[place]), "one place, every place in turn")
    if participation == "one-per-epoch":
        if scales and any(s != 1.0 for s in scales):
            raise NoProofError(
                "difference queries under the reshuffled order: no proof covers them, a place has to stay the same "
                "for a difference to be one; take the fixed order"
            )
        worst = one_per_epoch(strategy, n, search)
        reached = None if worst.reached is None else math.sqrt(worst.reached)
        return Sensitivity(rounded(worst.square), worst.attained, worst.method, reached)
    raise NoProofError(
        f"participation {participation} has no worst-case sensitivity: its account is a loss distribution"
    )


def rounded(square: float) -> float:
    return math.sqrt(square) * (1 + ROUNDING)


def place_squares(strategy: Strategy, n: int, weights: Array | None = None) -> tuple[Array, Flags]:
    """Squared sensitivity of every place under the fixed order, and whether it is attained there."""
    if isinstance(strategy, Restarted):
        return _restarted_places(strategy, n, weights)
    return _block_places(strategy, strategy.steps, n, weights)


def _block_places(strategy: Strategy, steps: int, n: int, weights: Array | None) -> tuple[Array, Flags]:
    """The first `steps` columns (and the rows complete by then)."""
    if isinstance(strategy, Tree):
        squares = fixed.tree_squares(steps, n, strategy.decay, strategy.all_nodes, weights)
        return squares, np.ones(n, dtype=bool)
    if isinstance(strategy, Toeplitz):
        return fixed.toeplitz_squares(strategy.coefficients, steps, n, weights)
    return fixed.matrix_squares(materialised(strategy, steps), n, weights)


def _restarted_places(strategy: Restarted, n: int, weights: Array | None) -> tuple[Array, Flags]:
    """Blocks share no row, so their squares add up place by place. Blocks that look alike are computed once."""
    length = strategy.inner.steps
    total, exact = np.zeros(n), np.ones(n, dtype=bool)
    known: dict[tuple[int, bytes], tuple[Array, Flags]] = {}
    for block in range(strategy.times):
        start = block * length
        steps = length if block < strategy.times - 1 else strategy.last_steps
        part = None if weights is None else weights[start : start + steps]
        key = (steps, b"" if part is None else part.tobytes())
        if key not in known:
            known[key] = _block_places(strategy.inner, steps, n, part)
        squares, flags = known[key]
        total += np.roll(squares, start % n)  # a block's own place 0 is the run's place start mod n
        exact &= np.roll(flags, start % n)
    return total, exact
