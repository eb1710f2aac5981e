"""One-sided bounds on a mean and on a probability that hold at a stated level for any finite sample.

`upper_mean` bets against "the mean is at least m": the wealth `Π (1 + λ(m − X_i))` of a fixed bet λ ∈ [0, 1/b] is never
negative for X ∈ [0, b] and has mean at most 1 when the mean is at least m, so by Markov's inequality it exceeds 1/β
with probability at most β; an average over several λ fixed beforehand does as well (Waudby-Smith & Ramdas 2024 bet
step by step). It adapts to the variance without knowing it. The sample has to be fresh: nothing about the bound, the
quantity or the bets may have been chosen on it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import beta

Array = NDArray[np.float64]


def upper_mean(sample: Array, bound: float, failure: float) -> float:
    """m with P(mean > m) ≤ failure, for independent draws in [0, bound]."""
    return _edge(sample, bound, failure, upper=True)


def lower_mean(sample: Array, bound: float, failure: float) -> float:
    """m with P(mean < m) ≤ failure, for independent non-negative draws; those above `bound` count as `bound`."""
    return _edge(np.minimum(sample, bound), bound, failure, upper=False)


def _edge(sample: Array, bound: float, failure: float, *, upper: bool) -> float:
    values = np.asarray(sample, dtype=np.float64) / bound
    if values.size == 0 or values.min() < 0 or values.max() > 1 + 1e-9:
        raise ValueError("the draws have to lie between 0 and their bound")
    values = np.minimum(values, 1.0)
    zeros = int(np.sum(values == 0.0))
    values = values[values > 0.0]
    target = math.log(1 / failure)
    bets = _bets(zeros + values.size, target)

    def log_wealth(mean: float) -> float:
        if upper:
            factors = np.array([np.log1p(bet * (mean - values)).sum() for bet in bets])
            return float(logsumexp(factors + zeros * np.log1p(bets * mean)) - math.log(len(bets))) - target
        # against "the mean is at most m": bets of λ/b ≤ 1/m keep the wealth non-negative for m ≤ 1
        factors = np.array([np.log1p(bet * (values - mean)).sum() for bet in bets])
        return float(logsumexp(factors + zeros * np.log1p(-bets * mean)) - math.log(len(bets))) - target

    if upper:
        if log_wealth(1.0) <= 0:
            return bound
        root = float(brentq(log_wealth, 0.0, 1.0, xtol=1e-16, rtol=1e-12)) if log_wealth(0.0) < 0 else 0.0
        return min(bound, bound * (root * (1 + 1e-9) + 1e-16))
    if log_wealth(0.0) <= 0:
        return 0.0
    root = float(brentq(log_wealth, 0.0, 1.0, xtol=1e-16, rtol=1e-12)) if log_wealth(1.0) < 0 else 1.0
    return max(0.0, bound * (root * (1 - 1e-9) - 1e-16))


def _bets(count: int, target: float) -> Array:
    """Bets λ in units of 1/b: from the one that suits the largest variance, ¼, to the largest one, 2.5 times apart."""
    smallest = min(0.99, math.sqrt(8 * target / count))
    return np.geomspace(smallest, 0.99, 1 + math.ceil(math.log(0.99 / smallest) / math.log(2.5)))


def binomial_upper(hits: int, count: int, failure: float) -> float:
    """Clopper & Pearson's upper end for a probability."""
    return 1.0 if hits >= count else float(beta.isf(failure, hits + 1, count - hits))


def binomial_lower(hits: int, count: int, failure: float) -> float:
    """Clopper & Pearson's lower end for a probability."""
    return 0.0 if hits <= 0 else float(beta.ppf(failure, hits, count - hits + 1))
