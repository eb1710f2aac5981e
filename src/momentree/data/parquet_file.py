"""Parquet: stored types are the file's, batches are read in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from momentree.data.readers import Source, check_names, damaged
from momentree.data.schema import FileFormat
from momentree.errors import InputError

BATCH_ROWS = 65_536


def open_parquet(path: Path, file: FileFormat) -> Source:
    del file
    try:
        with pq.ParquetFile(path, memory_map=False) as opened:
            schema, rows = opened.schema_arrow, opened.metadata.num_rows
            names = list(schema.names)
    except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError, MemoryError):
        raise damaged(path, "Parquet") from None
    check_names(path, names)
    if rows <= 0:
        raise InputError(f"data {path} has columns and no rows: give a file with rows")

    def stream(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return batches(path, list(wanted), rows)

    return Source(path, "parquet", dict(zip(names, schema.types, strict=True)), stream, rows)


def batches(path: Path, wanted: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    seen = 0
    try:
        # Not memory-mapped, and buffered: only the row group at hand is in memory.
        with pq.ParquetFile(path, memory_map=False, pre_buffer=False, buffer_size=1 << 20) as opened:
            for batch in opened.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
                seen += batch.num_rows
                yield batch.select(wanted)
    except (pa.ArrowException, OSError, ValueError, KeyError, UnicodeDecodeError, MemoryError):
        raise damaged(path, "Parquet") from None
    if seen != rows:
        raise damaged(path, "Parquet")
