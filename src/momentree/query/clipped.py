"""The clipped sum of a batch's per-example gradients: the query of DP-SGD and of the paper's first algorithm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from momentree.errors import InputError, number, one_of
from momentree.query.base import ADJACENCIES, Adjacency
from momentree.query.engine import Clip, Engine, LossOfBatch, add_scaled_, blanked, keys_of, real_rows, scales, taken
from momentree.query.losses import Loss, leading
from momentree.query.norms import Memo, full_precision, margin
from momentree.query.probe import probe
from momentree.query.randomness import Rows
from momentree.query.unusable import passes

Mode = Literal["flat", "per-layer", "automatic"]
MODES: tuple[Mode, ...] = ("flat", "per-layer", "automatic")


class ClippedGradients:
    """Σ_i w_i · clip(∇ℓ_i) over a batch, by one forward and one backward pass.

    Guarantee: what one example adds to the sum has norm at most `clip`, in real arithmetic, whatever its data
    (`momentree.query.norms` argues the rounding). So the sum moves by at most `clip` when an example is zeroed out,
    added or removed, and by at most `2·clip` when one is replaced by another. Rows with weight 0 add exactly nothing,
    and neither do examples whose gradient is not finite, or on which the model or its loss fails (`unusable.py`).
    Public: the shapes of a batch, the clip. Never divided by anything here: the sum is for the caller to divide by the
    public batch size.

    `mode`: `flat` scales an example's whole gradient to at most the clip. `per-layer` clips each of K layers to
    `clip/√K`. `automatic` scales every gradient by `clip / (norm + 0.01)` (AUTO-S).

    `loss(output, target)`: the loss of an example is its value on a batch of that example alone. `loss_of_batch`:
    `loss(model, batch)`, evaluated for one example at a time by `torch.func`, with `batch` as a pair (inputs, targets)
    or, without targets, as what was given for inputs.

    The model is the caller's own, neither wrapped nor changed; `.grad` is left alone. Sums are not bit-reproducible on
    a GPU unless torch.use_deterministic_algorithms is on (embedding tables are added up with atomics there).
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | None = None,
        *,
        loss_of_batch: LossOfBatch | None = None,
        clip: float,
        mode: Mode = "flat",
        made_up: tuple[Any, Any] | None = None,
    ) -> None:
        self.clip = number("clip", clip, above=0, do="give the largest norm that one example's gradient may have")
        one_of("clipping mode", mode, MODES)
        self.mode = mode
        self._engine = Engine(model, loss, loss_of_batch)
        self._made_up = made_up
        self._checked = False
        narrow = any(p.dtype != torch.float64 for p in self._engine.parameters)
        self.level = self.clip / (1 + margin(torch.float32 if narrow else torch.float64))
        everything = [list(range(len(self.parameters)))]
        groups = self._layers() if mode == "per-layer" else everything
        self._clip = Clip(groups, [self.level / math.sqrt(len(groups))] * len(groups), mode == "automatic")

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, in the order of the sums."""
        return self._engine.parameters

    def _layers(self) -> list[list[int]]:
        layers: dict[str, list[int]] = {}
        for i, name in enumerate(self._engine.names):
            layers.setdefault(name.rpartition(".")[0], []).append(i)
        return list(layers.values())

    def check(self, inputs: Any, targets: Any = None) -> None:
        """Refuses a model or a loss that mixes examples, on made-up values of the shapes given. Values are not read.

        `add_` does this before it first looks at a batch; calling it beforehand makes errors come early.
        """
        probe(self._engine, inputs, targets, self._made_up)
        self._checked = True

    def add_(
        self,
        sums: Sequence[Tensor],
        inputs: Any,
        targets: Any = None,
        weights: Tensor | None = None,
        *,
        seed: int = 0,
        rows: Tensor | None = None,
    ) -> None:
        """`sums[k] += Σ_i weights_i · clip(∇ℓ_i)_k` for a batch, or any part of one.

        `weights` is 0 for rows that only fill the batch up. `seed` stands for the run and the step, `rows` for the
        examples (their indices in the data): dropout is drawn from these and from nothing else.
        """
        if not self._checked:
            self.check(inputs, targets)
        examples, device = leading(inputs, targets)
        _matches(sums, self.parameters)
        engine, real = self._engine, real_rows(weights, device)
        inputs, targets = blanked((inputs, targets), real)
        keys = Rows(seed, rows, examples, device).keys
        for part in engine.parts(examples):
            batch, labels = taken((inputs, targets), part, examples)
            count = part.stop - part.start
            own = keys if count == examples else keys_of(keys, part)
            found, counts = passes(engine, batch, labels, count, own, [None], None if real is None else real[part])
            if not found:
                continue
            with torch.no_grad(), full_precision(device):
                gradients, memo = engine.gradients(found[0]), Memo()
                norms = [gradient.squares(memo, count, device) for gradient in gradients]
                factor, good = scales(norms, self._clip, counts, count, device)
                add_scaled_(sums, gradients, self._clip, factor, good)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """How far one example moves the sum, in its own units."""
        one_of("adjacency", adjacency, ADJACENCIES)
        return 2 * self.clip if adjacency == "replace-one" else self.clip

    def explain(self) -> dict[str, object]:
        """Which parameters are book-kept and which go through torch.func, and why; complete once a batch was seen."""
        return {
            "mode": self.mode,
            "clip": self.clip,
            "clipped to": self.level,
            **explained(self._engine, self._checked),
        }


def explained(engine: Engine, checked: bool) -> dict[str, object]:
    """The public facts about how each parameter's per-example gradients are had."""
    others = {engine.names[i]: reason for i, reason in sorted(engine.others.items())}
    return {
        "checked": checked,
        "book-kept": [name for name in engine.names if name not in others],
        "torch.func": others,
        "one by one": engine.one_by_one,
    }


def _matches(sums: Sequence[Tensor], parameters: Sequence[Tensor]) -> None:
    if len(sums) != len(parameters) or any(map(_differ, sums, parameters)):
        raise InputError("the sums do not fit the parameters: give one tensor of its shape for each trainable one")


def _differ(one: Tensor, two: Tensor) -> bool:
    return one.shape != two.shape
