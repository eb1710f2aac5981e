"""The paper's own plan for a run: σ, V, α, η, γ, T and bound of both theorems, as printed and as they should be.

`paper_constants_algorithm_1` and `_2` are what a plan shows under `paper`. The letters are the paper's. A condition
that fails is reported, never repaired in silence: a printed constant is a quotation, not a guarantee. Adjacency is the
print's, one of N examples replaced; batches hold one example.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from momentree.errors import number, whole
from momentree.paper import bounds, constants
from momentree.privacy.gaussian import epsilon_of, largest_mu


@dataclass(frozen=True)
class Condition:
    """Something that a theorem assumes: what, and whether it holds here. `printed`: the paper states it itself."""

    name: str
    statement: str
    printed: bool
    holds: bool


@dataclass(frozen=True)
class PaperConstants1:
    """Theorems `momentumprivacy` and `normalizedbound` (Algorithm 1). T is not whole, as the theorem has it."""

    algorithm: str
    N: int
    d: int
    epsilon: float
    delta: float
    G: float
    L: float | None
    R: float | None
    T: float
    """The fixed point of T log2 T = εN²/√(d log(1/δ))."""
    alpha: float
    eta: float
    gamma: None
    sigma: float
    """2√log(1/δ)/ε, as printed."""
    sigma_exact: float
    """What sensitivity 1 needs for (ε, δ), exactly."""
    epsilon_of_sigma: float
    """The ε that the printed σ really gives at δ, V and the node sensitivity taken for granted."""
    V: float
    """As printed."""
    V_true: int
    """At ⌊T⌋ steps of a fixed order."""
    node_sensitivity: float
    """4αG, as printed."""
    node_noise: float
    """4αGσ√V: the standard deviation of ζ a coordinate, as printed."""
    bound: float | None
    bound_derived: float | None
    bound_repaired: float | None
    conditions: tuple[Condition, ...]

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class PaperConstants2:
    """Theorems `crossprivacy` and `crossutility` (Algorithm 2)."""

    algorithm: str
    N: int
    d: int
    epsilon: float
    delta: float
    G: float
    L: float | None
    R: float | None
    T: float
    alpha: float
    eta: float
    gamma: float
    K: float | None
    sigma: float
    """4√log(1/δ)/ε, as printed."""
    sigma_exact: float
    """2σ₁, σ₁ what sensitivity 1 needs: four families at z/2σ² each. The joint account of one run needs less (E7)."""
    V: float
    """V_{>2N}, as printed."""
    V_early: float
    """V_{≤2N}, as printed."""
    V_early_true: int
    delta_G: float
    delta_Delta: float
    """2ηN, as printed, for Δ and r."""
    delta_Delta_true: float | None
    """4ηNL."""
    noise_early: float
    """δ_G σ√V_{≤2N}: the standard deviation on a node of G that ends within two epochs, as printed."""
    noise_late: float
    """δ_G σ√V_{>2N}: on later nodes of G."""
    noise_differences: float
    """δ_Δ σ√V_{>2N}: on every node of Δ and r."""
    bound: float | None
    bound_derived: float | None
    bound_repaired: None
    """There is none: the theorem is unproved as it stands (E14)."""
    conditions: tuple[Condition, ...]

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def paper_constants_algorithm_1(
    examples: int,
    dimension: int,
    epsilon: float,
    delta: float,
    lipschitz: float,
    smoothness: float | None = None,
    initial_gap: float | None = None,
) -> PaperConstants1:
    """Algorithm 1 for N, d, ε, δ, G, L, R. Without L or R the bounds are None."""
    N, d, G, L, R = _facts(examples, dimension, lipschitz, smoothness, initial_gap)
    T = constants.steps_1(N, d, epsilon, delta)
    steps = max(1, math.floor(T))
    alpha, eta = constants.alpha_1(N, d, epsilon, delta, T), constants.step_length(N, T)
    sigma, sigma_exact = constants.sigma_printed_1(epsilon, delta), 1 / largest_mu(epsilon, delta)
    V, V_safe = constants.node_count_printed(N, T), constants.node_count_safe(N, steps)
    level = constants.momentum_level_printed(alpha, G)
    printed = derived = repaired = None
    if L is not None and R is not None and T >= 2:
        printed = bounds.utility_1_printed(N, d, epsilon, delta, G, L, R, T)
        derived = bounds.utility_1_derived(N, d, epsilon, delta, G, L, R, T, alpha, eta)
        level_true = constants.momentum_level_reshuffled(alpha, G, N)
        repaired = bounds.utility_1_repaired(N, d, level_true, sigma_exact, V_safe, G, L, R, T, alpha, eta)
    V_true = constants.node_count(N, steps)
    conditions = (
        *_privacy_conditions(epsilon, delta, epsilon / math.log(1 / delta) <= 1, "ε ≤ log(1/δ)"),
        Condition("momentum", "α ≥ 1/N", True, alpha * N >= 1 - 1e-12),
        Condition("momentum at most 1", "ε ≤ T log2 T √(d log(1/δ))/N, that is α ≤ 1", True, alpha <= 1),
        Condition("node count", "V is no less than the true count (E3)", False, V_true <= V),
        Condition(
            "node sensitivity",
            "4αG holds for reshuffled epochs: sure where N is a power of two (E2)",
            False,
            N.bit_count() == 1,
        ),
        Condition("V in the utility proof", "V ≤ 4 log2 T · T/N", True, 4 * math.log2(T) * T / N >= V),
        _an_epoch(T, N),
    )
    return PaperConstants1(
        algorithm="dp-nsgd",
        N=N,
        d=d,
        epsilon=epsilon,
        delta=delta,
        G=G,
        L=L,
        R=R,
        T=T,
        alpha=alpha,
        eta=eta,
        gamma=None,
        sigma=sigma,
        sigma_exact=sigma_exact,
        epsilon_of_sigma=epsilon_of(1 / sigma, delta).upper,
        V=V,
        V_true=V_true,
        node_sensitivity=level,
        node_noise=level * sigma * math.sqrt(V),
        bound=printed,
        bound_derived=derived,
        bound_repaired=repaired,
        conditions=conditions,
    )


def paper_constants_algorithm_2(
    examples: int,
    dimension: int,
    epsilon: float,
    delta: float,
    lipschitz: float,
    smoothness: float | None = None,
    initial_gap: float | None = None,
) -> PaperConstants2:
    """Algorithm 2 for N, d, ε, δ, G, L, R. Without L or R the bounds are None."""
    N, d, G, L, R = _facts(examples, dimension, lipschitz, smoothness, initial_gap)
    number("delta", delta, above=0.0, below=1.0)
    T = constants.steps_2(N, d, epsilon)
    alpha, eta = constants.alpha_2(N, d, epsilon, T), constants.step_length(N, T)
    gamma = eta * N
    sigma, sigma_exact = constants.sigma_printed_2(epsilon, delta), 2 / largest_mu(epsilon, delta)
    V_early, V = constants.early_node_count_printed(N), constants.late_node_count_printed(N, T)
    V_early_true = constants.node_count(N, 2 * N)
    delta_G, delta_Delta = constants.gradient_level_printed(G), constants.difference_level_printed(eta, N)
    delta_Delta_true = None if L is None else constants.difference_level(eta, N, L)
    long = T >= 2
    printed = derived = None
    if L is not None and R is not None and long:
        printed = bounds.utility_2_printed(N, d, epsilon, delta, G, L, R, T)
        derived = bounds.utility_2_derived(N, d, epsilon, delta, G, L, R, T, alpha, eta)
    enough = constants.renyi_epsilon(4, sigma, delta) <= epsilon
    conditions = [
        *_privacy_conditions(epsilon, delta, enough, "the Rényi account of four families gives ε at the printed σ"),
        Condition("momentum", "α ≥ 1/N", True, alpha * N >= 1 - 1e-12),
        Condition("momentum at most 1", "ε ≤ T^{3/4} √d/N^{3/4}, that is α ≤ 1", True, alpha <= 1),
        Condition("momentum for advpowersum", "α ≥ (1 + ln 2)/N (E9)", False, alpha * N >= 1 + math.log(2)),
        Condition("leak", "γ ≤ 1/2", True, gamma <= 0.5),
        Condition("early node count", "3 log2 N is no less than the true count (E4)", False, V_early >= V_early_true),
        Condition("K", "log(1/δ) ≥ 1, for K has log(1/δ) where the lemma has its root", False, delta <= math.exp(-1)),
        Condition("order", "one order for both breaksum and populationerror: none serves (E1, E14)", False, False),
        _an_epoch(T, N),
    ]
    if L is not None:
        least = constants.difference_level_tight(eta, N, L)
        conditions.append(Condition("difference levels", "2ηN ≥ 2ηNL/(1-1/e) (E5)", False, delta_Delta >= least))
    return PaperConstants2(
        algorithm="sr-nsgd",
        N=N,
        d=d,
        epsilon=epsilon,
        delta=delta,
        G=G,
        L=L,
        R=R,
        T=T,
        alpha=alpha,
        eta=eta,
        gamma=gamma,
        K=constants.K_printed(T, delta) if long else None,
        sigma=sigma,
        sigma_exact=sigma_exact,
        V=V,
        V_early=V_early,
        V_early_true=V_early_true,
        delta_G=delta_G,
        delta_Delta=delta_Delta,
        delta_Delta_true=delta_Delta_true,
        noise_early=delta_G * sigma * math.sqrt(V_early),
        noise_late=delta_G * sigma * math.sqrt(V),
        noise_differences=delta_Delta * sigma * math.sqrt(V),
        bound=printed,
        bound_derived=derived,
        bound_repaired=None,
        conditions=tuple(conditions),
    )


def _facts(
    examples: int, dimension: int, lipschitz: float, smoothness: float | None, initial_gap: float | None
) -> tuple[int, int, float, float | None, float | None]:
    return (
        whole("examples", examples),
        whole("dimension", dimension),
        number("lipschitz", lipschitz, above=0.0),
        None if smoothness is None else number("smoothness", smoothness, at_least=0.0),
        None if initial_gap is None else number("initial_gap", initial_gap, at_least=0.0),
    )


def _privacy_conditions(epsilon: float, delta: float, enough: bool, statement: str) -> tuple[Condition, ...]:
    return (
        Condition("delta as printed", "δ ≥ exp(-ε), the wrong way round (E6)", True, delta >= math.exp(-epsilon)),
        Condition("delta as needed", statement, False, enough),
    )


def _an_epoch(T: float, N: int) -> Condition:
    return Condition("an epoch", "T ≥ N: the run sees every example", False, T >= N)
