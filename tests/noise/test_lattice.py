"""The bounds on δ of docs/noise.md, against the laws themselves, computed."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from momentree.noise.grid import round_
from momentree.noise.lattice import DISPLACEMENT, border_crossings, grid_delta, tail_delta, tail_end
from momentree.noise.normals import KeyedNormals

SOURCE = KeyedNormals(bytes(range(32)))
DOCS = Path(__file__).parents[2] / "docs" / "noise.md"


def test_the_tail_ends_where_they_say():
    assert tail_end(24) == pytest.approx(5.768, abs=1e-3)
    assert tail_end(32) == pytest.approx(6.660, abs=1e-3)
    assert tail_end() == tail_end(64) == pytest.approx(9.419, abs=1e-3)
    assert math.exp(-(tail_end(20) ** 2) / 2) == pytest.approx(2.0**-20)


def ideal_delta(mu, epsilon):
    return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)


def cut_delta(mu, epsilon, bits, cells=1500):
    """∫ (p − e^ε q)₊ of a pair of normals cut to the disc, against the same moved by mu; by a fine midpoint rule."""
    end, missing = tail_end(bits), 2.0**-bits
    x = np.linspace(-end, end, cells, endpoint=False) + end / cells
    grid_x, grid_y = np.meshgrid(x, x)
    density = np.exp(-(grid_x**2 + grid_y**2) / 2) / (2 * math.pi)
    p = np.where(grid_x**2 + grid_y**2 < end**2, density, 0.0)
    moved = np.exp(-((grid_x - mu) ** 2 + grid_y**2) / 2) / (2 * math.pi)
    q = np.where((grid_x - mu) ** 2 + grid_y**2 < end**2, moved, 0.0)
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) * (2 * end / cells) ** 2 / (1 - missing)


@pytest.mark.parametrize("bits", [2, 4, 6, 10])
@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
def test_a_cut_tail_costs_no_more_than_the_bound(bits, mu, epsilon):
    """One pair, cut early enough for the effect to be seen: the law integrated, not the argument repeated."""
    ideal = ideal_delta(mu, epsilon)
    assert cut_delta(mu, epsilon, bits) <= ideal + tail_delta(2, mu, epsilon, delta=ideal, bits=bits) + 2e-4


def test_the_bound_is_not_idle():
    """A tail cut early breaks the ideal claim; the bound is of the size of the break, and linear in the shift."""
    ideal, cut = ideal_delta(0.3, 0.5), cut_delta(0.3, 0.5, 4)
    assert cut > ideal + 0.005
    assert tail_delta(2, 0.3, 0.5, delta=ideal, bits=4) < 10 * (cut - ideal)
    assert tail_delta(1e9, None, 1.0) > 1e3 * tail_delta(1e9, 3.0, 1.0)
    assert tail_delta(1e9, 1e-3, 1.0) == pytest.approx(tail_delta(1e9, 1e-4, 1.0) * 10, rel=1e-3)


def test_many_pairs_share_the_shift():
    """60 pairs cut at 2 bits, the same shift in each: simulated, the loss beyond ε is below the bound's."""
    pairs, mu, epsilon, bits = 60, 0.5, 0.5, 6
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200_000, pairs, 2))
    inside = (z**2).sum(2) < tail_end(bits) ** 2
    shift = mu / math.sqrt(pairs)
    moved = z.copy()
    moved[:, :, 0] += shift  # z = y under the data, z + shift = y under its neighbour
    allowed = (moved**2).sum(2) < tail_end(bits) ** 2
    keep = inside.all(1)
    loss = ((moved**2).sum((1, 2)) - (z**2).sum((1, 2)))[keep] / 2
    q_over_p = np.where(allowed[keep].all(1), np.exp(-loss), 0.0)
    measured = float(np.maximum(1 - math.exp(epsilon) * q_over_p, 0).mean())
    ideal = ideal_delta(mu, epsilon)
    assert measured <= ideal + tail_delta(2 * pairs, mu, epsilon, delta=ideal, bits=bits)
    assert measured > ideal + 0.02


def coarse(values, reference, step):
    one, two = values.double().clone(), reference.clone()
    round_([one], step)
    round_([two], step)
    return float((one != two).double().mean())


@pytest.mark.parametrize("step", [2.0**-4, 2.0**-7, 2.0**-10])
def test_border_crossings_bound_what_float32_does(step):
    """float32's normals against float64's of the same words: a displacement that is large enough to be counted."""
    count = 10**6
    one = SOURCE.fill_(torch.empty(count), 0, 0, 0)
    two = SOURCE.fill_(torch.empty(count, dtype=torch.float64), 0, 0, 0)
    radius = two.view(-1)[: count // 2048 * 2048].view(-1, 2, 1024).pow(2).sum(1).sqrt()
    apart = (one.double() - two)[: count // 2048 * 2048].view(-1, 2, 1024).abs() / radius[:, None]
    assert float(apart.max()) < 2.0**-21
    for offset in (0.0, step / 3, 1.234):
        crossed = coarse(one.double() + offset, two + offset, step)
        assert crossed <= border_crossings(step, displacement=2.0**-21)
        if step < 2.0**-9:
            assert crossed > border_crossings(step, displacement=2.0**-21) / 300


@pytest.mark.parametrize("displacement", [2.0**-6, 2.0**-10])
def test_border_crossings_bound_a_lattice_of_few_bits(displacement):
    """12 bits of radius and points moved by up to so much of the radius, the worst way: towards the next border."""
    bits, step = 12, 0.25
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**bits, 2_000_000)
    exact = np.sqrt(-2 * np.log((x + rng.random(x.size)) / 2**bits))
    snapped = np.sqrt(-2 * np.log((x + 0.5) / 2**bits))
    angle = rng.random(x.size) * 2 * math.pi
    one = exact * np.cos(angle)
    pushed = snapped * np.cos(angle) + displacement * snapped * np.sign(np.round(one / step) * step - one)
    crossed = float((np.floor(one / step) != np.floor(pushed / step)).mean())
    # near u = 1 the formula has the 53 bits of a float64, this toy 12: add that shell by hand
    near = 2 * 2.0**-bits * 4
    assert crossed <= border_crossings(step, displacement=displacement, bits=bits) + near
    assert crossed > border_crossings(step, displacement=displacement, bits=bits) / 50


def test_float64_is_within_the_displacement_and_float32_bounds_nothing():
    assert grid_delta(1e6, 2.0**-4, 1.0) < 3e-6
    assert grid_delta(1e4, 2.0**-4, 1.0) < 3e-8
    assert grid_delta(1e6, 2.0**-4, 1.0, displacement=2.0**-21) == 1.0
    assert grid_delta(1e4, 2.0**-4, 1.0, gain=3.0) == pytest.approx(3 * grid_delta(1e4, 2.0**-4, 1.0))
    assert DISPLACEMENT == 2.0**-49


def test_the_figures_in_the_docs_are_the_functions_values():
    """Every row of the two tables of docs/noise.md."""
    text = DOCS.read_text()
    tail_rows = [line for line in text.splitlines() if line.startswith("| tail |")]
    grid_rows = [line for line in text.splitlines() if line.startswith("| grid |")]
    assert len(tail_rows) >= 6
    assert len(grid_rows) >= 4
    for line in tail_rows:
        bits, coordinates, mu, epsilon, shown = (float(cell) for cell in line.strip("| ").split("|")[1:])
        assert shown == pytest.approx(tail_delta(coordinates, mu, epsilon, bits=int(bits)), rel=0.06)
        assert shown >= tail_delta(coordinates, mu, epsilon, bits=int(bits)) * 0.999
    for line in grid_rows:
        step, coordinates, epsilon, shown = (float(cell) for cell in line.strip("| ").split("|")[1:])
        assert shown == pytest.approx(grid_delta(coordinates, step, epsilon), rel=0.06)
        assert shown >= grid_delta(coordinates, step, epsilon) * 0.999
