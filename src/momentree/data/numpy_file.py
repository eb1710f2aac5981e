"""NPY and NPZ, without pickles: each array's first axis is the rows.

A one-dimensional array is a column under its name (`data` in an NPY file). An array of more axes is a column of lists
under its name, for the kinds vector and image, and where it has two axes also a column `NAME.0`, `NAME.1`, … each.
Rows are streamed; an array in Fortran order is the exception, it has to be read as a whole.
"""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy
from numpy.typing import NDArray

from momentree.data.readers import Source, check_names, damaged
from momentree.data.schema import MAX_FEATURES, FileFormat
from momentree.errors import InputError

BATCH_BYTES = 8 << 20
MAX_COLUMNS = 10_000
BROKEN = (
    *(
        OSError,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
        OverflowError,
        NotImplementedError,
        RuntimeError,
        SyntaxError,
    ),
    *(zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, MemoryError, Warning),
)


@dataclass(frozen=True)
class Stored:
    """One array of the file."""

    member: str
    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    fortran: bool

    @property
    def width(self) -> int:
        return math.prod(self.shape[1:])


def open_numpy(path: Path, file: FileFormat) -> Source:
    del file
    arrays = heads(path)
    rows = arrays[0].shape[0]
    if any(array.shape[0] != rows for array in arrays):
        raise InputError(f"data {path} has arrays with different numbers of rows: save one row an example in each")
    if not rows:
        raise InputError(f"data {path} has no rows: give a file with rows")
    columns: dict[str, pa.DataType] = {}
    places: dict[str, tuple[Stored, int]] = {}
    for array in arrays:
        stored = arrow_type(path, array)
        names = [(array.name, stored if len(array.shape) == 1 else pa.list_(stored, array.width), -1)]
        if len(array.shape) == 2 and array.width <= MAX_COLUMNS:
            names += [(f"{array.name}.{j}", stored, j) for j in range(array.width)]
        check_names(path, [*columns, *(name for name, *_ in names)])
        for name, kind, place in names:
            columns[name], places[name] = kind, (array, place)

    def stream(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return batches(path, [(name, *places[name]) for name in wanted], rows)

    shapes = {array.name: array.shape[1:] for array in arrays if len(array.shape) > 2}
    return Source(path, "numpy", columns, stream, rows, shapes)


def arrow_type(path: Path, array: Stored) -> pa.DataType:
    if array.dtype.kind in "US":
        return pa.string() if array.dtype.kind == "U" else pa.binary()
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise InputError(
            f"data {path} holds an array of another kind than numbers and text: objects are never unpickled"
        )
    return pa.from_numpy_dtype(array.dtype.newbyteorder("="))


def opened(path: Path, member: str) -> IO[bytes]:
    """The array's bytes, from its member of the archive or from the file itself."""
    if path.name.lower().endswith(".npy"):
        return path.open("rb")
    with zipfile.ZipFile(path) as archive:
        return archive.open(member)


def heads(path: Path) -> list[Stored]:
    try:
        if path.name.lower().endswith(".npy"):
            return [head(path, "")]
        with zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
        arrays = [head(path, member) for member in members]
    except BROKEN:
        raise damaged(path, "NumPy") from None
    if not arrays:
        raise InputError(f"data {path} holds no array: save it with numpy.savez")
    return arrays


def head(path: Path, member: str) -> Stored:
    with opened(path, member) as stream:
        shape, fortran, dtype = header(stream)
    name = member.removesuffix(".npy") or "data"
    if not shape or len(shape) > 8 or math.prod(shape[1:]) > MAX_FEATURES or math.prod(shape[1:]) < 1:
        raise InputError(
            f"data {path} holds an array that is no table: one row an example, at most {MAX_FEATURES} numbers"
        )
    if dtype.hasobject or dtype.itemsize < 1 or dtype.itemsize > 1 << 20:
        raise InputError(
            f"data {path} holds an array of another kind than numbers and text: objects are never unpickled"
        )
    return Stored(member, name, dtype, shape, fortran and len(shape) > 1)


def header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    version = npy.read_magic(stream)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError
    shape, fortran, dtype = read(stream)
    return shape, fortran, dtype


def batches(path: Path, wanted: list[tuple[str, Stored, int]], rows: int) -> Iterator[pa.RecordBatch]:
    arrays = list({id(array): array for _, array, _ in wanted}.values())
    step = max(1, min([65_536, *(BATCH_BYTES // (array.width * array.dtype.itemsize) for array in arrays)]))
    try:
        with ExitStack() as stack:
            streams = {id(array): stack.enter_context(opened(path, array.member)) for array in arrays}
            whole: dict[int, NDArray[np.generic]] = {}
            for array in arrays:
                header(streams[id(array)])
                if array.fortran:
                    flat = take(streams[id(array)], array, rows)
                    whole[id(array)] = flat.reshape(array.shape, order="F")
            for start in range(0, rows, step):
                count = min(step, rows - start)
                parts = {
                    id(array): whole[id(array)][start : start + count]
                    if id(array) in whole
                    else take(streams[id(array)], array, count)
                    for array in arrays
                }
                yield batch(path, parts, wanted, count)
    except BROKEN:
        raise damaged(path, "NumPy") from None


def take(stream: IO[bytes], array: Stored, count: int) -> NDArray[np.generic]:
    """The next `count` rows."""
    size = count * array.width * array.dtype.itemsize
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    flat = np.frombuffer(data, array.dtype).astype(array.dtype.newbyteorder("="), copy=False)
    return flat if array.fortran else flat.reshape(count, *array.shape[1:])


def batch(
    path: Path, parts: dict[int, NDArray[np.generic]], wanted: list[tuple[str, Stored, int]], count: int
) -> pa.RecordBatch:
    columns = []
    for _, array, place in wanted:
        part = parts[id(array)]
        kind = arrow_type(path, array)
        if place >= 0:
            columns.append(pa.array(np.ascontiguousarray(part[:, place]), kind))
        elif part.ndim == 1:
            columns.append(pa.array(part, kind))
        else:
            flat = np.ascontiguousarray(part).reshape(-1)
            columns.append(pa.FixedSizeListArray.from_arrays(pa.array(flat, kind), array.width))
    return pa.record_batch(columns, names=[name for name, *_ in wanted])
