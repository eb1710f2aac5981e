"""sr-nsgd, the paper's Algorithm 2: three families, and Algorithm 4's reconstruction by a recursion one epoch back.

With a_q = w_{qn+1}, the iterate that opens epoch q, a step releases

    G: clip(∇f(a_q, x), C),   Δ: clip(∇f(a_q, x) - ∇f(a_{q-1}, x), ρC) from the second epoch on,
    r: clip(∇f(w_t, x) - ∇f(a_q, x), ρC),

G and Δ as nodes of a tree (their windows use right children too), r as a prefix stream. On the released sums, signal
and noise together, m̂_t = α (Ĝ_t + r̂_t) with Ĝ_t = β^n Ĝ_{t-n} + W_t, W_t = (1-γ)(Δ̂_t + W_{t-n}) + γ Ĝraw_t, hats
being windows of the last n steps; Ĝ_t is the raw prefix for t ≤ n, W_t the raw window for n < t ≤ 2n. That equals
Algorithm 4 at O(log n) vector operations a step, where the print needs O(q log T).

Guarantee: everything here is a function of released nodes. Kept are about 4n vectors and what `memory` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from momentree.training.needs import AnchoredQuery, Noise, Source
from momentree.training.pieces import Pieces
from momentree.training.releases.base import Scratch, State, buffers, private
from momentree.training.releases.nodes import NodeTree
from momentree.training.releases.store import Store


@dataclass(frozen=True)
class Scales:
    """Standard deviations of a family's noise on a sum over a batch: σ of the family · clip. By the end of the node."""

    gradient: Callable[[int], float]
    anchors: Callable[[int], float]
    iterate: float


STREAM_G, STREAM_DELTA, STREAM_R = 0, 1, 2


class Reduced:
    """The paper's Algorithm 2 on a fixed order. `r_noise` streams the tree of the third family (stream 2)."""

    momentum_included = True

    def __init__(
        self,
        query: AnchoredQuery,
        source: Source,
        r_noise: Noise,
        *,
        beta: float,
        leak: float,
        steps_per_epoch: int,
        batch_size: int,
        scales: Scales,
        store: Store,
    ) -> None:
        self.query = query
        self.r_noise = r_noise
        self.beta = beta
        self.leak = leak
        self.n = steps_per_epoch
        self.batch_size = batch_size
        self.scales = scales
        self.store = store
        self._parameters = list(query.parameters)
        self._g, self._delta, self._r = (buffers(self._parameters) for _ in range(3))
        self._draw = Scratch(self._parameters)
        self._anchor = buffers(self._parameters)
        self._anchor_before = buffers(self._parameters)
        self._r_hat = buffers(self._parameters)
        self._m_hat = buffers(self._parameters)
        b = batch_size
        self._G = NodeTree(
            "G", store, source, STREAM_G, beta=beta, steps_per_epoch=self.n, scale=lambda z: scales.gradient(z) / b
        )
        self._D = NodeTree(
            "D", store, source, STREAM_DELTA, beta=beta, steps_per_epoch=self.n,
            scale=lambda z: scales.anchors(z) / b, begins=self.n + 1,
        )  # fmt: skip

    @torch.no_grad()
    def ask_(self, step: int, pieces: Pieces) -> list[Tensor]:
        opens, later = (step - 1) % self.n == 0, step > self.n
        if opens:
            torch._foreach_copy_(self._anchor_before, self._anchor)
            torch._foreach_copy_(self._anchor, [p.detach() for p in self._parameters])
        with private(self._g, self._delta, self._r):
            for piece in pieces:
                self.query.add_anchored_(
                    self._g, self._delta if later else None, self._r, piece.inputs, piece.targets, piece.weights,
                    anchor=self._anchor, previous=self._anchor_before if later else None,
                    seed=piece.seed, rows=piece.rows,
                )  # fmt: skip
            torch._foreach_mul_(self._g, 1 / self.batch_size)
            self._G.noise_(self._g, 0, step, 1.0, self._draw)
            if later:
                torch._foreach_mul_(self._delta, 1 / self.batch_size)
                self._D.noise_(self._delta, 0, step, 1.0, self._draw)
            self.r_noise.add_(self._r, self.scales.iterate)
            torch._foreach_mul_(self._r, 1 / self.batch_size)
        torch._foreach_mul_(self._r_hat, self.beta)
        torch._foreach_add_(self._r_hat, self._r)
        # from here on the buffers hold released numbers, and serve as scratch
        self._G.release_(step, self._g, self._g, self._draw)
        if later:
            self._D.release_(step, self._delta, self._delta, self._draw)
        self._draw.flat.zero_()
        return self._reconstruct(step)

    def _reconstruct(self, t: int) -> list[Tensor]:
        """m̂_t from the nodes, one epoch back."""
        n, gamma = self.n, self.leak
        sums = self._m_hat
        torch._foreach_zero_(sums)
        if t <= n:
            self._G.window_(sums, 1, t, 1.0)
        else:
            if t <= 2 * n:
                self._G.window_(sums, t - n + 1, t, 1.0)
            else:
                torch._foreach_add_(sums, self.store.get("W", t - n), alpha=1 - gamma)
                self.store.forget("W", t - n)
                self._D.window_(sums, t - n + 1, t, 1 - gamma)
                self._G.window_(sums, t - n + 1, t, gamma)
            self.store.put("W", t, sums)
            torch._foreach_add_(sums, self.store.get("Ghat", t - n), alpha=self.beta**n)
            self.store.forget("Ghat", t - n)
        self.store.put("Ghat", t, sums)
        torch._foreach_add_(sums, self._r_hat)
        torch._foreach_mul_(sums, 1 - self.beta)
        return sums

    def shown(self) -> Sequence[Tensor]:
        return [*self._m_hat, *self._r_hat]

    def clear(self) -> None:
        for each in (self._g, self._delta, self._r):
            torch._foreach_zero_(each)
        self._draw.flat.zero_()

    def state(self) -> State:
        lists = {"anchor": self._anchor, "anchor_before": self._anchor_before, "r_hat": self._r_hat}
        own: State = {f"{name}-{i}": t for name, kept in lists.items() for i, t in enumerate(kept)}
        return {**own, **{f"store/{k}": v for k, v in self.store.state().items()}}

    def load_state(self, state: Mapping[str, Tensor | int | float], step: int) -> None:
        lists = {"anchor": self._anchor, "anchor_before": self._anchor_before, "r_hat": self._r_hat}
        for name, kept in lists.items():
            for i, tensor in enumerate(kept):
                tensor.copy_(torch.as_tensor(state[f"{name}-{i}"]))
        stored = {k.removeprefix("store/"): v for k, v in state.items() if k.startswith("store/")}
        self.store.load({k: v for k, v in stored.items() if isinstance(v, Tensor)})
        self.r_noise.rebuild(step)

    def settle(self) -> None:
        self.store.settle()
