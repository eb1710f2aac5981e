"""Rounding of a release to a public grid: what leaves carries no digit that the noise has not covered.

A float holds more digits than the noise blurs: its last bits tell which numbers were added (Mironov 2012). Rounded to
multiples of a public step, a release is a deterministic function of the noisy value, so it is post-processing, costs no
privacy, and its account holds over the numbers that really leave, up to `lattice.grid_delta`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from momentree.errors import InputError, number


def check_step(step: object) -> float:
    """`step` as a power of two: multiplying and dividing by it is exact, so what comes out lies on the grid."""
    value = number("grid step", step, above=0.0)
    if math.frexp(value)[0] != 0.5:
        nearest = 2.0 ** round(math.log2(value))
        raise InputError(f"grid step {value:g} is not a power of two: give {nearest:g} (2^{round(math.log2(value))})")
    return value


def round_(blocks: Sequence[Tensor], step: float) -> None:
    """Every number of the blocks to the nearest multiple of `step`, a tie to the even one; in place.

    Guarantee: for a given public `step` the result is a function of the blocks alone. To be called after the noise is
    in; `step` is public and fixed beforehand, never chosen from the values. A float32 above 2^24 steps has no finer
    digits than the grid and stays as it is. Not-a-number and infinity stay too, and are for the caller to refuse.
    """
    step = check_step(step)
    with torch.no_grad():
        for block in blocks:
            if block.dtype not in (torch.float32, torch.float64):
                raise InputError(f"a block of type {block.dtype} is not rounded to a grid: give float32 or float64")
            # Beyond the largest exponent the quotient would be infinite; such a number is on the grid already.
            quotient = block / step
            rounded = quotient.round_().mul_(step)
            block.copy_(torch.where(quotient.isfinite(), rounded, block))


def added_noise(step: float, deviation: float) -> float:
    """By what factor rounding raises the standard deviation of one release: √(1 + step² / 12 deviation²), about.

    Rounding errors are not correlated as the noise is: in a sum of t releases they add up to √(t/12) steps, which
    correlated noise may be far below, so the step is chosen against the noise of the sum, not of one release.
    """
    deviation = number("deviation", deviation, above=0.0)
    return math.sqrt(1 + check_step(step) ** 2 / (12 * deviation**2))
