"""On CUDA: float32 normals in one kernel, from block numbers to the output, nothing in between in memory; and sums of
vectors in one pass.

The kernels keep the rules of `chacha.py`: products and sums are rounded one by one (`enable_fp_fusion=False`), division
and root are the correctly rounded ones. A compiler could break them unseen, so `chacha` takes them only after they have
drawn the bits of the plain operations on the very device. Key and nonce are arguments of the launch: nothing is copied
to the device and the host waits for nothing.

Needs Triton, which comes with torch where there is CUDA; this module cannot be imported without it.
"""

from __future__ import annotations

import struct

import torch
import triton
import triton.language as tl
from torch import Tensor

from momentree.noise.layout import ANGLE_UNIT, FLOAT32, LOG_TWO, PAIRS, TILE, TILE_BLOCKS, nonce
from momentree.noise.program import Parts

LANES = 128
"""Places of a program: each makes the three blocks of sixteen pairs."""
PASS, AT_ONCE = 2048, 4
"""Numbers of a program of `add_up`, and how many parts it takes."""

_PAIRS, _TILE, _TILE_BLOCKS = tl.constexpr(PAIRS), tl.constexpr(TILE), tl.constexpr(TILE_BLOCKS)
_LINE = tl.constexpr(PAIRS // 16)
_SPLIT, _MANTISSA, _ONE = tl.constexpr(FLOAT32.split), tl.constexpr(FLOAT32.mantissa), tl.constexpr(FLOAT32.one)
_BELOW = tl.constexpr((1 << FLOAT32.mantissa) - 1)
_LOG_TWO, _ANGLE_UNIT, _UNIT = tl.constexpr(LOG_TWO), tl.constexpr(ANGLE_UNIT), tl.constexpr(2.0**-32)
_LOG_3, _LOG_2, _LOG_1, _LOG_0 = (tl.constexpr(c) for c in FLOAT32.log)
_SIN_3, _SIN_2, _SIN_1, _SIN_0 = (tl.constexpr(c) for c in FLOAT32.sine)


@triton.jit
def _quarter(a, b, c, d):  # type: ignore[no-untyped-def]
    a = a + b
    d = d ^ a
    d = (d << 16) | (d >> 16)
    c = c + d
    b = b ^ c
    b = (b << 12) | (b >> 20)
    a = a + b
    d = d ^ a
    d = (d << 8) | (d >> 24)
    c = c + d
    b = b ^ c
    b = (b << 7) | (b >> 25)
    return a, b, c, d


@triton.jit
def _words(counter, k0, k1, k2, k3, k4, k5, k6, k7, n0, n1, n2):  # type: ignore[no-untyped-def]
    """One ChaCha20 block a lane, its sixteen words side by side: (lanes, 16), uint32."""
    zero = counter ^ counter
    a0, a1, a2, a3 = zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574
    b0, b1, b2, b3 = zero + k0, zero + k1, zero + k2, zero + k3
    c0, c1, c2, c3 = zero + k4, zero + k5, zero + k6, zero + k7
    d0, d1, d2, d3 = counter, zero + n0, zero + n1, zero + n2
    for _ in range(10):
        a0, b0, c0, d0 = _quarter(a0, b0, c0, d0)
        a1, b1, c1, d1 = _quarter(a1, b1, c1, d1)
        a2, b2, c2, d2 = _quarter(a2, b2, c2, d2)
        a3, b3, c3, d3 = _quarter(a3, b3, c3, d3)
        a0, b1, c2, d3 = _quarter(a0, b1, c2, d3)
        a1, b2, c3, d0 = _quarter(a1, b2, c3, d0)
        a2, b3, c0, d1 = _quarter(a2, b3, c0, d1)
        a3, b0, c1, d2 = _quarter(a3, b0, c1, d2)
    a0, a1, a2, a3 = a0 + 0x61707865, a1 + 0x3320646E, a2 + 0x79622D32, a3 + 0x6B206574
    b0, b1, b2, b3 = b0 + k0, b1 + k1, b2 + k2, b3 + k3
    c0, c1, c2, c3 = c0 + k4, c1 + k5, c2 + k6, c3 + k7
    d0, d1, d2, d3 = d0 + counter, d1 + n0, d2 + n1, d3 + n2
    # word 8i + 4j + 2k + l at [i, j, k, l]: a b c d are words 0, 4, 8 and 12 and what follows them
    e0, e1, e2, e3 = tl.join(a0, c0), tl.join(a1, c1), tl.join(a2, c2), tl.join(a3, c3)
    f0, f1, f2, f3 = tl.join(b0, d0), tl.join(b1, d1), tl.join(b2, d2), tl.join(b3, d3)
    g0, g1, g2, g3 = tl.join(e0, f0), tl.join(e1, f1), tl.join(e2, f2), tl.join(e3, f3)
    return tl.reshape(tl.join(tl.join(g0, g2), tl.join(g1, g3)), (counter.shape[0], 16))


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["tile", "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "n0", "n1", "n2"]
)
def _draw(  # type: ignore[no-untyped-def]
    out, count, skip, tile, k0, k1, k2, k3, k4, k5, k6, k7, n0, n1, n2, LANES: tl.constexpr, CUT: tl.constexpr
):
    """`normals.normals_into`, a line here for a line there; out[0] is coordinate `skip` of the first tile."""
    k0, k1, k2 = k0.to(tl.uint32, bitcast=True), k1.to(tl.uint32, bitcast=True), k2.to(tl.uint32, bitcast=True)
    k3, k4, k5 = k3.to(tl.uint32, bitcast=True), k4.to(tl.uint32, bitcast=True), k5.to(tl.uint32, bitcast=True)
    k6, k7 = k6.to(tl.uint32, bitcast=True), k7.to(tl.uint32, bitcast=True)
    n0, n1, n2 = n0.to(tl.uint32, bitcast=True), n1.to(tl.uint32, bitcast=True), n2.to(tl.uint32, bitcast=True)
    lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    counter = ((lane // _LINE + tile) * _TILE_BLOCKS + lane % _LINE).to(tl.uint32)
    high = _words(counter, k0, k1, k2, k3, k4, k5, k6, k7, n0, n1, n2).to(tl.int32, bitcast=True)
    low = _words(counter + _LINE, k0, k1, k2, k3, k4, k5, k6, k7, n0, n1, n2)
    angle = _words(counter + 2 * _LINE, k0, k1, k2, k3, k4, k5, k6, k7, n0, n1, n2).to(tl.int32, bitcast=True)
    v = (high.to(tl.float32) + (low.to(tl.float32) + 0.5) * _UNIT) * _UNIT
    base = ((high >> 31) & _ONE).to(tl.float32, bitcast=True)
    a = base + v
    error = v + (base - a)
    bits = a.to(tl.int32, bitcast=True) - _SPLIT
    mantissa = ((bits & _BELOW) + _SPLIT).to(tl.float32, bitcast=True)
    f = error + (mantissa - 1.0)
    s = tl.div_rn(f, f + 2.0)
    p = s * s
    level = (bits >> _MANTISSA).to(tl.float32) * _LOG_TWO - (((p * _LOG_3 + _LOG_2) * p + _LOG_1) * p + _LOG_0) * s
    h = angle.to(tl.float32) * _ANGLE_UNIT
    p = h * h
    sine = (((p * _SIN_3 + _SIN_2) * p + _SIN_1) * p + _SIN_0) * h
    square = sine * sine
    y = sine * tl.sqrt_rn((1.0 - square) * level)
    x = tl.sqrt_rn(level) * (0.5 - square)
    x = (x.to(tl.int32, bitcast=True) ^ (angle << 31)).to(tl.float32, bitcast=True)
    at = (lane // _LINE) * _TILE + (lane % _LINE) * 16 - skip
    place = at[:, None] + tl.arange(0, 16)[None, :]
    if CUT:
        tl.store(out + place, x, mask=(place >= 0) & (place < count))
        place += _PAIRS
        tl.store(out + place, y, mask=(place >= 0) & (place < count))
    else:
        tl.store(out + place, x)
        tl.store(out + place + _PAIRS, y)


@triton.jit  # type: ignore[untyped-decorator]
def _add_up(  # type: ignore[no-untyped-def]
    into, v0, v1, v2, v3, own, c0, c1, c2, c3, count, PARTS: tl.constexpr, OWN: tl.constexpr, PASS: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * PASS + tl.arange(0, PASS)
    inside = at < count
    total = tl.load(v0 + at, mask=inside) * c0
    if OWN:
        total = tl.load(into + at, mask=inside) * own + total
    if PARTS > 1:
        total += tl.load(v1 + at, mask=inside) * c1
    if PARTS > 2:
        total += tl.load(v2 + at, mask=inside) * c2
    if PARTS > 3:
        total += tl.load(v3 + at, mask=inside) * c3
    tl.store(into + at, total, mask=inside)


def draw_(out: Tensor, subkey: bytes, stream: int, row: int, start: int) -> None:
    """Coordinates start, start + 1, … of a row into a flat float32 tensor on a CUDA device."""
    words = struct.unpack("<11i", subkey + nonce(stream, row))
    first, skip = divmod(start, TILE)
    together = 16 * LANES // PAIRS  # tiles of a program
    programs = 0 if skip else len(out) // (together * TILE)
    rest = out[programs * together * TILE :]
    with torch.cuda.device(out.device):
        if programs:
            _draw[(programs,)](out, len(out), 0, first, *words, LANES=LANES, CUT=False, enable_fp_fusion=False)
        if len(rest):
            cut = -(-(skip + len(rest)) // (together * TILE))
            first += programs * together
            _draw[(cut,)](rest, len(rest), skip, first, *words, LANES=LANES, CUT=True, enable_fp_fusion=False)


def add_up(into: Tensor, own: float | None, parts: Parts) -> None:
    """`program.Arithmetic` for flat float32 tensors on a CUDA device: one pass for every four of the parts."""
    with torch.cuda.device(into.device):
        for at in range(0, len(parts), AT_ONCE):
            now = parts[at : at + AT_ONCE]
            values, factors = zip(*now, *[(into, 0.0)] * (AT_ONCE - len(now)), strict=True)
            first = own if at == 0 else 1.0
            numbers = (1.0 if first is None else first, *factors)
            grid = (-(-len(into) // PASS),)
            switches = {"PARTS": len(now), "OWN": first is not None, "PASS": PASS}
            _add_up[grid](into, *values, *numbers, len(into), **switches, enable_fp_fusion=False)
