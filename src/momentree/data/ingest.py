"""Record batches to the compact rows that are kept: scaled numbers, codes, pixels, hashed tokens, targets.

Guarantee: row i of what comes out is a function of row i of what goes in and of the schema. An unusable row keeps its
place, with `usable` False and a target of zero.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from momentree.data import cells
from momentree.data.schema import Column, Schema
from momentree.data.text import Hasher

Fields = dict[str, NDArray[Any]]
NO_GROUP = -1


@dataclass(frozen=True)
class Layout:
    """Which declared column goes where in the compact rows."""

    numbers: tuple[Column, ...]
    codes: tuple[Column, ...]
    texts: tuple[Column, ...]
    blocks: tuple[Column, ...]

    @classmethod
    def of(cls, schema: Schema) -> Layout:
        def having(*kinds: str) -> tuple[Column, ...]:
            return tuple(column for column in schema.features if column.kind in kinds)

        return cls(having("number", "boolean"), having("category"), having("text"), having("image", "vector"))


def scaled(values: cells.Floats, column: Column) -> cells.Floats:
    """Numbers clamped to the bounds, transformed, and mapped on [-1, 1]; NaN stays."""
    low, high = column.bounds
    clipped = np.clip(values, low, high)
    if column.transform == "log":
        clipped = np.sign(clipped) * np.log1p(np.abs(clipped))
        low, high = (float(np.sign(b) * np.log1p(abs(b))) for b in (low, high))
    if isinstance(column.missing, float | int) and not np.isnan(column.missing):
        fill = float(scaled(np.array([float(column.missing)]), filled(column))[0])
        return np.where(np.isnan(clipped), fill, (clipped - low) * (2 / (high - low)) - 1)
    return (clipped - low) * (2 / (high - low)) - 1


def filled(column: Column) -> Column:
    """The column with no fill of its own, to scale the fill."""
    return Column(name=column.name, kind=column.kind, bounds=column.bounds, transform=column.transform)


class Ingest:
    """One schema's way from record batches to compact rows."""

    def __init__(self, schema: Schema, *, target: bool = True, holdout: tuple[str, str] | None = None) -> None:
        self.schema = schema
        self.target = target
        self.holdout = holdout
        self.layout = Layout.of(schema)
        self._hashers = {column.name: Hasher(column.dimension, column.ngrams) for column in self.layout.texts}

    @property
    def names(self) -> list[str]:
        """The columns of the file that are read."""
        names = [column.name for column in self.schema.features]
        names += list(self.schema.target) if self.target else []
        names += [self.schema.group] if self.schema.group and self.target else []
        names += [self.holdout[0]] if self.holdout else []
        return list(dict.fromkeys(names))

    def check_types(self, stored: Mapping[str, pa.DataType]) -> None:
        """Refuse stored types that cannot carry what is declared."""
        for column in (*self.schema.features, *(self.schema.targets if self.target else ())):
            cells.check_type(column, stored[column.name])
        for name in self.names:
            if name in (self.schema.group, *(self.holdout or ())[:1]):
                cells.check_type(Column(name=name, kind="category"), stored[name])

    def fields(self, batch: pa.RecordBatch) -> Fields:
        """The compact rows of one batch."""
        rows = batch.num_rows
        missing = self.schema.file.missing
        usable = np.ones(rows, np.bool_)
        numbers = np.empty((rows, len(self.layout.numbers)), np.float32)
        for place, column in enumerate(self.layout.numbers):
            numbers[:, place] = self.number(batch, column, missing, usable)
        codes = np.empty((rows, len(self.layout.codes)), np.int32)
        for place, column in enumerate(self.layout.codes):
            codes[:, place] = category(cells.codes(batch.column(column.name), column.values, missing), column, usable)
        out: Fields = {"numbers": numbers, "codes": codes, **self.texts(batch, usable)}
        parts = []
        for column in self.layout.blocks:
            values, present = cells.block(batch.column(column.name), column)
            usable &= present
            parts.append(compact(values, column))
        if parts:
            out["pixels"] = parts[0] if len(parts) == 1 else np.concatenate([plain(part) for part in parts], axis=1)
        if self.target:
            out["target"] = self.targets(batch, usable)
            if self.schema.group:
                out["group"] = groups(cells.words(batch.column(self.schema.group)), missing)
                usable &= out["group"] != NO_GROUP
        if self.holdout:
            name, value = self.holdout
            out["held"] = cells.codes(batch.column(name), [value], ()) == 0
        out["usable"] = usable
        return out

    def number(
        self, batch: pa.RecordBatch, column: Column, missing: Sequence[str], usable: NDArray[np.bool_]
    ) -> cells.Floats:
        if column.kind == "boolean":
            code = cells.booleans(batch.column(column.name), column, missing)
            values = np.where(code >= 0, code, np.nan)
        else:
            values = scaled(cells.numbers(batch.column(column.name), missing), column)
        if column.missing == "row":
            usable &= ~np.isnan(values)
        return values

    def texts(self, batch: pa.RecordBatch, usable: NDArray[np.bool_]) -> Fields:
        """Every row's tokens, column after column, numbered through all text columns."""
        if not self.layout.texts:
            return {}
        offset, parts, owners, counts = 0, [], [], []
        for column in self.layout.texts:
            words = cells.words(batch.column(column.name))
            flat, count = self._hashers[column.name].column(words)
            parts.append(flat + np.int32(offset))
            owners.append(np.repeat(np.arange(batch.num_rows), count))
            counts.append(count)
            offset += column.dimension
            if column.missing == "row":
                usable &= count > 0
        order = np.argsort(np.concatenate(owners), kind="stable")
        return {"tokens": np.concatenate(parts)[order], "counts": np.stack(counts, axis=1).astype(np.int32)}

    def targets(self, batch: pa.RecordBatch, usable: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Class numbers, labels of 0 and 1, or a number scaled to [-1, 1]; a row without one is unusable."""
        missing = self.schema.file.missing
        out = np.zeros((batch.num_rows, len(self.schema.target)), np.float32)
        for place, column in enumerate(self.schema.targets):
            cell = batch.column(column.name)
            if column.kind == "number":
                values = scaled(cells.numbers(cell, missing), filled(column))
                known = ~np.isnan(values)
            else:
                code = (
                    cells.booleans(cell, column, missing)
                    if column.kind == "boolean"
                    else cells.codes(cell, column.values, missing)
                )
                values, known = code.astype(np.float64), code >= 0
            usable &= known
            out[:, place] = np.where(known, values, 0.0)
        return out


def category(found: cells.Codes, column: Column, usable: NDArray[np.bool_]) -> cells.Codes:
    """Declared values keep their place; what is missing or unseen becomes nothing (-1), `other`, or an unusable row."""
    out = found.copy()
    for code, rule in ((cells.MISSING, column.missing), (cells.UNSEEN, column.unseen)):
        here = found == code
        out[here] = len(column.values) if rule == "other" else -1
        if rule == "row":
            usable &= ~here
    return out


def compact(values: NDArray[np.float32], column: Column) -> NDArray[Any]:
    """Images of bytes are kept as bytes."""
    if column.kind == "image" and column.bounds == (0.0, 255.0):
        whole: NDArray[Any] = np.rint((values + 1) * 127.5).astype(np.uint8)
        return whole
    return values


def plain(values: NDArray[Any]) -> NDArray[np.float32]:
    """Back to [-1, 1]."""
    if values.dtype == np.uint8:
        return np.asarray(values, np.float32) * np.float32(2 / 255) - np.float32(1)
    return np.asarray(values, np.float32)


def groups(words: pa.Array, missing: Sequence[str]) -> NDArray[np.int64]:
    """64 bits of a hash of each group id, NO_GROUP for none. Two ids that collide share one bound: the private side."""
    absent = pc.is_in(words, value_set=pa.array([None, *(token.encode() for token in missing)], words.type))
    encoded = words.dictionary_encode()
    hashed = [
        int.from_bytes(hashlib.blake2b(word or b"", digest_size=8).digest(), "little") >> 1
        for word in encoded.dictionary.to_pylist()
    ]
    place = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    out: NDArray[np.int64] = np.array(hashed or [0], np.int64)[place]
    out[absent.to_numpy(zero_copy_only=False)] = NO_GROUP
    return out
