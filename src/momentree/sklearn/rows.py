"""From what `fit` and `predict` are given to rows of norm at most 1, by public numbers alone.

Guarantee: what a row turns into is a function of that row and of the declared bounds or schema. No other row moves it,
and what lies beyond the bounds counts as the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from momentree.data.encode import Encoder
from momentree.data.ingest import Ingest
from momentree.data.schema import Schema
from momentree.errors import InputError

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
CHUNK = 65_536


class Refused(InputError, ValueError):
    """An `InputError` that callers of scikit-learn can catch as the `ValueError` they expect."""


@dataclass(frozen=True, eq=False)
class Bounded:
    """Columns of numbers, clipped to their bounds and scaled to [-1, 1], with a constant 1 for the intercept.

    `unit`: every row is then scaled to norm 1, so that no gradient is clipped for its row's size alone; otherwise all
    are divided by the largest norm that can occur, and the model stays linear in the clipped columns.
    """

    low: Floats
    high: Floats
    unit: bool

    @property
    def middle(self) -> Floats:
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> Floats:
        """Half of each width; 1 for a column without any, which stays at 0."""
        half = self.high / 2 - self.low / 2
        return np.where(half > 0, half, 1.0)

    @property
    def width(self) -> int:
        return len(self.low) + 1

    def rows(self, table: Floats) -> Floats:
        scaled = (np.clip(table, self.low, self.high) - self.middle) / self.half
        return with_constant(np.clip(scaled, -1.0, 1.0), unit=self.unit)


@dataclass(frozen=True, eq=False)
class Declared:
    """Rows as a schema encodes them, with a constant 1 for the intercept, scaled to norm 1."""

    schema: Schema

    @property
    def width(self) -> int:
        return self.schema.dimension + 1

    def rows(self, table: Floats) -> Floats:
        return with_constant(table, unit=True)

    def table(self, X: Any) -> tuple[Floats, Mask]:
        """The encoded features of X, and which of its rows count by the schema's rules."""
        names = [column.name for column in self.schema.features]
        ingest = Ingest(self.schema, target=False)
        batch = record_batch(X, names)
        ingest.check_types({name: batch.schema.field(name).type for name in names})
        fields = ingest.fields(batch)
        return np.asarray(Encoder(self.schema).features(fields), np.float64), np.asarray(fields["usable"], np.bool_)


def with_constant(scaled: Floats, *, unit: bool) -> Floats:
    """[x, 1] at norm 1, or divided by √(d + 1), which no row with entries within [-1, 1] exceeds."""
    rows = np.concatenate([scaled, np.ones((len(scaled), 1))], axis=1)
    norm = np.linalg.norm(rows, axis=1, keepdims=True) if unit else np.sqrt(rows.shape[1])
    answer: Floats = rows / norm
    return answer


def record_batch(X: Any, names: Sequence[str]) -> pa.RecordBatch:
    """The named columns of a data frame, an Arrow table or a dictionary; an array has them in the schema's order."""
    try:
        if isinstance(X, pa.RecordBatch):
            table = pa.Table.from_batches([X])
        elif isinstance(X, pa.Table | dict) or hasattr(X, "columns") or hasattr(X, "__arrow_c_stream__"):
            table = pa.table(X)
        else:
            array = np.asarray(X)
            if array.ndim != 2 or array.shape[1] != len(names):
                shape = " × ".join(map(str, array.shape)) or "a single value"
                raise Refused(f"X is {shape} and the schema declares {len(names)} columns: give rows × {len(names)}")
            table = pa.table({name: pa.array(array[:, i].tolist()) for i, name in enumerate(names)})
    except (pa.ArrowException, TypeError, ValueError) as error:  # their messages quote cells
        if isinstance(error, Refused):
            raise
        raise Refused(
            "X cannot be read as a table: give a data frame, an Arrow table, or an array, one kind of value a column"
        ) from None
    for name in names:
        if name not in table.column_names:
            raise Refused(f"column {name!r} of the schema is not in X: names have to match exactly")
    if table.num_rows == 0:
        raise Refused("X has 0 rows: give at least one")
    batches = table.select(list(names)).combine_chunks().to_batches()
    return batches[0]


def schema_of(given: Any) -> Schema:
    """A `Schema`, or the one in a TOML file."""
    schema = given if isinstance(given, Schema) else Schema.read(Path(given)) if isinstance(given, str | Path) else None
    if schema is None:
        raise Refused(f"schema is a {type(given).__name__}: give a Schema or the path of a schema.toml")
    if schema.group is not None:
        raise Refused("the schema has a group column, and here the unit is a row: use momentree train")
    return schema


def limits(name: str, given: Any, columns: int) -> tuple[Floats, Floats]:
    """Declared (low, high) as one number a column each, low below high."""
    advice = f"give {name}=(low, high), numbers or one number for each of the {columns} columns"
    try:
        low, high = (np.array(np.broadcast_to(np.asarray(side, np.float64), (columns,))) for side in given)
    except (TypeError, ValueError):
        raise Refused(f"{name} cannot be read: {advice}") from None
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise Refused(f"{name} is not finite: {advice}")
    if not (low < high).all():
        where = int(np.flatnonzero(~(low < high))[0])
        raise Refused(f"{name} of column {where} has low {low[where]:g} not below high {high[where]:g}: {advice}")
    return low, high


def codes(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """The place of each y in the classes, -1 for one that is none of them. Only the two types may be refused."""
    kinds = [_family(array.dtype.kind) for array in (y, classes)]
    if "other" not in kinds and kinds[0] != kinds[1]:
        raise Refused(f"y holds {kinds[0]} and classes holds {kinds[1]}: give both of one kind")
    place = {value: i for i, value in enumerate(classes.tolist())}
    found = (place.get(value, -1) if value.__hash__ is not None else -1 for value in y.tolist())
    return np.fromiter(found, np.int64, len(y))


def _family(kind: str) -> str:
    return "numbers" if kind in "biuf" else "words" if kind in "US" else "other"


class PrivateRows:
    """The rows as a run takes them: whole batches, and which rows count. One that does not counts zero in its place."""

    def __init__(self, inputs: NDArray[np.float32], targets: NDArray[Any], usable: Mask) -> None:
        self.inputs = inputs
        self.targets = targets
        self.usable = usable

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.inputs[index], self.targets[index]

    def batch(self, indices: NDArray[np.int64]) -> tuple[Any, Any, Mask]:
        return self.inputs[indices], self.targets[indices], self.usable[indices]

    def digest_chunks(self) -> Iterator[bytes]:
        for part in (self.inputs, self.targets, self.usable):
            yield f"{part.dtype.str} {part.shape}".encode()
            for start in range(0, len(part), CHUNK):
                yield np.ascontiguousarray(part[start : start + CHUNK]).tobytes()
