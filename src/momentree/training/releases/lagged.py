"""One stream of gradients and differences: epoch-lag, dp-srm (STORM), dp-spider.

With lag ℓ (n steps for epoch-lag, 1 for the others), leak γ and difference clip ρ, a step asks

    v_t = γ · clip(∇f(w_t, x), C) + (1-γ) · clip(∇f(w_t, x) - ∇f(w_{t-ℓ}, x), ρC),

or v_t = clip(∇f(w_t, x), C) where it starts afresh (the first ℓ steps; every period for dp-spider), releases v̂_t with
the noise of its stream, and goes on with u_t = v̂_t + (1-γ) u_{t-ℓ}, u_t = v̂_t where it starts afresh.

Guarantee: u is made of released numbers only. While no clip binds its signal is a plain average of gradients, but it is
never taken from there: once a clip of a difference binds, that would be no post-processing any more. A step is as
sensitive as the account took it for: 1 where it starts afresh, γ + (1-γ)ρ elsewhere, in units of clip / batch_size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from momentree.training.needs import LaggedQuery, Noise
from momentree.training.pieces import Pieces
from momentree.training.releases.base import State, buffers, private
from momentree.training.releases.store import Store


class Lagged:
    """`fresh(t)`: whether step t starts afresh. `noise_scale(t)`: σ · clip of its noise, added to sums."""

    momentum_included = False

    def __init__(
        self,
        query: LaggedQuery,
        noise: Noise,
        *,
        lag: int,
        leak: float,
        fresh: Callable[[int], bool],
        noise_scale: Callable[[int], float],
        batch_size: int,
        store: Store,
    ) -> None:
        self.query = query
        self.noise = noise
        self.lag = lag
        self.leak = leak
        self.fresh = fresh
        self.noise_scale = noise_scale
        self.batch_size = batch_size
        self.store = store
        self._parameters = list(query.parameters)
        self._sums = buffers(self._parameters)

    def ask_(self, step: int, pieces: Pieces) -> list[Tensor]:
        fresh, back = self.fresh(step), step - self.lag
        lagged = None if fresh else self.store.get("w", back)
        with private(self._sums):
            for piece in pieces:
                self.query.add_lagged_(
                    self._sums, piece.inputs, piece.targets, piece.weights, lagged=lagged, leak=self.leak,
                    seed=piece.seed, rows=piece.rows,
                )  # fmt: skip
            self.noise.add_(self._sums, self.noise_scale(step))
        torch._foreach_mul_(self._sums, 1 / self.batch_size)
        if not fresh:
            torch._foreach_add_(self._sums, self.store.get("u", back), alpha=1 - self.leak)
        self.store.forget("w", back)
        self.store.forget("u", back)
        self.store.put("w", step, self._parameters)
        self.store.put("u", step, self._sums)
        return self._sums

    def shown(self) -> Sequence[Tensor]:
        return self._sums

    def clear(self) -> None:
        torch._foreach_zero_(self._sums)

    def state(self) -> State:
        return dict(self.store.state())

    def load_state(self, state: Mapping[str, Tensor | int | float], step: int) -> None:
        self.store.load({k: v for k, v in state.items() if isinstance(v, Tensor)})
        self.noise.rebuild(step)

    def settle(self) -> None:
        self.store.settle()
