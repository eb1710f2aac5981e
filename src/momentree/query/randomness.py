"""Dropout as a function of (seed, step, row): drawn again on replay, apart for each example, alike at two iterates.

Torch's own dropout takes its mask from a global generator, so it differs when a step is computed again, and one
example's mask depends on how many examples come before it. Here a mask entry is a hash of the row's key, of which
dropout of the pass it is, and of the entry's place within the example. It is no secret and needs none: the bound on
an example's contribution holds for every mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from momentree.errors import InputError
from momentree.query.norms import chunk

_GOLDEN = -7046029254386353131
"""0x9E3779B97F4A7C15 as a signed 64-bit number."""


def row_keys(seed: int, rows: Tensor) -> Tensor:
    """Two 32-bit keys for every row, `(rows, 2)`: `seed` stands for the run and the step, `rows` for the examples."""
    mixed = (seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % (1 << 64)
    mixed = (mixed ^ (mixed >> 31)) * 0xD6E8FEB86659FD93 % (1 << 64)
    key = rows.to(torch.int64) * _GOLDEN + (mixed - (1 << 64) if mixed >= 1 << 63 else mixed)
    key = (key ^ ((key >> 32) & 0xFFFFFFFF)) * -2960836687090442861
    key = (key ^ ((key >> 29) & 0x7FFFFFFFF)) * -7535161185270571757
    key = key ^ ((key >> 32) & 0xFFFFFFFF)
    return torch.stack([key.to(torch.int32), (key >> 32).to(torch.int32)], dim=-1)


def _mix_(x: Tensor) -> Tensor:
    """A bijection of 32-bit numbers that leaves no simple trace of its argument (two multiplications, three shifts)."""
    x ^= (x >> 16) & 0xFFFF
    x *= 0x7FEB352D
    x ^= (x >> 15) & 0x1FFFF
    x *= 0x846CA68B - (1 << 32)
    x ^= (x >> 16) & 0xFFFF
    return x


class Rows:
    """Which examples a batch holds, and the seed of the step: their keys, made when they are first needed."""

    def __init__(self, seed: int, rows: Tensor | None, examples: int, device: torch.device) -> None:
        self._seed, self._rows, self._examples, self._device = seed, rows, examples, device
        self._keys: Tensor | None = None

    def keys(self) -> Tensor:
        """Without `rows`, the examples' places in the batch stand for them."""
        if self._keys is None:
            rows = torch.arange(self._examples) if self._rows is None else self._rows
            self._keys = row_keys(self._seed, rows.to(self._device))
        return self._keys


class Draws:
    """The random numbers of one forward pass. `keys` gives what `row_keys` makes, one pair for every example."""

    def __init__(self, keys: Callable[[], Tensor]) -> None:
        self._keys = keys
        self.used = 0

    @property
    def keys(self) -> Tensor:
        return self._keys()

    def bits(self, entries: int, call: int, part: slice) -> Tensor:
        """32 random bits for every entry of some examples, as signed integers."""
        keys = self.keys[part]
        first = (keys[:, :1] ^ (call * 0x3C6EF372)).to(torch.int32)
        counter = torch.arange(entries, dtype=torch.int32, device=keys.device) * (0x9E3779B9 - (1 << 32))
        drawn = _mix_(counter + _mix_(first))
        return _mix_(drawn ^ keys[:, 1:])

    def keep(self, shape: torch.Size, drop: float, dtype: torch.dtype) -> Tensor:
        """A dropout mask: 0 with probability `drop`, otherwise 1 / (1 - drop)."""
        examples = self.keys.shape[0]
        if shape[0] % examples:
            raise InputError(
                f"dropout was given a tensor of shape {tuple(shape)} in a batch of {examples}: its first "
                "dimension has to be the batch for every example to have a mask of its own; apply it batch first"
            )
        self.used += 1
        call = (self.used * 0x9E3779B9) % (1 << 31)
        entries = shape.numel() // examples
        threshold = min(round(drop * 2**32), 2**32 - 1) - 2**31
        step = chunk(examples, 12 * entries, self.keys.device)
        parts = [
            (self.bits(entries, call, slice(start, start + step)) >= threshold).to(dtype)
            for start in range(0, examples, step)
        ]
        mask = parts[0] if len(parts) == 1 else torch.cat(parts)
        return (mask * (1.0 / (1.0 - drop))).view(shape)


def dropout(draws: Draws, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.dropout` with the mask drawn for each row."""
    if not training or p == 0:
        return input
    mask = draws.keep(input.shape, p, input.dtype) if p < 1 else torch.zeros_like(input)
    return input.mul_(mask) if inplace else input * mask


def channel_dropout(
    draws: Draws, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """`dropout1d`, `dropout2d`, `dropout3d`: whole channels of an example."""
    if not training or p == 0:
        return input
    shape = torch.Size([*input.shape[:2], *[1] * (input.dim() - 2)])
    mask = draws.keep(shape, p, input.dtype) if p < 1 else torch.zeros_like(input)
    return input.mul_(mask) if inplace else input * mask


def attention(
    draws: Draws,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention`, taken apart where it has dropout inside."""
    if dropout_p == 0.0:
        more: dict[str, Any] = {"enable_gqa": True} if enable_gqa else {}
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale, **more
        )
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, float("-inf"))
    if attn_mask is not None:
        boolean = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, float("-inf")) if boolean else scores + attn_mask
    weights = scores.softmax(-1)
    return weights * draws.keep(weights.shape, dropout_p, weights.dtype) @ value


REPLACED: dict[Any, Any] = {
    torch.nn.functional.dropout: dropout,
    torch.nn.functional.dropout1d: channel_dropout,
    torch.nn.functional.dropout2d: channel_dropout,
    torch.nn.functional.dropout3d: channel_dropout,
    torch.nn.functional.scaled_dot_product_attention: attention,
}
