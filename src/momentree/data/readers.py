"""Opening a data file of any kind: a `Source` gives its columns' stored types and Arrow record batches of its rows.

Every row keeps its place: a record that cannot be read is a row of nulls where it stands. A defect of the file itself
(truncated, broken quoting, no header) is one line that carries none of its content; so is every library's own message,
which is dropped because it may quote a cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from momentree.data.schema import FileFormat
from momentree.data.schema_rules import check_file
from momentree.errors import InputError

FORMATS = "CSV (.csv, .csv.gz), Parquet (.parquet), NumPy (.npz, .npy), IDX (…-idx3-ubyte[.gz]), a folder of images"
NAMED_HERE = ("idx", "images", "numpy")
"""Formats whose columns have names that a person cannot look up in the file, and that are never a row of data."""


@dataclass(frozen=True)
class Source:
    """An opened file: what it stores, and how to go through it (any number of times, in bounded memory)."""

    path: Path
    format: str
    columns: Mapping[str, pa.DataType]
    stream: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
    rows: int | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Record batches with these columns, in this order, every row in its place."""
        for name in names:
            self.require(name)
        return self.stream(names)

    def require(self, name: str) -> None:
        """Refuse a declared column that the file lacks. The file's own first line is not quoted: it may be data."""
        if name in self.columns:
            return
        text = f"column {name!r} is not in {self.path}, which has {len(self.columns)}: names have to match exactly"
        if self.format in NAMED_HERE:
            text += f"; they are {', '.join(list(self.columns)[:8])}" + (", …" if len(self.columns) > 8 else "")
        if self.format == "csv":
            text += "; the first line is taken as names and file.delimiter in the schema says how they are separated"
        raise InputError(text)


def open_source(path: str | Path, file: FileFormat | None = None) -> Source:
    """The reader that fits the path's name. `file` says how to read a CSV; the other formats know themselves."""
    path = Path(path)
    file = file or FileFormat()
    check_file(file)
    try:
        directory = path.is_dir()
        if not directory:
            if not path.is_file():
                what = "is not a regular file" if path.exists() else "does not exist"
                raise InputError(f"data {path} {what}: give the path of a data file")
            if path.stat().st_size == 0:
                raise InputError(f"data {path} is empty: give a file with rows")
            with path.open("rb"):
                pass
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise InputError(f"data {path} cannot be opened: {reason}") from None
    return reader(path, directory)(path, file)


def reader(path: Path, directory: bool) -> Callable[[Path, FileFormat], Source]:
    """By name: the bytes are not asked."""
    from momentree.data import csv_file, idx_file, image_folder, numpy_file, parquet_file

    name = path.name.lower()
    if directory:
        return idx_file.open_folder if idx_file.is_folder(path) else image_folder.open_folder
    if name.endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz", ".data")):
        return csv_file.open_csv
    if name.endswith((".parquet", ".pq")):
        return parquet_file.open_parquet
    if name.endswith((".npz", ".npy")):
        return numpy_file.open_numpy
    if idx_file.is_idx(name):
        return idx_file.open_file
    raise InputError(f"data {path} has an unknown ending: readable are {FORMATS}")


def check_names(path: Path, names: Sequence[str]) -> None:
    """Names have to be there, and distinct."""
    if any(not name for name in names):
        raise InputError(f"data {path} has a column without a name: name every column in the first line")
    twice = sum(times > 1 for times in Counter(names).values())
    if twice:
        raise InputError(f"data {path} has {twice} column name(s) more than once: give each column a name of its own")


def damaged(path: Path, what: str) -> InputError:
    """The one line for a file that its library cannot read, without the library's words."""
    return InputError(f"data {path} cannot be read as {what}: it is truncated or damaged; write it again")
