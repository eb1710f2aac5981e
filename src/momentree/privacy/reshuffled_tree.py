"""The tree under reshuffled epochs, exactly: one pick in every epoch, any place, any decay, T up to a million.

`max Σ_nodes (Σ_{picks t in node} β^{end − t})²` by dynamic programming over the tree. For a node [s, s + 2^k) and each
way in which the epochs that it cuts have their pick inside it or not, what matters above is (S, V): S the decayed sum
over the picks inside, V what the nodes below and the node itself have cost. Everything above is V + φ(S), φ convex and
increasing, so the upper-right hull of the points is enough (`momentree.privacy.hull`). A node depends on its level, on
s mod n and on whether it is released, and on nothing else: O(min(E, n) log T) of them.

Guarantee: the value is the maximum itself, up to rounding (all terms are ≥ 0): exact, since C ≥ 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from momentree.privacy.hull import Hull, add, counted, join, point

Key = tuple[int, int]


@dataclass
class Node:
    """What a node can be. Keys are bits (first, last): is the pick of the first / last epoch that it cuts inside?

    `single`: it lies inside one epoch and is not all of it; then both bits are the same one.
    """

    single: bool
    table: dict[Key, Hull]


class TreeProgram:
    """The dynamic programme for one (n, decay, all_nodes)."""

    def __init__(self, n: int, decay: float, all_nodes: bool) -> None:
        self.n, self.decay, self.all_nodes = n, float(decay), all_nodes
        self._one_pick: dict[tuple[int, bool], Hull] = {}
        self._nodes: dict[tuple[int, int, bool], Node] = {}

    def power(self, exponent: int) -> float:
        return float(self.decay**exponent)

    def one_pick(self, level: int, released: bool) -> Hull:
        """A node inside one epoch with its one pick."""
        if self.all_nodes:
            return point(1.0, level + 1.0)  # the last place wins in S and in V
        key = (level, released)
        if key not in self._one_pick:
            if level == 0:
                hull = point(1.0, 0.0)
            else:
                s, v = self.one_pick(level - 1, True)
                hull = join([(s * self.power(2 ** (level - 1)), v), self.one_pick(level - 1, False)])
            self._one_pick[key] = counted(hull) if released else hull
        return self._one_pick[key]

    def node(self, level: int, phase: int, released: bool) -> Node:
        """The node of 2^level steps that starts at place `phase`."""
        released = released or self.all_nodes
        size, n = 2**level, self.n
        if phase + size <= n:
            one = self.one_pick(level, released)
            if size == n:
                return Node(False, {(0, 0): one})
            return Node(True, {(0, 0): point(0.0, 0.0), (1, 1): one})
        key = (level, phase, released)
        if key not in self._nodes:
            half = size // 2
            left = self.node(level - 1, phase, True)
            right = self.node(level - 1, (phase + half) % n, False)
            table = self._across(left, right, phase, half)
            if released:
                table = {bits: counted(hull) for bits, hull in table.items()}
            self._nodes[key] = Node(False, table)
        return self._nodes[key]

    def _across(self, left: Node, right: Node, phase: int, half: int) -> dict[Key, Hull]:
        """Join two halves. Bits of an epoch they share add up to at most 1, to 1 once the epoch is wholly inside."""
        n, factor = self.n, self.power(half)
        found: dict[Key, list[Hull]] = {}
        for (first, ends), (s, v) in left.table.items():
            for (begins, last), other in right.table.items():
                key = joined_key(
                    (phase + half) % n != 0,
                    left.single and phase != 0,
                    right.single and (phase + 2 * half) % n != 0,
                    0 if left.single and phase == 0 and (phase + half) % n != 0 else first,
                    ends,
                    begins,
                    0 if right.single and (phase + 2 * half) % n == 0 and (phase + half) % n != 0 else last,
                )
                if key is not None:
                    found.setdefault(key, []).append(add((factor * s, v), other))
        return {key: join(hulls) for key, hulls in found.items()}


def joined_key(shared: bool, before: bool, after: bool, first: int, ends: int, begins: int, last: int) -> Key | None:
    """Bits of the union of two neighbours, None where they contradict each other.

    `shared`: an epoch x lies on both sides of the border; `before`, `after`: x begins before, ends after the union.
    `first, ends`: the left side's bits; `begins, last`: the right side's.
    """
    if not shared:
        return first, last
    inside = ends + begins
    if inside > 1:
        return None
    if before:
        return inside, last
    if after:
        return first, inside
    return (first, last) if inside == 1 else None


def squared(blocks: list[int], n: int, decay: float, all_nodes: bool) -> float:
    """The largest sensitivity² of trees over consecutive blocks of steps (one block: a tree that never restarts)."""
    program = TreeProgram(n, decay, all_nodes)
    best = {0: 0.0}  # by whether the pick of the epoch cut at the border lies before it
    start = 0
    for steps in blocks:
        for level in reversed(range(steps.bit_length())):
            if not steps >> level & 1:
                continue
            size, phase = 2**level, start % n
            node = program.node(level, phase, True)
            after: dict[int, float] = {}
            for before, value in best.items():
                for (begins, last), hull in node.table.items():
                    top = value + float(hull[1].max())
                    if phase != 0 and before + begins > 1:
                        continue
                    closed = not node.single or (phase + size) % n == 0  # the epoch cut on the left ends inside
                    if phase != 0 and closed and before + begins != 1:
                        continue
                    bit = last if not node.single else (before + begins if not closed else 0)
                    if (phase + size) % n == 0:
                        bit = 0
                    after[bit] = max(after.get(bit, 0.0), top)
            best = after
            start += size
    return max(best.values())
