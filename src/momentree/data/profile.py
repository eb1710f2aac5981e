"""What a column holds, read from the rows themselves: for drafting and checking a schema, never for training.

Everything in a `Profile` is a function of private data and protected by nothing. It is written to a draft (which says
so on each line) and compared with a schema; it is never printed, logged or kept.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from momentree.data import cells
from momentree.data.readers import Source
from momentree.data.schema import MAX_VALUES

LARGEST = 1e29
"""Numbers beyond this are damage rather than data: a draft's bounds leave them out, a schema could not hold them."""


PICTURES = (
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"BM",
    b"GIF8",
    b"RIFF",
    b"II*\0",
    b"MM\0*",
    *(b"P%d" % k for k in range(1, 7)),
)
"""How PNG, JPEG, BMP, GIF, WebP, TIFF and PPM begin; Pillow has the last word."""


@dataclass
class Profile:
    """Running facts about one column."""

    name: str
    stored: pa.DataType
    rows: int = 0
    filled: int = 0
    numeric: int = 0
    whole: bool = True
    low: float = float("inf")
    high: float = float("-inf")
    total: float = 0.0
    spaces: int = 0
    size: tuple[int, ...] = ()
    counts: dict[bytes, int] | None = field(default_factory=dict)

    def add(self, array: pa.Array, missing: Sequence[str]) -> None:
        """The next rows of the column."""
        self.rows += len(array)
        if cells.is_listed(self.stored):
            self._add_numbers(cells.flat(array))
            return
        if not cells.is_scalar(self.stored):
            return
        self._add_numbers(array, missing)
        as_words = cells.is_words(self.stored)
        if not as_words and (self.counts is None or pc.count_distinct(cells.decoded(array)).as_py() > MAX_VALUES):
            self.counts, self.filled = None, self.numeric
            return
        words = cells.words(array)
        blank = pc.is_in(words, value_set=pa.array([None, *(token.encode() for token in missing)], words.type))
        words = words.filter(pc.invert(blank))
        self.filled += len(words)
        if as_words:
            text = words.cast(pa.large_string(), safe=False)
            self.spaces += pc.sum(pc.count_substring(text, " ")).as_py() or 0
            self._picture(words)
        if self.counts is not None:
            self._count(words)

    def _count(self, words: pa.Array) -> None:
        """Different words and how often each occurs, until there are too many of them."""
        found = words.value_counts()
        if len(found) <= MAX_VALUES and self.counts is not None:
            for word, times in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
                self.counts[word] = self.counts.get(word, 0) + times
        if len(found) > MAX_VALUES or len(self.counts or ()) > MAX_VALUES:
            self.counts = None

    def _add_numbers(self, array: pa.Array, missing: Sequence[str] = ()) -> None:
        values = cells.numbers(array, missing) if cells.is_scalar(array.type) else np.zeros(0)
        values = values[~np.isnan(values)]
        self.numeric += len(values)
        values = values[np.abs(values) <= LARGEST]
        if len(values):
            self.total += float(values.sum())
            self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
            self.whole = self.whole and bool((values == np.rint(values)).all())

    def _picture(self, words: pa.Array) -> None:
        """The size of the first encoded image of the column, if its cells are images."""
        if self.size or not len(words) or not words[0].as_py()[:4].startswith(PICTURES):
            return
        try:
            from PIL import Image

            with Image.open(io.BytesIO(words[0].as_py())) as picture:
                self.size = (
                    (picture.height, picture.width)
                    if picture.mode in ("1", "L")
                    else (picture.height, picture.width, 3)
                )
        except Exception:  # not an image after all, or Pillow is not there: the column is drafted as something else
            return


def profiles(source: Source, names: Iterable[str], missing: Sequence[str]) -> dict[str, Profile]:
    """One pass over the file."""
    found = {name: Profile(name, source.columns[name]) for name in names}
    for batch in source.batches(list(found)):
        for name, profile in found.items():
            profile.add(batch.column(name), missing)
    return found
