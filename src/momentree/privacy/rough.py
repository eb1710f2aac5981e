"""The σ that a release under an amplified order is likely to need: to rank strategies with, never to claim.

A computed account is solved for; of a sampled one only a small pilot of the forward divergence is looked at, which is
right to a few per cent of σ. Whoever takes a σ from here has it certified by `settle` afterwards.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq

from momentree.privacy.amplified import account_maker, upper_delta
from momentree.privacy.events import Release
from momentree.privacy.monte_carlo import MonteCarloAccount

SAMPLES = 32_000
"""Of which a pilot looks at a sixteenth."""
CLOSE = 0.015
NEAR = 30.0
"""Within this factor of δ the number of replicas is kept."""


def rough_noise(release: Release, epsilon: float, delta: float, *, seed: int) -> float:
    """About the least σ at which the release is (ε, δ); the search starts at the release's own."""
    make = account_maker(release, samples=SAMPLES)
    replicas: int | None = None

    def excess(log_sigma: float) -> float:
        nonlocal replicas
        account = make(math.exp(log_sigma), seed)
        if isinstance(account, MonteCarloAccount):
            found, m = account.guess(epsilon, replicas)
            replicas = m if delta / NEAR < found < delta * NEAR else None
        else:
            found = upper_delta(account, epsilon)
        return max(-60.0, math.log(max(found, 1e-300) / delta))

    one = math.log(release.noise_multiplier)
    value = excess(one)
    while True:  # ε falls about as 1/σ, log δ as its square: half of what that says, to stop short of the far side
        step = max(-1.0, min(1.0, 0.12 * value))
        step = math.copysign(max(abs(step), 0.03), value)
        other, before = one + step, value
        value = excess(other)
        if (value <= 0) != (before <= 0):
            low, high = sorted((one, other))
            return math.exp(float(brentq(excess, low, high, xtol=CLOSE)))
        one = other
