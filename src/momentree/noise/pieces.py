"""Blocks of parameters as coordinates of one row, cut into chunks: what one thread takes through a whole step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from momentree.errors import InputError, whole
from momentree.noise.layout import COORDINATES, TILE

CHUNK, SHARED_CHUNK = 2**16, 3 * 2**15
"""Most coordinates of a chunk on the CPU, for one thread and for several: those get in each other's way less often."""
DEVICE_CHUNK = 2**24
"""Elsewhere: enough to keep the device busy."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """`size` coordinates from `start` on, held at `low` in the slots.

    `segments`: (block, low, high, at): entries low … high - 1 of that block are the chunk's from `at` on.
    """

    start: int
    low: int
    size: int
    segments: tuple[tuple[int, int, int, int], ...]


def sizes_of(shapes: Sequence[int | Sequence[int]]) -> list[int]:
    """How many numbers each block has."""
    sizes = []
    for shape in shapes:
        lengths = [shape] if isinstance(shape, int) else list(shape)
        sizes.append(math.prod(whole("shape", length, at_least=0) for length in lengths))
    return sizes


def starts_of(sizes: Sequence[int], offset: int | Sequence[int], total: int | None) -> list[int]:
    """The first coordinate of each block, checked against the whole: shards that overlap would share noise."""
    if isinstance(offset, int):
        starts = [whole("offset", offset, at_least=0) + sum(sizes[:i]) for i in range(len(sizes))]
    else:
        starts = [whole("offset", each, at_least=0) for each in offset]
        if len(starts) != len(sizes):
            raise InputError(f"{len(starts)} offsets for {len(sizes)} blocks: give one for each block, or one in all")
    total = COORDINATES if total is None else whole("total", total, at_least=0, at_most=COORDINATES)
    spans = sorted((start, start + size) for start, size in zip(starts, sizes, strict=True) if size)
    for (_, end), (start, _) in itertools.pairwise(spans):
        if start < end:
            raise InputError(f"blocks overlap at coordinate {start}, they would share noise: give distinct offsets")
    if spans and spans[-1][1] > total:
        raise InputError(f"blocks end at coordinate {spans[-1][1]}, the whole has {total}: correct offset or total")
    return starts


def length_of(total: int, threads: int) -> int:
    """The length at which each of so many threads gets as many chunks as the others, of nearly the same size."""
    if threads == 1:
        return CHUNK
    rounds = max(1, -(-total // (threads * SHARED_CHUNK)))
    even = -(-total // (threads * rounds))
    return min(SHARED_CHUNK, -(-even // TILE) * TILE)


def chunks_of(sizes: Sequence[int], starts: Sequence[int], length: int) -> list[Chunk]:
    """Runs of coordinates that follow each other, cut at the multiples of `length`: a source's tiles stay whole."""
    chunks: list[Chunk] = []
    segments: list[tuple[int, int, int, int]] = []
    start = low = size = 0

    def close() -> None:
        nonlocal segments, size
        if size:
            chunks.append(Chunk(start, low, size, tuple(segments)))
        segments, size = [], 0

    held = 0
    for block, (count, first) in enumerate(zip(sizes, starts, strict=True)):
        taken = 0
        while taken < count:
            at = first + taken
            if not size or at != start + size or at % length == 0:
                close()
                start, low = at, held
            part = min(count - taken, length - at % length)
            segments.append((block, taken, taken + part, size))
            taken, size, held = taken + part, size + part, held + part
    close()
    return chunks
