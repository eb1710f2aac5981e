"""The exact (ε, δ) of a Gaussian mechanism: what the print's conversions are measured against.

A Gaussian mechanism of sensitivity Δ and noise σ is μ-GDP with μ = Δ/σ (Dong, Roth & Su 2022; Balle & Wang 2018):
δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2). Evaluated in logarithms; both searches end on the private side.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import log_ndtr

from momentree.errors import number


def delta_of(mu: float, epsilon: float) -> float:
    """δ(ε) of μ-GDP."""
    high = float(log_ndtr(-epsilon / mu + mu / 2))
    low = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return -math.exp(high) * math.expm1(min(low - high, 0.0))


def epsilon_of(mu: float, delta: float) -> float:
    """The ε of μ-GDP at δ, from above to 1e-12 relative; 0 where δ(0) ≤ δ already."""
    number("delta", delta, above=0.0, below=1.0)
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    return _last(lambda epsilon: delta_of(mu, epsilon) <= delta)


def sigma_of(epsilon: float, delta: float) -> float:
    """The least σ at which sensitivity 1 is (ε, δ)-DP, from above to 1e-12 relative."""
    number("epsilon", epsilon, above=0.0)
    number("delta", delta, above=0.0, below=1.0)
    return _last(lambda sigma: delta_of(1 / sigma, epsilon) <= delta)


def _last(private: Callable[[float], bool]) -> float:
    """The upper end of a bisection for the least x > 0 with private(x), private being monotone."""
    high = 1.0
    while not private(high):
        high *= 2
    low = high / 2
    while private(low):
        high, low = low, low / 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if private(middle) else (middle, high)
    return high
