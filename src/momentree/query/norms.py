"""Norms of per-example gradients, and the factor that bounds each of them: where rounding must err on the private side.

Why a contribution never exceeds the clip, for float32 numbers (half types are widened first):

- A sum of m squares, taken in any order, is off by at most a factor 1 ± m·2⁻²⁴. Chains here have at most `BLOCK` terms;
  blocks are then added in float64. So each norm is right to BLOCK·2⁻²⁵ = 1.2e-4 at the very worst, and the product of
  two (an outer product's norm) to 2.5e-4. Sequential float32 sums are off by 20% at 5·10⁷ equal entries; these are not.
- Squares that underflow are paid for by adding the smallest normal number once a term, so a norm is never too small
  because its entries are tiny. Squares that overflow give infinity, and such an example counts as zero.
- Where an example's gradient is a sum over places (tokens, pixels), it is either multiplied out, each entry a float32
  sum over at most `BLOCK` places at a time, or its norm is found from Gram matrices in float64.
- tf32 and other reduced products are off while any of this is computed.

Clipping is to `clip / (1 + margin)` with a margin of 1e-3 for everything that is not float64: four times the worst case
above. The published clip is thereby a bound in real arithmetic on what an example adds, given the layer inputs and
output gradients as they stand in memory. The one thing outside the bound is a gradient whose places cancel each other
by more than a factor of about a thousand: it is float noise in plain training too.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

BLOCK = 4096
_SMALLEST = {kind: torch.finfo(kind).tiny for kind in (torch.float32, torch.float64)}
AUTOMATIC = 0.01
"""γ of automatic clipping: an example is scaled by clip / (norm + γ) (Bu, Wang, Zha, Karypis 2023)."""

Memo = dict[int, tuple[Any, Tensor]]
"""Tensors (or what forms them) that several layers share, by id, with their sums of squares; held, so that ids last."""


def margin(dtype: torch.dtype) -> float:
    """How far below the clip contributions are kept, so that rounding cannot lift one above it."""
    return 1e-9 if dtype == torch.float64 else 1e-3


def wide(x: Tensor) -> Tensor:
    """`x` in a type whose products may be added up: half types as float32, the others as they are."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def squares(x: Tensor, memo: Memo | None = None) -> Tensor:
    """‖x_i‖² for every example i (the first dimension) in float64, never too small by more than the docstring says."""
    if memo is not None and id(x) in memo:
        return memo[id(x)][1]
    rows = x.shape[0]
    flat = x if x.dim() == 2 else x.reshape(rows, -1)
    size = flat.shape[1]
    kind = torch.float64 if x.dtype == torch.float64 else torch.float32
    if size <= BLOCK:
        total: Tensor = torch.linalg.vector_norm(flat, 2, 1, dtype=kind).double().square_()
    else:
        whole = size - size % BLOCK
        parts = flat[:, :whole].view(rows, -1, BLOCK)
        total = torch.linalg.vector_norm(parts, dim=2, dtype=kind).double().square_().sum(1)
        if whole < size:
            total += torch.linalg.vector_norm(flat[:, whole:], dim=1, dtype=kind).double().square_()
    total += size * _SMALLEST[kind]
    if memo is not None:
        memo[id(x)] = x, total
    return total


def factors(norm_squares: Tensor, level: float, automatic: bool, counts: Tensor | None) -> Tensor:
    """What each example's gradient is multiplied by; exactly zero for those that do not count.

    `counts` may only be None where every norm is known to be finite. `min(1, level / norm)` must not be used in its
    place: it is 1 where the norm is NaN.
    """
    if automatic:
        scale = level / (norm_squares.sqrt() + AUTOMATIC)
    else:
        scale = norm_squares.clamp(min=level * level).rsqrt_().mul_(level)
    return scale if counts is None else torch.where(counts, scale, torch.zeros_like(scale))


def finite(norm_squares: Tensor) -> bool:
    """Whether all of them are, on a CPU: a sum of non-negative float64 numbers of this size cannot overflow."""
    return math.isfinite(float(norm_squares.sum()))


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Float32 products are float32 products inside: no tf32, no bf16 passes, no autocast around it."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return _outside_autocast(device)
    return _full_precision(device)


@contextlib.contextmanager
def _outside_autocast(device: torch.device) -> Iterator[None]:
    with torch.autocast(device.type, enabled=False), _full_precision(device):
        yield


_BACKENDS: dict[bool, list[Any]] = {
    cuda: [
        getattr(torch.backends.cuda if cuda else torch.backends.mkldnn, "matmul", None),
        getattr(torch.backends.cudnn if cuda else torch.backends.mkldnn, "conv", None),
    ]
    for cuda in (False, True)
}
"""What carries the switch for the precision of float32 products: on CUDA, and elsewhere."""
_SWITCHES = all(hasattr(backend, "fp32_precision") for pair in _BACKENDS.values() for backend in pair)
_FULL = ("none", "ieee")


def _full_precision(device: torch.device) -> contextlib.AbstractContextManager[None]:
    backends = _BACKENDS[device.type == "cuda"]
    if not _SWITCHES:
        return _highest()
    if backends[0].fp32_precision in _FULL and backends[1].fp32_precision in _FULL:
        return contextlib.nullcontext()
    return _ieee(backends)


@contextlib.contextmanager
def _ieee(backends: list[Any]) -> Iterator[None]:
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision


@contextlib.contextmanager
def _highest() -> Iterator[None]:
    """The same with the switches of torch before 2.9."""
    before, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = cudnn


def chunk(examples: int, bytes_per_example: int, device: torch.device) -> int:
    """How many examples to work on at once: what stays in a CPU's cache, or what is little on a GPU."""
    room = 2 << 20 if device.type == "cpu" else 256 << 20
    return max(1, min(examples, room // max(1, bytes_per_example)))
