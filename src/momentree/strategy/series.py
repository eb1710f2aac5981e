"""Power series: a lower-triangular Toeplitz matrix is one, and its product, inverse and square root are theirs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import lfilter

from momentree.errors import InputError
from momentree.strategy.base import Array

DIRECT_WORK = 30_000_000
"""Below this many multiplications the recurrence is used (each entry to full relative accuracy), above it the FFT."""


def frozen(values: object, name: str) -> Array:
    """A read-only float64 copy of a vector or matrix of finite numbers; everything else is one line."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} cannot be read as numbers: give a list of finite numbers") from None
    if array.size == 0 or not np.all(np.isfinite(array)):
        raise InputError(f"{name} holds no numbers or one that is not finite: give finite numbers only")
    array.setflags(write=False)
    return array


def multiply(left: Array, right: Array, length: int) -> Array:
    """The first `length` coefficients of a product."""
    left, right = left[:length], right[:length]
    if min(len(left), len(right)) * max(len(left), len(right)) <= DIRECT_WORK:
        product: Array = np.convolve(left, right)[:length]
    else:
        size = next_fast_len(min(len(left) + len(right) - 1, 2 * length), real=True)
        product = irfft(rfft(left, size) * rfft(right, size), size)[: min(length, len(left) + len(right) - 1)]
    return np.pad(product, (0, length - len(product)))


def reciprocal(series: Array, length: int) -> Array:
    """The first `length` coefficients of 1 / series; its constant term is not 0."""
    series = series[:length]
    if len(series) * length <= DIRECT_WORK:
        impulse = np.zeros(length)
        impulse[0] = 1.0
        return np.asarray(lfilter([1.0], series, impulse))
    known = 1 << 10
    inverse = reciprocal(series[:known], known)
    while known < length:  # Newton: y ← y − y (c y − 1), twice as many right coefficients each time
        known = min(2 * known, length)
        excess = multiply(series, inverse, known)
        excess[0] -= 1.0
        inverse = np.pad(inverse, (0, known - len(inverse))) - multiply(inverse, excess, known)
    return inverse


def binomial(pole: float, exponent: float, length: int) -> Array:
    """Coefficients of (1 − pole·x)^exponent. Underflow of pole^k ends in exact zeros."""
    k = np.arange(1, length)
    coefficients = np.empty(length)
    coefficients[0] = 1.0
    coefficients[1:] = np.cumprod((k - 1 - exponent) / k)
    return coefficients if pole == 1.0 else coefficients * powers(pole, length)


def powers_product(factors: Sequence[tuple[float, float]], length: int) -> Array:
    """Coefficients of Π (1 − p x)^e over factors (p, e) with p in [0, 1]; a decaying tail keeps relative accuracy.

    The largest p is taken out first: with p = p_max·q every series left has poles ≤ 1 and its tail is slow, so
    rounding in the FFT stays far below the entries that it rounds.
    """
    used = sorted((p, e) for p, e in factors if p != 0.0 and e != 0.0)
    if not used:
        return np.asarray(np.eye(1, length)[0])
    largest = used[-1][0]
    result: Array = np.ones(1)
    for pole, exponent in used:
        result = multiply(result, binomial(pole / largest, exponent, length), length)
    if largest < 1.0:
        result = result * powers(largest, length)
    return result


def powers(base: float, length: int) -> Array:
    """base^0, base^1, …; what falls below 1e-290 is 0, for denormals are slow and carry nothing."""
    with np.errstate(under="ignore"):
        result: Array = np.power(float(base), np.arange(length, dtype=np.float64))
    result[result < 1e-290] = 0.0
    return result
