"""Keys: one secret of 256 bits, and subkeys that tie its noise to exactly one run on exactly one data set.

Why different (run, plan, code, data, weights, purpose, stream, row, coordinate) never meet the same keystream:

1. `derive_subkey` encodes its fields one after the other, each as name, type, length in 8 bytes, content. The encoding
   can be read back without ambiguity, so two different tuples of fields are two different messages; a field that is
   not given is told apart from one that is empty.
2. The subkey is HMAC-SHA256 of that message under the master key (the expand step of HKDF, RFC 5869; its extract step
   is for keys that are not uniform, ours are). To somebody without the key the subkeys of different messages are
   independent 256-bit strings; two of them are equal with probability 2^-256. The data's digest is an HMAC under
   another prefix, so no data can ask for a message that yields a subkey.
3. Under one subkey a ChaCha20 block is named by (stream, row, block): the nonce is stream (32 bits) then row (64 bits),
   the counter is 32 bits. `normals.py` gives every coordinate bytes of its own within its row, and refuses numbers that
   do not fit instead of wrapping them. ChaCha20 is a pseudo-random function of key, nonce and counter: different names,
   different blocks, as far as anybody can tell who has not broken it.

So equality is impossible at 3 by construction, and at 2 as unlikely as guessing the key. Nothing here is ever logged or
put in a message.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable

from momentree.errors import InputError

KEY_BYTES = 32
DRAWING_VERSION = 1
"""Changes whenever the same subkey would give other normals than before; part of every subkey."""

_SUBKEY = b"momentree/noise/subkey"
_DATA = b"momentree/noise/data"


def new_key() -> bytes:
    """A fresh master key from the operating system's generator. Secret: whoever has it can subtract the noise."""
    return os.urandom(KEY_BYTES)


def check_key(key: object, *, name: str = "key") -> bytes:
    """`key` as 32 bytes; anything else is refused without showing it."""
    if not isinstance(key, bytes | bytearray | memoryview):
        kind = type(key).__name__
        raise InputError(f"{name} is of type {kind}: give {KEY_BYTES} bytes, as noise.keys.new_key() makes them")
    given = bytes(key)
    if len(given) != KEY_BYTES:
        raise InputError(
            f"{name} has {len(given)} bytes: give {KEY_BYTES} bytes (256 bits), as noise.keys.new_key() makes them"
        )
    return given


def derive_subkey(
    key: bytes,
    *,
    run_id: str | bytes | None = None,
    plan_digest: str | bytes | None = None,
    code_version: str | bytes | None = None,
    data_digest: str | bytes | None = None,
    weights_digest: str | bytes | None = None,
    purpose: str | bytes,
) -> bytes:
    """The 256-bit subkey of one purpose of one run; see the head of this file for why no two share keystream.

    Whatever the release depends on besides the noise has to be among the fields: the same noise on two different values
    hands out their difference. A run gives all of them; a field left out is encoded as such.
    """
    fields = {
        "run id": run_id,
        "plan digest": plan_digest,
        "code version": code_version,
        "data digest": data_digest,
        "weights digest": weights_digest,
        "purpose": purpose,
    }
    if not purpose:
        raise InputError("purpose of a subkey is empty: name what the noise is for, so that nothing else shares it")
    message = _SUBKEY + DRAWING_VERSION.to_bytes(8, "little")
    message += b"".join(_field(name, value) for name, value in fields.items())
    return hmac.digest(check_key(key), message, "sha256")


def _field(name: str, value: str | bytes | None) -> bytes:
    """One field, readable back: name, type and content, each behind its length."""
    if value is None:
        kind, content = b"none", b""
    elif isinstance(value, str):
        kind, content = b"text", value.encode()
    elif isinstance(value, bytes):
        kind, content = b"bytes", value
    else:
        raise InputError(f"{name} of a subkey is of type {type(value).__name__}: give text or bytes")
    return b"".join(len(part).to_bytes(8, "little") + part for part in (name.encode(), kind, content))


def data_hmac(key: bytes, chunks: Iterable[bytes | bytearray | memoryview]) -> str:
    """HMAC-SHA256 of the data under the key, in hexadecimal: recognises the file, and tells nothing without the key.

    The chunks are joined: where one ends and the next begins does not matter, so the same file read in other pieces is
    the same data. It is keyed because a plain hash of private data lets anybody test a guess of it; keep it where the
    key is, never in a record.
    """
    digest = hmac.new(hmac.digest(check_key(key), _DATA, "sha256"), digestmod=hashlib.sha256)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
