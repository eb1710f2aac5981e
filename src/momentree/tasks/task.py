"""What a schema's target asks of a model: how many outputs, which loss, and how an output is read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from momentree.data.schema import Schema
from momentree.errors import InputError

Loss = Callable[[Any, Any], torch.Tensor]


@dataclass(frozen=True)
class Task:
    """`kind`: `classes` (one of several), `labels` (several yes-or-no), `bounded` (a number within declared bounds)."""

    kind: str
    classes: tuple[str, ...] = ()
    bounds: tuple[float, float] = (-1.0, 1.0)
    class_weights: tuple[float, ...] = ()

    @staticmethod
    def of(schema: Schema, class_weights: tuple[float, ...] = ()) -> Task:
        """The task of a schema. Class weights are public numbers: they are declared, never counted from the rows."""
        low, high = schema.targets[0].bounds if schema.task == "bounded" else (-1.0, 1.0)
        if class_weights and (schema.task != "classes" or len(class_weights) != len(schema.classes)):
            count = len(schema.classes) if schema.task == "classes" else 0
            raise InputError(f"class-weights has {len(class_weights)} numbers: give {count}, one a declared class")
        return Task(schema.task, schema.classes, (low, high), class_weights)

    @property
    def outputs(self) -> int:
        return 1 if self.kind == "bounded" else len(self.classes)

    def loss(self) -> Loss:
        """Of one example or of a batch; the engine evaluates it example by example."""
        if self.kind == "classes":
            if not self.class_weights:
                return F.cross_entropy
            weight = torch.tensor(self.class_weights)
            return functools.partial(F.cross_entropy, weight=weight, reduction="sum")
        if self.kind == "labels":
            return functools.partial(F.binary_cross_entropy_with_logits, reduction="sum")
        return _half_square

    def scores(self, output: torch.Tensor) -> NDArray[np.float64]:
        """Class or label probabilities (B, K); for a bounded target the number itself, in its own units (B,)."""
        if self.kind == "classes":
            return torch.softmax(output.double(), 1).cpu().numpy()
        if self.kind == "labels":
            return torch.sigmoid(output.double()).cpu().numpy()
        low, high = self.bounds
        scaled = output.double().reshape(-1).clamp(-1, 1).cpu().numpy()
        return np.asarray(low + (scaled + 1) / 2 * (high - low))


def _half_square(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """½(output − target)², target within [−1, 1]; its gradient is the difference itself."""
    return 0.5 * (output.reshape(target.shape) - target).square().mean()
