"""Random smooth problems for the paper's algorithms: f(w, x_i) = a_i cos(⟨u_i, w⟩ + b_i), non-convex, G and L known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest


@dataclass(frozen=True)
class Problem:
    a: np.ndarray
    u: np.ndarray
    b: np.ndarray

    @property
    def G(self) -> float:
        return float(np.max(np.abs(self.a) * np.linalg.norm(self.u, axis=1)))

    @property
    def L(self) -> float:
        return float(np.max(np.abs(self.a) * np.sum(self.u**2, axis=1)))

    def gradient(self, w: np.ndarray, i: int) -> np.ndarray:
        return -self.a[i] * np.sin(self.u[i] @ w + self.b[i]) * self.u[i]

    def value(self, w: np.ndarray) -> float:
        return float(np.mean(self.a * np.cos(self.u @ w + self.b)))

    def mean_gradient(self, w: np.ndarray) -> np.ndarray:
        return np.mean([self.gradient(w, i) for i in range(len(self.a))], axis=0)


@pytest.fixture
def problem() -> Callable[[int, int, int], Problem]:
    def make(examples: int, dimension: int, seed: int) -> Problem:
        generator = np.random.default_rng(seed)
        return Problem(
            generator.uniform(0.5, 1.5, examples),
            generator.normal(size=(examples, dimension)),
            generator.uniform(0, 6.28, examples),
        )

    return make


@pytest.fixture
def plain_momentum() -> Callable[[list[np.ndarray], float], np.ndarray]:
    """m_t = (1-α) m_{t-1} + α g_t in closed form, as a matrix: independent of the recursion in the algorithms."""

    def momentum(gradients: list[np.ndarray], alpha: float) -> np.ndarray:
        T = len(gradients)
        lag = np.subtract.outer(np.arange(T), np.arange(T))
        weights = np.where(lag >= 0, alpha * (1 - alpha) ** np.maximum(lag, 0), 0.0)
        return weights @ np.array(gradients)

    return momentum
