"""Delimited text (RFC 4180), gzip or plain: every record a row, the malformed ones as rows of nulls in their place.

pyarrow parses blocks of whole records; where a record ends is decided here, by the parity of quotes, so that one
stray quote is reported as the file's defect instead of joining two people's rows.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from momentree.data.readers import Source, check_names, damaged
from momentree.data.schema import BLANKS, FileFormat
from momentree.errors import InputError

READ = 4 << 20
MAX_RECORD = 64 << 20
BOMS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
QUOTE, LF, CR = 34, 10, 13


def open_csv(path: Path, file: FileFormat) -> Source:
    """The names are the first line's, or the schema's where the file has none; all cells are stored as text."""
    if file.delimiter == "," and path.name.lower().endswith((".tsv", ".tsv.gz")):
        file = FileFormat("\t", file.encoding, file.missing, file.names)
    names = file.names or header(path, file)
    check_names(path, names)

    def stream(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return parse(path, file, list(names), list(wanted))

    return Source(path, "csv", dict.fromkeys(names, pa.binary()), stream)


def header(path: Path, file: FileFormat) -> tuple[str, ...]:
    """The first record's cells; a file without a second record has no rows."""
    whole = blocks(path, file)
    data, ends = next(whole, (b"", np.zeros(0, np.int64)))
    if not len(ends):
        raise InputError(f"data {path} is empty: give a file with rows")
    line = data[: ends[0]].rstrip(b"\r\n")
    if not line:
        raise InputError(f"data {path} begins with a blank line: the first line has to name the columns")
    if len(ends) == 1 and next(whole, None) is None:
        raise InputError(f"data {path} has a header and no rows: give a file with rows")
    try:
        names = next(csv.reader(io.StringIO(line.decode("utf-8"), newline=""), delimiter=file.delimiter))
    except UnicodeDecodeError:
        raise InputError(f"data {path} is not UTF-8 text: save it as UTF-8") from None
    except csv.Error:
        raise InputError(f"data {path} has a first line that names no columns: is file.delimiter right?") from None
    return tuple(name.strip(BLANKS) for name in names)


def opened(path: Path) -> BinaryIO:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def blocks(path: Path, file: FileFormat) -> Iterator[tuple[bytes, NDArray[np.int64]]]:
    """Blocks of whole records, with the offset behind each record's end."""
    rest, first, line = b"", True, 1
    delimiter = ord(file.delimiter)
    try:
        with opened(path) as stream:
            while True:
                chunk = stream.read(READ)
                if first:
                    chunk, first = without_mark(path, chunk, file.encoding), False
                last = not chunk
                data = rest + chunk
                if last and data and not data.endswith((b"\n", b"\r")):
                    data += b"\n"
                ends = record_ends(path, np.frombuffer(data, np.uint8), delimiter, line, whole=last)
                if not last and len(ends):
                    # A CR at the very end may be half of a CRLF: it waits for the next chunk.
                    ends = ends[ends < len(data)]
                cut = int(ends[-1]) if len(ends) else 0
                if cut:
                    yield data[:cut], ends
                    line += len(ends)
                rest = data[cut:]
                if last:
                    return
                if len(rest) > MAX_RECORD:
                    raise InputError(
                        f"data {path} has a record of more than {MAX_RECORD >> 20} MiB: is a quote missing?"
                    )
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, gzip.BadGzipFile) or not isinstance(error, OSError):
            raise InputError(f"data {path} cannot be read as gzip: it is truncated or damaged") from None
        raise InputError(f"data {path} cannot be read: {error.strerror}") from None


def without_mark(path: Path, chunk: bytes, encoding: str) -> bytes:
    """The first chunk without the byte-order mark that the schema announces; any other mark is refused."""
    for mark, name in BOMS.items():
        if chunk.startswith(mark):
            if name == "UTF-8" and encoding == "utf-8-sig":
                return chunk[len(mark) :]
            advice = 'or declare file.encoding = "utf-8-sig" in the schema' if name == "UTF-8" else "and draft again"
            raise InputError(f"data {path} begins with a {name} byte-order mark: save it as plain UTF-8, {advice}")
    return chunk


def record_ends(
    path: Path, data: NDArray[np.uint8], delimiter: int, line: int, *, whole: bool = True
) -> NDArray[np.int64]:
    """Offsets behind each record's end: line ends at even parity of quotes. A misplaced quote is the file's defect."""
    ends = np.flatnonzero(data == LF)
    returns = np.flatnonzero(data == CR)
    if len(returns):
        lone = returns[(returns + 1 >= len(data)) | (data[np.minimum(returns + 1, len(data) - 1)] != LF)]
        ends = np.sort(np.concatenate([ends, lone]))
    quotes = np.flatnonzero(data == QUOTE)
    if not len(quotes):
        return ends + 1
    # A quote at an even place opens a cell, or goes on after a doubled one: an edge or a quote stands before it.
    # A quote at an odd place closes: what follows is an edge, or the second of a doubled pair.
    beside = quotes + np.where(np.arange(len(quotes)) % 2 == 0, -1, 1)
    inside = (beside >= 0) & (beside < len(data))
    edge = np.zeros(256, np.bool_)
    edge[[delimiter, LF, CR, QUOTE]] = True
    wrong = np.flatnonzero(inside & ~edge[data[np.where(inside, beside, 0)]])
    parity = np.searchsorted(quotes, ends)
    if len(wrong):
        at = line + int(np.searchsorted(ends[parity % 2 == 0], quotes[wrong[0]]))
        raise InputError(f"data {path} has broken quoting near record {at}: a quote inside a cell has to be doubled")
    if whole and len(quotes) % 2:
        raise InputError(f"data {path} has broken quoting: a quoted cell never ends; close it or double the quote")
    behind: NDArray[np.int64] = ends[parity % 2 == 0] + 1
    return behind


def parse(path: Path, file: FileFormat, names: list[str], wanted: list[str]) -> Iterator[pa.RecordBatch]:
    """Batches of the wanted columns as binary, two blocks at a time, in their order."""
    waiting: deque[Future[pa.RecordBatch]] = deque()
    skip = 0 if file.names else 1
    with ThreadPoolExecutor(2) as pool:
        for data, ends in blocks(path, file):
            if skip:
                data, ends, skip = data[ends[0] :], ends[1:] - ends[0], 0
                if not len(ends):
                    continue
            waiting.append(pool.submit(rows, path, data, ends, file, names, wanted))
            if len(waiting) > 2:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def rows(
    path: Path, data: bytes, ends: NDArray[np.int64], file: FileFormat, names: list[str], wanted: list[str]
) -> pa.RecordBatch:
    """One block's rows; a record with the wrong number of cells is a row of nulls where it stands.

    pyarrow never meets such a record: its own way with them shows their text and, in some, loses their place.
    """
    good = well_formed(np.frombuffer(data, np.uint8), ends, ord(file.delimiter), len(names))
    if not good.all():
        data = b"".join(data[a:b] for a, b, kept in zip([0, *ends[:-1]], ends, good, strict=True) if kept)
    table = parsed(path, data, file, names, wanted)
    if table.num_rows != int(good.sum()):
        raise damaged(path, "delimited text")
    if not good.all():
        table = table.take(pa.array(np.cumsum(good) - 1, mask=~good))
    return table.combine_chunks().to_batches(max_chunksize=len(good))[0]


def well_formed(data: NDArray[np.uint8], ends: NDArray[np.int64], delimiter: int, cells: int) -> NDArray[np.bool_]:
    """Which records have the right number of cells; one that is blank has none."""
    marks = np.flatnonzero(data == delimiter)
    quotes = np.flatnonzero(data == QUOTE)
    if len(quotes):
        marks = marks[np.searchsorted(quotes, marks) % 2 == 0]
    starts = np.concatenate([[0], ends[:-1]])
    found = np.searchsorted(marks, ends) - np.searchsorted(marks, starts) + 1
    blank = np.isin(data[starts], (LF, CR))
    good: NDArray[np.bool_] = (found == cells) & ~blank
    return good


def parsed(path: Path, data: bytes, file: FileFormat, names: list[str], wanted: list[str]) -> pa.Table:
    """pyarrow's parse of whole, well-formed records; cells are kept as bytes."""
    if not data or not wanted:
        return pa.table({name: pa.array([], pa.binary()) for name in wanted})
    try:
        return pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            parse_options=pacsv.ParseOptions(
                delimiter=file.delimiter, newlines_in_values=True, ignore_empty_lines=False
            ),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.binary()),
                include_columns=wanted,
                strings_can_be_null=False,
                null_values=[],
                check_utf8=False,
            ),
        )
    except pa.ArrowException:  # its message quotes the row
        raise damaged(path, "delimited text") from None
