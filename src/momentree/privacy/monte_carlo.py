"""Certified Monte Carlo: (ε, δ) of a dominating pair from samples, with a bound that holds at a stated level.

Three rules keep it honest. (1) Everything that can be chosen (how many replicas, where a tail is cut, which ε are
tried) is chosen on a pilot sample; the claim is made on a fresh one. (2) The failure probability is fixed beforehand
and divided over both directions, both ends of the bracket and all candidates. (3) Both samples are functions of a
recorded seed, so a check repeats them.

Forward, `E_Q (L − e^ε)₊`: with m replicas (`mixtures`) the weight is

    W = Π normalisers · (L − e^ε)₊ / L^m  ≤  exp(ceiling(m)) · e^{−(m−1)ε} · (m−1)^{m−1} / m^m,

a ceiling known before sampling; m = 1 samples P itself. More replicas lower the ceiling by orders of magnitude, which
is how a δ far below 1/samples is certified. `confidence.upper_mean` turns the weights into a bound.

Reverse, `E_Q (1 − e^ε L)₊`: `momentree.privacy.reverse`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from momentree.errors import InputError, number, whole
from momentree.privacy import reverse
from momentree.privacy.account import Bracket
from momentree.privacy.confidence import lower_mean, upper_mean
from momentree.privacy.gaussian import delta_of
from momentree.privacy.mixtures import Mixture

Array = NDArray[np.float64]
REPLICAS = (1, 2, 3, 4, 5, 6, 8, 10, 13)
CANDIDATES = 24
SAMPLES = 200_000
FAILURE = 1e-6
ATTEMPTS = 4
"""An account spends a quarter of its failure probability: up to four candidates for σ are held against one sample."""
ROUNDING = 1e-9
"""Relative room for the rounding of floats in a bound."""


@dataclass(frozen=True, eq=False)
class Draws:
    """Weights before ε is known: ℓ, the log of the product of normalisers, and its ceiling."""

    ell: Array
    log_normalisers: Array
    m: int
    ceiling: float

    def weights(self, epsilon: float) -> Array:
        gap = np.minimum(epsilon - self.ell, 0.0)
        return np.asarray(-np.expm1(gap) * np.exp(self.log_normalisers - (self.m - 1) * self.ell))

    def largest(self, epsilon: float) -> float:
        """The ceiling of a weight. (It never exceeds what the weights can reach, and 1 for one replica.)"""
        m = self.m
        if m == 1:
            return 1.0
        exponent = self.ceiling - (m - 1) * epsilon + (m - 1) * math.log(m - 1) - m * math.log(m)
        return math.exp(exponent) if exponent < 100 else math.inf


@dataclass(frozen=True)
class ReverseClaim:
    """Bounds of the reverse divergence at one ε."""

    epsilon: float
    lower: float
    estimate: float
    upper: float


class MonteCarloAccount:
    """The account of a dominating pair by certified sampling.

    Guarantee: `upper` is at or above the truth and `lower` at or below it, together with probability at least
    1 − `failure_probability` over the sample's seed, for a δ or ε that was fixed before looking at any answer of this
    account. `estimate` carries no guarantee.
    """

    mu: float | None = None

    def __init__(
        self,
        mixture: Mixture,
        *,
        seed: int,
        samples: int = SAMPLES,
        failure_probability: float = FAILURE,
        what: str = "a dominating mixture",
    ) -> None:
        self.mixture = mixture
        self.seed = whole("seed", seed, at_least=0)
        self.samples = whole("samples", samples, at_least=2000)
        self.failure_probability = number("failure_probability", failure_probability, above=0, below=1)
        self.method = (
            f"certified Monte Carlo of {what}: {self.samples} samples a direction, seed {self.seed}, wrong with "
            f"probability at most {self.failure_probability:g}"
        )
        self._budget = self.failure_probability / ATTEMPTS
        self._unamplified = mixture.largest_norm()
        self._pilots: dict[int, Draws] = {}
        self._fresh: dict[int, Draws] = {}

    def delta(self, epsilon: float) -> Bracket:
        epsilon = number("epsilon", epsilon, at_least=0)
        failure = self._budget / 4
        promised, m = self._best_at(epsilon, failure)
        forward = self._forward(epsilon, failure, m)
        back = self._reverse(self._reverse_point(epsilon, promised, failure), failure)
        upper = max(forward[2], back.upper)
        # where the reverse bound was taken at a smaller ε it is no lower bound at this one
        lower = max(forward[0], back.lower if back.epsilon == epsilon else 0.0)
        estimate = max(forward[1], back.estimate if back.epsilon == epsilon else 0.0)
        return Bracket(lower, min(max(estimate, lower), upper), upper)

    def epsilon(self, delta: float) -> Bracket:
        delta = number("delta", delta, above=0, below=1, do="1e-5 is common")
        failure = self._budget / (4 * CANDIDATES)
        high = self._root(lambda e: self._best_at(e, failure)[0], delta, 1.0)
        if math.isinf(high):
            raise self._too_few(delta)
        m = self._best_at(high, failure)[1]
        low = self._root(lambda e: float(self._pilot(m).weights(e).mean()), delta, high)
        candidates = np.concatenate([[0.0], np.linspace(0.9 * low, 1.1 * high + 0.01, CANDIDATES - 1)])
        forward = np.array([self._forward(e, failure, m) for e in candidates])
        uppers = np.minimum.accumulate(forward[:, 2])
        good = np.flatnonzero(uppers <= delta)
        if not len(good):
            raise self._too_few(delta)
        upper = _interpolated(candidates, uppers, int(good[0]), delta)
        bad = np.flatnonzero(forward[:, 0] > delta)
        lower = float(candidates[bad[-1]]) if len(bad) else 0.0
        for back in self._reverse_claims(upper, low, delta):
            if back.lower > delta:
                lower = max(lower, back.epsilon)
            if back.upper <= delta:
                upper = max(upper, back.epsilon)
                return Bracket(min(lower, upper), min(max(low, min(lower, upper)), upper), upper)
        raise self._too_few(delta)

    def sketch(self, epsilon: float, m: int | None = None, near: int | None = None) -> tuple[float, int]:
        """The δ that `epsilon` is likely to certify at ε, from pilots alone, to choose a σ with and never to claim;
        and the number of replicas that promises it (given: only that one, or those near it, are looked at)."""
        failure = self._budget / (4 * CANDIDATES)
        forward, m = self._best_at(epsilon, failure, near) if m is None else (self._promise(epsilon, m, failure), m)
        return max(forward, self._reverse_promise(self._reverse_point(epsilon, forward, failure), failure)), m

    def guess(self, epsilon: float, m: int | None = None) -> tuple[float, int]:
        """About the forward divergence at ε, from a pilot alone: to rank with, never to claim; and the number of
        replicas that is best for it (given: only that one is looked at)."""
        m = self._best_at(epsilon, self._budget)[1] if m is None else m
        return float(self._pilot(m).weights(epsilon).mean()), m

    def curve(
        self, forward: int, back: int, floor: float
    ) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
        """Upper bounds of both divergences at points (ε, bound), all of them right together: to compose with.

        Where the sample does not reach, they follow the unamplified Gaussian down to `floor`.
        """
        failure = self._budget / (forward + back)
        top = min(60.0, self._root(lambda e: self._best_at(e, failure)[0], floor, 1.0))
        end = min(60.0, self._root(lambda e: self._reverse_promise(e, failure), floor, 1.0))
        ahead = [(e, self._forward(e, failure, self._best_at(e, failure)[1])[2]) for e in np.linspace(0, top, forward)]
        behind = [(e, self._reverse(e, failure).upper) for e in np.linspace(0, end, back)]
        last = self._root(lambda e: delta_of(self._unamplified, e), floor, 1.0)
        beyond = [(e, delta_of(self._unamplified, e)) for e in np.linspace(0, last, forward)]
        return ahead + beyond, behind + beyond

    def _too_few(self, delta: float) -> InputError:
        return InputError(
            f"{self.samples} samples cannot carry delta {delta:g} at this noise: give more samples, a larger delta, "
            "or more noise"
        )

    # the two samples

    @property
    def _pilot_size(self) -> int:
        return max(2000, self.samples // 16)

    def _generator(self, purpose: int, epsilon: float = 0.0) -> np.random.Generator:
        return np.random.default_rng([self.seed, purpose, int(np.float64(epsilon).view(np.uint64))])

    def _draw(self, purpose: int, m: int, count: int) -> Draws:
        ell, log_normalisers = self.mixture.replicas(self._generator(purpose, float(m)), count, m)
        return Draws(ell, log_normalisers, m, self.mixture.ceiling(m) if m > 1 else 0.0)

    def _pilot(self, m: int) -> Draws:
        if m not in self._pilots:
            self._pilots[m] = self._draw(1, m, self._pilot_size)
        return self._pilots[m]

    def _certifying(self, m: int) -> Draws:
        if m not in self._fresh:
            self._fresh[m] = self._draw(2, m, self.samples)
        return self._fresh[m]

    # choices, on the pilot

    def _room(self, epsilon: float, m: int, failure: float) -> float:
        """How far the certified bound is likely to lie above the mean; an unseen weight of half the ceiling is assumed
        in the pilot, or a pilot without a hit would look perfect."""
        draws = self._pilot(m)
        largest, target = draws.largest(epsilon), math.log(5 / failure)
        if math.isinf(largest):
            return math.inf
        weights = draws.weights(epsilon)
        variance = float(weights.var()) + largest**2 / (4 * len(weights))
        return math.sqrt(2 * target * variance / self.samples) + largest * target / self.samples

    def _best_at(self, epsilon: float, failure: float, near: int | None = None) -> tuple[float, int]:
        """The forward bound that the pilot expects at ε, and the number of replicas that leaves the least room.

        `near`: only this number and its neighbours are tried, where σ has moved a little since it was the best.
        """
        at = None if near is None else REPLICAS.index(near)
        tried = REPLICAS if at is None else REPLICAS[max(0, at - 1) : at + 2]
        rooms: list[float] = []
        for m in tried:
            rooms.append(self._room(epsilon, m, failure))
            if len(rooms) > int(np.argmin(rooms)) + 2:
                break
        m = tried[int(np.argmin(rooms))]
        return self._promise(epsilon, m, failure), m

    def _promise(self, epsilon: float, m: int, failure: float) -> float:
        mean = float(self._pilot(m).weights(epsilon).mean())
        return min(1.0, mean + self._room(epsilon, m, failure))

    def _reverse_design(self, epsilon: float) -> reverse.Design:
        return reverse.design(self.mixture, epsilon, self._generator(3, epsilon), self._pilot_size)

    def _reverse_promise(self, epsilon: float, failure: float) -> float:
        plan = self._reverse_design(epsilon)
        few = reverse.draw(self.mixture, plan, self._generator(4, epsilon), self._pilot_size)
        return min(reverse.promise(plan, few, epsilon, failure, self.samples), self._reverse_computed(epsilon))

    def _reverse_computed(self, epsilon: float) -> float:
        """What bounds the reverse divergence without a sample."""
        computed = reverse.without_sampling(*self.mixture.averages(), epsilon)
        return min(computed, delta_of(self._unamplified, epsilon))

    def _reverse_point(self, epsilon: float, target: float, failure: float) -> float:
        """An ε' ≤ ε at which the reverse divergence, which falls in ε, is expected to be well below the target: often
        it is so small at ε itself that no sample reaches it."""
        best, chosen = math.inf, epsilon
        for share in (1.0, 0.75, 0.55, 0.4, 0.3, 0.2, 0.14, 0.1):
            value = self._reverse_promise(share * epsilon, failure)
            if value < best:
                best, chosen = value, share * epsilon
            if best <= target / 2 or (value > best and best < 0.5):
                break
        return chosen

    @staticmethod
    def _root(curve: Callable[[float], float], delta: float, start: float) -> float:
        if curve(0.0) <= delta:
            return 0.0
        high = max(start, 0.5)
        while curve(high) > delta:
            high *= 1.5
            if high > 500.0:
                return math.inf
        return float(brentq(lambda e: curve(e) - delta, 0.0, high, xtol=1e-5, rtol=1e-5))

    # claims, on the fresh sample

    def _forward(self, epsilon: float, failure: float, m: int) -> tuple[float, float, float]:
        """(lower, estimate, upper) of the forward divergence."""
        draws = self._certifying(m)
        weights, largest = draws.weights(epsilon), draws.largest(epsilon)
        upper = min(upper_mean(weights, largest * (1 + ROUNDING), failure), delta_of(self._unamplified, epsilon))
        upper *= 1 + ROUNDING
        cut = min(largest, 3 * float(self._pilot(m).weights(epsilon).max()) + 1e-300)
        return min(lower_mean(weights, cut, failure), upper), float(weights.mean()), upper

    def _reverse(self, epsilon: float, failure: float, attempt: int = 0) -> ReverseClaim:
        plan = self._reverse_design(epsilon)
        sample = reverse.draw(self.mixture, plan, self._generator(5 + attempt, epsilon), self.samples)
        lower, estimate, upper = reverse.bounds(plan, sample, epsilon, failure)
        upper = min(upper, self._reverse_computed(epsilon)) * (1 + ROUNDING)
        return ReverseClaim(epsilon, min(lower, upper), estimate, upper)

    def _reverse_claims(self, epsilon: float, low: float, delta: float) -> Iterator[ReverseClaim]:
        """Claims at up to three ε near the one sought, or below it where that is enough; the failure is shared."""
        failure = self._budget / (4 * 3)
        point = self._reverse_point(low, delta, failure)
        if self._reverse_promise(point, failure) > delta:
            point = self._root(lambda e: self._reverse_promise(e, failure), 0.99 * delta, epsilon)
            point = min(point, 3 * epsilon + 1)
        for attempt, room in enumerate((0.0, 0.01, 0.05)):
            yield self._reverse(point * (1 + room), failure, attempt)


def _interpolated(epsilons: Array, uppers: Array, first: int, delta: float) -> float:
    """The smallest ε that the chord between two certified points allows: δ is convex in e^ε."""
    if first == 0 or uppers[first] == uppers[first - 1]:
        return float(epsilons[first])
    a, b = epsilons[first - 1], epsilons[first]
    share = (uppers[first - 1] - delta) / (uppers[first - 1] - uppers[first])
    return min(float(b), float(a + math.log1p(share * math.expm1(b - a))) * (1 + 1e-12))
