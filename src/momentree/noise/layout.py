"""Where each coordinate's bytes are in the keystream, and the constants of the map from words to normals.

`normals.py` says what the layout is and why; both ways of drawing (numpy on the CPU, torch elsewhere) read it here.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

PAIRS = 1024
TILE = 2 * PAIRS
TILE_BLOCKS = (8 + 4) * PAIRS // 64
LOW_BLOCKS = 4 * PAIRS // 64
TILES = 2**24
FIRST_LOW_BLOCK = TILE_BLOCKS * TILES
COORDINATES = TILE * TILES

RADIUS_BITS = 64
LOG_TWO = -8 * math.log(2)
ANGLE_UNIT = math.pi / 4 * 2.0**-31


@dataclass(frozen=True)
class Real:
    """A floating-point format, as integers see it, and the polynomials that are good enough for it.

    `mantissa`: how many bits; `split`: the bits of the number √½, rounded down; `one`: those of 1. `log`:
    16 atanh(√p)/√p for p ≤ 0.02945, `sine`: sin(√p)/√p for p ≤ (π/4)², highest power first.
    """

    mantissa: int
    split: int
    one: int
    log: tuple[float, ...]
    sine: tuple[float, ...]


def _bits(kind: str, value: float) -> int:
    """The bits of a float ("f") or a double ("d") as a signed integer."""
    return int(struct.unpack("<i" if kind == "f" else "<q", struct.pack(f"<{kind}", value))[0])


FLOAT32 = Real(
    mantissa=23,
    split=_bits("f", 0.70710677),
    one=_bits("f", 1.0),
    log=(2.3941006, 3.1979818, 5.3333453, 16.0),
    sine=(-1.9501822e-4, 8.3320165e-3, -1.6666650e-1, 1.0),
)
"""The best cubics: relative errors 7e-10 and 4e-9, before their coefficients are rounded."""
FLOAT64 = Real(
    mantissa=52,
    split=_bits("d", 0.7071067811865475),
    one=_bits("d", 1.0),
    log=tuple(16.0 / (2 * k + 1) for k in range(10, -1, -1)),
    sine=tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1)),
)
"""The series, to p^10 and p^8."""


def nonce(stream: int, row: int) -> bytes:
    """The 96 bits that name a row: stream (32 bits), row (64 bits)."""
    return stream.to_bytes(4, "little") + row.to_bytes(8, "little")
