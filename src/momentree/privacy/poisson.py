"""`poisson` and `cyclic-poisson`: the loss distribution of one subsampled Gaussian step, composed.

Guarantee (zero-out, and add-remove where N is declared: the same pair of distributions). One step releases
`x·g + σz`, x a coin of probability q that nobody sees, ‖g‖ ≤ 1; the pair `(1 − q) N(0, σ²) + q N(1, σ²)` against
`N(0, σ²)` dominates it in both directions, adaptively, and steps compose. `upper` is dp_accounting's pessimistic
estimate, `lower` a spread-out computation of our own (`ratio`) on the other side of the truth.

Replace-one: only here, and only as dp_accounting does it: `(1 − q) N(0, σ²) + q N(1, σ²)` against
`(1 − q) N(0, σ²) + q N(−1, σ²)`.
"""

from __future__ import annotations

import math
import warnings
from functools import cached_property
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as losses

from momentree.errors import InputError, NoProofError, number, one_of, whole
from momentree.privacy.account import Bracket
from momentree.privacy.ratio import Array, Ratio, Side, multiply, power, subsampled
from momentree.query.base import ADJACENCIES, Adjacency

RESOLUTION = 60
GRID = 1e-4
"""dp_accounting's grid for one step's loss."""


class PoissonAccount:
    """`steps` steps of rate q, each one Gaussian of sensitivity `sensitivity` and noise σ."""

    mu: float | None = None
    failure_probability = 0.0

    def __init__(
        self,
        rate: float,
        steps: int,
        noise_multiplier: float,
        adjacency: Adjacency = "zero-out",
        *,
        sensitivity: float = 1.0,
    ) -> None:
        self.rate = number("rate", rate, above=0, at_most=1)
        self.steps = whole("steps", steps)
        sigma = number("noise_multiplier", noise_multiplier, above=0, do="without noise nothing is private")
        self.noise = sigma / number("sensitivity", sensitivity, above=0)
        one_of("adjacency", adjacency, ADJACENCIES)
        self.adjacency = adjacency
        self.method = f"loss distribution of a step sampled with probability {self.rate:.6g}, {self.steps} times"

    @cached_property
    def _upper(self) -> Any:
        return self._loss(pessimistic=True)

    def _loss(self, *, pessimistic: bool) -> Any:
        relation = (
            losses.NeighborRel.REPLACE_ONE if self.adjacency == "replace-one" else losses.NeighborRel.REPLACE_SPECIAL
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's, about its own rounding of far tails
            one = losses.from_gaussian_mechanism(
                self.noise,
                pessimistic_estimate=pessimistic,
                value_discretization_interval=GRID if pessimistic else min(GRID, 1e-2 / self.steps),
                sampling_prob=self.rate,
                use_connect_dots=pessimistic,
                neighboring_relation=relation,
            )
            return one.self_compose(self.steps)

    def ratio(self, side: Side) -> Ratio:
        """The loss distribution as a likelihood ratio, to compose with others; zero-out and add-remove."""
        if self.adjacency == "replace-one":
            raise NoProofError("replace-one under poisson does not compose with other accounts here: take zero-out")
        one = subsampled(self.rate, 1 / self.noise**2, side, RESOLUTION)
        return power(one, self.steps, multiply, RESOLUTION)

    @cached_property
    def _lower(self) -> Ratio | Any:
        return self._loss(pessimistic=False) if self.adjacency == "replace-one" else self.ratio("lower")

    def upper_delta(self, epsilon: float) -> float:
        return min(1.0, float(self._upper.get_delta_for_epsilon(epsilon)))

    def delta(self, epsilon: float) -> Bracket:
        epsilon = number("epsilon", epsilon, at_least=0)
        upper = self.upper_delta(epsilon)
        lower = self._lower
        low = lower.delta(epsilon) if isinstance(lower, Ratio) else float(lower.get_delta_for_epsilon(epsilon))
        return _between(min(low, upper), upper)

    def epsilon(self, delta: float) -> Bracket:
        delta = number("delta", delta, above=0, below=1, do="1e-5 is common")
        upper = float(self._upper.get_epsilon_for_delta(delta))
        if not math.isfinite(upper):
            raise InputError(
                f"delta {delta:g} is below what this account resolves at σ = {self.noise:g}: give a larger one"
            )
        lower = self._lower
        low = lower.epsilon(delta) if isinstance(lower, Ratio) else float(lower.get_epsilon_for_delta(delta))
        return _between(max(0.0, min(low, upper)), max(0.0, upper))


def _between(lower: float, upper: float) -> Bracket:
    return Bracket(lower, min(max((lower + upper) / 2, lower), upper), upper)


def cyclic_poisson(
    coefficients: Array, steps: int, parts: int, rate: float, noise_multiplier: float, *, sensitivity: float = 1.0
) -> PoissonAccount:
    """`cyclic-poisson`: a p-banded Toeplitz C, p at most the number of parts.

    Guarantee: an example's possible steps are `parts` apart, so no row of C holds two of them: its release is that of
    ⌈T / parts⌉ subsampled steps, each moved by one column of C. The part is drawn without looking at the data; the rate
    is `parts · B / N` for every part. σ is taken over the largest column (Choquette-Choo et al., arXiv 2306.08153).
    """
    used = np.flatnonzero(np.asarray(coefficients))
    band = int(used[-1]) + 1 if len(used) else 0
    if not 1 <= band <= parts:
        raise NoProofError(
            f"a C with {band} diagonals under cyclic-poisson with {parts} parts: the band is at most the number of "
            "parts (of C, not of its inverse)"
        )
    norm = float(np.linalg.norm(np.asarray(coefficients, dtype=np.float64)))
    turns = -(-whole("steps", steps) // whole("parts", parts))
    return PoissonAccount(rate, turns, noise_multiplier, sensitivity=sensitivity * norm * (1 + 1e-12))
