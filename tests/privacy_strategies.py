"""Random small strategies of every kind, for the tests that hold accounts against brute force."""

from __future__ import annotations

import numpy as np

from momentree.strategy.bisr import Bisr
from momentree.strategy.blt import Blt
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense
from momentree.strategy.identity import Identity
from momentree.strategy.restarted import Restarted
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from momentree.strategy.tree_ls import TreeLS

KINDS = ("identity", "tree", "tree-full", "tree-ls", "bsr", "bisr", "blt", "dense", "rising", "signed", "signed-dense")


def root(length: int, beta: float) -> np.ndarray:
    """The first coefficients of ((1 − x)(1 − βx))^(−1/2)."""
    b = np.cumprod(np.r_[1.0, (2 * np.arange(1, length) - 1) / (2 * np.arange(1, length))])
    return np.convolve(b, b * beta ** np.arange(length))[:length]


def draw(kind: str, steps: int, rng: np.random.Generator):
    decay = float(rng.choice([0.0, 0.5, 0.9, 1.0]))
    band = int(rng.integers(1, steps + 1))
    if kind == "identity":
        return Identity(steps)
    if kind in ("tree", "tree-full", "tree-ls"):
        return {"tree": Tree, "tree-full": TreeFull, "tree-ls": TreeLS}[kind](steps, decay)
    if kind == "bsr":
        return Bsr(steps, root(band, float(rng.random())))
    if kind == "bisr":
        return Bisr(steps, np.r_[1.0, -rng.random(band - 1) / max(1, band - 1)])
    if kind == "blt":
        return Blt(steps, rng.random(2), rng.random(2))
    if kind == "rising":  # non-negative, and not falling
        return Bsr(steps, np.r_[1.0, rng.random(band - 1) * 2])
    if kind == "signed":
        return Bsr(steps, np.r_[1.0, rng.normal(size=band - 1)])
    lower = np.tril(rng.random((steps, steps)) if kind == "dense" else rng.normal(size=(steps, steps)))
    np.fill_diagonal(lower, 1.0)
    return Dense(lower)


def draw_any(steps: int, rng: np.random.Generator):
    """Any kind; restarted at any length now and then."""
    kind = str(rng.choice(KINDS))
    if steps > 1 and rng.random() < 0.25:
        length = int(rng.integers(1, steps))
        times = -(-steps // length)
        return Restarted(draw(kind, length, rng), times, steps - (times - 1) * length)
    return draw(kind, steps, rng)
