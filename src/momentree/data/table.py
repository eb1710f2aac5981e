"""A table ready to train on: a map-style data set over rows that keep their places, and its private and held-out parts.

Guarantee: `len(table)` counts every row of the private part, unusable ones too. An unusable row has features and target
of zero and `usable` False; whoever sums over a batch multiplies by it, and the row contributes zero where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from momentree.data.encode import Encoder, Features
from momentree.data.holdout import Holdout
from momentree.data.ingest import NO_GROUP, Fields, Ingest
from momentree.data.readers import Source, open_source
from momentree.data.schema import Schema
from momentree.data.store import MEMORY, Store

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
CHUNK = 65_536
ENCODED = 512 << 20
"""Features of at most so many bytes are worked out once and kept; of more, those of a batch when it is asked for."""


class Table(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Rows of one schema. Small tables are encoded once and kept; of large ones, a batch is encoded when asked for."""

    def __init__(self, schema: Schema, fields: Fields, store: Store | None = None, rows: Indices | None = None) -> None:
        self.schema = schema
        self.encoder = Encoder(schema)
        self._fields = fields
        self._store = store
        self._rows = np.arange(len(fields["usable"])) if rows is None else rows
        self._starts = None
        if "counts" in fields:
            ends = np.cumsum(np.asarray(fields["counts"], np.int64).sum(axis=1))
            self._starts = np.concatenate([[0], ends])
        self._dense: Features | None = None
        if len(self._rows) * self.encoder.dimension * 4 <= ENCODED:
            self._dense = np.empty((len(self._rows), self.encoder.dimension), np.float32)
            for start in range(0, len(self._rows), CHUNK):
                part = self._rows[start : start + CHUNK]
                self._dense[start : start + CHUNK] = self.encoder.features(self._gather(part))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def scratch(self) -> Path | None:
        """Where the private copy is, or None where the rows are in memory."""
        return self._store.directory if self._store is not None and self._store.on_disk else None

    @property
    def usable(self) -> Mask:
        """Which rows count, one entry a row: a secret, like the rows."""
        return np.asarray(self._fields["usable"][self._rows], np.bool_)

    @property
    def groups(self) -> Indices | None:
        """The unit of privacy of each row, numbered from 0 in no meaningful order; -1 where a row has none."""
        if "group" not in self._fields:
            return None
        hashed: Indices = self._fields["group"][self._rows]
        distinct, place = np.unique(hashed, return_inverse=True)
        return np.where(hashed == NO_GROUP, -1, place.ravel() - (len(distinct) > 0 and distinct[0] == NO_GROUP))

    def _gather(self, rows: Indices) -> Fields:
        """The compact rows at these places of the store."""
        out = {name: array[rows] for name, array in self._fields.items() if name != "tokens"}
        if self._starts is not None:
            first, count = self._starts[rows], self._starts[rows + 1] - self._starts[rows]
            within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            out["tokens"] = self._fields["tokens"][np.repeat(first, count) + within]
        return out

    def batch(self, indices: Indices) -> tuple[Features, NDArray[Any], Mask]:
        """Features (B, d), targets, and which rows count. Targets are class numbers (int64), or float32: (B, labels) of
        0 and 1, or (B,) scaled to [-1, 1] by the declared bounds."""
        indices = np.asarray(indices, np.int64)
        rows = self._rows[indices]
        x = self._dense[indices] if self._dense is not None else self.encoder.features(self._gather(rows))
        return x, self._targets(rows), np.asarray(self._fields["usable"][rows], np.bool_)

    def _targets(self, rows: Indices) -> NDArray[Any]:
        if "target" not in self._fields:
            return np.zeros(len(rows), np.float32)
        usable = np.asarray(self._fields["usable"][rows], np.bool_)
        y = np.where(usable[:, None], self._fields["target"][rows], np.float32(0))
        if self.schema.task == "classes":
            return y[:, 0].astype(np.int64)
        answer: NDArray[Any] = y if self.schema.task == "labels" else y[:, 0]
        return answer

    def features(self, index: int) -> Features:
        """One row's features."""
        row: Features = self.batch(np.array([index]))[0][0]
        return row

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y, _ = self.batch(np.array([index]))
        return torch.from_numpy(x[0]), torch.as_tensor(y[0])

    def digest_chunks(self) -> Iterator[bytes]:
        """Bytes that decide all that the rows contribute, for an HMAC: the schema's facts, then the rows in order."""
        yield self.schema.digest().encode()
        yield len(self).to_bytes(8, "little")
        for rows in chunks(self._rows):
            for name, array in sorted(self._gather(rows).items()):
                yield f"{name} {array.dtype.str} {array.shape}".encode()
                yield np.ascontiguousarray(array).tobytes()

    def close(self) -> None:
        """Let go of the private copy."""
        self._dense = None
        self._fields = {name: array[:0] for name, array in self._fields.items()}
        self._rows = self._rows[:0]
        if self._store is not None:
            self._store.close()


@dataclass(frozen=True)
class Tables:
    """The private rows, and those outside them that the holdout named."""

    private: Table
    held_out: Table | None = None


def chunks(rows: Indices) -> Iterator[Indices]:
    for start in range(0, len(rows), CHUNK):
        yield rows[start : start + CHUNK]


def read_table(
    data: str | Path | Source,
    schema: Schema,
    *,
    holdout: Holdout | None = None,
    seed: int = 0,
    scratch: str | Path | None = None,
    memory: int = MEMORY,
    target: bool = True,
) -> Tables:
    """The rows of a file by a schema, streamed in bounded memory; beyond `memory` bytes they are kept in `scratch`."""
    source = data if isinstance(data, Source) else open_source(data, schema.file)
    named = (holdout.column, holdout.value) if holdout and holdout.column and holdout.value is not None else None
    ingest = Ingest(schema, target=target, holdout=named)
    for name in ingest.names:
        source.require(name)
    ingest.check_types(source.columns)
    store = Store(memory=memory, scratch=scratch)
    try:
        for batch in source.batches(ingest.names):
            store.append(ingest.fields(batch))
        fields = store.arrays()
    finally:
        store.close()
    if holdout is None:
        return Tables(Table(schema, fields, store))
    held = holdout.rows(len(fields["usable"]), seed, fields.get("group"), fields.get("held"))
    return Tables(
        Table(schema, fields, store, np.flatnonzero(~held)),
        Table(schema, fields, store, np.flatnonzero(held)),
    )
