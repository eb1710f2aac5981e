"""Layers whose per-example gradients come from what a forward and a backward pass have in hand anyway."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from momentree.query.layers.convolution import convolution
from momentree.query.layers.elementwise import added, expanded, multiplied
from momentree.query.layers.embedding import embedding
from momentree.query.layers.linear import linear, product
from momentree.query.layers.normalisation import group_norm, layer_norm, rms_norm

RECORDERS: dict[Any, Any] = {
    F.linear: linear,
    torch.matmul: product,
    torch.mm: product,
    torch.Tensor.matmul: product,
    torch.Tensor.mm: product,
    torch.Tensor.__matmul__: product,
    F.embedding: embedding,
    F.layer_norm: layer_norm,
    F.rms_norm: rms_norm,
    F.group_norm: group_norm,
    F.conv1d: convolution,
    F.conv2d: convolution,
    F.conv3d: convolution,
    torch.add: added,
    torch.Tensor.add: added,
    torch.Tensor.__add__: added,
    torch.Tensor.__radd__: added,
    torch.Tensor.expand: expanded,
    torch.Tensor.repeat: expanded,
    torch.mul: multiplied,
    torch.Tensor.mul: multiplied,
    torch.Tensor.__mul__: multiplied,
    torch.Tensor.__rmul__: multiplied,
}
"""Torch function → what records a use of parameters by it: `recorder(capture, output, *args, **kwargs)`."""
