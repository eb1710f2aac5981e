"""One place an epoch where only epochs one or two apart meet: a chain, solved from coarse blocks of places to fine.

    maximise  Σ_e own_e(p_e) + Σ_e near_e(p_{e−1}, p_e) + Σ_e far_e(p_{e−2}, p_e)

Every epoch's places are cut into blocks; the terms are evaluated as upper bounds over blocks, so the optimum over
blocks is an upper bound of the maximum. Where the blocks of the best path are single places, and the terms exact there,
the bound is attained: it is the maximum. Otherwise the path's blocks are split and the chain is solved again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from momentree.strategy.base import Array

Blocks = NDArray[np.int64]
"""Two columns: first and last place of each block."""

Own = Callable[[int, Blocks], Array]
"""(epoch, blocks) → a bound for each block."""
Pair = Callable[[int, int, Blocks, Blocks], Array]
"""(earlier epoch, epochs apart, its blocks, the later one's) → a bound for each pair of blocks."""

WORK = 1_500_000_000


def geometric_blocks(places: int, growth: float) -> Blocks:
    """Single places at both ends of an epoch, wider blocks towards its middle."""
    left: list[tuple[int, int]] = []
    start, half = 0, (places + 1) // 2
    while start < half:
        width = min(max(1, int(growth * start)), half - start)
        left.append((start, start + width - 1))
        start += width
    right = [(places - 1 - high, places - 1 - low) for low, high in reversed(left)]
    if places % 2 and right:  # the middle place belongs to the left half
        low, high = right[0]
        right[0] = (low + 1, high)
        if right[0][0] > right[0][1]:
            right.pop(0)
    return np.array(left + right, dtype=np.int64)


def solve(
    sizes: list[int], reach: int, own: Own, pair: Pair, *, growth: float = 0.25, tolerance: float | None = None
) -> tuple[float, bool, Blocks]:
    """(bound, whether the best path is made of single places, that path). `sizes`: places of each epoch.

    Ends at a path of single places, or when three rounds have gained less than `tolerance` (None: however little they
    gain), or when WORK is done.
    """
    cut = {size: geometric_blocks(size, growth) for size in set(sizes)}
    best, idle, work = np.inf, 0, 0
    while True:
        blocks = [cut[size] for size in sizes]
        value, path = _first(blocks, own, pair) if reach <= 1 else _second(blocks, own, pair)
        chosen = np.array([blocks[e][b] for e, b in enumerate(path)])
        single = bool(np.all(chosen[:, 0] == chosen[:, 1]))
        idle = idle + 1 if tolerance is not None and best - value < tolerance * best else 0
        best = min(best, value)
        work += sum(len(b) ** (reach + 1) + 20_000 for b in blocks)
        if single or idle == 3 or work > WORK:
            return best, single, chosen
        for size in cut:  # what the path uses anywhere is split in every epoch of that size
            used = {b for s, b in zip(sizes, path, strict=True) if s == size}
            for index in sorted(used, reverse=True):
                cut[size] = split(cut[size], index)


def split(blocks: Blocks, index: int) -> Blocks:
    """The block in three: its first place, its last place, and two halves of what is between."""
    low, high = (int(x) for x in blocks[index])
    if low == high:
        return blocks
    parts = [(low, low)]
    if high - low > 1:
        middle = (low + high) // 2
        parts += [(a, b) for a, b in ((low + 1, middle), (middle + 1, high - 1)) if a <= b]
    parts.append((high, high))
    return np.concatenate([blocks[:index], np.array(parts, dtype=np.int64), blocks[index + 1 :]])


def _first(blocks: list[Blocks], own: Own, pair: Pair) -> tuple[float, list[int]]:
    value = own(0, blocks[0])
    back: list[NDArray[np.int32]] = []
    for e in range(1, len(blocks)):
        through = value[:, None] + pair(e - 1, 1, blocks[e - 1], blocks[e])
        pick = through.argmax(axis=0)
        back.append(pick.astype(np.int32))
        value = through[pick, np.arange(len(pick))] + own(e, blocks[e])
    path = [int(value.argmax())]
    for pick_of in reversed(back):
        path.append(int(pick_of[path[-1]]))
    return float(value.max()), path[::-1]


def _second(blocks: list[Blocks], own: Own, pair: Pair) -> tuple[float, list[int]]:
    if len(blocks) < 2:
        return _first(blocks, own, pair)
    state = own(0, blocks[0])[:, None] + pair(0, 1, blocks[0], blocks[1]) + own(1, blocks[1])[None, :]
    back: list[NDArray[np.int32]] = []
    for e in range(2, len(blocks)):
        skip = pair(e - 2, 2, blocks[e - 2], blocks[e])  # a × c
        through = state[:, :, None] + skip[:, None, :]  # a × b × c
        pick = through.argmax(axis=0)
        back.append(pick.astype(np.int32))
        state = np.take_along_axis(through, pick[None], axis=0)[0]
        state = state + pair(e - 1, 1, blocks[e - 1], blocks[e]) + own(e, blocks[e])[None, :]
    b, c = np.unravel_index(int(state.argmax()), state.shape)
    path = [int(c), int(b)]
    for pick_of in reversed(back):
        path.append(int(pick_of[path[-1], path[-2]]))
    return float(state.max()), path[::-1]
