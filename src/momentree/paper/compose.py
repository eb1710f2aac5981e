"""Algorithm 3, COMPOSE(a, b): the nodes of the binary tree whose union is the interval [a, b]."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from momentree.errors import InputError
from momentree.paper.common import Node, NodeNoise, Vector


def compose(a: int, b: int) -> list[Node]:
    """COMPOSE(a, b), from left to right, as in Algorithm 3. COMPOSE(1, t) is the binary expansion of t."""
    if not 1 <= a <= b:
        raise InputError(f"COMPOSE({a}, {b}) is no interval: give 1 ≤ a ≤ b")
    k = 0  # the largest k with a = 1 mod 2^k and a + 2^k - 1 ≤ b; both conditions fail for good once one does
    while (a - 1) % 2 ** (k + 1) == 0 and a + 2 ** (k + 1) - 1 <= b:
        k += 1
    S = [(a, a + 2**k - 1)]
    a_next = a + 2**k
    return S if a_next > b else S + compose(a_next, b)


def tree_depth(T: float) -> int:
    """⌊log2 T⌋: the highest level b of a node [a2^b+1, (a+1)2^b] inside {1 … T}."""
    return int(T).bit_length() - 1


def tree_nodes(T: int) -> Iterator[Node]:
    """The set I of section 3: every node inside {1 … T}, level by level (b = 0 … ⌊log2 T⌋: docs/paper.md, E10)."""
    for b in range(tree_depth(T) + 1):
        for a in range(T // 2**b):
            yield a * 2**b + 1, (a + 1) * 2**b


def left_nodes(T: int) -> Iterator[Node]:
    """The nodes that some COMPOSE(1, t) uses: one ends at each step z, of level v₂(z) (docs/paper.md, E13)."""
    for z in range(1, T + 1):
        yield z - (z & -z) + 1, z


def nodes_ending_at(t: int) -> Iterator[Node]:
    """[t-2^k+1, t] for every k with t = 0 mod 2^k: the nodes that Algorithm 2 releases at step t."""
    k = 0
    while t % 2**k == 0 and 2**k <= t:
        yield t - 2**k + 1, t
        k += 1


def draw(noise: NodeNoise | None, node: Node, like: Vector) -> Vector:
    """ζ of a node, as float64; zero without noise. A map that lacks the node is an error, never a silent zero."""
    if noise is None:
        return np.zeros_like(like)
    if callable(noise):
        return np.asarray(noise(*node), dtype=np.float64)
    if node not in noise:
        raise InputError(f"the noise map has no entry for node {list(node)}: give one for every node that is drawn")
    return np.asarray(noise[node], dtype=np.float64)


def gaussian_draws(generator: np.random.Generator, dimension: int, scale: float) -> Callable[[int, int], Vector]:
    """ζ ~ N(0, scale² I), drawn anew for every node; Algorithm 1 takes scale = 4αGσ√V."""
    return lambda _y, _z: generator.normal(0.0, scale, dimension)


def prefix(values: dict[Node, Vector], t: int, alpha: float) -> Vector:
    """Σ_{[y,z] ∈ COMPOSE(1,t)} (1-α)^(t-z) values[y,z]."""
    return window(values, 1, t, alpha)


def window(values: dict[Node, Vector], a: int, b: int, alpha: float) -> Vector:
    """Σ_{[y,z] ∈ COMPOSE(a,b)} (1-α)^(b-z) values[y,z]."""
    first, *rest = ((1 - alpha) ** (b - z) * values[y, z] for y, z in compose(a, b))
    return sum(rest, first)
