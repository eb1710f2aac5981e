"""Sensitivities of the binary tree by brute force: the oracle for every closed form and recurrence elsewhere.

One example contributes 1 at each step it takes part in; node [y, z] holds Σ (1-α)^(z-t) of its contributions. A
contribution may be any vector of norm at most 1, chosen adaptively; all entries are non-negative, so the same
direction every time is the worst. Multiply by 2αG for the print's momentum nodes and its adjacency.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import numpy as np

from momentree.errors import InputError, one_of
from momentree.paper.common import Node
from momentree.paper.compose import left_nodes, nodes_ending_at, tree_nodes

Nodes = Literal["all", "left"]
Participation = Literal["fixed", "reshuffled"]


def patterns(steps_per_epoch: int, steps: int, participation: Participation) -> Iterator[tuple[int, ...]]:
    """Every set of steps that one example may have: one place for all epochs, or any place in each."""
    n, T = steps_per_epoch, steps
    one_of("participation", participation, ("fixed", "reshuffled"))
    if participation == "fixed":
        for place in range(1, min(n, T) + 1):
            yield tuple(range(place, T + 1, n))
        return
    epochs = [range(start, start + n) for start in range(1, T + 1, n)]
    if n ** len(epochs) > 2_000_000:
        raise InputError(f"{n}^{len(epochs)} patterns are too many for brute force: give at most 2000000")
    for places in itertools.product(*epochs):
        yield tuple(t for t in places if t <= T)  # in a broken-off last epoch an example may come too late


def node_value(node: Node, pattern: Iterable[int], alpha: float) -> float:
    """Σ (1-α)^(z-t) over the steps t of the pattern inside the node."""
    y, z = node
    return sum((1 - alpha) ** (z - t) for t in pattern if y <= t <= z)


def tree_sensitivity(
    steps_per_epoch: int,
    steps: int,
    alpha: float,
    *,
    nodes: Nodes = "all",
    participation: Participation = "fixed",
) -> float:
    """√ max over patterns of Σ over nodes of value²: the L2 sensitivity of all the nodes together."""
    chosen = _nodes(steps, nodes)
    return math.sqrt(
        max(
            sum(node_value(node, pattern, alpha) ** 2 for node in chosen)
            for pattern in patterns(steps_per_epoch, steps, participation)
        )
    )


def most_nodes(
    steps_per_epoch: int, steps: int, *, nodes: Nodes = "all", participation: Participation = "fixed"
) -> int:
    """The true V: the most nodes that hold one example at least once."""
    chosen = _nodes(steps, nodes)
    return max(
        sum(any(y <= t <= z for t in pattern) for y, z in chosen)
        for pattern in patterns(steps_per_epoch, steps, participation)
    )


def worst_node(steps_per_epoch: int, steps: int, alpha: float, participation: Participation) -> tuple[float, Node]:
    """The largest value of one node over patterns, and that node. For reshuffled epochs the latest place in each is
    the worst, whatever the node, so no pattern needs listing."""
    n = steps_per_epoch
    best = (0.0, (1, 1))
    for y, z in tree_nodes(steps):
        if participation == "fixed":
            value = max(node_value((y, z), range(p, z + 1, n), alpha) for p in range(1, n + 1))
        else:
            last = [min(z, (q + 1) * n) for q in range((y - 1) // n, (z - 1) // n + 1)]
            value = node_value((y, z), last, alpha)
        best = max(best, (value, (y, z)))
    return best


def fixed_order_square(steps_per_epoch: int, steps: int, alpha: float, *, nodes: Nodes = "all") -> float:
    """The squared `tree_sensitivity` of the fixed order at sizes where listing nodes an example is too slow: the
    matrix of the tree, one row a node, multiplied out level by level."""
    n, T = steps_per_epoch, steps
    total = np.zeros(min(n, T))
    t = np.arange(1, T + 1)
    place = (t - 1) % n
    b = 0
    while 1 << b <= T:
        index = (t - 1) >> b
        z = (index + 1) << b
        counted = (z <= T) & ((index % 2 == 0) | (nodes == "all"))
        flat = index[counted] * n + place[counted]
        sums = np.bincount(flat, weights=(1 - alpha) ** (z - t)[counted].astype(float))
        squares = np.zeros(-(-len(sums) // n) * n)
        squares[: len(sums)] = sums**2
        total += squares.reshape(-1, n).sum(axis=0)[: len(total)]
        b += 1
    return float(total.max())


def reshuffled_counts_square(steps_per_epoch: int, epochs: int, *, nodes: Nodes = "all") -> int:
    """The squared sensitivity of the undecayed tree under reshuffled epochs, exactly, at any size.

    Node by node from the leaves: for each (picks inside so far of the epochs that the node cuts, contributions S in
    the node) the largest Σ S² of counted nodes within. An epoch that lies wholly inside holds exactly one pick.
    """
    n, T = steps_per_epoch, steps_per_epoch * epochs
    one_of("nodes", nodes, ("all", "left"))
    State = dict[tuple[tuple[tuple[int, int], ...], int], int]

    def settle(start: int, stop: int, picks: dict[int, int], S: int, V: int, into: State) -> None:
        open_picks = []
        for q, k in sorted(picks.items()):
            inside = start <= q * n and (q + 1) * n <= stop
            if k > 1 or (inside and k != 1):  # more than one pick would be refused later; now keeps the states few
                return
            if not inside:
                open_picks.append((q, k))
        key = (tuple(open_picks), S)
        into[key] = max(into.get(key, -1), V)

    def join(left: State, right: State, start: int, stop: int) -> State:
        joined: State = {}
        for (picks_l, S_l), V_l in left.items():
            for (picks_r, S_r), V_r in right.items():
                picks = dict(picks_l)
                for q, k in picks_r:
                    picks[q] = picks.get(q, 0) + k
                settle(start, stop, picks, S_l + S_r, V_l + V_r, joined)
        return joined

    def node(start: int, length: int) -> State:
        """Steps start … start+length-1, counted from 0."""
        if length == 1:
            state: State = {}
            for k in (0, 1):
                settle(start, start + 1, {start // n: k}, k, 0, state)
        else:
            half = length // 2
            state = join(node(start, half), node(start + half, half), start, start + length)
        if nodes == "left" and start // length % 2 == 1:
            return state
        return {(picks, S): V + S**2 for (picks, S), V in state.items()}

    start = 0
    whole: State = {((), 0): 0}
    for b in reversed(range(T.bit_length())):
        if T >> b & 1:
            whole = join(whole, node(start, 1 << b), 0, start + (1 << b))
            start += 1 << b
    return max(whole.values())


def joint_square(
    steps_per_epoch: int,
    steps: int,
    alpha: float,
    *,
    term: Callable[[str, int], float],
    scale: Callable[[str, int, int], float],
) -> float:
    """μ² of Algorithm 2's whole release under one fixed order: max over places of Σ families Σ nodes (s/scale)².

    `term(family, t)` bounds how far one example moves the family's term of step t, `scale(family, y, z)` is the
    standard deviation of a node's noise. Brute force over places and nodes, families "G", "Delta", "r".
    """
    n, T = steps_per_epoch, steps
    best = 0.0
    for pattern in patterns(n, T, "fixed"):
        total = 0.0
        for t in range(1, T + 1):
            for y, z in nodes_ending_at(t):
                inside = [i for i in pattern if y <= i <= z]
                for family in ("G", "Delta", "r"):
                    if not inside or (family == "Delta" and y <= n):
                        continue
                    s = sum((1 - alpha) ** (z - i) * term(family, i) for i in inside)
                    total += (s / scale(family, y, z)) ** 2
        best = max(best, total)
    return best


def _nodes(steps: int, nodes: Nodes) -> Sequence[Node]:
    one_of("nodes", nodes, ("all", "left"))
    return list(tree_nodes(steps) if nodes == "all" else left_nodes(steps))
