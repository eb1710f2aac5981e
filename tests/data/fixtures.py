"""Small tables in every format, and the slow row-by-row oracle that says what each row turns into."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from momentree.data.schema import Column, Schema

NAMES = ("age", "pay", "town", "member", "note", "y")
ROWS: tuple[tuple[object, ...], ...] = (
    (31, 1200.5, "Ulm", "yes", "a good, quiet film", "b"),
    (None, -3.0, "Bern", "no", 'she said "no"', "a"),
    (99, float("nan"), "Oslo", None, "", "b"),
    (18, 1e308, None, "yes", "two\nlines of it", "a"),
    (45, 0.0, "Ulm", "maybe", None, "c"),
    (64, 20.25, " Bern ", "no", "good film, good film", "a"),
)


def schema(**facts: object) -> Schema:
    """A schema that exercises every scalar kind on `ROWS`."""
    columns = (
        Column("age", "number", bounds=(20.0, 80.0), knots=4, missing="other"),
        Column("pay", "number", bounds=(-10.0, 1000.0), transform="log"),
        Column("town", "category", values=("Bern", "Ulm"), unseen="other"),
        Column("member", "boolean", missing="other"),
        Column("note", "text", dimension=32, ngrams=(1, 2)),
        Column("y", "category", values=("a", "b")),
    )
    return Schema(columns=columns, target=("y",), **facts)  # type: ignore[arg-type]


def text_of(cell: object) -> str:
    return "" if cell is None else str(cell)


def write_csv(path: Path, rows: Sequence[Sequence[object]] = ROWS, names: Sequence[str] = NAMES) -> Path:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows([[text_of(cell) for cell in row] for row in rows])
    raw = text.getvalue().encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def write_parquet(path: Path, rows: Sequence[Sequence[object]] = ROWS, names: Sequence[str] = NAMES) -> Path:
    pq.write_table(pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)}), path)
    return path


def write_npz(path: Path) -> Path:
    columns = {name: np.array([text_of(row[i]) for row in ROWS]) for i, name in enumerate(NAMES)}
    columns["age"] = np.array([math.nan if row[0] is None else row[0] for row in ROWS], float)
    columns["pay"] = np.array([row[1] for row in ROWS], float)
    np.savez_compressed(path, **columns)
    return path


def write_idx(folder: Path, part: str, images: np.ndarray, labels: np.ndarray, *, zipped: bool = False) -> Path:
    """One part of the MNIST family."""
    folder.mkdir(exist_ok=True)
    end = ".gz" if zipped else ""
    pack = gzip.compress if zipped else bytes
    for kind, array in ((f"images-idx{images.ndim}", images), ("labels-idx1", labels)):
        head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        (folder / f"{part}-{kind}-ubyte{end}").write_bytes(pack(head + array.astype(np.uint8).tobytes()))
    return folder / f"{part}-images-idx{images.ndim}-ubyte{end}"


def slow_number(cell: object) -> float:
    try:
        value = float(text_of(cell).strip())
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def slow_scaled(value: float, low: float, high: float, log: bool) -> float:
    value = min(max(value, low), high)
    if log:
        value, low, high = (math.copysign(math.log1p(abs(v)), v) for v in (value, low, high))
    return (value - low) / (high - low) * 2 - 1


def slow_grams(text: str, first: int, last: int, dimension: int) -> set[int]:
    words = re.findall(r"[^\W_]+", text.lower().replace("'", ""))
    grams = {" ".join(words[i : i + k]) for k in range(first, last + 1) for i in range(len(words) - k + 1)}
    return {
        int.from_bytes(hashlib.blake2b(g.encode(), digest_size=8, person=b"momentree-text-1").digest(), "little")
        % dimension
        for g in grams
    }


def slow_features(row: Sequence[object], norm: float | None = None) -> list[float]:
    """The features of one of `ROWS` under `schema()`, written out by hand."""
    age, pay, town, member, note = row[:5]
    knots = [0.0] * 5
    value = slow_number(age)
    if math.isnan(value):
        knots[4] = 1.0
    else:
        place = (slow_scaled(value, 20, 80, False) + 1) / 2 * 3
        for k in range(4):
            knots[k] = max(0.0, 1 - abs(place - k))
    value = slow_number(pay)
    money = [0.0 if math.isnan(value) else slow_scaled(value, -10, 1000, True)]
    name = text_of(town).strip()
    towns = [float(name == "Bern"), float(name == "Ulm"), float(name not in ("Bern", "Ulm", ""))]
    answer = {"yes": [1.0, 0.0], "no": [0.0, 0.0]}.get(text_of(member), [0.0, 1.0])
    grams = slow_grams(text_of(note), 1, 2, 32)
    words = [(1 / math.sqrt(len(grams)) if i in grams else 0.0) for i in range(32)]
    out = [*knots, *money, *towns, *answer, *words]
    if norm is not None:
        length = math.sqrt(sum(v * v for v in out))
        out = [v * norm / length for v in out]
    return out
