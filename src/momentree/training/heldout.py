"""Losses on rows outside the private ones. Held-out rows are people too: the user has to say what they are.

`public`: anyone may know them. `unprotected`: people whose rows the figures may give away; the certificate says so.
A figure on the private rows is not offered at all: it would be another release, and nothing was charged for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from momentree.errors import InputError, one_of
from momentree.query.losses import per_example
from momentree.training.data import Rows, mapped

DECLARATIONS = ("public", "unprotected")


class HeldOut:
    """Declared rows, and the mean loss (and accuracy, where outputs are class scores) on them."""

    def __init__(self, dataset: Any, declared: str | None, *, device: torch.device, paired: bool) -> None:
        if declared is None:
            raise InputError(
                "held-out rows without held_out_is: say 'public', or 'unprotected' if they are people whom the figures "
                "may give away"
            )
        self.declared = one_of("held_out_is", declared, DECLARATIONS)
        self.rows = Rows(dataset, seed=0, workers=0, device=device, paired=paired)

    def describe(self) -> str:
        """For the certificate."""
        what = "public" if self.declared == "public" else "not protected: figures on them are shown without noise"
        return f"{len(self.rows)} rows outside the private ones, {what}"

    @torch.no_grad()
    def measure(self, model: nn.Module, loss: Any, loss_of_batch: Any, *, size: int = 512) -> dict[str, float]:
        """Mean loss a usable row, in evaluation mode; the mode is put back."""
        before = [(module, module.training) for module in model.modules()]
        model.eval()
        total, right, counted, scored = 0.0, 0, 0, True
        try:
            for start in range(0, len(self.rows), size):
                chosen = np.arange(start, min(start + size, len(self.rows)), dtype=np.int64)
                for piece in self.rows.pieces(0, chosen, len(chosen)):
                    usable = piece.weights > 0
                    many = int(usable.sum())
                    if not many:
                        continue
                    inputs = mapped(piece.inputs, lambda t, keep=usable: t[keep])
                    if loss_of_batch is not None:
                        value, scored = loss_of_batch(model, inputs), False
                    else:
                        targets = mapped(piece.targets, lambda t, keep=usable: t[keep])
                        output = model(inputs)
                        value = per_example(loss)[0](output, targets)
                        scored = scored and classes(output, targets)
                        right += int((output.argmax(1) == targets).sum()) if scored else 0
                    counted += many
                    total += float(value.mean()) * many
        finally:
            for module, training in before:
                module.training = training
        if not counted:
            raise InputError("none of the held-out rows can be used: look with momentree schema check")
        return {"loss": total / counted, **({"accuracy": right / counted} if scored else {})}


def classes(output: Any, targets: Any) -> bool:
    """Whether outputs are scores of classes and targets are class numbers."""
    return (
        isinstance(output, Tensor)
        and isinstance(targets, Tensor)
        and output.dim() == 2
        and output.shape[1] > 1
        and targets.dim() == 1
        and not targets.is_floating_point()
    )
