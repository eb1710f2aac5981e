"""The public tokenizer: words, their n-grams, and a hash of each. Nothing is learned, so nothing of a text leaks here.

A text becomes the set of its n-grams' hashes below `dimension`; every n-gram counts once, and a row's weights make a
vector of norm 1. Version 1 of the rule, part of what a schema means: lower case (Unicode), words are runs of letters
and digits, apostrophes inside a word are dropped; the hash is BLAKE2b, so it is the same on every machine.
"""

from __future__ import annotations

import hashlib
import re

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

WORD = re.compile(r"[^\W_]+")
MAX_BYTES = 1 << 20
CACHE = 1 << 20


class Hasher:
    """Texts to hashed n-grams. The cache only saves time: it is bounded, and never written anywhere."""

    def __init__(self, dimension: int, ngrams: tuple[int, int]) -> None:
        self.dimension = dimension
        self.ngrams = ngrams
        self._seen: dict[str, int] = {}

    def place(self, gram: str) -> int:
        """The feature of one n-gram."""
        found = self._seen.get(gram)
        if found is None:
            digest = hashlib.blake2b(
                gram.encode("utf-8", "replace"), digest_size=8, person=b"momentree-text-1"
            ).digest()
            found = int.from_bytes(digest, "little") % self.dimension
            if len(self._seen) >= CACHE:
                self._seen.clear()
            self._seen[gram] = found
        return found

    def features(self, text: str) -> list[int]:
        """The distinct features of a text, in order."""
        words = WORD.findall(text.lower().replace("'", "").replace("\u2019", ""))
        first, last = self.ngrams
        found = {self.place(word) for word in words} if first == 1 else set()
        for length in range(max(2, first), last + 1):
            found.update(self.place(" ".join(words[i : i + length])) for i in range(len(words) - length + 1))
        return sorted(found)

    def column(self, cells: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """A column's features one after the other, and how many each row has; a row without a word has none."""
        flat: list[int] = []
        counts = np.zeros(len(cells), np.int64)
        for row, cell in enumerate(cells.to_pylist()):
            if cell:
                found = self.features(cell[:MAX_BYTES].decode("utf-8", "replace"))
                flat += found
                counts[row] = len(found)
        return np.array(flat, np.int32), counts
