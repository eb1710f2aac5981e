"""One gradient a step, one noise stream: dp-nsgd (Algorithm 1), dp-sgd, dp-gd, dp-ftrl, rrsgd.

Released at step t is ĝ_t = (Σ clip(∇f(w_t, x), C) + σ·C·(C⁺z)_t) / B, with the public batch size B, short and random
batches too. Everything after it is post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from momentree.training.needs import GradientQuery, Noise
from momentree.training.pieces import Pieces
from momentree.training.releases.base import State, buffers, private


class Single:
    """`noise_scale` is σ · clip: the noise is added to sums, before the division."""

    momentum_included = False

    def __init__(self, query: GradientQuery, noise: Noise, *, noise_scale: float, batch_size: int) -> None:
        self.query = query
        self.noise = noise
        self.noise_scale = noise_scale
        self.batch_size = batch_size
        self._sums = buffers(query.parameters)

    def ask_(self, step: int, pieces: Pieces) -> list[Tensor]:
        with private(self._sums):
            for piece in pieces:
                self.query.add_(
                    self._sums, piece.inputs, piece.targets, piece.weights, seed=piece.seed, rows=piece.rows
                )
            self.noise.add_(self._sums, self.noise_scale)
        torch._foreach_mul_(self._sums, 1 / self.batch_size)
        return self._sums

    def shown(self) -> Sequence[Tensor]:
        return self._sums

    def clear(self) -> None:
        torch._foreach_zero_(self._sums)

    def state(self) -> State:
        return {}

    def load_state(self, state: Mapping[str, Tensor | int | float], step: int) -> None:
        self.noise.rebuild(step)

    def settle(self) -> None:
        return None
