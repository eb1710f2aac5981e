"""Batches of one static size: padded and masked, as many as it takes, never truncated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from momentree.errors import whole
from momentree.order.base import Indices

Mask = NDArray[np.float32]


def physical(indices: Indices, size: int) -> Iterator[tuple[Indices, Mask]]:
    """Cut a batch into pieces of `size` rows and a mask, 1 for a row and 0 for padding (which repeats row 0).

    At least one piece, so that an empty batch is a step like any other: it adds zero and its noise. What padding
    yields has to be replaced by zero, not multiplied by it: 0 · NaN is NaN.
    """
    size = whole("physical batch size", size)
    for start in range(0, max(1, len(indices)), size):
        piece = indices[start : start + size]
        padded = np.zeros(size, dtype=np.int64)
        padded[: len(piece)] = piece
        mask = np.zeros(size, dtype=np.float32)
        mask[: len(piece)] = 1.0
        yield padded, mask
