"""Dominating mixtures written out pattern by pattern, sharing nothing with the library but C itself."""

import itertools

import numpy as np


def patterns(order: str, n: int, epochs: int, steps: int, rate: float = 0.5, parts: int = 1):
    """(0/1 patterns over the steps, their probabilities) of one example."""
    rows, weights = [], []
    if order == "balls-in-bins":
        choices = [(j,) * epochs for j in range(n)]
    elif order == "random-allocation":
        choices = list(itertools.product(range(n), repeat=epochs))
    else:
        turn = range(0, steps, parts) if order == "cyclic-poisson" else range(steps)
        for coins in itertools.product((0, 1), repeat=len(turn)):
            row = np.zeros(steps)
            row[list(turn)] = coins
            rows.append(row)
            weights.append(rate ** sum(coins) * (1 - rate) ** (len(coins) - sum(coins)))
        return np.array(rows), np.array(weights)
    for places in choices:
        row = np.zeros(n * epochs)
        row[[e * n + j for e, j in enumerate(places)]] = 1.0
        rows.append(row[:steps])
        weights.append(1 / len(choices))
    return np.array(rows), np.array(weights)


def log_ratio(matrix, sigma, rows, weights, y):
    """ℓ = log Σ_u p(u) dN(Cu, σ²)/dN(0, σ²) at draws y/σ (a row a draw)."""
    shifts = rows @ matrix.T / sigma
    exponents = y @ shifts.T - (shifts**2).sum(axis=1) / 2
    top = exponents.max(axis=1, keepdims=True)
    return np.log(np.exp(exponents - top) @ weights) + top[:, 0]


def draw(matrix, sigma, rows, weights, generator, count, *, present):
    """Releases y/σ with the example present or absent."""
    y = generator.standard_normal((count, len(matrix)))
    if present:
        y += (rows @ matrix.T / sigma)[generator.choice(len(weights), size=count, p=weights / weights.sum())]
    return y


def toeplitz(coefficients, steps):
    matrix = np.zeros((steps, steps))
    for k, value in enumerate(coefficients[:steps]):
        matrix += np.diag(np.full(steps - k, value), -k)
    return matrix
