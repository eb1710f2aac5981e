"""Bounds on means and probabilities: their level, their sharpness, and that a smaller bound would fail."""

import numpy as np
import pytest

from momentree.privacy.confidence import binomial_lower, binomial_upper, lower_mean, upper_mean


def skewed(generator, count):
    """Draws in [0, 1] that are mostly 0: mean 0.01."""
    return (generator.random(count) < 0.02) * generator.random(count)


@pytest.mark.parametrize("level", [0.2, 0.01])
def test_the_level_holds(level):
    generator = np.random.default_rng(3)
    runs = 400
    low = sum(upper_mean(skewed(generator, 400), 1.0, level) < 0.01 for _ in range(runs))
    high = sum(lower_mean(skewed(generator, 400), 1.0, level) > 0.01 for _ in range(runs))
    assert low <= level * runs + 3 * np.sqrt(level * runs)
    assert high <= level * runs + 3 * np.sqrt(level * runs)


def test_a_bound_without_room_fails_the_same_check():
    generator = np.random.default_rng(3)
    assert sum(skewed(generator, 400).mean() < 0.01 for _ in range(400)) > 150


def test_it_is_near_the_central_limit():
    generator = np.random.default_rng(1)
    sample = generator.beta(2, 5, size=200_000) * 3.0
    deviation = sample.std() / np.sqrt(sample.size)
    assert 4.7 < (upper_mean(sample, 3.0, 1e-6) - sample.mean()) / deviation < 6.2
    assert 4.7 < (sample.mean() - lower_mean(sample, 3.0, 1e-6)) / deviation < 6.2


def test_extremes():
    assert upper_mean(np.ones(50), 1.0, 1e-3) == 1.0
    assert 0 < upper_mean(np.zeros(5000), 1.0, 1e-3) < 0.005
    assert lower_mean(np.zeros(50), 1.0, 1e-3) == 0.0
    assert lower_mean(np.full(10, 7.0), 1.0, 1e-3) <= 1.0  # a cut sample bounds from below
    with pytest.raises(ValueError):
        upper_mean(np.array([0.5, 1.5]), 1.0, 1e-3)
    with pytest.raises(ValueError):
        upper_mean(np.array([-0.5, 0.5]), 1.0, 1e-3)


def test_binomial_ends():
    assert binomial_upper(0, 100, 0.05) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert binomial_upper(100, 100, 0.05) == 1.0
    assert binomial_lower(0, 100, 0.05) == 0.0
    assert binomial_lower(100, 100, 0.05) == pytest.approx(0.05 ** (1 / 100))
