"""A physical batch, as the queries get it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor


class Piece(NamedTuple):
    """A physical batch on the model's device: `weights` is 1 for a row that counts and 0 for padding."""

    inputs: Any
    targets: Any
    weights: Tensor
    rows: Tensor
    seed: int = 0
    """Stands for the run and the step: randomness inside the forward pass is a function of it and of the row."""


Pieces = Iterable[Piece]
"""The step's physical batches, once from the start to the end."""
