"""Clipped differences of per-example gradients at two iterates: the query of the sensitivity-reduced methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from momentree.errors import InputError, number, one_of
from momentree.query.base import ADJACENCIES, Adjacency
from momentree.query.clipped import _matches, explained
from momentree.query.engine import (
    Clip,
    Engine,
    LossOfBatch,
    Pass,
    add_scaled_,
    blanked,
    keys_of,
    real_rows,
    scales,
    taken,
)
from momentree.query.layers.gradient import Gradient, add_both_, measured
from momentree.query.losses import Loss, leading
from momentree.query.norms import Memo, full_precision, margin
from momentree.query.probe import probe
from momentree.query.randomness import Rows
from momentree.query.unusable import passes

Part = Literal["gradient", "difference", "lagged"]
PARTS: tuple[Part, ...] = ("gradient", "difference", "lagged")


class ClippedDifferences:
    """Sums over a batch of clip(∇f(w, x) - ∇f(w', x), ρC), of clip(∇f(w, x), C), and of mixtures of the two.

    Guarantee: as for `ClippedGradients`, with C = `clip` for gradients, ρC for differences (ρ = `difference_clip`),
    and ((1-γ)ρ + γ)·C for the lagged query of leak γ. No smoothness is assumed: the clip is what bounds a difference.

    Differences of linear maps, convolutions, embeddings and normalisations are formed as δb·a₁ᵀ + b₂·δaᵀ, with the
    differences of layer inputs (δa) and of output gradients (δb) formed first, so a relative change of 1e-7 still has
    its norm right to 1e-5. Parameters that go through torch.func are subtracted entry by entry: what is added is what
    was measured, so the bound holds, but a very small change is float noise there.

    Randomness in the forward pass is the same at both iterates: it depends on `seed` and `rows` only. Other iterates
    are lists of tensors in the order of `parameters`; the model itself stands at w.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | None = None,
        *,
        loss_of_batch: LossOfBatch | None = None,
        clip: float,
        difference_clip: float,
        made_up: tuple[Any, Any] | None = None,
    ) -> None:
        self.clip = number("clip", clip, above=0, do="give the largest norm that one example's gradient may have")
        self.difference_clip = number("difference_clip", difference_clip, above=0, do="it is ρ, a fraction of clip")
        self._engine = Engine(model, loss, loss_of_batch)
        self._made_up = made_up
        self._checked = False
        narrow = any(p.dtype != torch.float64 for p in self._engine.parameters)
        self.level = self.clip / (1 + margin(torch.float32 if narrow else torch.float64))
        everything = [list(range(len(self.parameters)))]
        self._whole = Clip(everything, [self.level])
        self._change = Clip(everything, [self.difference_clip * self.level])

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, in the order of the sums."""
        return self._engine.parameters

    def check(self, inputs: Any, targets: Any = None) -> None:
        """As `ClippedGradients.check`."""
        probe(self._engine, inputs, targets, self._made_up)
        self._checked = True

    def add_gradients_(
        self,
        sums: Sequence[Tensor],
        inputs: Any,
        targets: Any = None,
        weights: Tensor | None = None,
        *,
        at: Sequence[Tensor] | None = None,
        seed: int = 0,
        rows: Tensor | None = None,
    ) -> None:
        """`sums += Σ_i clip(∇f(w, x_i), C)`, at `at` in place of w where it is given."""
        for run in self._runs(inputs, targets, weights, seed, rows, [at]):
            self._add(sums, run.gradients(0), self._whole, run)

    def add_differences_(
        self,
        sums: Sequence[Tensor],
        inputs: Any,
        targets: Any = None,
        weights: Tensor | None = None,
        *,
        other: Sequence[Tensor],
        at: Sequence[Tensor] | None = None,
        seed: int = 0,
        rows: Tensor | None = None,
    ) -> None:
        """`sums += Σ_i clip(∇f(w, x_i) - ∇f(w', x_i), ρC)` with w' = `other`, and `at` in place of w if given."""
        for run in self._runs(inputs, targets, weights, seed, rows, [at, other]):
            self._add(sums, run.differences(0, 1), self._change, run)

    def add_lagged_(
        self,
        sums: Sequence[Tensor],
        inputs: Any,
        targets: Any = None,
        weights: Tensor | None = None,
        *,
        lagged: Sequence[Tensor] | None,
        leak: float,
        seed: int = 0,
        rows: Tensor | None = None,
    ) -> None:
        """`sums += Σ_i (1-γ)·clip(∇f(w, x_i) - ∇f(w', x_i), ρC) + γ·clip(∇f(w, x_i), C)`, w' the lagged iterate.

        In the first epoch there is none: with `lagged=None` the query is clip(∇f(w, x), C), at full sensitivity.
        """
        if lagged is None:
            self.add_gradients_(sums, inputs, targets, weights, seed=seed, rows=rows)
            return
        number("leak", leak, at_least=0, at_most=1)
        for run in self._runs(inputs, targets, weights, seed, rows, [None, lagged]):
            if leak in (0, 1):
                found = run.differences(0, 1) if leak == 0 else run.gradients(0)
                self._add(sums, found, self._whole if leak else self._change, run)
                continue
            changes, gradients = run.differences(0, 1), run.gradients(0)
            memo = Memo()
            norms = [measured([*pair], memo, run.examples, run.device) for pair in zip(changes, gradients, strict=True)]
            (one,), good = scales([norm[0] for norm in norms], self._change, run.real, run.examples, run.device)
            (two,), fine = scales([norm[1] for norm in norms], self._whole, run.real, run.examples, run.device)
            good = (fine if good is None else good) if good is None or fine is None else good & fine
            one, two = (one * (1 - leak)).to(sums[0].dtype), (two * leak).to(sums[0].dtype)
            if good is not None:  # what is not finite at one of the iterates counts as zero altogether
                one, two = torch.where(good, one, 0.0), torch.where(good, two, 0.0)
            for total, change, gradient in zip(sums, changes, gradients, strict=True):
                add_both_(total, change, one, gradient, two, good)

    def add_anchored_(
        self,
        gradients: Sequence[Tensor],
        changes: Sequence[Tensor] | None,
        residuals: Sequence[Tensor],
        inputs: Any,
        targets: Any = None,
        weights: Tensor | None = None,
        *,
        anchor: Sequence[Tensor],
        previous: Sequence[Tensor] | None = None,
        seed: int = 0,
        rows: Tensor | None = None,
    ) -> None:
        """The three queries of the paper's second algorithm from three gradients an example, at w and two anchors.

        `gradients += Σ clip(∇f(anchor), C)`, `changes += Σ clip(∇f(anchor) - ∇f(previous), ρC)` unless it is None
        (the first epoch has no previous anchor), `residuals += Σ clip(∇f(w) - ∇f(anchor), ρC)`.
        """
        if (changes is None) != (previous is None):
            raise InputError("give the previous anchor and the sums of changes together, or neither of them")
        for run in self._runs(
            inputs, targets, weights, seed, rows, [None, anchor] + ([] if previous is None else [previous])
        ):
            self._add(residuals, run.differences(0, 1), self._change, run)
            if changes is not None:
                self._add(changes, run.differences(1, 2), self._change, run)
            self._add(gradients, run.gradients(1), self._whole, run)

    def sensitivity(self, adjacency: Adjacency, part: Part = "lagged", leak: float = 0.0) -> float:
        """How far one example moves a sum: of gradients, of differences, or of the lagged query with this leak."""
        one_of("adjacency", adjacency, ADJACENCIES)
        one_of("part", part, PARTS)
        number("leak", leak, at_least=0, at_most=1)
        bound = {
            "gradient": self.clip,
            "difference": self.difference_clip * self.clip,
            "lagged": ((1 - leak) * self.difference_clip + leak) * self.clip,
        }[part]
        return 2 * bound if adjacency == "replace-one" else bound

    def explain(self) -> dict[str, object]:
        """Which parameters are book-kept and which go through torch.func, and why."""
        return {
            "clip": self.clip,
            "difference clip": self.difference_clip,
            "clipped to": self.level,
            **explained(self._engine, self._checked),
        }

    def _runs(
        self,
        inputs: Any,
        targets: Any,
        weights: Tensor | None,
        seed: int,
        rows: Tensor | None,
        points: list[Sequence[Tensor] | None],
    ) -> list[_Run] | Any:
        """The passes at all points, part by part of the batch."""
        if not self._checked:
            self.check(inputs, targets)
        for point in points:
            if point is not None:
                _matches(point, self.parameters)
        examples, device = leading(inputs, targets)
        engine, real = self._engine, real_rows(weights, device)
        inputs, targets = blanked((inputs, targets), real)
        keys = Rows(seed, rows, examples, device).keys
        for part in engine.parts(examples, len(points)):
            batch, labels = taken((inputs, targets), part, examples)
            count = part.stop - part.start
            own = keys if count == examples else keys_of(keys, part)
            found, counts = passes(engine, batch, labels, count, own, points, None if real is None else real[part])
            if found:
                with torch.no_grad(), full_precision(device):
                    yield _Run(engine, found, counts, count, device)

    def _add(self, sums: Sequence[Tensor], found: list[Gradient], clip: Clip, run: _Run) -> None:
        _matches(sums, self.parameters)
        memo = Memo()
        norms = [gradient.squares(memo, run.examples, run.device) for gradient in found]
        factor, good = scales(norms, clip, run.real, run.examples, run.device)
        add_scaled_(sums, found, clip, factor, good)


class _Run:
    """The passes of one part of a batch at several iterates."""

    def __init__(
        self, engine: Engine, passes: list[Pass], real: Tensor | None, examples: int, device: torch.device
    ) -> None:
        self._engine, self._passes = engine, passes
        self.real, self.examples, self.device = real, examples, device

    def gradients(self, at: int) -> list[Gradient]:
        return self._engine.gradients(self._passes[at])

    def differences(self, at: int, other: int) -> list[Gradient]:
        return self._engine.differences(self._passes[at], self._passes[other])
