"""ChaCha20 in torch: RFC 8439's vectors, the `cryptography` keystream bit for bit, the CPU's normals within 2 ulp.

Run on the CPU always, on a CUDA device where there is one.
"""

import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from momentree.noise import chacha
from momentree.noise.layout import COORDINATES, FIRST_LOW_BLOCK, LOW_BLOCKS, PAIRS, TILE, TILE_BLOCKS, nonce
from momentree.noise.normals import KeyedNormals, _Workspace, cipher_of, keystream_into
from momentree.noise.stream import NoiseStream
from momentree.strategy.blt import Blt

KEY = bytes(range(32))
CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
)
DEVICES = pytest.mark.parametrize("device", ["cpu", CUDA])
BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def as_bytes(words):
    return words.cpu().numpy().astype("<i4").tobytes()


def block_of(key, nonce, counter, device):
    words = np.frombuffer(b"expand 32-byte k" + key + bytes(4) + nonce, "<i4").tolist()
    return as_bytes(chacha.blocks(words, torch.tensor([counter], dtype=torch.int32, device=device)))


@DEVICES
def test_rfc_8439_block_function(device):
    """RFC 8439, 2.3.2, and the first two of A.1."""
    nonce = bytes.fromhex("000000090000004a00000000")
    expected = (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    assert block_of(KEY, nonce, 1, device).hex() == expected
    expected = (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    assert block_of(bytes(32), bytes(12), 0, device).hex() == expected
    expected = (
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
    )
    assert block_of(bytes(32), bytes(12), 1, device).hex() == expected


@DEVICES
@pytest.mark.parametrize("block", [0, 1, 2**31 - 3, 2**31 - 1, 2**32 - 64])
def test_the_keystream_is_that_of_the_cryptography_package(device, block):
    """Bit for bit, beyond the sign bit of the counter too; and the layer that the CPU's source uses says the same."""
    stream, row, count = 2**32 - 1, 2**63 + 12345, 64
    ours = as_bytes(chacha.keystream(KEY, stream, row, block, count, torch.device(device)))
    name = block.to_bytes(4, "little") + stream.to_bytes(4, "little") + row.to_bytes(8, "little")
    theirs = Cipher(algorithms.ChaCha20(KEY, name), mode=None).encryptor().update(bytes(64 * count))
    assert ours == theirs
    out = np.empty(64 * count, np.uint8)
    keystream_into(out, cipher_of(KEY), nonce(stream, row), block)
    assert out.tobytes() == theirs


@DEVICES
@BOTH
def test_the_uniforms_are_the_words_at_both_ends(device, dtype):
    """(x + ½) 2^-64, as exact fractions: relative to u near 0, and to 1 - u near 1."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2**64, 4_000, dtype=np.uint64)
    small = x[:1500] >> rng.integers(0, 64, 1500).astype(np.uint64)
    ends = np.array(
        [0, 1, 2**24 + 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 2**33, 2**64 - 2**40 + 12345], np.uint64
    )
    x = np.concatenate([x, small, ~small, ends])
    high, low = (x >> np.uint64(32)).astype(np.uint32), x.astype(np.uint32)
    parts = [torch.from_numpy(half.view(np.int32)).to(device) for half in (high, low)]
    a, error = (part.cpu().tolist() for part in chacha.uniforms(*parts, dtype))
    unit = Fraction(2) ** (-23 if dtype == torch.float32 else -52)
    for word, rounded, missing in zip(x.tolist(), a, error, strict=True):
        u = Fraction(2 * word + 1, 2**65)
        off = abs(Fraction(rounded) + Fraction(missing) - u)
        near = min(u, 1 - u)
        assert 0 < rounded <= 1
        assert off <= 2 * unit * near + (Fraction(2) ** -55 if near < Fraction(1, 2**31) and u > 0.5 else 0)


def ulps(one, two):
    """Distance in units in the last place of the larger."""
    a, b = one.double().numpy(), two.double().numpy()
    if one.dtype == torch.float32:
        unit = np.spacing(np.maximum(np.abs(one.numpy()), np.abs(two.numpy()))).astype(np.float64)
    else:
        unit = np.spacing(np.maximum(np.abs(a), np.abs(b)))
    return np.abs(a - b) / unit


@DEVICES
@BOTH
def test_normals_are_those_of_the_cpu_within_two_ulp(device, dtype):
    count, start = 50 * TILE + 77, 5 * TILE + 123
    cpu = KeyedNormals(KEY).fill_(torch.empty(count, dtype=dtype), 7, 99, start)
    here = chacha.fill_(torch.empty(count, dtype=dtype, device=device), KEY, 7, 99, start).cpu()
    assert ulps(cpu, here).max() <= 2.0
    if dtype == torch.float32:  # operations that are rounded correctly leave no room for a difference at all
        assert torch.equal(cpu, here)


@DEVICES
@BOTH
def test_chunks_do_not_matter_here_either(device, dtype, monkeypatch):
    count = 9 * TILE + 5
    whole = chacha.fill_(torch.empty(count, dtype=dtype, device=device), KEY, 0, 1, 17)
    monkeypatch.setattr(chacha, "CHUNK_TILES", 2)
    again = chacha.fill_(torch.empty(count, dtype=dtype, device=device), KEY, 0, 1, 17)
    assert torch.equal(whole, again)
    part = chacha.fill_(torch.empty(100, dtype=dtype, device=device), KEY, 0, 1, 17 + 5000)
    assert torch.equal(whole[5000:5100], part)


@DEVICES
@BOTH
def test_the_last_tile_is_drawn(device, dtype):
    cpu = KeyedNormals(KEY).fill_(torch.empty(10, dtype=dtype), 0, 0, COORDINATES - 10)
    here = chacha.fill_(torch.empty(10, dtype=dtype, device=device), KEY, 0, 0, COORDINATES - 10).cpu()
    assert ulps(cpu, here).max() <= 2.0


ON_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


@ON_CUDA
def test_the_kernel_is_taken_where_it_can_be_and_draws_the_cpus_bits():
    pytest.importorskip("triton")
    device = torch.device("cuda", torch.cuda.current_device())
    assert chacha.kernels(device) is not None
    source = KeyedNormals(KEY)
    for count, start in ((1, 0), (2 * TILE, 0), (7 * TILE + 5, 0), (2_000_003, 12_345), (10, COORDINATES - 10)):
        here = source.fill_(torch.empty(count, device=device), 2**32 - 1, 2**64 - 1, start)
        assert torch.equal(here.cpu(), source.fill_(torch.empty(count), 2**32 - 1, 2**64 - 1, start))


@ON_CUDA
@BOTH
def test_without_the_kernel_a_device_draws_the_same_bits(dtype, monkeypatch):
    drawn = [chacha.fill_(torch.empty(9 * TILE, dtype=dtype, device="cuda"), KEY, 1, 2, 3)]
    monkeypatch.setattr(chacha, "kernels", lambda device: None)
    drawn.append(chacha.fill_(torch.empty(9 * TILE, dtype=dtype, device="cuda"), KEY, 1, 2, 3))
    assert torch.equal(*drawn)


@ON_CUDA
@BOTH
def test_a_step_never_waits_for_the_device(dtype):
    strategy = Blt(9, np.array([0.3, 0.1]), np.array([0.9, 0.5]))
    stream = NoiseStream(strategy, KeyedNormals(KEY), [100_000, 7], dtype=dtype, device="cuda")
    blocks = [torch.zeros(100_000, device="cuda"), torch.zeros(7, device="cuda")]
    stream.add_(blocks, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mode says that it is a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(3):
                stream.add_(blocks, 0.5)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@ON_CUDA
def test_a_source_draws_on_the_device_of_the_tensor():
    count = 3 * TILE + 1
    there = KeyedNormals(KEY).fill_(torch.empty(count, device="cuda"), 1, 2, 3)
    assert there.is_cuda
    assert torch.equal(there.cpu(), KeyedNormals(KEY).fill_(torch.empty(count), 1, 2, 3))


def test_a_device_is_given_the_words_of_the_cpus_layout():
    """The low halves come from blocks of their own, as on the CPU."""
    work = _Workspace(1, np.float64)
    assert work.low is not None
    keystream_into(work.low, cipher_of(KEY), nonce(4, 5), FIRST_LOW_BLOCK + 6 * LOW_BLOCKS)
    low = chacha.keystream(KEY, 4, 5, FIRST_LOW_BLOCK + 6 * LOW_BLOCKS, LOW_BLOCKS, torch.device("cpu"))
    assert as_bytes(low) == work.low.tobytes()
    keystream_into(work.words, cipher_of(KEY), nonce(4, 5), 6 * TILE_BLOCKS)
    words = chacha.keystream(KEY, 4, 5, 6 * TILE_BLOCKS, TILE_BLOCKS, torch.device("cpu")).view(-1)
    high, less, angle = work.split()
    assert np.array_equal(words[:PAIRS].numpy(), high[0])
    assert np.array_equal(words[PAIRS : 2 * PAIRS].numpy(), less[0].view(np.int32))
    assert np.array_equal(words[2 * PAIRS :].numpy(), angle[0])
