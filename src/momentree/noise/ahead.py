"""Drawing ahead for small models, whose rows cost less to draw than the calls that draw them.

A base row is a function of its name alone, so those of the coming steps may be drawn together; which numbers a step
gets does not change. What is held ahead is as many rows as one draw makes: no more numbers than a chunk of a
large model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from momentree.noise.layout import TILE
from momentree.noise.pieces import Chunk
from momentree.noise.program import Lean, lean
from momentree.strategy.base import Strategy

TILES = 32
"""How many are drawn at a time: more would not be cheaper."""


@runtime_checkable
class Rows(Protocol):
    """A source that can draw several short rows together."""

    def fill_rows_(self, out: Tensor, stream: int, rows: Sequence[int], start: int) -> Any: ...


class Ahead:
    """The programs of the coming steps and their base rows, of a model that is one chunk of at most half a draw."""

    def __init__(self, strategy: Strategy, source: Rows, stream: int, chunk: Chunk, dtype: torch.dtype, lines: int):
        self._strategy, self._source, self._stream, self._start = strategy, source, stream, chunk.start
        self._buffer = torch.empty(lines, chunk.size, dtype=dtype)
        self._lines = list(self._buffer.numpy())
        self._coming: deque[tuple[int, Lean, list[Any]]] = deque()

    @classmethod
    def of(cls, strategy: Strategy, source: object, stream: int, chunk: Chunk, dtype: torch.dtype) -> Ahead | None:
        """None where the source draws single rows only, or at most one row fits."""
        tiles = -(-(chunk.start + chunk.size) // TILE) - chunk.start // TILE
        lines = TILES // tiles
        return cls(strategy, source, stream, chunk, dtype, lines) if lines > 1 and isinstance(source, Rows) else None

    def forget(self) -> None:
        """To be called after a jump to another step."""
        self._coming.clear()

    def take(self, step: int) -> tuple[Lean, list[Any]] | None:
        """A step's program and its base rows, which are the caller's to overwrite; None where they do not fit."""
        if not self._coming or self._coming[0][0] != step:
            self._draw(step)
        if not self._coming:
            return None
        _, program, fresh = self._coming.popleft()
        return program, fresh

    def _draw(self, step: int) -> None:
        self._coming.clear()
        wanted: list[int] = []
        while step <= self._strategy.steps:
            instruction = self._strategy.instruction(step)
            program = lean(instruction)
            if len(wanted) + len(program.drawn) > len(self._lines):
                break
            fresh: list[Any] = [None] * len(instruction.fresh)
            for i in program.drawn:
                fresh[i] = self._lines[len(wanted)]
                wanted.append(instruction.fresh[i])
            self._coming.append((step, program, fresh))
            step += 1
        self._source.fill_rows_(self._buffer[: len(wanted)], self._stream, wanted, self._start)
