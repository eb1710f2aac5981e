"""What the noise lands on: the linear map A from gradients to the update, or to the iterates that it moves.

One recurrence covers all of them. From m_0 = o_0 = 0, at t = 1 … T, with α = 1 − β (or 1 where not dampened):

    m_t = β m_{t−1} + α g_t
    u_t = m_t, or with Nesterov β m_t + α g_t
    o_t = r_t o_{t−1} + η_t u_t

A maps g to o. `r = 0, η = 1` is the update itself, `r = 1` the iterates Σ η_s u_s, `r_t = 1 − η_t λ` the iterates under
decoupled weight decay λ. With constant η and r, A is lower-triangular Toeplitz; with a schedule it is
Toeplitz × diagonal × Toeplitz (and × diagonals where r varies). Applying it takes O(T) operations by the recurrence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.signal import lfilter

from momentree.errors import InputError, number, whole
from momentree.strategy.base import Array
from momentree.strategy.series import frozen, powers_product


@dataclass(frozen=True, eq=False)
class Workload:
    """A, by the recurrence's letters: β, η (one number or T), r (one number or T), and which variant of u."""

    steps: int
    momentum: float = 0.0
    step_sizes: float | Array = 1.0
    retain: float | Array = 0.0
    nesterov: bool = False
    dampened: bool = True

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        number("momentum", self.momentum, at_least=0.0, below=1.0)
        for name, upper in (("step_sizes", None), ("retain", 1.0)):
            given = getattr(self, name)
            if np.ndim(given) == 0:
                number(name, given, at_least=0.0, at_most=upper)
                continue
            array = frozen(given, name)
            if array.shape != (self.steps,):
                raise InputError(f"{name} has {array.size} entries for {self.steps} steps: give one for each step")
            if array.min() < 0.0 or (upper is not None and array.max() > upper):
                allowed = "at least 0" if upper is None else f"between 0 and {upper:g}"
                raise InputError(f"{name} holds {array.min():g} … {array.max():g}: give numbers {allowed}")
            object.__setattr__(self, name, array)

    @property
    def gain(self) -> float:
        """α: what one gradient adds to m."""
        return 1.0 - self.momentum if self.dampened else 1.0

    @property
    def invariant(self) -> bool:
        """Whether A is Toeplitz: step sizes and retention do not change with time."""
        return np.ndim(self.step_sizes) == 0 and np.ndim(self.retain) == 0

    @cached_property
    def etas(self) -> Array:
        """η_1 … η_T."""
        return np.broadcast_to(np.asarray(self.step_sizes, dtype=np.float64), (self.steps,))

    @cached_property
    def retains(self) -> Array:
        """r_1 … r_T."""
        return np.broadcast_to(np.asarray(self.retain, dtype=np.float64), (self.steps,))

    @property
    def first_response(self) -> tuple[float, float]:
        """What a gradient of 1 makes of (m, u) in its own step."""
        alpha = self.gain
        return alpha, (self.momentum * alpha + alpha if self.nesterov else alpha)

    @property
    def zero(self) -> float:
        """ζ of u(x) = u_0 (1 − ζx) / (1 − βx): β / (1 + β) with Nesterov, else 0."""
        return self.momentum / (1.0 + self.momentum) if self.nesterov else 0.0

    def apply(self, gradients: Array) -> Array:
        """A g, along the first axis."""
        gradients = np.asarray(gradients, dtype=np.float64)
        beta = self.momentum
        numerator = np.array([1.0, -self.zero]) * self.first_response[1]
        update = lfilter(numerator, [1.0, -beta], gradients, axis=0)
        scaled = (update.T * self.etas).T
        if np.ndim(self.retain) == 0:
            return np.asarray(lfilter([1.0], [1.0, -float(self.retain)], scaled, axis=0))
        for t in range(1, self.steps):
            scaled[t] += self.retains[t] * scaled[t - 1]
        return np.asarray(scaled)

    def matrix(self) -> Array:
        """A, T × T."""
        return self.apply(np.eye(self.steps))

    def kernel(self, length: int | None = None) -> Array:
        """a_0, a_1, … of a Toeplitz A."""
        if not self.invariant:
            raise InputError("a workload with a schedule is not Toeplitz: use apply or matrix")
        impulse = np.zeros(self.steps if length is None else length)
        impulse[0] = 1.0
        numerator = np.array([1.0, -self.zero]) * (self.first_response[1] * float(self.step_sizes))
        denominator = np.convolve([1.0, -self.momentum], [1.0, -float(self.retain)])
        return np.asarray(lfilter(numerator, denominator, impulse))

    def square_root(self, length: int) -> Array:
        """The square root of A's Toeplitz matrix scaled to c_0 = 1; with a schedule, of A at its average step size.

        c(x) = ((1 − ζx) / ((1 − βx)(1 − rx)))^{1/2}; its logarithm has no negative coefficient, so c ≥ 0.
        """
        return powers_product(self._half(-0.5), length)

    def inverse_square_root(self, length: int) -> Array:
        """1 / c(x) of `square_root`."""
        return powers_product(self._half(0.5), length)

    def _half(self, sign: float) -> list[tuple[float, float]]:
        retain = float(np.mean(self.retain))
        return [(self.momentum, sign), (retain, sign), (self.zero, -sign)]

    def over(self, steps: int) -> Workload:
        """A Toeplitz workload for another number of steps."""
        return Workload(steps, self.momentum, self.step_sizes, self.retain, self.nesterov, self.dampened)

    def averaged(self) -> Workload:
        """The Toeplitz workload closest to this one: root mean square step size and mean retention."""
        if self.invariant:
            return self
        eta = float(np.sqrt(np.mean(self.etas**2)))
        retain = float(np.mean(self.retain))
        return Workload(self.steps, self.momentum, eta, retain, self.nesterov, self.dampened)


def momentum_workload(steps: int, momentum: float) -> Workload:
    """m̂_t = Σ_{s≤t} (1 − β) β^{t−s} ĝ_s."""
    return Workload(steps, momentum)


def iterate_workload(steps: int, momentum: float) -> Workload:
    """Σ_{s≤t} m̂_s: what the iterates feel at step size 1."""
    return Workload(steps, momentum, retain=1.0)


def gradient_workload(steps: int) -> Workload:
    """The noisy gradients themselves."""
    return Workload(steps)


def prefix_workload(steps: int) -> Workload:
    """Prefix sums Σ_{s≤t} ĝ_s."""
    return Workload(steps, retain=1.0)


def path_workload(
    steps: int,
    momentum: float,
    step_sizes: float | Array,
    *,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    dampened: bool = True,
) -> Workload:
    """The iterates of w_t = (1 − η_t λ) w_{t−1} − η_t u_t, up to sign, for a public schedule η and weight decay λ."""
    number("weight_decay", weight_decay, at_least=0.0)
    sizes = (
        number("step_sizes", step_sizes, at_least=0.0) if np.ndim(step_sizes) == 0 else frozen(step_sizes, "step_sizes")
    )
    shrink = np.max(sizes) * weight_decay
    if shrink > 1.0:
        raise InputError(f"step size × weight_decay reaches {shrink:g}: give at most 1, or the iterates change sign")
    return Workload(steps, momentum, sizes, 1.0 - sizes * weight_decay, nesterov, dampened)
