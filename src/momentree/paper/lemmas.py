"""The lemmas and propositions of the appendix, both sides as numbers, to be checked on any inputs.

`printed` as the paper states it; where that is false the repaired one stands beside it (docs/paper.md, E9 and E14).
Lemma `breaksum` is `reconstruction.reconstruct_sum` on exact sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from momentree.paper import bounds
from momentree.paper.common import Vector
from momentree.paper.compose import compose
from momentree.paper.reconstruction import reconstruction_weights


@dataclass(frozen=True)
class Inequality:
    """left ≤ right, up to rounding."""

    left: float
    right: float

    @property
    def holds(self) -> bool:
        return self.left <= self.right * (1 + 1e-12) + 1e-300


def power_sum(alpha: float, N: int) -> Inequality:
    """Proposition `powersum`, α ∈ (0, 1]: Σ_i (1-α)^(Ni) ≤ max(1, 1/(αN))/(1-e^{-1})."""
    return Inequality(_geometric(alpha, N, 0.0), max(1.0, 1 / (alpha * N)) / -math.expm1(-1.0))


def adv_power_sum(alpha: float, N: int, gamma: float) -> Inequality:
    """Proposition `advpowersum`, γ ∈ (0, 1), ln(1/(1-γ))/N < α ≤ 1: Σ_i (1-γ)^(-i) (1-α)^(Ni) ≤ …"""
    return Inequality(_geometric(alpha, N, gamma), _adv_right(alpha, N, gamma))


def adv_power_sum_in_particular(alpha: float, N: int, gamma: float) -> Inequality:
    """Its second statement, 1/(1-e^{-1}) for γ ≤ 1/2: needs α ≥ (1 + ln 2)/N, not 1/N (E9)."""
    return Inequality(_geometric(alpha, N, gamma), 1 / -math.expm1(-1.0))


def sum_gamma(alpha: float, N: int, gamma: float, i: int) -> Inequality:
    """Corollary `sumgamma`: Σ_{j<i} (1-γ)^j (1-α)^((i-1-j)N) ≤ (1-γ)^(i-1) times the right-hand side of advpowersum."""
    left = sum((1 - gamma) ** j * (1 - alpha) ** ((i - 1 - j) * N) for j in range(i))
    return Inequality(left, (1 - gamma) ** (i - 1) * _adv_right(alpha, N, gamma))


def _geometric(alpha: float, N: int, gamma: float) -> float:
    """Σ_i ((1-α)^N/(1-γ))^i in closed form."""
    if alpha == 1.0:
        return 1.0
    ratio = N * math.log1p(-alpha) - math.log1p(-gamma)
    return 1 / -math.expm1(ratio) if ratio < 0 else math.inf


def _adv_right(alpha: float, N: int, gamma: float) -> float:
    slack = alpha * N + math.log1p(-gamma)
    return max(1.0, 1 / slack if slack > 0 else math.inf) / -math.expm1(-1.0)


def binary_sum(s: int, gamma: float) -> Inequality:
    """Proposition `binarysum`, γ ∈ (0, 1): Σ_i b_i γ^(2(s mod 2^i)) ≤ 1 + Σ_{i=1}^R γ^(2^i), b the bits of s."""
    R = s.bit_length() - 1
    left = sum(gamma ** (2 * (s % (1 << i))) for i in range(R + 1) if s >> i & 1)
    return Inequality(left, 1 + sum(gamma ** (1 << i) for i in range(1, R + 1)))


def compose_bound(a: int, b: int) -> Inequality:
    """Proposition `composebound`: |COMPOSE(a,b)| ≤ 2(1 + ⌊log2(b-a+1)⌋), and 1 + log2 b where a = 1."""
    right = 1 + math.log2(b) if a == 1 else 2 * (1 + math.floor(math.log2(b - a + 1)))
    return Inequality(len(compose(a, b)), right)


def gradient_bound(
    *,
    values: tuple[float, float],
    gradient_norms: Vector,
    errors: Vector,
    eta: float,
    L: float,
    factor: float = 3.0,
) -> Inequality:
    """Lemma `gradientbound` on one run of normalised steps, before expectations.

    `values` F(w_1) and F(w_{T+1}); `gradient_norms` ‖∇F(w_t)‖ and `errors` ‖m̂_t - ∇F(w_t)‖, t = 1 … T. The printed
    factor is 3; 5/2 is what the tight inequality of one step gives.
    """
    T = len(gradient_norms)
    right = bounds.descent(values[0] - values[1], L, eta, T, float(np.mean(errors)), factor)
    return Inequality(float(np.mean(gradient_norms)), right)


def one_step(gradient: Vector, m_hat: Vector, constant: float) -> Inequality:
    """The inequality inside its proof, -⟨∇F, m̂/‖m̂‖⟩ ≤ -⅔‖∇F‖ + constant·‖m̂ - ∇F‖: printed 2, tight 5/3."""
    left = -float(gradient @ m_hat) / float(np.linalg.norm(m_hat))
    error = float(np.linalg.norm(m_hat - gradient))
    return Inequality(left, -2 / 3 * float(np.linalg.norm(gradient)) + constant * error)


def one_step_case_two(gradient: Vector, m_hat: Vector) -> Inequality:
    """The print's case two, -⟨∇F, m̂/‖m̂‖⟩ ≤ 0 where ‖m̂ - ∇F‖ > ½‖∇F‖. False: m̂ may point the other way (E14)."""
    return Inequality(-float(gradient @ m_hat) / float(np.linalg.norm(m_hat)), 0.0)


def gaussian_norm(d: int, scale: float) -> float:
    """E‖N(0, scale² I_d)‖ = scale √2 Γ((d+1)/2)/Γ(d/2), at most scale √d."""
    return scale * math.sqrt(2) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))


def momentum_noise(t: int, alpha: float, scale: float) -> float:
    """Standard deviation of a coordinate of Algorithm 1's noise at step t, every node drawn with `scale`."""
    return scale * math.sqrt(sum((1 - alpha) ** (2 * (t - z)) for _, z in compose(1, t)))


def momentum_accuracy(
    t: int, T: int, *, alpha: float, G: float, sigma: float, V: float, d: int, printed: bool
) -> Inequality:
    """Lemma `momentumaccuracy` at step t ≤ T, the left side exact; `printed` with log2 T, else 1 + ⌊log2 T⌋."""
    level = 4 * alpha * G
    right = bounds.momentum_accuracy_printed if printed else bounds.momentum_accuracy
    left = gaussian_norm(d, momentum_noise(t, alpha, level * sigma * math.sqrt(V)))
    return Inequality(left, right(level, sigma, d, V, T))


def population_error(
    error: float, t: int, *, alpha: float, eta: float, N: int, G: float, L: float, printed: bool
) -> Inequality:
    """Lemma `populationerror`: `error` is E‖m_t - ∇F(w_t)‖ over new permutations in every epoch."""
    if printed:
        return Inequality(error, bounds.population_error_printed(alpha, eta, N, G, L))
    return Inequality(error, bounds.population_error(alpha, eta, N, G, L, t))


def cross_epoch_noise(
    t: int, *, alpha: float, gamma: float, steps_per_epoch: int, scale: Callable[[str, int, int], float]
) -> float:
    """Standard deviation of a coordinate of Algorithm 2's noise at step t; `scale(family, y, z)` is a node's."""
    weights = reconstruction_weights(alpha=alpha, gamma=gamma, t=t, steps_per_epoch=steps_per_epoch)
    return math.sqrt(sum((c * scale(*node)) ** 2 for node, c in weights.items()))
