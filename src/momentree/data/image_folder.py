"""A folder of images by class: `DATA/class/file` or `DATA/split/class/file`; columns `image`, `label` and `split`.

The rows are the files in the order of their names. An image that cannot be decoded keeps its place and contributes
zero; it is decoded where the declared shape is known, so the batches carry the files' bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from momentree.data.readers import Source
from momentree.data.schema import FileFormat
from momentree.errors import InputError

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
BATCH_FILES = 256
MAX_FILE = 256 << 20


def open_folder(path: Path, file: FileFormat) -> Source:
    del file
    try:
        files = sorted(found(path))
    except OSError as error:
        raise InputError(f"data {path} cannot be listed: {error.strerror}") from None
    depths = {len(parts) for parts in files}
    if not files or not depths <= {2, 3} or len(depths) > 1:
        raise InputError(
            f"data {path} is a folder without images by class: give a file, or a folder laid out as class/image.png "
            "(or split/class/image.png)"
        )
    columns = {"image": pa.binary(), "label": pa.string()} | ({"split": pa.string()} if depths == {3} else {})

    def stream(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return batches(path, files, list(wanted))

    return Source(path, "images", columns, stream, len(files))


def found(path: Path) -> Iterator[tuple[str, ...]]:
    """Image files as parts of their path below the folder. Links are not followed out of it."""
    for root, folders, names in os.walk(path, followlinks=False):
        folders.sort()
        below = Path(root).relative_to(path).parts
        yield from ((*below, name) for name in names if name.lower().endswith(ENDINGS))


def batches(path: Path, files: list[tuple[str, ...]], wanted: list[str]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(files), BATCH_FILES):
        part = files[start : start + BATCH_FILES]
        arrays = {"label": pa.array([parts[-2] for parts in part], pa.string())}
        if len(part[0]) == 3:
            arrays["split"] = pa.array([parts[0] for parts in part], pa.string())
        if "image" in wanted:
            arrays["image"] = pa.array([content(path.joinpath(*parts)) for parts in part], pa.binary())
        yield pa.record_batch([arrays[name] for name in wanted], names=wanted)


def content(path: Path) -> bytes | None:
    """The file's bytes; None, a cell without a value, where they cannot be read."""
    try:
        return path.read_bytes() if path.stat().st_size <= MAX_FILE else None
    except OSError:
        return None
