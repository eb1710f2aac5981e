"""What it costs that drawn normals are a finite lattice and not normals: bounds on δ. docs/noise.md has the proofs.

Two effects, two bounds. The tail ends (at 9.42σ for 64 bits): `tail_delta`, over real arithmetic. Between its points
the lattice has gaps: who sees every bit of a release can tell it from a normal, and no (ε, δ) covers that; on a public
grid nobody sees the gaps, but for the draws that fall on the other side of a border: `grid_delta`.
"""

from __future__ import annotations

import math

from momentree.errors import number, whole
from momentree.noise.layout import RADIUS_BITS

DISPLACEMENT = 2.0**-49
"""A drawn float64 normal is within this times its radius of the ideal one, besides the radius word's own lattice."""


def tail_end(bits: int = RADIUS_BITS) -> float:
    """Where the tail ends, in standard deviations: the radius that is passed with probability 2^-bits."""
    return math.sqrt(2 * math.log(2) * whole("bits", bits))


def tail_delta(
    coordinates: float, mu: float | None, epsilon: float, *, delta: float = 0.0, bits: int = RADIUS_BITS
) -> float:
    """What to add to `delta` for the missing tail, in a run that draws so many coordinates (all rows together).

    Guarantee: a mechanism that is (ε, δ)-private with normals, and whose shifts are bounded by `mu` in all, is
    (ε, δ + this)-private with pairs of normals of radius below `tail_end(bits)`. Proof in docs/noise.md:
    e^ε 2^-bits min(n, mu · tail_end · √n / π) for n pairs, and the normalisation. `mu=None` for an amplified order,
    whose law is a mixture of shifts: then n alone.
    """
    pairs = number("coordinates", coordinates, above=0.0) / 2 + 1
    epsilon, missing = number("epsilon", epsilon, at_least=0.0), 2.0**-bits
    crossings = pairs
    if mu is not None:
        crossings = min(pairs, number("mu", mu, at_least=0.0) * tail_end(bits) * math.sqrt(pairs) / math.pi)
    added = math.exp(min(epsilon, 700.0)) * missing * crossings
    # (1 - missing)^-pairs, rounded up
    normalised = (delta + added) * math.exp(min(700.0, pairs * missing / (1 - missing)))
    return min(1.0, normalised - delta + math.ulp(delta))


def border_crossings(step: float, *, displacement: float = DISPLACEMENT, bits: int = RADIUS_BITS) -> float:
    """At most how likely a drawn normal rounds to another multiple of `step` (in σ) than the ideal one, any offset.

    Summed over shells of the radius, 2^-(k+1) ≤ u < 2^-k and, near u = 1, 2^-(j+1) ≤ 1 - u < 2^-j: the density of one
    coordinate within a shell, times twice the displacement there, times the borders that the shell can reach.
    """
    step = number("grid step", step, above=0.0)
    total = 2.0**-bits  # the last word, whose shell has no end
    for k in range(1, bits):
        inner, outer = tail_end(k), tail_end(k + 1)
        shift = displacement * outer + 2.0 ** (k - bits) / inner
        density = 2.0**-k * math.sqrt(outer**2 - inner**2) / math.pi
        total += 2 * shift * density * (2 * outer / step + 1)
    for j in range(1, bits):
        inner = math.sqrt(-2 * math.log1p(-(2.0 ** -(j + 1))))
        outer = math.sqrt(-2 * math.log1p(-(2.0**-j)))
        shift = displacement * outer + 2.0**-bits / inner
        total += 2 * shift * (outer / math.pi) * (2 * outer / step + 1)
    return total + 2.0**-bits


def grid_delta(
    coordinates: float, step: float, epsilon: float, *, gain: float = 1.0, displacement: float = DISPLACEMENT
) -> float:
    """What to add to δ for releases in float64 rounded to a grid of `step` (in σ of the base noise).

    Guarantee: with `coordinates` released numbers in all, each a sum of base normals with weights whose absolute values
    sum to at most `gain` (the largest row of |C⁺|) and the freshest of weight 1, the rounded releases differ from those
    of ideal normals with probability p ≤ coordinates · gain · border_crossings, and (ε, δ) becomes
    (ε, δ + (1 + e^ε) p). The caller adds the rounding of its own sums to `displacement`. In float32 the displacement is
    2^28 times as large and the bound says nothing for any real model: there the claim stays one over real arithmetic.
    """
    gain = number("gain", gain, at_least=1.0)
    crossings = number("coordinates", coordinates, above=0.0) * gain * border_crossings(step, displacement=displacement)
    return min(1.0, (1 + math.exp(min(number("epsilon", epsilon, at_least=0.0), 700.0))) * crossings)
