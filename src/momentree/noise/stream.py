"""Runs a strategy's program: the noise (C⁺z)_t of step t = 1, 2, … over a list of parameter blocks, in place.

The coordinates of all blocks together are cut into chunks that stay in a core's cache, and a chunk goes through the
whole step at once: its base rows are drawn, the output is summed, the slots are moved on, the noise is added. So there
is no model-sized vector but the strategy's own slots, and none is walked twice.

Every operation is a product or a sum of two numbers, rounded correctly and never fused; with a source whose values do
not depend on the chunk, neither do the stream's, whatever the threads, the shards and the order of the chunks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from momentree.errors import InputError, number, whole
from momentree.noise import chacha
from momentree.noise.ahead import Ahead
from momentree.noise.pieces import DEVICE_CHUNK, Chunk, chunks_of, length_of, sizes_of, starts_of
from momentree.noise.program import Arithmetic, Lean, add_up, lean, live
from momentree.strategy.base import Strategy

MOST_THREADS = 4
"""More than this only wait for the interpreter between the operations on their chunks."""
LEAST_WORK = 2**17
"""Coordinates that are worth a thread: two threads draw less than half as fast again as one."""


class Source(Protocol):
    """Base normals that can be drawn again: entry i of `out` is coordinate start + i of a row."""

    @property
    def name(self) -> str: ...

    def fill_(self, out: Tensor, stream: int, row: int, start: int) -> Any: ...


@runtime_checkable
class Lender(Protocol):
    """A source that can draw into memory of its own, which spares a stream two buffers."""

    def draw(self, dtype: torch.dtype, stream: int, row: int, start: int, count: int) -> tuple[Any, Any]: ...


class NoiseStream:
    """The noise of the gradient stream, step by step: σ = 1 here, σ and units go into `scale`.

    `shapes`: the blocks, in the order in which they are given to `add_`. Coordinates are global: block by block from
    `offset`, or from one offset a block where `offset` is a list; a shard that says where its blocks lie in the whole
    of `total` coordinates draws what the whole would have drawn there. `stream` tells streams under one subkey apart:
    two streams of one run never share a number. `dtype` is the precision of draws, slots and sums (float32 or float64),
    whatever that of the blocks.

    Memory: `strategy.noise_vectors` vectors of the blocks' size in `dtype`, and on the CPU buffers of a fixed size for
    each thread: with one base row a step and float32 1.25 MiB, 1.65 MiB where rows are drawn ahead, 1.9 MiB
    each where there are several (`tests/noise` counts them).

    Guarantee: the noise of step t is a function of (source, stream, t, coordinate) alone, so a killed run that comes
    back with `load_state` or `rebuild` draws the same bits. It follows that a step must never be drawn twice for two
    different gradients: whoever repeats a step releases the same value or nothing.
    """

    def __init__(
        self,
        strategy: Strategy,
        source: Source,
        shapes: Sequence[int | Sequence[int]],
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        stream: int = 0,
        offset: int | Sequence[int] = 0,
        total: int | None = None,
        threads: int | None = None,
    ) -> None:
        if dtype not in (torch.float32, torch.float64):
            raise InputError(f"a noise stream of type {dtype} is not kept: give float32 or float64")
        self.strategy, self.source, self.dtype, self.device = strategy, source, dtype, torch.device(device)
        self.stream = whole("stream", stream, at_least=0, at_most=2**32 - 1)
        self.step = 0
        self._sizes = sizes_of(shapes)
        self._on_cpu = self.device.type == "cpu"
        self._add_up: Arithmetic = partial(add_up, np) if self._on_cpu else chacha.add_up
        starts, total_size = starts_of(self._sizes, offset, total), sum(self._sizes)
        if threads is None:
            threads = min(torch.get_num_threads(), MOST_THREADS, total_size // LEAST_WORK)
        else:
            threads = whole("threads", threads)
        threads = max(1, threads) if self._on_cpu else 1
        length = length_of(total_size, threads) if self._on_cpu else DEVICE_CHUNK
        self._chunks = chunks_of(self._sizes, starts, length)
        self._threads = max(1, min(threads, len(self._chunks)))
        self._slots = [torch.zeros(total_size, dtype=dtype, device=self.device) for _ in range(strategy.noise_vectors)]
        self._parts = {
            c.low: [self._operand(slot[c.low : c.low + c.size]) for slot in self._slots] for c in self._chunks
        }
        self._interrupted = False
        self._lender = source if self._on_cpu and isinstance(source, Lender) else None
        self._buffers = threading.local()
        self._pool: ThreadPoolExecutor | None = None
        self._ahead = (
            Ahead.of(strategy, source, self.stream, self._chunks[0], dtype)
            if self._on_cpu and len(self._chunks) == 1
            else None
        )

    def add_(self, blocks: Sequence[Tensor], scale: float) -> None:
        """blocks += scale · the noise of the next step."""
        scale = number("scale", scale)
        self._advance(blocks, scale)

    def next_(self, blocks: Sequence[Tensor]) -> None:
        """blocks = the noise of the next step, unit variance a base row."""
        self._advance(blocks, None)

    def state(self) -> dict[str, Tensor | int]:
        """The step and the slots themselves, not copies: write them out before the next step. Secret, all of it."""
        slots: dict[str, Tensor | int] = {f"slot_{i}": slot for i, slot in enumerate(self._slots)}
        return {"step": self.step, **slots}

    def load_state(self, state: Mapping[str, Tensor | int]) -> None:
        """Goes on from a state of a stream of the same make; copies what it needs."""
        names = {"step", *(f"slot_{i}" for i in range(len(self._slots)))}
        if set(state) != names:
            raise InputError(
                f"a noise state of {sorted(state)} does not fit a stream with {len(self._slots)} slots: give that of "
                "the same strategy, or rebuild(step)"
            )
        step = whole("step", state["step"], at_least=0, at_most=self.strategy.steps)
        for i, slot in enumerate(self._slots):
            saved = state[f"slot_{i}"]
            if not isinstance(saved, Tensor) or saved.shape != slot.shape or saved.dtype != slot.dtype:
                raise InputError(
                    f"slot_{i} of a noise state is not a vector of {slot.numel()} numbers of type {slot.dtype}: give "
                    "the state of the same blocks and precision, or rebuild(step)"
                )
        if self._ahead is not None:
            self._ahead.forget()
        for i, slot in enumerate(self._slots):
            slot.copy_(state[f"slot_{i}"])  # type: ignore[arg-type]
        self.step, self._interrupted = step, False

    def rebuild(self, step: int) -> None:
        """The state after `step` steps from the source alone: the bits that running would have left.

        Draws only the rows that a slot still depends on: about log₂ t for trees, the band for `bisr`, all since the
        last restart for `bsr` and `blt`. Chunk by chunk, so the slots are walked once.
        """
        step = whole("step", step, at_least=0, at_most=self.strategy.steps)
        programs = live(self.strategy, step)
        self._interrupted = True
        if self._ahead is not None:
            self._ahead.forget()
        for slot in self._slots:
            slot.zero_()

        def work(chunk: Chunk) -> None:
            for rows, instructed in programs:
                self._move(chunk, instructed, *self._drawn(chunk, rows, instructed))

        self._each(work)
        self.step, self._interrupted = step, False

    def _advance(self, blocks: Sequence[Tensor], scale: float | None) -> None:
        if self._interrupted:
            raise InputError(
                f"the noise stream was interrupted within step {self.step + 1}: drop that step's blocks and call "
                f"rebuild({self.step})"
            )
        if self.step >= self.strategy.steps:
            raise InputError(f"the strategy has {self.strategy.steps} steps and all are drawn: plan for more steps")
        self._check(blocks)
        flat, late = self._targets(blocks)
        self._interrupted = True
        coming = None if self._ahead is None else self._ahead.take(self.step + 1)
        if coming is None:
            instruction = self.strategy.instruction(self.step + 1)
            rows, instructed = instruction.fresh, lean(instruction)

        def work(chunk: Chunk) -> None:
            if coming is None:
                fresh, spare = self._drawn(chunk, rows, instructed)
                noise = self._move(chunk, instructed, fresh, spare)
            else:
                (spare,) = self._scratch(1, chunk.size)
                noise = self._move(chunk, *coming, spare)
            factor = 1.0 if scale is None else scale
            if self._on_cpu and factor != 1.0:  # one product for all blocks
                np.multiply(noise, factor, out=spare)
                noise, factor = spare, 1.0
            for block, low, high, at in chunk.segments:
                target, piece = flat[block][low:high], noise[at : at + high - low]
                if scale is None:
                    target[...] = piece
                else:
                    self._add_up(target, 1.0, [(piece, factor)], spare[: high - low])

        self._each(work)
        for block, drawn in late:
            shaped = drawn.view(block.shape)
            with torch.no_grad():
                block.copy_(shaped) if scale is None else block.add_(shaped)
        self.step, self._interrupted = self.step + 1, False

    def _drawn(self, chunk: Chunk, rows: Sequence[int], instructed: Lean) -> tuple[list[Any], Any]:
        """A chunk of the base rows of one step, nothing in the place of those that nobody reads; and a spare buffer.

        All of it is this thread's own and holds until its next call.
        """
        fresh: list[Any] = [None] * len(rows)
        if self._lender is not None and len(instructed.drawn) == 1:
            (i,) = instructed.drawn
            fresh[i], spare = self._lender.draw(self.dtype, self.stream, rows[i], chunk.start, chunk.size)
            return fresh, spare
        spare, *buffers = self._scratch(1 + len(instructed.drawn), chunk.size)
        for i, buffer in zip(instructed.drawn, buffers, strict=True):
            self.source.fill_(torch.from_numpy(buffer) if self._on_cpu else buffer, self.stream, rows[i], chunk.start)
            fresh[i] = buffer
        return fresh, spare

    def _move(self, chunk: Chunk, instructed: Lean, fresh: list[Any], spare: Any) -> Any:
        """One step of one chunk: the noise, which holds until this thread's next call."""
        if instructed.output_in_fresh is None:
            output = self._scratch(1, chunk.size, "output")[0]
        else:
            output = fresh[instructed.output_in_fresh]
        slots = self._parts[chunk.low]
        values = {"fresh": fresh, "slot": slots, "output": [output]}
        instructed.output.run(self._add_up, values, output, spare)
        for slot, total in instructed.store:
            total.run(self._add_up, values, slots[slot], spare)
        return output

    def _scratch(self, count: int, size: int, name: str = "rows") -> list[Any]:
        """So many operands of a chunk's size, this thread's own, made once when first asked for."""
        kept: list[Any] = self._buffers.__dict__.setdefault(name, [])
        while len(kept) < count:
            longest = max(c.size for c in self._chunks)
            kept.append(self._operand(torch.empty(longest, dtype=self.dtype, device=self.device)))
        return [buffer if len(buffer) == size else buffer[:size] for buffer in kept[:count]]

    def _operand(self, tensor: Tensor) -> Any:
        """What sums work on: numpy's view on the CPU, whose operations cost half of what torch's do to call."""
        return tensor.numpy() if self._on_cpu else tensor

    def _targets(self, blocks: Sequence[Tensor]) -> tuple[list[Any], list[tuple[Tensor, Tensor]]]:
        """Flat views of the blocks; where there is none, or of another type, a copy that is added at the end."""
        flat: list[Any] = []
        late: list[tuple[Tensor, Tensor]] = []
        for block in blocks:
            view = block.detach()
            if not view.is_contiguous() or view.dtype not in (torch.float32, torch.float64):
                view = torch.zeros(block.numel(), dtype=self.dtype, device=self.device)
                late.append((block, view))
            flat.append(self._operand(view).reshape(-1))
        return flat, late

    def _check(self, blocks: Sequence[Tensor]) -> None:
        if [b.numel() for b in blocks] != self._sizes:
            raise InputError(
                f"{len(blocks)} blocks of {sum(b.numel() for b in blocks)} numbers do not fit a stream made for "
                f"{len(self._sizes)} blocks of {sum(self._sizes)}: give the blocks whose shapes it was made with"
            )
        for block in blocks:
            if not block.is_floating_point() or block.device.type != self.device.type:
                raise InputError(
                    f"a block of type {block.dtype} on {block.device} cannot take noise: give floating-point blocks on "
                    f"{self.device}"
                )

    def _each(self, work: Any) -> None:
        """`work` on every chunk, by this thread and the pool's; each takes the next chunk that nobody has taken."""
        left = iter(self._chunks)

        def take(chunks: Iterator[Chunk]) -> None:
            for chunk in chunks:
                work(chunk)

        if self._threads == 1:
            take(left)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads - 1, thread_name_prefix="momentree-noise")
        others = [self._pool.submit(take, left) for _ in range(self._threads - 1)]
        try:
            take(left)
        finally:  # nobody may write to a slot after an interrupted step has been given up
            for _ in left:
                pass
            wait(others)
        for other in others:
            other.result()
