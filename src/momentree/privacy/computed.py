"""Accounts of secret places without sampling: the least of what several kinds of proof say.

For one secret place of n kept in every epoch, and for one an epoch where epochs share no row (restarts). Both
directions of the dominating pair are bounded by each of

- a comparison with nested places (`comparison`), whose loss distribution is computed and composes;
- a factor that all places share, and the moments of the rest (`factored`), which composes as well;
- Rényi divergences by dynamic programming, which add over epochs (`renyi`);
- conditional composition, row by row (`conditional`), where the noise is so large that it can help;
- the unamplified Gaussian.

Guarantee: `upper` is at or above the truth with certainty, `lower` at or below it; nothing is sampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from momentree.errors import number
from momentree.privacy.account import Bracket
from momentree.privacy.comparison import Cover, above, below, best_cover, projected
from momentree.privacy.conditional import Conditional, conditional
from momentree.privacy.factored import factored, split
from momentree.privacy.gaussian import delta_of
from momentree.privacy.ratio import Array, Ratio, Side, multiply, power, product
from momentree.privacy.renyi import Moments, moments

LARGEST = 1000
"""Places for which all this takes seconds."""
LARGEST_TABLE = 2_000_000
"""Rows × places that conditional composition goes through."""
ABSOLUTE = 1e-13
"""Added to a δ that is a sum over a grid: rounding is relative to 1 there, and δ may be tiny."""
LITTLE = 0.02
"""The largest ‖h_j‖²/σ² at which conditional composition is tried: above it a posterior moves too far."""
RESOLUTION = 40


@dataclass(frozen=True, eq=False)
class Places:
    """Gram matrices at σ = 1 of independent secret places, and how many epochs have each; `rows`: how to write out the
    h_j row by row, where there is one place only."""

    grams: tuple[tuple[Array, int], ...]
    rows: Callable[[], Array] | None = None


class ComputedAccount:
    """The account of secret places at σ. `delta`: about where it is made to be sharp; it holds at every other too."""

    mu: float | None = None
    failure_probability = 0.0
    method = (
        "computed without sampling: the least of a comparison with nested places, a shared factor and moments of the "
        "rest, Rényi divergences by dynamic programming, and conditional composition"
    )

    def __init__(
        self, places: Places, noise_multiplier: float, delta: float, covers: Sequence[tuple[Cover, Cover]] | None = None
    ) -> None:
        sigma = number("noise_multiplier", noise_multiplier, above=0, do="without noise nothing is private")
        self._delta = number("delta", delta, above=0, below=1)
        self._parts = [(_coarse(gram) / sigma**2, times) for gram, times in places.grams]
        self._exact = [(gram / sigma**2, times) for gram, times in places.grams]
        self._rows, self._sigma = places.rows, sigma
        self._given = covers
        self._unamplified = math.sqrt(sum(times * float(np.diag(g).max()) for g, times in self._parts))
        self._sides: dict[Side, Ratio] = {}

    @cached_property
    def covers(self) -> Sequence[tuple[Cover, Cover]]:
        """Which comparisons were taken, for L and for its rest beside a shared factor: to use again at a σ nearby."""
        if self._given is not None:
            return self._given
        return [
            (best_cover(gram, self._score), best_cover(np.maximum(split(gram)[1], 0.0), self._score))
            for gram, _ in self._parts
        ]

    def _score(self, ratio: Ratio) -> float:
        alone = len(self._parts) == 1 and self._parts[0][1] == 1
        return ratio.epsilon(self._delta) if alone else _relative_entropy(ratio)

    def ratio(self, side: Side) -> Ratio:
        """The comparison alone, to compose with others."""
        if side not in self._sides:
            if side == "upper":
                self._sides[side] = min(self._above.values(), key=self._score)
            else:
                self._sides[side] = max(self._below, key=_relative_entropy)
        return self._sides[side]

    def _joined(self, laws: Sequence[Ratio]) -> Ratio:
        powers = [power(law, k, multiply, RESOLUTION) for law, (_, k) in zip(laws, self._parts, strict=True)]
        return product(powers, RESOLUTION)

    @cached_property
    def _above(self) -> dict[str, Ratio]:
        """Ratios above the truth."""
        pairs = list(zip(self._parts, self.covers, strict=True))
        found = {"comparison": self._joined([above(gram, cover) for (gram, _), (cover, _) in pairs])}
        factors = [factored(gram, cover) for (gram, _), (_, cover) in pairs]
        if all(law is not None for law in factors):
            found["shared factor"] = self._joined([law for law in factors if law is not None])
        return found

    @cached_property
    def _below(self) -> list[Ratio]:
        """Ratios below the truth: a comparison, and what one component shows."""
        return [self._joined([kind(gram) for gram, _ in self._exact]) for kind in (below, projected)]

    def _lower(self, of: Callable[[Ratio], float], upper: float) -> float:
        return min(upper, max(of(ratio) for ratio in self._below))

    @cached_property
    def moments(self) -> Moments:
        found: Moments | None = None
        for gram, times in self._parts:
            one = moments(gram).times(times)
            found = one if found is None else found.joined(one)
        assert found is not None
        return found

    @cached_property
    def conditional(self) -> Conditional | None:
        if self._rows is None or self._unamplified**2 > LITTLE:
            return None
        rows = self._rows()
        return None if rows.size > LARGEST_TABLE else conditional(rows / self._sigma, self._delta)

    def bounds(self, epsilon: float) -> dict[str, tuple[float, float]]:
        """What each proof says of δ at ε: (forward, reverse)."""
        gaussian = delta_of(self._unamplified, epsilon) * (1 + 1e-11)
        found = {"unamplified": (gaussian, gaussian)}
        for name, ratio in self._above.items():
            found[name] = (ratio.forward(epsilon) + ABSOLUTE, ratio.reverse(epsilon) + ABSOLUTE)
        found["Rényi"] = (self.moments.forward(epsilon), self.moments.reverse(epsilon))
        if self.conditional is not None:
            found["conditional"] = (self.conditional.forward(epsilon), self.conditional.reverse(epsilon))
        return found

    def upper_delta(self, epsilon: float) -> float:
        found = self.bounds(epsilon).values()
        return max(min(forward for forward, _ in found), min(reverse for _, reverse in found))

    def delta(self, epsilon: float) -> Bracket:
        epsilon = number("epsilon", epsilon, at_least=0)
        upper = self.upper_delta(epsilon)
        return Bracket(self._lower(lambda ratio: ratio.delta(epsilon), upper), upper, upper)

    def upper_epsilon(self, delta: float) -> float:
        """The smallest ε that is proved at δ."""
        if self.upper_delta(0.0) <= delta:
            return 0.0
        high = 1.0
        while self.upper_delta(high) > delta:  # ends: the unamplified Gaussian is one of the bounds
            high *= 2.0
        root = float(brentq(lambda e: self.upper_delta(e) - delta, 0.0, high, xtol=1e-10, rtol=1e-12))
        step = 1e-10
        while self.upper_delta(root) > delta:
            root, step = root + step, 2 * step
        return root

    def epsilon(self, delta: float) -> Bracket:
        delta = number("delta", delta, above=0, below=1, do="1e-5 is common")
        upper = self.upper_epsilon(delta)
        return Bracket(self._lower(lambda ratio: ratio.epsilon(delta), upper), upper, upper)


def _coarse(gram: Array) -> Array:
    """Entries rounded up at the tenth digit: those that are equal but for rounding become equal, on every machine."""
    unit = 1e-9 * float(gram.max(initial=0.0))
    return gram if unit == 0.0 else np.asarray(np.ceil(gram * (1 + 1e-12) / unit) * unit)


def _relative_entropy(ratio: Ratio) -> float:
    """E L log L: what many epochs together are governed by."""
    positive = ratio.values > 0
    values = ratio.values[positive]
    return float(ratio.weights[positive] @ (values * np.log(values))) + 50.0 * ratio.infinite
