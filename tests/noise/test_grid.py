"""Rounding to a public grid: on the grid, nearest, a function of the value alone."""

import math

import numpy as np
import pytest
import torch

from momentree.errors import InputError
from momentree.noise.grid import added_noise, check_step, round_
from momentree.noise.normals import KeyedNormals

SOURCE = KeyedNormals(bytes(32))
BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


@BOTH
@pytest.mark.parametrize("step", [2.0**-20, 2.0**-6, 1.0, 8.0])
def test_every_number_goes_to_the_nearest_multiple(dtype, step):
    values = SOURCE.fill_(torch.empty(10_001, dtype=dtype), 0, 0, 0) * 10
    rounded = values.clone()
    round_([rounded[:5000].view(50, 100), rounded[5000:]], step)
    quotient = (rounded.double() / step).numpy()
    assert np.array_equal(quotient, np.round(quotient))
    assert float((rounded.double() - values.double()).abs().max()) <= step / 2
    again = rounded.clone()
    round_([again], step)
    assert torch.equal(again, rounded)


def test_ties_go_to_the_even_multiple_and_large_numbers_stay():
    values = torch.tensor([0.25, 0.75, -0.25, 1.25, 2.0**40 + 2.0**17, 1e38, -0.0])
    round_([values], 0.5)
    assert values.tolist() == [0.0, 1.0, -0.0, 1.0, 2.0**40 + 2.0**17, float(np.float32(1e38)), -0.0]
    values = torch.tensor([1e308, math.inf], dtype=torch.float64)
    round_([values], 2.0**-10)
    assert values.tolist() == [1e308, math.inf]


def test_parameters_are_rounded_in_place():
    block = torch.nn.Parameter(torch.tensor([[0.3, 0.8], [1.1, -2.6]]).t())
    round_([block], 1.0)
    assert block.tolist() == [[0.0, 1.0], [1.0, -3.0]]


@pytest.mark.parametrize("step", [0.1, 3.0, 0.0, -1.0, math.nan, math.inf, "fine"])
def test_a_step_that_is_no_power_of_two_is_refused(step):
    with pytest.raises(InputError):
        round_([torch.zeros(3)], step)


def test_the_refusal_names_the_nearest_power():
    with pytest.raises(InputError, match=r"not a power of two: give 0\.125"):
        check_step(0.1)


def test_other_types_are_refused():
    with pytest.raises(InputError, match="float32 or float64"):
        round_([torch.zeros(3, dtype=torch.bfloat16)], 1.0)


@pytest.mark.parametrize("step", [0.25, 1.0])
def test_the_added_noise_is_as_said(step):
    """Measured on a million normals: within half a per cent, and a formula without the 12 is far off."""
    values = SOURCE.fill_(torch.empty(10**6, dtype=torch.float64), 0, 0, 0)
    rounded = values.clone()
    round_([rounded], step)
    measured = float(rounded.std() / values.std())
    assert measured == pytest.approx(added_noise(step, 1.0), rel=2e-3)
    assert math.sqrt(1 + step**2) > measured + 0.02
