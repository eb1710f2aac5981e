"""The constants inside the two theorems: V, δ, σ, T and the others, as printed, and what is true of them.

Adjacency is the print's, one of N examples replaced: a G-Lipschitz gradient moves by up to 2G. Errata: docs/paper.md.
"""

from __future__ import annotations

import math

from scipy.special import lambertw

from momentree.errors import number
from momentree.paper.compose import tree_depth


def node_count_printed(N: int, T: float, R: int | None = None) -> float:
    """V of Algorithm 1: (min(R, ⌊log2 N⌋)+1) T/N + Σ_{j=⌊log2 N⌋+1}^R ⌊T/2^j⌋; R the depth of the tree, ⌊log2 T⌋.

    Too small where N does not divide T (137.5 against 140 at N = 100, T = 1650: E3).
    """
    R = tree_depth(T) if R is None else R
    low = tree_depth(N)
    return (min(R, low) + 1) * T / N + sum(math.floor(T / (1 << j)) for j in range(low + 1, R + 1))


def node_count_safe(N: int, T: int, R: int | None = None) -> int:
    """V with ⌈T/N⌉ in place of T/N: never below the truth, for a fixed order and for reshuffled epochs."""
    R = tree_depth(T) if R is None else R
    low = tree_depth(N)
    return (min(R, low) + 1) * -(-T // N) + sum(T >> j for j in range(low + 1, R + 1))


def node_count(N: int, T: int) -> int:
    """The true V under one fixed order: the nodes inside {1 … T} that hold the example of place 1, who is in most.

    Level b with 2^b ≤ N: occurrences, N apart, lie in different nodes, and those up to ⌊T/2^b⌋2^b lie in one; above,
    every node holds everyone.
    """
    total = 0
    for b in range(tree_depth(T) + 1):
        nodes = T // 2**b
        total += (nodes * 2**b - 1) // N + 1 if 2**b <= N else nodes
    return total


def early_node_count_printed(N: int) -> float:
    """V_{≤2N} = 3 log2 N of Algorithm 2; below the truth for N = 2 … 5, and zero, that is no noise, for N = 1 (E4)."""
    return 3 * math.log2(N)


def late_node_count_printed(N: int, T: float) -> float:
    """V_{>2N} = 4 (T/N) log2 N of Algorithm 2."""
    return 4 * T / N * math.log2(N)


def momentum_level_printed(alpha: float, G: float) -> float:
    """Algorithm 1's bound 4αG on the sensitivity of a node: true for a fixed order and α ≥ 1/N; not reshuffled (E2)."""
    return 4 * alpha * G


def momentum_level_reshuffled(alpha: float, G: float, N: int) -> float:
    """A bound on a node's sensitivity that holds for any order in which each example takes part once in an epoch.

    With z at place s ≥ 1 of its epoch, the terms are at most 1, (1-α)^s, (1-α)^(s+N), …, so the sum is at most
    1 + (1-α)/(1-(1-α)^N): 5.17 αG for α ≥ 1/N at the most.
    """
    before = (1 - alpha) / -math.expm1(N * math.log1p(-alpha)) if alpha < 1 else 0.0
    return 2 * alpha * G * (1 + before)


def gradient_level_printed(G: float) -> float:
    """δ_G = 4G of Algorithm 2."""
    return 4 * G


def difference_level_printed(eta: float, N: int) -> float:
    """δ_Δ = δ_r = 2ηN as Algorithm 2 prints it: L is missing (E5)."""
    return 2 * eta * N


def difference_level_proof(eta: float, N: int, L: float) -> float:
    """2ηNL as the proof of Theorem `crossprivacy` says it: the sum over epochs is missing (E5)."""
    return 2 * eta * N * L


def difference_level(eta: float, N: int, L: float) -> float:
    """4ηNL, true for a fixed order and α ≥ 1/N (E5)."""
    return 4 * eta * N * L


def difference_level_tight(eta: float, N: int, L: float) -> float:
    """2ηNL/(1-e^{-1}), the least that does for every T where α = 1/N and N is large (E5)."""
    return 2 * eta * N * L / -math.expm1(-1.0)


def sigma_printed_1(epsilon: float, delta: float) -> float:
    """σ = 2√log(1/δ)/ε of Theorem `momentumprivacy`: enough where ε ≤ log(1/δ), printed upside down (E6)."""
    return 2 * math.sqrt(math.log(1 / delta)) / epsilon


def sigma_quadratic(epsilon: float, delta: float) -> float:
    """The step before: 1/(√(2log(1/δ)+2ε) - √(2log(1/δ))), right for all ε, what the Rényi account gives."""
    x = 2 * math.log(1 / delta)
    return 1 / (math.sqrt(x + 2 * epsilon) - math.sqrt(x))


def sigma_simpler(epsilon: float, delta: float) -> float:
    """The step between: √(2log(1/δ)+2ε)/ε, right for all ε, never below `sigma_quadratic`."""
    return math.sqrt(2 * math.log(1 / delta) + 2 * epsilon) / epsilon


def sigma_printed_2(epsilon: float, delta: float) -> float:
    """σ = 4√log(1/δ)/ε of Theorem `crossprivacy`."""
    return 4 * math.sqrt(math.log(1 / delta)) / epsilon


def renyi_epsilon(families: float, sigma: float, delta: float) -> float:
    """The print's conversion of (z, families·z/2σ²)-RDP: ε = c + 2√(c log(1/δ)), c = families/2σ²."""
    c = families / (2 * sigma**2)
    return c + 2 * math.sqrt(c * math.log(1 / delta))


def steps_1(N: int, d: int, epsilon: float, delta: float) -> float:
    """The T of Theorem `normalizedbound`, T log2 T = εN²/√(d log(1/δ)), which it prints as if it were explicit.

    With W the Lambert function and A the right-hand side, T = A ln2 / W(A ln2): unique, above 1, seldom whole.
    """
    _check(N, d, epsilon, delta)
    A = epsilon * N**2 / math.sqrt(d * math.log(1 / delta)) * math.log(2)
    return float(A / lambertw(A).real)


def alpha_1(N: int, d: int, epsilon: float, delta: float, T: float) -> float:
    """α = εN/(T log2 T √(d log(1/δ))): 1/N at the T of `steps_1`."""
    return epsilon * N / (T * math.log2(T) * math.sqrt(d * math.log(1 / delta)))


def steps_2(N: int, d: int, epsilon: float) -> float:
    """T = N^{7/3} ε^{4/3} / d^{2/3} of Theorem `crossutility`."""
    _check(N, d, epsilon, 0.5)
    return float(N ** (7 / 3) * epsilon ** (4 / 3) / d ** (2 / 3))


def alpha_2(N: int, d: int, epsilon: float, T: float) -> float:
    """α = N^{3/4} ε/(T^{3/4} √d): 1/N at the T of `steps_2`."""
    return float(N**0.75 * epsilon / (T**0.75 * math.sqrt(d)))


def step_length(N: int, T: float) -> float:
    """η = 1/√(NT) of both theorems."""
    return 1 / math.sqrt(N * T)


def K_printed(T: float, delta: float) -> float:
    """K = 16 log2 T log(1/δ) of Theorem `crossutility`."""
    return 16 * math.log2(T) * math.log(1 / delta)


def K_derived(T: float, delta: float) -> float:
    """16 log2 T √log(1/δ): what Lemma `crossepocherorr` gives; the printed K is above it where δ ≤ 1/e."""
    return 16 * math.log2(T) * math.sqrt(math.log(1 / delta))


def _check(N: int, d: int, epsilon: float, delta: float) -> None:
    number("examples", N, at_least=1)
    number("dimension", d, at_least=1)
    number("epsilon", epsilon, above=0.0)
    number("delta", delta, above=0.0, below=1.0)
