"""Where each coordinate's bytes are in the keystream, and the constants of the map from words to normals.

`normals.py` says what the layout is and why; both ways of drawing (numpy on the CPU, torch elsewhere) read it here.
"""

from __future__ import annotations

import math
import struct

PAIRS = 1024
TILE = 2 * PAIRS
TILE_BLOCKS = (8 + 4) * PAIRS // 64
LOW_BLOCKS = 4 * PAIRS // 64
TILES = 2**24
FIRST_LOW_BLOCK = TILE_BLOCKS * TILES
COORDINATES = TILE * TILES

RADIUS_BITS = 64
MANTISSA = 2**52 - 1
TWO_64 = struct.unpack("<q", struct.pack("<d", 2.0**64))[0]
"""The bits of the float64 2^64."""
SPLIT = struct.unpack("<q", struct.pack("<d", math.sqrt(0.5)))[0] >> 32 << 32
"""The bits of a float64 just under √½ whose low half is 0, so that the high half alone tells the exponent."""
LOG_TWO = -8 * math.log(2)
ANGLE_UNIT = math.pi / 4 * 2.0**-31

LOG = {
    32: (2.3941006, 3.1979818, 5.3333453, 16.0),
    64: tuple(16.0 / (2 * k + 1) for k in range(10, -1, -1)),
}
"""16 atanh(√p)/√p for p ≤ 0.02945, highest power first: the best cubic (relative error 7e-10), the series to p^10."""
SINE = {
    32: (-1.9501822e-4, 8.3320165e-3, -1.6666650e-1, 1.0),
    64: tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1)),
}
"""sin(√p)/√p for p ≤ (π/4)², highest power first: the best cubic (relative error 4e-9), the series to p^8."""


def nonce(stream: int, row: int) -> bytes:
    """The 96 bits that name a row: stream (32 bits), row (64 bits)."""
    return stream.to_bytes(4, "little") + row.to_bytes(8, "little")
