"""Keyed random draws that can be drawn again: words, permutations, places.

A 32-byte key and a purpose make a subkey, `HMAC-SHA256(key; purpose)`; the subkey drives a ChaCha20 keystream, read as
64-bit words. To anyone without the key the words are indistinguishable from independent uniform ones unless ChaCha20
or HMAC-SHA256 is broken, whatever has been released before. That is what an amplified account needs of an order that
has to stay secret; a generator made for simulation (Philox, PCG) promises nothing of the kind, however it is seeded.
Word i depends on (key, purpose, i) alone: neither on how many words are asked for, nor on any other row.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from momentree.errors import InputError
from momentree.order.base import Indices

KEY_BYTES = 32
DOMAIN = b"momentree order v1"


def subkey(key: bytes, *purpose: object) -> bytes:
    """A key of its own for each purpose. The purpose is public; its parts must not contain a slash."""
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise InputError(f"the order's key is not {KEY_BYTES} bytes: give the bytes of `secrets.token_bytes(32)`")
    return hmac.new(key, b"/".join([DOMAIN, *(str(part).encode() for part in purpose)]), hashlib.sha256).digest()


def public_key(seed: int) -> bytes:
    """The key that stands for a public seed: nothing that privacy rests on may be drawn from it."""
    return hashlib.sha256(DOMAIN + b"/public seed/" + str(int(seed)).encode()).digest()


def words(sub: bytes, count: int) -> NDArray[np.uint64]:
    """The first `count` words of the subkey's stream."""
    stream = Cipher(algorithms.ChaCha20(sub, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * count)), dtype="<u8").astype(np.uint64, copy=False)


def below(drawn: NDArray[np.uint64], bound: int) -> Indices:
    """⌊word · bound / 2⁶⁴⌋: uniform in 0 … bound−1 up to 2⁻⁶⁴ an outcome. `bound` < 2³²."""
    b, half, low = np.uint64(bound), np.uint64(32), np.uint64(0xFFFFFFFF)
    return (((drawn >> half) * b + (((drawn & low) * b) >> half)) >> half).astype(np.int64)


@lru_cache(maxsize=2)
def permutation(sub: bytes, size: int) -> Indices:
    """A uniform order of 0 … size−1: rows sorted by their words. (Two equal words: probability size²/2⁶⁵.)"""
    order = np.argsort(words(sub, size), kind="stable").astype(np.int64, copy=False)
    order.flags.writeable = False
    return order
