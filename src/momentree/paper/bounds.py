"""Utility bounds: those of both theorems, printed, derived and repaired, and those of the rivals in the introduction.

`printed` is the theorem's last explicit line. `derived` puts the print's own lemmas together without its slips.
`repaired` uses lemmas that hold (docs/paper.md, E14); there is none for Algorithm 2, whose theorem rests on a lemma
that needs reshuffled epochs while its reconstruction needs a fixed order.

All bound E‖∇F(ŵ)‖ for ŵ uniform among w_1 … w_T, f G-Lipschitz and L-smooth, F(w_1) - inf F ≤ R.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass


def descent(R: float, L: float, eta: float, T: float, momentum_error: float, factor: float = 3.0) -> float:
    """Lemma `gradientbound`: 3R/(2ηT) + 3Lη/4 + factor · mean_t E‖m̂_t - ∇F(w_t)‖; printed factor 3, tight 5/2."""
    return 3 * R / (2 * eta * T) + 3 * L * eta / 4 + factor * momentum_error


def population_error_printed(alpha: float, eta: float, N: int, G: float, L: float) -> float:
    """Lemma `populationerror`: 2G√α + 2ηNL + ηL/α; false in the first steps, for m_0 = 0 (E14)."""
    return 2 * G * math.sqrt(alpha) + 2 * eta * N * L + eta * L / alpha


def population_error(alpha: float, eta: float, N: int, G: float, L: float, t: int) -> float:
    """The same with what it forgets, (1-α)^t G. Reshuffled epochs only: the proof needs a new order every epoch."""
    return population_error_printed(alpha, eta, N, G, L) + float((1 - alpha) ** t) * G


def start_error(alpha: float, G: float, T: float) -> float:
    """mean_{t≤T} (1-α)^t G = (1-α)(1-(1-α)^T) G/(αT)."""
    if alpha >= 1:
        return 0.0
    return (1 - alpha) * -math.expm1(T * math.log1p(-alpha)) * G / (alpha * T)


def momentum_accuracy_printed(level: float, sigma: float, d: int, V: float, T: float) -> float:
    """Lemma `momentumaccuracy`: level·σ√(d V log2 T) with level = 4αG; short of one node (E14)."""
    return level * sigma * math.sqrt(d * V * math.log2(T))


def momentum_accuracy(level: float, sigma: float, d: int, V: float, T: float) -> float:
    """The same with the true number of nodes in COMPOSE(1, t), at most 1 + ⌊log2 T⌋."""
    return level * sigma * math.sqrt(d * V * (1 + math.floor(math.log2(T))))


def utility_1_printed(N: int, d: int, epsilon: float, delta: float, G: float, L: float, R: float, T: float) -> float:
    """Theorem `normalizedbound`, last explicit line. Its term 6G log2 T √(d log(1/δ))/(εN) = 6G/(αT) comes from no
    lemma of the print; it happens to pay for m_0 = 0."""
    log, log2T = math.log(1 / delta), math.log2(T)
    first = (1.5 * R + 6 * L * math.sqrt(log2T * log) + 12 * G * math.sqrt(log2T) * log**0.25) * d**0.25
    return float(
        first / math.sqrt(epsilon * N)
        + 3 * L * (d * log) ** 0.25 * math.sqrt(log2T) / (4 * math.sqrt(epsilon) * N**1.5)
        + 6 * G / math.sqrt(N)
        + 6 * G * log2T * math.sqrt(d * log) / (epsilon * N)
    )


def utility_1_derived(
    N: int, d: int, epsilon: float, delta: float, G: float, L: float, R: float, T: float, alpha: float, eta: float
) -> float:
    """The same from the print's own lemmas, V ≤ 4 log2 T · T/N and σ = 2√log(1/δ)/ε: the noise constant is
    3·4·√4·2 = 48 where 12 is printed, and R and G keep their √log2 T log(1/δ)^¼."""
    sigma, V = 2 * math.sqrt(math.log(1 / delta)) / epsilon, 4 * math.log2(T) * T / N
    noise = momentum_accuracy_printed(4 * alpha * G, sigma, d, V, T)
    return descent(R, L, eta, T, noise + population_error_printed(alpha, eta, N, G, L))


def utility_1_repaired(
    N: int,
    d: int,
    level: float,
    sigma: float,
    V: float,
    G: float,
    L: float,
    R: float,
    T: float,
    alpha: float,
    eta: float,
) -> float:
    """From lemmas that hold, for reshuffled epochs and node noise level·σ√V with `level` a true sensitivity."""
    noise = momentum_accuracy(level, sigma, d, V, T)
    error = noise + population_error_printed(alpha, eta, N, G, L) + start_error(alpha, G, T)
    return descent(R, L, eta, T, error, factor=2.5)


def cross_epoch_error(
    d: int, N: int, epsilon: float, delta: float, G: float, L: float, T: float, alpha: float, eta: float
) -> float:
    """Lemma `crossepocherorr`, the noise on m̂_t of Algorithm 2 at γ = ηN and σ = 4√log(1/δ)/ε."""
    log, log2T = math.log(1 / delta), math.log2(T)
    return (
        192 * G * alpha * log2T * math.sqrt(d * log)
        + 128 * (G + 2 * L) * alpha * math.sqrt(eta * d * T * log) * log2T
        + 16 * eta * L * alpha * log2T * math.sqrt(3 * d * T * N * log)
    ) / epsilon


def utility_2_printed(N: int, d: int, epsilon: float, delta: float, G: float, L: float, R: float, T: float) -> float:
    """Theorem `crossutility`, last explicit line. Unproved: see `utility_2_derived`."""
    K = 16 * math.log2(T) * math.log(1 / delta)
    first = (1.5 * R + 24 * K * (G + 2 * L) + 12 * L) * math.cbrt(d / (epsilon * N) ** 2)
    return first + 6 * G / math.sqrt(N) + (36 * G + 9 * L) * K * math.sqrt(d) / (epsilon * N)


def utility_2_derived(
    N: int, d: int, epsilon: float, delta: float, G: float, L: float, R: float, T: float, alpha: float, eta: float
) -> float:
    """The same from the print's own lemmas. No theorem: `populationerror` is proved for a new order every epoch, and
    Algorithm 2 reconstructs m_t only under one order for all of them (E1, E14)."""
    noise = cross_epoch_error(d, N, epsilon, delta, G, L, T, alpha, eta)
    return descent(R, L, eta, T, noise + population_error_printed(alpha, eta, N, G, L))


@dataclass(frozen=True)
class Rate:
    """A bound on E‖∇F‖ and a number of gradient evaluations, as the paper quotes them, WITHOUT their constants (big O,
    logarithms only where the paper writes them): good for comparing growth, not for comparing methods at one point."""

    name: str
    source: str
    utility: float
    gradients: float | None
    note: str

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def rates(examples: int, dimension: int, epsilon: float, delta: float) -> list[Rate]:
    """The methods that the introduction compares, by growth only. `gradients` is None where the paper gives none."""
    N, d, log = examples, dimension, math.log(1 / delta)
    plain = (d * log) ** 0.25 / math.sqrt(epsilon * N)
    return [
        Rate(
            "rrsgd",
            "Zhang, Zheng, Mou & Wang 2017",
            plain * math.log(N / delta) ** 0.25,
            float(N) ** 2 * d,
            "random round private SGD",
        ),
        Rate("dp-gd", "Wang, Ye & Xu 2018", plain, None, "full batch; the paper gives no number of gradients"),
        Rate(
            "dp-srm",
            "Wang, Jayaraman, Evans & Gu 2019",
            plain,
            (epsilon * N) ** 1.5 / d**0.75 + epsilon * N / math.sqrt(d),
            f"needs batches of √(εN)/d^¼ = {math.sqrt(epsilon * N) / d**0.25:.3g}",
        ),
        Rate(
            "dp-nsgd",
            "Tran & Cutkosky 2022, Algorithm 1",
            d**0.25 / math.sqrt(epsilon * N) + 1 / math.sqrt(N),
            epsilon * N**2 / math.sqrt(d),
            "logarithms left out",
        ),
        Rate(
            "sr-nsgd",
            "Tran & Cutkosky 2022, Algorithm 2",
            d ** (1 / 3) / (epsilon * N) ** (2 / 3) + 1 / math.sqrt(N),
            N ** (7 / 3) * epsilon ** (4 / 3) / d ** (2 / 3),
            "logarithms left out; its utility theorem is unproved as printed",
        ),
    ]
