"""Arrow cells to numpy by declared kind. What a cell becomes depends on that cell alone; a bad one is no error.

Nothing here raises because of a value: an error would tell that somebody's value is unusual. Only stored *types* that
cannot carry the declared kind (nested lists for a number) are refused, by `check_type`, before a row is read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from momentree.data.schema import WORDS, Column
from momentree.errors import InputError

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
MISSING, UNSEEN = -1, -2
NUMERAL = r"^-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def is_words(kind: pa.DataType) -> bool:
    """Stored as text or bytes."""
    t = pa.types
    return bool(
        t.is_string(kind) or t.is_large_string(kind) or t.is_binary(kind) or t.is_large_binary(kind)
        or t.is_fixed_size_binary(kind)
    )  # fmt: skip


def is_scalar(kind: pa.DataType) -> bool:
    """Stored as one plain value a row."""
    t = pa.types
    if t.is_dictionary(kind):
        return is_scalar(kind.value_type)
    plain = t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_boolean(kind) or t.is_null(kind)
    return bool(plain or is_words(kind))


def is_listed(kind: pa.DataType) -> bool:
    """Stored as a list of numbers a row, possibly nested (an image of rows of pixels)."""
    t = pa.types
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        inner = kind.value_type
        return bool(is_listed(inner) or t.is_integer(inner) or t.is_floating(inner))
    return False


def check_type(column: Column, stored: pa.DataType) -> None:
    """Refuse a stored type that cannot carry the declared kind. Types are facts of the file, not of its rows."""
    where = f"column {column.name!r} is declared as {column.kind} but"
    if column.kind in ("image", "vector"):
        encoded = column.kind == "image" and is_words(stored)
        if not (encoded or is_listed(stored)):
            raise InputError(f"{where} the file stores {describe(stored)}: declare the kind that the file has")
    elif not is_scalar(stored):
        raise InputError(f"{where} the file stores {describe(stored)}: store one plain value a row, or drop the column")


def describe(stored: pa.DataType) -> str:
    """A stored type in words that cannot carry a value (a struct's field names come from the file)."""
    t = pa.types
    if t.is_nested(stored):
        return "nested lists or records"
    if t.is_temporal(stored):
        return "dates or times (convert them to numbers)"
    return str(stored) if is_scalar(stored) and not t.is_dictionary(stored) else "another type"


def decoded(array: pa.Array) -> pa.Array:
    """The array without dictionary or chunks."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    return array


def trimmed(array: pa.Array) -> pa.Array:
    """Words as binary without blanks around them. Bytes that are not UTF-8 stay as they are."""
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    text, raw = (pa.large_string(), pa.large_binary()) if large else (pa.string(), pa.binary())
    if array.type != text:
        array = array.cast(text, safe=False)
    return pc.ascii_trim_whitespace(array).cast(raw)


def numbers(array: pa.Array, missing: Sequence[str] = ()) -> Floats:
    """float64, NaN for everything that is not a finite number."""
    array = decoded(array)
    if is_words(array.type):
        values = parsed(array, missing)
    elif pa.types.is_null(array.type):
        return np.full(len(array), np.nan)
    else:
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.uint8())
        values = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float64)
        for token in missing:
            if re.match(NUMERAL, token):
                values[values == float(token)] = np.nan
    return np.where(np.isfinite(values), values, np.nan)


def parsed(array: pa.Array, missing: Sequence[str]) -> Floats:
    """Numerals to floats. The quick way when all are plain; cell by cell the two ways agree."""
    words = trimmed(array)
    tokens = [token for token in missing if re.match(NUMERAL, token)]
    if tokens:
        gone = pc.is_in(words, value_set=pa.array([token.encode() for token in tokens], words.type))
        words = pc.if_else(gone, pa.scalar(None, words.type), words)
    text = pa.large_string() if pa.types.is_large_binary(words.type) else pa.string()
    try:
        floats = words.cast(text, safe=False).cast(pa.float64())
    except pa.ArrowInvalid:  # its message quotes the cell
        words = pc.replace_substring_regex(words, pattern=r"^\+([0-9.])", replacement=r"\1")
        plain = pc.fill_null(pc.match_substring_regex(words, NUMERAL), False)
        words = pc.if_else(plain, words, pa.scalar(None, words.type))
        floats = words.cast(text, safe=False).cast(pa.float64())
    return np.array(floats.to_numpy(zero_copy_only=False), np.float64)


def words(array: pa.Array) -> pa.Array:
    """Any scalar column as trimmed words: 1, 1.0 and "1" are the same word."""
    array = decoded(array)
    if is_words(array.type):
        return trimmed(array)
    t = pa.types
    if t.is_boolean(array.type) or t.is_integer(array.type) or t.is_null(array.type):
        return array.cast(pa.string()).cast(pa.binary())
    floats = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    distinct, place = np.unique(floats, return_inverse=True)
    names = [
        None if np.isnan(x) else str(int(x)) if abs(x) < 1e15 and x == int(x) else repr(float(x)) for x in distinct
    ]
    return pa.array(names, pa.string()).take(pa.array(place.ravel())).cast(pa.binary())


def codes(array: pa.Array, values: Sequence[str], missing: Sequence[str] = ("",)) -> Codes:
    """The place of each cell in the declared values; MISSING for a blank, UNSEEN for anything else."""
    cells = words(array)
    found = pc.index_in(cells, value_set=pa.array([value.encode() for value in values], cells.type))
    absent = pc.is_in(cells, value_set=pa.array([None, *(token.encode() for token in missing)], cells.type))
    place: Codes = found.fill_null(UNSEEN).to_numpy(zero_copy_only=False).astype(np.int64)
    place[(place == UNSEEN) & absent.to_numpy(zero_copy_only=False)] = MISSING
    return place


def booleans(array: pa.Array, column: Column, missing: Sequence[str] = ("",)) -> Codes:
    """0, 1 or MISSING, by the declared pair or by the usual words."""
    if column.values:
        found = codes(array, column.values, missing)
    else:
        cells = words(array)
        low = pc.ascii_lower(cells.cast(pa.large_string(), safe=False)).cast(pa.large_binary())
        found = codes(low, (*WORDS[0], *WORDS[1]), missing)
        found = np.where(found >= 0, found >= len(WORDS[0]), found)
    return np.where(found >= 0, found, MISSING)


def block(array: pa.Array, column: Column) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """A list of numbers a row, scaled to [-1, 1] by the bounds, and which rows have one of the declared size."""
    size = int(np.prod(column.shape))
    array = decoded(array)
    if is_words(array.type):
        raw, usable = pictures(array, column)
    else:
        raw, usable = lists(array, size)
    low, high = column.bounds
    scaled = np.clip(raw, low, high)
    scaled -= (low + high) / 2
    scaled *= 2 / (high - low)
    return np.nan_to_num(scaled, copy=False, nan=0.0).astype(np.float32, copy=False), usable


def flat(array: pa.Array) -> pa.Array:
    """All numbers of a column of lists."""
    array = decoded(array)
    while is_listed(array.type):
        array = array.flatten()
    return array


def lists(array: pa.Array, size: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Rows of numbers of the right length; zeros and False for the others."""
    rows = len(array)
    usable = ~array.is_null().to_numpy(zero_copy_only=False)
    values = array
    length = np.ones(rows, np.int64)
    owner = np.arange(rows)
    while is_listed(values.type):
        count = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        owner = np.repeat(owner, count)
        values = values.flatten()
    length = np.bincount(owner, minlength=rows)
    usable &= length == size
    flat = values.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    out = np.zeros((rows, size), np.float32)
    out[usable] = flat[usable[owner]].reshape(-1, size)
    return out, usable


def pictures(array: pa.Array, column: Column) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Encoded images (PNG, JPEG, …) decoded, turned grey or RGB and resized to the declared shape."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError("reading encoded images needs Pillow: install momentree[images]") from None
    height, width = column.shape[:2]
    mode = "RGB" if column.shape[2:] == (3,) else "L"
    out = np.zeros((len(array), int(np.prod(column.shape))), np.float32)
    usable = np.zeros(len(array), np.bool_)
    for row, cell in enumerate(array):
        raw = cell.as_buffer()
        if raw is None or not raw.size:
            continue
        try:
            with Image.open(io.BytesIO(raw.to_pybytes())) as picture:
                if picture.width * picture.height <= 1 << 26:
                    shaped = picture.convert(mode).resize((width, height), Image.Resampling.BILINEAR)
                    out[row] = np.asarray(shaped, np.float32).ravel()
                    usable[row] = True
        except Exception:  # a damaged image is a bad cell: Pillow raises a dozen types for one
            continue
    return out, usable
