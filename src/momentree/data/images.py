"""Public transforms of an image, each a function of that image alone.

`contrast` takes square roots of the intensities, subtracts the image's own mean and scales to norm 1. `edges` sums the
strength of the intensity's slope by direction (8 of them, shared between the two nearest) over squares of 4 by 4
pixels, takes square roots and scales to norm 1: histograms of oriented gradients (Dalal & Triggs 2005) without overlap.
Both serve private training because their rows are short of large common components, which a clipped gradient would
spend itself on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from momentree.data.schema import CELL, DIRECTIONS, Column

Features = NDArray[np.float32]
ROWS = 512
DUST = 1e-3


def transformed(pixels: Features, column: Column) -> Features:
    """Pixels in [-1, 1], one image a row, as the column's features."""
    if column.transform == "linear":
        return channels_first(pixels, column)
    out = np.empty((len(pixels), column.width), np.float32)
    step = contrast if column.transform == "contrast" else edges
    for start in range(0, len(pixels), ROWS):
        part = channels_first(pixels[start : start + ROWS], column)
        found = step(np.sqrt((part + 1) / 2), column)
        out[start : start + ROWS] = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), DUST)
    return out


def channels_first(pixels: Features, column: Column) -> Features:
    """(height, width, channels) as files have it, to (channels, height, width) as convolutions want it."""
    if column.kind != "image" or column.shape[2:] in ((), (1,)):
        return pixels
    height, width, channels = column.shape
    return pixels.reshape(-1, height, width, channels).transpose(0, 3, 1, 2).reshape(len(pixels), -1)


def contrast(intensity: Features, column: Column) -> Features:
    del column
    centred: Features = intensity - intensity.mean(axis=1, keepdims=True)
    return centred


def edges(intensity: Features, column: Column) -> Features:
    """(images, channels · directions · squares), the squares row by row; the border is padded with no edge."""
    height, width = column.shape[:2]
    picture = intensity.reshape(-1, height, width)
    across, down = np.zeros_like(picture), np.zeros_like(picture)
    across[:, :, 1:-1] = picture[:, :, 2:] - picture[:, :, :-2]
    down[:, 1:-1] = picture[:, 2:] - picture[:, :-2]
    strength = np.hypot(across, down)
    angle = np.arctan2(down, across) * np.float32(DIRECTIONS / (2 * np.pi))
    high, wide = -(-height // CELL), -(-width // CELL)
    padded = np.zeros((len(picture), high * CELL, wide * CELL), np.float32)
    out = np.empty((len(picture), DIRECTIONS, high, wide), np.float32)
    for direction in range(DIRECTIONS):
        apart = np.abs((angle - direction + DIRECTIONS / 2) % DIRECTIONS - DIRECTIONS / 2)
        padded[:, :height, :width] = strength * np.maximum(0, 1 - apart)
        out[:, direction] = padded.reshape(-1, high, CELL, wide, CELL).sum(axis=(2, 4))
    rooted: Features = np.sqrt(out).reshape(len(intensity), -1)
    return rooted
