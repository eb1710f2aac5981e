"""Compact rows to the float32 features that a model sees: a function of each row and of the schema.

Numbers are scaled to [-1, 1] or spread over knots (weights of the two nearest, which sum to 1, so a linear model is
piecewise linear in the number); categories are one-hot; a text's n-grams share a vector of norm 1; pixels are scaled to
[-1, 1]. With `row_norm`, every row is scaled to that Euclidean norm: no gradient is clipped for its row's size alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentree.data.images import transformed
from momentree.data.ingest import Layout, plain
from momentree.data.schema import Column, Schema

Features = NDArray[np.float32]


class Encoder:
    """One schema's features. Stateless but for the places worked out once."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.layout = Layout.of(schema)
        self.dimension = schema.dimension
        start, self.offsets = 0, {}
        for column in schema.features:
            self.offsets[column.name] = start
            start += column.width
        simple = [(i, c) for i, c in enumerate(self.layout.numbers) if not c.knots]
        self._from = np.array([i for i, _ in simple], np.int64)
        self._to = np.array([self.offsets[c.name] for _, c in simple], np.int64)
        self._codes = np.array([self.offsets[c.name] for c in self.layout.codes], np.int64)
        shift, tokens = 0, []
        for column in self.layout.texts:
            tokens.append((shift, self.offsets[column.name]))
            shift += column.dimension
        self._texts = np.array(tokens or [(0, 0)], np.int64)

    def names(self) -> list[str]:
        """A name a feature. A category's values are numbered, not named: a derived schema's come from the data."""
        names: list[str] = []
        for column in self.schema.features:
            names += [column.name] if column.width == 1 else [f"{column.name}[{i}]" for i in range(column.width)]
        return names

    def features(self, fields: Mapping[str, NDArray[Any]]) -> Features:
        """The features of these compact rows; an unusable row's are all zero."""
        usable = np.asarray(fields["usable"], np.bool_)
        out = np.zeros((len(usable), self.dimension), np.float32)
        numbers = np.asarray(fields["numbers"], np.float32)
        if len(self._to):
            out[:, self._to] = np.nan_to_num(numbers[:, self._from], nan=0.0)
        for place, column in enumerate(self.layout.numbers):
            self._number(out, numbers[:, place], column)
        if len(self._codes):
            rows, places = np.nonzero(fields["codes"] >= 0)
            out[rows, self._codes[places] + fields["codes"][rows, places]] = 1.0
        if self.layout.texts:
            self._text(out, fields)
        start = 0
        for column in self.layout.blocks:
            at, size = self.offsets[column.name], column.width
            raw = math.prod(column.shape)
            out[:, at : at + size] = transformed(plain(fields["pixels"][:, start : start + raw]), column)
            start += raw
        if self.schema.row_norm is not None:
            norm = np.linalg.norm(out, axis=1, keepdims=True)
            out *= self.schema.row_norm / np.maximum(norm, 1e-12)
        out[~usable] = 0.0
        return out

    def _number(self, out: Features, values: NDArray[np.float32], column: Column) -> None:
        absent = np.isnan(values)
        at = self.offsets[column.name]
        if column.missing == "other":
            out[absent, at + (column.knots or 1)] = 1.0
        if not column.knots:
            return
        row = np.flatnonzero(~absent)
        place = (values[row] + 1) * ((column.knots - 1) / 2)
        left = np.clip(place.astype(np.int64), 0, column.knots - 2)
        weight = place - left
        out[row, at + left] = 1 - weight
        out[row, at + left + 1] = weight

    def _text(self, out: Features, fields: Mapping[str, NDArray[Any]]) -> None:
        counts = np.asarray(fields["counts"], np.int64)
        row = np.repeat(np.arange(len(counts)), counts.sum(axis=1))
        weights = np.repeat(1 / np.sqrt(np.maximum(counts, 1)).ravel(), counts.ravel())
        tokens = np.asarray(fields["tokens"], np.int64)
        column = np.searchsorted(self._texts[:, 0], tokens, side="right") - 1
        out[row, tokens - self._texts[column, 0] + self._texts[column, 1]] = weights
