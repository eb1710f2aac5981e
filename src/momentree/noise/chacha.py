"""The same normals by torch operations alone, on any device: ChaCha20 (RFC 8439) in 32-bit integers, then Box–Muller.

`keystream` is exact integer arithmetic, so it equals the `cryptography` package's bit for bit. `normals` is what
`normals.normals_into` does, an operation a line: correctly rounded ones only, run one by one, so a device that keeps
IEEE 754 draws the CPU's normals. Nothing here waits for the device. On CUDA `fused.py` does the same in one kernel
where there is Triton, once it has shown that it draws these bits; without it, and in float64, a draw is a thousand
kernels.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from momentree.noise import program
from momentree.noise.layout import (
    ANGLE_UNIT,
    FIRST_LOW_BLOCK,
    FLOAT32,
    FLOAT64,
    LOG_TWO,
    LOW_BLOCKS,
    PAIRS,
    TILE,
    TILE_BLOCKS,
    nonce,
)
from momentree.noise.program import Parts

CHUNK_TILES = 4096
"""8 million normals at a time: enough for a device to be busy, some 500 MB of scratch."""

_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


def _rotated(x: Tensor, by: int) -> Tensor:
    """x <<< by. The right shift of int32 copies the sign, so what it brings in is masked off."""
    return (x << by) | ((x >> (32 - by)) & ((1 << by) - 1))


def double_round(x: list[Tensor]) -> None:
    """A column round and a diagonal round on the sixteen words of a state, in place."""
    for a, b, c, d in (*_COLUMNS, *_DIAGONALS):
        x[a] = x[a] + x[b]
        x[d] = _rotated(x[d] ^ x[a], 16)
        x[c] = x[c] + x[d]
        x[b] = _rotated(x[b] ^ x[c], 12)
        x[a] = x[a] + x[b]
        x[d] = _rotated(x[d] ^ x[a], 8)
        x[c] = x[c] + x[d]
        x[b] = _rotated(x[b] ^ x[c], 7)


def blocks(words: Sequence[int], counter: Tensor) -> Tensor:
    """One ChaCha20 block a counter, 16 words a line; `words` is the state as int32, its counter (word 12) ignored."""
    first = [torch.full_like(counter, word) for word in words]
    first[12] = counter
    state = list(first)
    for _ in range(10):
        double_round(state)
    return torch.stack([x + y for x, y in zip(state, first, strict=True)], dim=1)


def keystream(subkey: bytes, stream: int, row: int, block: int, count: int, device: torch.device) -> Tensor:
    """`count` blocks of (stream, row) from a block on, as int32 words, a block a line."""
    words = struct.unpack("<16i", b"expand 32-byte k" + subkey + bytes(4) + nonce(stream, row))
    return blocks(words, torch.arange(block, block + count, device=device).to(torch.int32))


@functools.cache
def kernels(device: torch.device) -> ModuleType | None:
    """`fused`, where it runs on this device and computes the bits of the plain operations; checked once, else None."""
    if device.type != "cuda":
        return None
    try:
        from momentree.noise import fused

        key, stream, row, tile, tiles = bytes(range(32)), 2**32 - 1, 2**63 + 9, 2**24 - 9, 9
        wanted = tiles_of(key, stream, row, tile, tiles, torch.float32, device)
        whole, cut = torch.empty_like(wanted), torch.empty_like(wanted)[777:]
        fused.draw_(whole, key, stream, row, tile * TILE)
        fused.draw_(cut, key, stream, row, tile * TILE + 777)
        same = torch.equal(cut, wanted[777:]) and torch.equal(whole, wanted)
        for own, count in ((None, 3), (1.0, 1), (0.3, 6)):
            parts = [(wanted[k : k + len(cut)], 0.7 - 0.3 * k) for k in range(count)]
            total = cut.clone()
            program.add_up(torch, total, own, parts, torch.empty_like(cut))
            fused.add_up(cut, own, parts)
            same = same and torch.equal(cut, total)
    except Exception:  # no Triton, or one that cannot compile here: the same bits, operation by operation
        return None
    return fused if same else None


def fill_(out: Tensor, subkey: bytes, stream: int, row: int, start: int) -> Tensor:
    """`KeyedNormals.fill_` for a tensor of any device; its arguments are checked already."""
    flat = out.detach().view(-1)
    fused = kernels(flat.device) if flat.dtype == torch.float32 else None
    if fused is not None:
        fused.draw_(flat, subkey, stream, row, start)
        return out
    first, last = start // TILE, -(-(start + flat.numel()) // TILE)
    for tile in range(first, last, CHUNK_TILES):
        tiles = min(CHUNK_TILES, last - tile)
        drawn = tiles_of(subkey, stream, row, tile, tiles, flat.dtype, flat.device)
        low = tile * TILE - start
        part = flat[max(low, 0) : low + tiles * TILE]
        part.copy_(drawn[max(-low, 0) : max(-low, 0) + part.numel()])
    return out


def add_up(into: Tensor, own: float | None, parts: Parts, spare: Tensor) -> None:
    """`program.Arithmetic` on any device."""
    plain = not parts or any(each.dtype != torch.float32 for each in (into, *(value for value, _ in parts)))
    fused = None if plain else kernels(into.device)
    if fused is None:
        program.add_up(torch, into, own, parts, spare)
    else:
        fused.add_up(into, own, parts)


def tiles_of(
    subkey: bytes, stream: int, row: int, tile: int, tiles: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """All normals of so many tiles."""
    words = keystream(subkey, stream, row, tile * TILE_BLOCKS, tiles * TILE_BLOCKS, device).view(tiles, -1)
    low = None
    if dtype == torch.float64:
        low = keystream(subkey, stream, row, FIRST_LOW_BLOCK + tile * LOW_BLOCKS, tiles * LOW_BLOCKS, device)
        low = low.view(tiles, PAIRS)
    return normals(words, low).reshape(-1)


def uniforms(high: Tensor, low: Tensor, real: torch.dtype) -> tuple[Tensor, Tensor]:
    """u = (x + ½) 2^-64 for the word x = high 2^32 + low, as a + error: all its digits at both ends of (0, 1)."""
    signed, form = (torch.int32, FLOAT32) if real == torch.float32 else (torch.int64, FLOAT64)
    v = (high.to(real) + (_unsigned(low, real) + 0.5) * 2.0**-32) * 2.0**-32
    base = ((high >> 31).to(signed) & form.one).view(real)
    a = base + v
    return a, v + (base - a)


def normals(words: Tensor, low: Tensor | None) -> Tensor:
    """A tile's words a line, and low halves of angles (None: float32), to pairs: (tiles, 2, PAIRS).

    Operation for operation the steps of `normals.normals_into`, which says why each is what it is.
    """
    real, signed, form = (torch.float32, torch.int32, FLOAT32) if low is None else (torch.float64, torch.int64, FLOAT64)
    a, error = uniforms(words[:, :PAIRS], words[:, PAIRS : 2 * PAIRS], real)
    angle = words[:, 2 * PAIRS :]
    bits = a.view(signed) - form.split
    mantissa = ((bits & ((1 << form.mantissa) - 1)) + form.split).view(real)
    f = error + (mantissa - 1.0)
    s = f / (f + 2.0)
    level = (bits >> form.mantissa).to(real) * LOG_TWO - _polynomial(form.log, s * s) * s
    h = angle.to(real)
    if low is not None:
        h = h + _unsigned(low, real) * 2.0**-32
    h = h * ANGLE_UNIT
    sine = _polynomial(form.sine, h * h) * h
    square = sine * sine
    y = sine * _root((1.0 - square) * level)
    x = _root(level) * (0.5 - square)
    flip = angle.to(signed) << (8 * real.itemsize - 1)
    return torch.stack([(x.view(signed) ^ flip).view(real), y], dim=1)


def _unsigned(words: Tensor, real: torch.dtype) -> Tensor:
    """32-bit words, read as unsigned."""
    return (words.to(torch.int64) & 0xFFFFFFFF).to(real)


def _root(x: Tensor) -> Tensor:
    """√x. By way of float64: torch's float32 root may come from a library that is off by one in the last place, and no
    float32 has a root so near a tie that an error in float64's last place could tip it."""
    return torch.sqrt(x.to(torch.float64)).to(x.dtype)


def _polynomial(coefficients: tuple[float, ...], at: Tensor) -> Tensor:
    total = at * coefficients[0]
    for coefficient in coefficients[1:-1]:
        total = (total + coefficient) * at
    return total + coefficients[-1]
