"""Algorithm 5, aggregation with Gaussian noise, and Theorem `renyiaggregation` with its conversion to (ε, δ).

Adjacency is the print's: one of N examples replaced. Δ_i bounds the L2 sensitivity of G_i for any earlier outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from momentree.errors import InputError, number
from momentree.paper.common import Vector

Function = Callable[..., Vector]
"""G_i(D, f̂_1, …, f̂_{i-1}) -> vector."""


def aggregate(
    D: object,
    functions: Sequence[Function],
    sensitivities: Sequence[float],
    rho: float,
    noise: Callable[[int, float, Vector], Vector],
) -> list[Vector]:
    """Algorithm 5: f̂_i = G_i(D, f̂_1 … f̂_{i-1}) + ζ_i, ζ_i ~ N(0, Δ_i²/ρ² I).

    `noise(i, scale, like)` returns ζ_i of the given scale Δ_i/ρ and the shape of `like`, i = 1 … K.
    """
    if len(functions) != len(sensitivities):
        raise InputError(f"{len(functions)} functions but {len(sensitivities)} sensitivities: give one for each")
    number("rho", rho, above=0.0)
    released: list[Vector] = []
    for i, (G_i, Delta_i) in enumerate(zip(functions, sensitivities, strict=True), start=1):
        f_i = np.asarray(G_i(D, *released), dtype=np.float64)
        released.append(f_i + noise(i, Delta_i / rho, f_i))
    return released


def participation(subsets: Sequence[Collection[int]], examples: int) -> int:
    """V = sup_s |IN(s)|: the most subsets S_i that one of the examples 0 … N-1 is in."""
    return max(sum(s in S_i for S_i in subsets) for s in range(examples))


def renyi_bound(alpha: float, V: float, rho: float) -> float:
    """Theorem `renyiaggregation`: Algorithm 5 is (α, Vαρ²/2)-RDP for all α > 1."""
    return V * alpha * rho**2 / 2


def epsilon_from_renyi(alpha: float, divergence: float, delta: float) -> float:
    """(α, ε')-RDP is (ε' + log(1/δ)/(α-1), δ)-DP: the conversion that the print uses."""
    return divergence + math.log(1 / delta) / (alpha - 1)


def print_order(V: float, rho: float, delta: float) -> float:
    """The α that the print sets: 1 + √log(1/δ)/(ρ√V)."""
    return 1 + math.sqrt(math.log(1 / delta)) / (rho * math.sqrt(V))


def epsilon_as_printed(V: float, rho: float, delta: float) -> float:
    """Vρ² + ρ√(V log(1/δ)), the intermediate claim of the print. NOT a guarantee: too small (docs/paper.md, R1)."""
    return V * rho**2 + rho * math.sqrt(V * math.log(1 / delta))


def epsilon_derived(V: float, rho: float, delta: float) -> float:
    """Vρ²/2 + 1.5 ρ√(V log(1/δ)): what the print's own α gives."""
    return V * rho**2 / 2 + 1.5 * rho * math.sqrt(V * math.log(1 / delta))


def epsilon_final(V: float, rho: float, delta: float) -> float:
    """2ρ√(V log(1/δ)), the final claim of the print; it holds where its condition ρ ≤ √(log(1/δ)/V) does."""
    number("rho", rho, above=0.0, at_most=math.sqrt(math.log(1 / delta) / V), do="the claim assumes it")
    return 2 * rho * math.sqrt(V * math.log(1 / delta))
