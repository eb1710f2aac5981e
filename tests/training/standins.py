"""Slow stand-ins in float64: per-example queries by autograd, one example at a time, and an executor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from momentree.strategy.base import Strategy
from momentree.training.pieces import Piece


class TableSource:
    """Draws that are a plain function of (stream, row): what a test can look up again."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def draw(self, stream: int, row: int, count: int) -> np.ndarray:
        return np.random.default_rng([self.seed, stream, row]).standard_normal(count)

    def fill_(self, out: Tensor, stream: int, row: int, start: int) -> None:
        drawn = self.draw(stream, row, start + out.numel())[start:]
        out.copy_(torch.from_numpy(drawn).reshape(out.shape).to(out.dtype))


class Executor:
    """Runs a strategy's instructions on whole vectors."""

    def __init__(self, strategy: Strategy, source: Any, dimension: int, stream: int = 0) -> None:
        self.strategy, self.source, self.d, self.stream = strategy, source, dimension, stream
        self.rebuild(0)

    def rebuild(self, step: int) -> None:
        self.step = 0
        self.slots = [torch.zeros(self.d, dtype=torch.float64) for _ in range(self.strategy.noise_vectors)]
        for _ in range(step):
            self._next()

    def _next(self) -> Tensor:
        self.step += 1
        instruction = self.strategy.instruction(self.step)
        fresh = [torch.empty(self.d, dtype=torch.float64) for _ in instruction.fresh]
        for out, row in zip(fresh, instruction.fresh, strict=True):
            self.source.fill_(out, self.stream, row, 0)
        zero = torch.zeros(self.d, dtype=torch.float64)
        output = zero.clone()
        for what, i, c in instruction.output:
            output += c * {"fresh": fresh, "slot": self.slots}[what][i]
        for target, terms in instruction.store:
            sources = {"fresh": fresh, "slot": self.slots, "output": [output]}
            self.slots[target] = sum((c * sources[what][i] for what, i, c in terms), zero.clone())
        return output

    def add_(self, blocks: Sequence[Tensor], scale: float) -> None:
        noise, start = self._next(), 0
        for block in blocks:
            block += scale * noise[start : start + block.numel()].reshape(block.shape)
            start += block.numel()


class Slow:
    """Per-example gradients, one backward pass an example, clipped one by one."""

    def __init__(self, model: nn.Module, loss: Any, clip: float | None, difference_clip: float | None = None) -> None:
        self.model, self.loss = model, loss
        self.clip, self.difference_clip = clip, difference_clip
        self.parameters = [p for p in model.parameters() if p.requires_grad]

    def gradient(self, x: Tensor, y: Tensor) -> list[Tensor]:
        value = self.loss(self.model(x[None]), y[None]).sum()
        return list(torch.autograd.grad(value, self.parameters))

    def at(self, weights: Sequence[Tensor] | None, x: Tensor, y: Tensor) -> list[Tensor]:
        """∇f at other weights."""
        if weights is None:
            return self.gradient(x, y)
        here = [p.data for p in self.parameters]
        for p, w in zip(self.parameters, weights, strict=True):
            p.data = w
        found = self.gradient(x, y)
        for p, w in zip(self.parameters, here, strict=True):
            p.data = w
        return found

    def clipped_(self, sums: Sequence[Tensor], g: list[Tensor], level: float | None, factor: float = 1.0) -> None:
        norm = float(torch.cat([t.reshape(-1) for t in g]).norm())
        factor *= 1.0 if level is None or norm <= level else level / norm
        for total, part in zip(sums, g, strict=True):
            total.add_(part.detach(), alpha=factor)

    def rows(self, inputs: Tensor, targets: Tensor, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
        return [(x, y) for x, y, w in zip(inputs, targets, weights, strict=True) if w != 0]

    @torch.enable_grad()
    def add_(self, sums: Sequence[Tensor], inputs: Any, targets: Any, weights: Any, **_: Any) -> None:
        for x, y in self.rows(inputs, targets, weights):
            self.clipped_(sums, self.gradient(x, y), self.clip)

    @torch.enable_grad()
    def add_lagged_(
        self, sums: Any, inputs: Any, targets: Any, weights: Any, *, lagged: Any, leak: float, **_: Any
    ) -> None:
        for x, y in self.rows(inputs, targets, weights):
            g = self.gradient(x, y)
            if lagged is None:
                self.clipped_(sums, g, self.clip)
            else:
                self.clipped_(sums, g, self.clip, leak)
                change = [a - b for a, b in zip(g, self.at(lagged, x, y), strict=True)]
                self.clipped_(sums, change, self.difference_clip, 1 - leak)

    @torch.enable_grad()
    def add_anchored_(
        self, gradients: Any, changes: Any, residuals: Any, inputs: Any, targets: Any, weights: Any,
        *, anchor: Any, previous: Any, **_: Any,
    ) -> None:  # fmt: skip
        for x, y in self.rows(inputs, targets, weights):
            g, g_anchor = self.gradient(x, y), self.at(anchor, x, y)
            self.clipped_(gradients, g_anchor, self.clip)
            self.clipped_(residuals, [a - b for a, b in zip(g, g_anchor, strict=True)], self.difference_clip)
            if changes is not None:
                change = [a - b for a, b in zip(g_anchor, self.at(previous, x, y), strict=True)]
                self.clipped_(changes, change, self.difference_clip)


def flat(tensors: Sequence[Tensor]) -> np.ndarray:
    return torch.cat([t.detach().double().reshape(-1) for t in tensors]).numpy().copy()


def small_model(seed: int = 0, inputs: int = 4) -> nn.Module:
    """A small net with a bend in it, so that gradients move with the weights."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 3), nn.Tanh(), nn.Linear(3, 1)).double()


def squared(output: Tensor, target: Tensor) -> Tensor:
    return (output.squeeze(-1) - target).square()


def small_data(examples: int, seed: int = 1, inputs: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(examples, inputs, generator=generator, dtype=torch.float64)
    return x, torch.randn(examples, generator=generator, dtype=torch.float64)


def piece_of(x: Tensor, y: Tensor, rows: np.ndarray) -> Piece:
    chosen = torch.tensor(np.asarray(rows), dtype=torch.int64)
    return Piece(x[chosen], y[chosen], torch.ones(len(chosen)), chosen)
