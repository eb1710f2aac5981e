"""Standard normals as a pure function of (subkey, stream, row, coordinate): ChaCha20 keystream, then Box–Muller.

**Layout.** Coordinate i of a row is in tile k = i // 2048, at place i % 2048; places p and p + 1024 are the two normals
of pair p. The keystream of (stream, row) has the nonce stream (32 bits) | row (64 bits), and the 32-bit counter names

    blocks 192k       … 192k + 63        1024 words of 32 bits, the high halves of the radius words
    blocks 192k + 64  … 192k + 127       1024, their low halves
    blocks 192k + 128 … 192k + 191       1024, the angle words
    blocks 3·2^30 + 64k … + 63           1024, the angle words' low halves; drawn for float64 only

for k < 2^24: 2^32 blocks, all of them, none twice; 2^35 coordinates a row. Words are little-endian.

**Normals.** With x the radius word of 64 bits, u = (x + ½) 2^-64 in (0, 1), so log 0 cannot occur and the tail ends
where u = 2^-65, at 9.49σ. h is the angle word, as a signed fraction of ±π/4 (its lowest bit is also the sign ±), and

    L = -2 ln u,    X = ±√(4L) (½ - sin²h),    Y = √(4L (1 - sin²h)) sin h

that is √L (±cos 2h, sin 2h) with 2h in [-π/2, π/2): a uniform direction. Other forms lose digits: sin and cos of a
float32 near π are wrong by 1e-7 where they ought to be small, √(1 - sin²) near ±π/2 by 2e-4.

**Why only +, -, ×, /, √ and integer operations.** These are rounded correctly by IEEE 754, element by element, so the
bits depend neither on the processor, the library, the chunk, its alignment nor the thread. A library's log or sin
promises none of it: vector and scalar versions of one library differ, and a resumed run would draw other noise.

**Why u is kept in two parts.** Near 0, where the tail is made, a float has all its digits: the exponent takes the 64
bits. Near 1 it has not: a float32 of u would make the radius a lattice of 3e-4 there. So u = base + v with base 0 or 1
and v the word read as a signed number, which is small at both ends; a = base + v rounded, and its error, which a float
holds exactly, is added to the mantissa's distance from 1.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from numpy.typing import NDArray
from torch import Tensor

from momentree.errors import InputError, whole
from momentree.noise import chacha
from momentree.noise.keys import check_key
from momentree.noise.layout import (
    ANGLE_UNIT,
    COORDINATES,
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

CHUNK_TILES = 48
"""98,304 normals at a time, 1.9 MiB of scratch in float32: operations of several µs each, so that calls cost little and
two threads wait seldom for each other's turn at the interpreter, and near enough to the core."""
ZEROS = bytes(2**15)
"""What is encrypted, piece by piece: it stays in the first-level cache."""


class KeyedNormals:
    """The secret source: normals that only the holder of the subkey can draw, and draw again.

    Guarantee: entry i of `out` depends on (subkey, stream, row, start + i) and on the precision of `out`, on nothing
    else: not on the chunk, the order of calls, the threads or the processor. To anybody without the subkey they are
    independent standard normals, as far as ChaCha20 is a pseudo-random function, up to the lattice that docs/noise.md
    prices. float64 draws the same normals with more digits than float32, not the same numbers.
    """

    name = "chacha20"

    def __init__(self, subkey: bytes) -> None:
        self._subkey = check_key(subkey, name="subkey")
        self._local = _PerThread()

    def __repr__(self) -> str:
        return "KeyedNormals(subkey=…)"

    def __reduce__(self) -> Any:
        raise InputError("a secret noise source is not copied or pickled: derive its subkey again where it is needed")

    def fill_(self, out: Tensor, stream: int, row: int, start: int) -> Tensor:
        """Coordinates start, start + 1, … of a row, into `out` (float32 or float64, contiguous); `out` again."""
        flat = flat_of(out)
        stream, row, start = check_place(stream, row, start, flat.numel())
        if flat.device.type == "mps":  # has no float64: draw here and send
            flat.copy_(self.fill_(torch.empty(flat.shape, dtype=flat.dtype), stream, row, start))
            return out
        if flat.device.type != "cpu":
            return chacha.fill_(out, self._subkey, stream, row, start)
        values = flat.numpy()
        first, last = start // TILE, -(-(start + len(values)) // TILE)
        for tile in range(first, last, CHUNK_TILES):
            tiles = min(CHUNK_TILES, last - tile)
            low, high = tile * TILE - start, (tile + tiles) * TILE - start
            work = self._local.workspace(tiles, flat.dtype)
            self._keystream(work, 0, tiles, stream, row, tile)
            if low >= 0 and high <= len(values):
                normals_into(values[low:high], work)
            else:  # a chunk that is wanted in part is drawn whole: at most 2,047 normals too many at either end
                normals_into(work.whole, work)
                values[max(low, 0) : high] = work.whole[max(-low, 0) : len(values) - low]
        return out

    def draw(
        self, dtype: torch.dtype, stream: int, row: int, start: int, count: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """As `fill_` on the CPU, into memory of this thread's own, and as much to spare: until it draws again."""
        stream, row, start = check_place(stream, row, start, count)
        first, last = start // TILE, -(-(start + count) // TILE)
        work = self._local.workspace(last - first, dtype)
        self._keystream(work, 0, last - first, stream, row, first)
        normals_into(work.whole, work)
        return work.whole[start - first * TILE :][:count], work.spare[:count]

    def fill_rows_(self, out: Tensor, stream: int, rows: Sequence[int], start: int) -> Tensor:
        """Line k of `out` as `fill_` would draw it for rows[k]; on the CPU only, for rows of up to CHUNK_TILES tiles.

        Where rows are short, calls cost more than numbers: several are drawn with the calls of one.
        """
        flat_of(out)
        lines = out.detach().numpy()
        first, last = start // TILE, -(-(start + lines.shape[1]) // TILE)
        low, tiles = start - first * TILE, last - first
        together = max(1, CHUNK_TILES // tiles)
        for at in range(0, len(rows), together):
            part = rows[at : at + together]
            work = self._local.workspace(len(part) * tiles, out.dtype)
            for k, row in enumerate(part):
                self._keystream(work, k * tiles, tiles, *check_place(stream, row, start, lines.shape[1])[:2], first)
            normals_into(work.whole, work)
            lines[at : at + len(part)] = work.whole.reshape(len(part), -1)[:, low : low + lines.shape[1]]
        return out

    def _keystream(self, work: _Workspace, at: int, tiles: int, stream: int, row: int, tile: int) -> None:
        """The words of so many tiles of a row, `tile` the first, into those of the workspace from `at` on."""
        cipher, name = self._local.cipher(self._subkey), nonce(stream, row)
        part = slice(at * TILE_BLOCKS * 64, (at + tiles) * TILE_BLOCKS * 64)
        keystream_into(work.words[part], cipher, name, tile * TILE_BLOCKS)
        if work.low is not None:
            part = slice(at * LOW_BLOCKS * 64, (at + tiles) * LOW_BLOCKS * 64)
            keystream_into(work.low[part], cipher, name, FIRST_LOW_BLOCK + tile * LOW_BLOCKS)


def flat_of(out: Tensor) -> Tensor:
    """`out` as a flat view, or one line that says why it cannot be filled."""
    if out.dtype not in (torch.float32, torch.float64):
        raise InputError(f"normals of type {out.dtype} are not drawn: give float32 or float64")
    if not out.is_contiguous():
        raise InputError("normals are drawn into contiguous tensors only: give .contiguous() memory")
    return out.detach().view(-1)


def check_place(stream: int, row: int, start: int, count: int) -> tuple[int, int, int]:
    """The names of the numbers asked for, if they fit: a name that wrapped would be drawn twice."""
    if type(stream) is not int or not 0 <= stream < 2**32:
        stream = whole("stream", stream, at_least=0, at_most=2**32 - 1)
    if isinstance(row, bool) or not isinstance(row, int) or not 0 <= row < 2**64:
        raise InputError(f"row {row!r} cannot be drawn: give a whole number from 0 to 2^64 - 1")
    if type(start) is not int or start < 0:
        start = whole("start", start, at_least=0)
    if start + count > COORDINATES:
        raise InputError(f"coordinate {start + count - 1} is out of range: a row has {COORDINATES}; use another stream")
    return stream, row, start


def keystream_into(out: NDArray[np.uint8], cipher: CipherContext, name: bytes, block: int) -> None:
    """The keystream of a row from a block on: what ChaCha20 makes of zeros. `cipher` is started anew."""
    cipher.reset_nonce(block.to_bytes(4, "little") + name)
    target, zeros = out.data, memoryview(ZEROS)
    for at in range(0, len(out), len(ZEROS)):
        piece = target[at : at + len(ZEROS)]
        cipher.update_into(zeros[: len(piece)], piece)


def cipher_of(subkey: bytes) -> CipherContext:
    """ChaCha20 under a subkey, for `keystream_into`; one thread's at a time."""
    return Cipher(algorithms.ChaCha20(subkey, bytes(16)), mode=None).encryptor()


class _PerThread(threading.local):
    """One thread's cipher, and its workspaces by precision and number of tiles."""

    def __init__(self) -> None:
        self._kept: dict[torch.dtype, dict[int, _Workspace]] = {}
        self._cipher: CipherContext | None = None

    def cipher(self, subkey: bytes) -> CipherContext:
        """Made once: to name another row costs a fifth of a new one."""
        if self._cipher is None:
            self._cipher = cipher_of(subkey)
        return self._cipher

    def workspace(self, tiles: int, dtype: torch.dtype) -> _Workspace:
        """Buffers for so many tiles, made once: fresh pages cost more than the arithmetic in them."""
        kept = self._kept.setdefault(dtype, {})
        if tiles not in kept:
            largest = max(kept, default=0)
            if tiles > largest:
                kept.clear()
            kept[tiles] = _Workspace(tiles, np.float32 if dtype == torch.float32 else np.float64, kept.get(largest))
        return kept[tiles]


class _Workspace:
    """Buffers for so many tiles: 20 bytes a normal in float32, 28 in float64.

    `words` and `low` hold keystream; `whole` lies over them, for normals that are to come to no memory of their own:
    `normals_into` has read its words before it writes. `real` are its five arrays, `spare` lies over two of them.
    """

    def __init__(self, tiles: int, precision: type[np.floating[Any]], within: _Workspace | None = None) -> None:
        """`within`: a larger one of the same precision, whose memory is shared."""
        self.precision = precision
        self.bits = np.int32 if precision is np.float32 else np.int64
        late = LOW_BLOCKS if precision is np.float64 else 0
        if within is None:
            self._bytes = np.empty(tiles * (TILE_BLOCKS + late) * 64, np.uint8)
            self._numbers = np.empty(5 * tiles * PAIRS, precision)
        else:
            self._bytes, self._numbers = within._bytes, within._numbers
        low = tiles * TILE_BLOCKS * 64
        self.words = self._bytes[:low]
        self.low = self._bytes[low : low + tiles * late * 64] if late else None
        self.whole = self._bytes[: tiles * TILE * self.bits().itemsize].view(precision)
        self.real = list(self._numbers[: 5 * tiles * PAIRS].reshape(5, tiles, PAIRS))
        self.spare = self._numbers[: tiles * TILE]

    def split(self) -> tuple[NDArray[np.int32], NDArray[np.uint32], NDArray[np.int32]]:
        """High and low halves of the radius words, and the angle words; a row a tile."""
        rows = self.words.view("<i4").reshape(-1, 3 * PAIRS)
        return rows[:, :PAIRS], rows[:, PAIRS : 2 * PAIRS].view("<u4"), rows[:, 2 * PAIRS :]


def normals_into(out: NDArray[Any], work: _Workspace) -> None:
    """Words to normals, in place, one pass of the cache an operation; `chacha.normals` is the same, readably.

    Every constant is a scalar of the working precision, so that numpy never widens an operation by itself.
    """
    high, low, angle = work.split()
    real, bits = work.precision, work.bits
    form = FLOAT32 if bits is np.int32 else FLOAT64
    f, s, p, q, level = work.real
    f_bits: NDArray[Any] = f.view(bits)
    s_bits: NDArray[Any] = s.view(bits)
    p_bits: NDArray[Any] = p.view(bits)
    q_bits: NDArray[Any] = q.view(bits)
    pair = out.reshape(-1, 2, PAIRS)

    # v = the word as a signed number, over 2^64; base = 1 where it is negative, else 0; u = base + v = a + error
    np.copyto(s, low, casting="unsafe")
    s += real(0.5)
    s *= real(2.0**-32)
    np.copyto(f, high, casting="unsafe")
    np.right_shift(f_bits, 8 * f.itemsize - 1, out=q_bits)
    q_bits &= form.one
    f += s
    f *= real(2.0**-32)
    np.add(q, f, out=p)
    q -= p
    f += q
    # a = m 2^e with m in [√½, √2), by its bits; f = m - 1 + error (where e = -1 the error is half of what it should
    # be, which is below the last digit of what follows)
    np.subtract(p_bits, form.split, out=s_bits)
    s_bits &= -1 << form.mantissa  # e 2^mantissa
    p_bits -= s_bits
    np.copyto(level, s_bits, casting="unsafe")
    p -= real(1)
    f += p
    # 4L = -8 e ln 2 - 16 atanh(s), s = f / (f + 2)
    level *= real(LOG_TWO * 2.0**-form.mantissa)
    np.add(f, real(2), out=s)
    np.divide(f, s, out=s)
    np.multiply(s, s, out=p)
    _polynomial(form.log, p, q, real)
    q *= s
    level -= q
    # sin h
    np.copyto(f, angle, casting="unsafe")
    if work.low is not None:
        np.copyto(p, work.low.view("<u4").reshape(-1, PAIRS))
        p *= real(2.0**-32)
        f += p
    f *= real(ANGLE_UNIT)
    np.multiply(f, f, out=p)
    _polynomial(form.sine, p, q, real)
    q *= f
    np.left_shift(angle, 8 * f.itemsize - 1, out=f_bits, dtype=bits)
    # the pair; the words have been read, `out` may lie over them
    np.multiply(q, q, out=p)
    np.subtract(real(1), p, out=s)
    s *= level
    np.sqrt(s, out=s)
    np.multiply(q, s, out=pair[:, 1])
    np.subtract(real(0.5), p, out=p)
    np.sqrt(level, out=level)
    level *= p
    np.bitwise_xor(level.view(bits), f_bits, out=pair[:, 0].view(bits))


def _polynomial(coefficients: tuple[float, ...], at: NDArray[Any], out: NDArray[Any], real: Any) -> None:
    """Horner's rule, highest coefficient first; a product and a sum each rounded, never fused."""
    np.multiply(at, real(coefficients[0]), out=out)
    for coefficient in coefficients[1:-1]:
        out += real(coefficient)
        out *= at
    out += real(coefficients[-1])
