"""Slow and obvious answers that several tests compare with. Small, and independent of the code under test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np


def patterns(participation: str, steps: int, steps_per_epoch: int) -> Iterator[tuple[int, ...]]:
    """Every set of steps (from 0) that one example may have: one place for all epochs, or any place in each."""
    n = steps_per_epoch
    if participation == "fixed":
        yield from (tuple(range(place, steps, n)) for place in range(min(n, steps)))
        return
    yield from itertools.product(*(range(low, min(low + n, steps)) for low in range(0, steps, n)))


def worst_norm(
    matrix: np.ndarray, participation: str, steps_per_epoch: int, weights: np.ndarray | None = None
) -> float:
    """max over patterns of ‖Σ_t x_t C_t‖, every contribution the same unit number: the truth where C'C ≥ 0."""
    x = np.ones(matrix.shape[1]) if weights is None else weights
    return max(
        float(np.linalg.norm((matrix[:, list(p)] * x[list(p)]).sum(axis=1)))
        for p in patterns(participation, matrix.shape[1], steps_per_epoch)
    )


def worst_absolute(
    matrix: np.ndarray, participation: str, steps_per_epoch: int, weights: np.ndarray | None = None
) -> float:
    """max over patterns of √Σ x_t x_u |⟨C_t, C_u⟩|: what contributions in any directions cannot exceed."""
    x = np.ones(matrix.shape[1]) if weights is None else weights
    gram = np.abs((matrix * x).T @ (matrix * x))
    return max(
        float(np.sqrt(gram[np.ix_(p, p)].sum())) for p in patterns(participation, matrix.shape[1], steps_per_epoch)
    )


def worst_vectors(
    matrix: np.ndarray, pattern: tuple[int, ...], weights: np.ndarray, rng: np.random.Generator, rounds: int = 60
) -> float:
    """The largest ‖Σ_t x_t C_t g_tᵀ‖ that an adversary finds with unit vectors g_t: ascent, one g_t at a time."""
    picks = list(pattern)
    scaled = matrix[:, picks] * weights[picks]
    gram = scaled.T @ scaled
    best = 0.0
    for _ in range(3):
        g = rng.normal(size=(len(picks), len(picks)))
        g /= np.linalg.norm(g, axis=1, keepdims=True)
        for _ in range(rounds):
            for i in range(len(picks)):
                pull = gram[i] @ g - gram[i, i] * g[i]
                norm = np.linalg.norm(pull)
                if norm > 0:
                    g[i] = pull / norm
        best = max(best, float(np.linalg.norm(scaled @ g)))
    return best
