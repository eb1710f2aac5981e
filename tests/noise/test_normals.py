"""The secret source: RFC 8439's keystream, bits that depend on names alone, values that are the formula's."""

import copy
import itertools
import math
import pickle
import threading

import mpmath
import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from momentree.errors import InputError
from momentree.noise.lattice import DISPLACEMENT
from momentree.noise.layout import (
    COORDINATES,
    FIRST_LOW_BLOCK,
    FLOAT32,
    FLOAT64,
    LOW_BLOCKS,
    PAIRS,
    TILE,
    TILE_BLOCKS,
    TILES,
    nonce,
)
from momentree.noise.normals import KeyedNormals, _Workspace, cipher_of, keystream_into, normals_into

KEY = bytes(range(32))
BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def drawn(count, *, stream=0, row=0, start=0, dtype=torch.float32, key=KEY):
    return KeyedNormals(key).fill_(torch.empty(count, dtype=dtype), stream, row, start)


def words(stream, row, block, count):
    """The keystream another way: one encryption of zeros from the beginning of the row, cut."""
    name = bytes(4) + stream.to_bytes(4, "little") + row.to_bytes(8, "little")
    encryptor = Cipher(algorithms.ChaCha20(KEY, name), mode=None).encryptor()
    return encryptor.update(bytes(64 * (block + count)))[64 * block :]


def ideal(radius: int, angle: int, low: int | None):
    """The pair in 50 digits, from the words as integers; `angle` unsigned."""
    with mpmath.workdps(50):
        signed = angle - 2**32 if angle >= 2**31 else angle
        h = (mpmath.mpf(signed) + (mpmath.mpf(low) / 2**32 if low is not None else 0)) * mpmath.pi / 4 / 2**31
        r = mpmath.sqrt(-2 * mpmath.log((mpmath.mpf(radius) + 0.5) / 2**64))
        return r * mpmath.cos(2 * h) * (-1) ** (angle & 1), r * mpmath.sin(2 * h), r


def tolerance(dtype, radius):
    """What lattice.py says: so much of the radius; within 2^-32 of u = 1, float32 has lost some digits of 1 - u."""
    if dtype == torch.float32:
        return 2.0**-21 * float(radius) + (2.0**-56 / float(radius) if radius < 2.0**-15 else 0.0)
    return DISPLACEMENT * float(radius)


@BOTH
def test_values_are_those_of_the_formula_on_the_words_of_the_layout(dtype):
    stream, row, tile = 5, 2**33 + 1, 3
    values = drawn(TILE, stream=stream, row=row, start=tile * TILE, dtype=dtype).double()
    block = words(stream, row, tile * TILE_BLOCKS, TILE_BLOCKS)
    high, less, angle = np.frombuffer(block, "<u4").reshape(3, PAIRS)
    radius = high.astype(np.uint64) << 32 | less
    low = [None] * PAIRS
    if dtype == torch.float64:
        late = np.empty(LOW_BLOCKS * 64, np.uint8)
        keystream_into(late, cipher_of(KEY), nonce(stream, row), FIRST_LOW_BLOCK + tile * LOW_BLOCKS)
        low = late.view("<u4").tolist()
    for p in range(0, PAIRS, 7):
        x, y, r = ideal(int(radius[p]), int(angle[p]), low[p])
        assert abs(float(x) - float(values[p])) <= tolerance(dtype, r)
        assert abs(float(y) - float(values[p + PAIRS])) <= tolerance(dtype, r)


@BOTH
def test_the_extreme_words_give_the_extreme_normals(dtype):
    """No log of 0, no root of a negative number, a tail of 64 bits, a radius near 0 with all its digits."""
    real = np.float32 if dtype == torch.float32 else np.float64
    work = _Workspace(1, real)
    work.words[:] = 0
    if work.low is not None:
        work.low[:] = 0
    high, less, angle = work.split()
    ends = [0, 1, 2, 2**10, 2**31, 2**32, 2**52 - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2**40]
    ends += [2**64 - 2**20, 2**64 - 2**12, 2**64 - 2048, 2**64 - 1025, 2**64 - 1024, 2**64 - 2, 2**64 - 1]
    near = [int(math.sqrt(0.5) * 2**64) + d for d in (-(2**44), -(2**32), 0, 2**32, 2**44)]
    angles = [0, 1, 2, 2**20, 2**31 - 2, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1]
    cases = [(x, a) for x in (*ends, *near) for a in angles]
    high[0, : len(cases)] = np.array([x >> 32 for x, _ in cases], np.uint32).view(np.int32)
    less[0, : len(cases)] = np.array([x & 0xFFFFFFFF for x, _ in cases], np.uint32)
    angle[0, : len(cases)] = np.array([a for _, a in cases], np.uint32).view(np.int32)
    out = np.empty(TILE, real)
    with np.errstate(all="raise"):
        normals_into(out, work)
    assert np.isfinite(out).all()
    for p, (word, turn) in enumerate(cases):
        x, y, r = ideal(word, turn, None if real is np.float32 else 0)
        assert abs(float(x) - float(out[p])) <= tolerance(dtype, r), (word, turn)
        assert abs(float(y) - float(out[p + PAIRS])) <= tolerance(dtype, r), (word, turn)
    assert np.abs(out).max() == pytest.approx(math.sqrt(130 * math.log(2)), rel=1e-6)


def test_float32_keeps_the_digits_of_a_small_radius():
    """Near u = 1 a float32 of u would make the radius a lattice of 3e-4: below 0.01 it would take some 30 values."""
    values = drawn(2**21).view(-1, 2, PAIRS).double()
    radius = values.pow(2).sum(1).sqrt().flatten()
    small = radius[radius < 0.02]
    assert len(small) > 150
    assert len(torch.unique(small)) == len(small)
    steps = torch.diff(torch.sort(small).values)
    assert float(steps.min()) < 1e-6


@BOTH
def test_bits_do_not_depend_on_chunks_order_or_alignment(dtype):
    count = 3 * 2**16 + 777
    whole = drawn(count, row=9, start=1234, dtype=dtype)
    rng = np.random.default_rng(0)
    for pieces in (2, 7, 40):
        cuts = sorted({0, count, *rng.integers(1, count, pieces - 1).tolist()})
        spans = list(itertools.pairwise(cuts))
        rng.shuffle(spans)
        again = torch.full((count + 3,), math.nan, dtype=dtype)[3:]
        source = KeyedNormals(KEY)
        for low, high in spans:
            source.fill_(again[low:high], 0, 9, 1234 + low)
        assert torch.equal(whole, again)
    for at in (0, 1, TILE - 1235, TILE - 1234, count - 1):
        assert torch.equal(drawn(1, row=9, start=1234 + at, dtype=dtype), whole[at : at + 1])


@BOTH
def test_bits_do_not_depend_on_threads(dtype):
    """One source, seven threads, each its own part, all at once."""
    count = 7 * 40_000
    whole = drawn(count, dtype=dtype)
    again = torch.zeros(count, dtype=dtype)
    source, barrier = KeyedNormals(KEY), threading.Barrier(7)

    def work(k):
        barrier.wait()
        for low in range(k * 40_000, (k + 1) * 40_000, 10_000):
            source.fill_(again[low : low + 10_000], 0, 0, low)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(whole, again)


def test_the_known_normals_of_a_known_key():
    """Whoever changes a bit of what a subkey draws has to change keys.DRAWING_VERSION with it."""
    from momentree.noise.keys import DRAWING_VERSION

    assert DRAWING_VERSION == 1
    bits = drawn(TILE, stream=1, row=2, start=3).view(torch.int32)[[0, 1, 1000, 1023, 1024, 2047]].tolist()
    assert bits == KNOWN_32
    bits = drawn(TILE, stream=1, row=2, start=3, dtype=torch.float64).view(torch.int64)[[0, 1024, 2047]].tolist()
    assert bits == KNOWN_64


KNOWN_32 = [1063886490, 1053397946, 1040125182, 1053552155, -1079066418, 1062358495]
KNOWN_64 = [4606394977254246943, -4614544638169628245, 4605574639298677877]


def test_both_precisions_draw_the_same_normals():
    one, two = drawn(10**5), drawn(10**5, dtype=torch.float64)
    assert float((one.double() - two).abs().max()) < 4e-6
    assert float((one.double() - two).abs().max()) > 0


def test_the_layout_uses_every_block_once():
    """A tile's blocks, its low blocks, and the counter's 2^32: all of it, nothing twice."""
    assert FIRST_LOW_BLOCK == TILES * TILE_BLOCKS
    assert FIRST_LOW_BLOCK + TILES * LOW_BLOCKS == 2**32
    assert TILE_BLOCKS * 64 == PAIRS * (8 + 4)
    assert LOW_BLOCKS * 64 == PAIRS * 4
    assert COORDINATES == 2**35


@BOTH
def test_the_last_coordinate_is_drawn_and_the_next_is_refused(dtype):
    last = drawn(3, start=COORDINATES - 3, dtype=dtype)
    assert torch.isfinite(last).all()
    assert torch.equal(last[2:], drawn(1, start=COORDINATES - 1, dtype=dtype))
    with pytest.raises(InputError, match="out of range"):
        drawn(2, start=COORDINATES - 1, dtype=dtype)


@pytest.mark.parametrize("name", [(-1, 0, 0), (2**32, 0, 0), (0, -1, 0), (0, 2**64, 0), (0, 0, -1), (0, 1.5, 0)])
def test_names_that_would_wrap_are_refused(name):
    with pytest.raises(InputError):
        KeyedNormals(KEY).fill_(torch.empty(4), *name)


@pytest.mark.parametrize("wrong", [torch.empty(4, dtype=torch.float16), torch.empty(4, 4).t()], ids=["half", "strided"])
def test_what_cannot_be_filled_is_refused(wrong):
    with pytest.raises(InputError):
        KeyedNormals(KEY).fill_(wrong, 0, 0, 0)


def test_shapes_are_filled_in_the_order_of_their_memory():
    block = KeyedNormals(KEY).fill_(torch.empty(3, 4, 5), 0, 0, 10)
    assert torch.equal(block.flatten(), drawn(60, start=10))
    assert KeyedNormals(KEY).fill_(torch.empty(0), 0, 0, 0).numel() == 0


def test_a_source_neither_shows_nor_hands_out_its_key():
    source = KeyedNormals(KEY)
    assert KEY.hex() not in repr(source)
    assert repr(KEY) not in repr(source)
    for leave in (pickle.dumps, copy.deepcopy):
        with pytest.raises(InputError, match="not copied"):
            leave(source)
    with pytest.raises(InputError, match="subkey has 16 bytes"):
        KeyedNormals(bytes(16))


@pytest.mark.parametrize("width", [32, 64])
def test_the_polynomials_are_as_good_as_said(width):
    """Relative error of the two series, in 40 digits, where they are used."""
    limit = {32: 8e-8, 64: 2.0**-53}[width]
    form, rounded = (FLOAT32, np.float32) if width == 32 else (FLOAT64, np.float64)
    with mpmath.workdps(40):
        for coefficients, function, end in (
            (form.log, lambda p: 16 * mpmath.atanh(mpmath.sqrt(p)) / mpmath.sqrt(p), 0.029438),
            (form.sine, lambda p: mpmath.sin(mpmath.sqrt(p)) / mpmath.sqrt(p), (math.pi / 4) ** 2),
        ):
            kept = [mpmath.mpf(float(rounded(c))) for c in coefficients]
            for i in range(1, 200):
                p = mpmath.mpf(end) * i / 199
                assert abs(mpmath.polyval(kept, p) / function(p) - 1) < limit
