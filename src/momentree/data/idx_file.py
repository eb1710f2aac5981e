"""IDX, the format of the MNIST family: images and labels, plain or gzip, one part or a folder of parts.

The columns are `image` (a list of numbers a row), `label`, and for a folder `split` with the words train and test.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from momentree.data.readers import Source, damaged
from momentree.data.schema import MAX_FEATURES, FileFormat
from momentree.errors import InputError

TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
ARROW = {
    ">u1": pa.uint8(),
    ">i1": pa.int8(),
    ">i2": pa.int16(),
    ">i4": pa.int32(),
    ">f4": pa.float32(),
    ">f8": pa.float64(),
}
BATCH_BYTES = 8 << 20
PARTS = {"train": "train", "t10k": "test", "test": "test"}


def is_idx(name: str) -> bool:
    return name.removesuffix(".gz").endswith(("-ubyte", ".idx", ".idx1", ".idx3"))


def is_folder(path: Path) -> bool:
    """Whether a folder holds files of the MNIST family, by their names."""
    return any(is_idx(child.name.lower()) and "-images-" in child.name.lower() for child in path.iterdir())


def open_file(path: Path, file: FileFormat) -> Source:
    """One file of images with its labels beside it (`…-images-idx3-…` and `…-labels-idx1-…`), where they are."""
    del file
    return source(path, [("", path)])


def open_folder(path: Path, file: FileFormat) -> Source:
    """All parts of a folder, train first, told apart by the column `split`."""
    del file
    found = sorted(child for child in path.iterdir() if is_idx(child.name.lower()) and "-images-" in child.name.lower())
    parts = {child.name.split("-images-")[0].lower(): child for child in found}
    if len(parts) < len(found) or not set(parts) <= set(PARTS):
        raise InputError(
            f"data {path} has IDX parts other than train and t10k, or one twice: give one file by its name"
        )
    order = sorted(parts, key=lambda name: PARTS[name] != "train")
    return source(path, [(PARTS[name], parts[name]) for name in order])


def labels_of(images: Path) -> Path | None:
    """The labels' file beside an images' file."""
    name = images.name.replace("-images-", "-labels-").replace("-idx3-", "-idx1-")
    stem = name.removesuffix(".gz")
    for candidate in (images.with_name(name), images.with_name(stem), images.with_name(stem + ".gz")):
        if candidate != images and candidate.is_file():
            return candidate
    return None


def source(path: Path, parts: list[tuple[str, Path]]) -> Source:
    heads = [head(images) for _, images in parts]
    dtype, shape, _ = heads[0]
    if any((d, s) != (dtype, shape) for d, s, _ in heads):
        raise InputError(f"data {path} has IDX parts of different shapes: give one file by its name")
    columns: dict[str, pa.DataType] = {"image": pa.list_(ARROW[dtype], int(np.prod(shape)))}
    labels = [labels_of(images) for _, images in parts]
    if all(labels):
        columns["label"] = pa.int32()
        for (_, _, rows), beside in zip(heads, labels, strict=True):
            if beside is not None and head(beside)[1:] != ((), rows):
                raise InputError(f"data {path} has not one label for each image: give the files that belong together")
    if parts[0][0]:
        columns["split"] = pa.string()

    def stream(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for (split, images), beside in zip(parts, labels, strict=True):
            yield from batches(split, images, beside, columns, list(wanted))

    return Source(path, "idx", columns, stream, sum(rows for *_, rows in heads), {"image": shape})


def opened(path: Path) -> BinaryIO:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def read(path: Path, stream: BinaryIO, size: int) -> bytes:
    try:
        data = stream.read(size)
    except (OSError, EOFError, zlib.error):
        raise damaged(path, "IDX") from None
    if len(data) < size:
        raise damaged(path, "IDX")
    return data


def head(path: Path) -> tuple[str, tuple[int, ...], int]:
    """The stored type, the shape of one row, the number of rows."""
    try:
        with opened(path) as stream:
            return header(path, stream)
    except OSError:
        raise damaged(path, "IDX") from None


def header(path: Path, stream: BinaryIO) -> tuple[str, tuple[int, ...], int]:
    zero, code, axes = struct.unpack(">HBB", read(path, stream, 4))
    if zero or code not in TYPES or not 1 <= axes <= 4:
        raise InputError(f"data {path} does not begin as an IDX file does: give one of the MNIST family")
    rows, *shape = struct.unpack(f">{axes}I", read(path, stream, 4 * axes))
    if rows < 1 or any(size < 1 for size in shape) or int(np.prod(shape, dtype=object)) > MAX_FEATURES:
        raise InputError(f"data {path} says that it has no rows, or rows of more than {MAX_FEATURES} numbers")
    return TYPES[code], tuple(shape), rows


def batches(
    split: str, images: Path, labels: Path | None, columns: dict[str, pa.DataType], wanted: list[str]
) -> Iterator[pa.RecordBatch]:
    dtype, shape, rows = head(images)
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    step = max(1, min(65_536, BATCH_BYTES // size))
    with opened(images) as pixels, opened(labels or images) as answers:
        header(images, pixels)
        label_type = header(labels or images, answers)[0]
        for start in range(0, rows, step):
            count = min(step, rows - start)
            arrays = {}
            if "image" in wanted:
                flat = np.frombuffer(read(images, pixels, count * size), dtype).astype(
                    np.dtype(dtype).newbyteorder("=")
                )
                arrays["image"] = pa.FixedSizeListArray.from_arrays(pa.array(flat), int(np.prod(shape)))
            if "label" in wanted and labels is not None:
                raw = read(labels, answers, count * np.dtype(label_type).itemsize)
                arrays["label"] = pa.array(np.frombuffer(raw, label_type).astype(np.int32))
            if "split" in wanted:
                arrays["split"] = pa.array([split] * count, pa.string())
            yield pa.record_batch([arrays[name] for name in wanted], names=wanted)
