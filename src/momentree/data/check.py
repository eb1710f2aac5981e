"""How well a schema fits a file, in words and coarse shares: no value, no count, and still nothing that is protected.

The shares are functions of the private rows and covered by no guarantee; this is the one place where a person looks
for wrong bounds or a wrong delimiter, before training. Training itself applies the schema's rules silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from momentree.data import cells
from momentree.data.ingest import Ingest
from momentree.data.readers import Source
from momentree.data.schema import Column, Schema

NOTE = "computed from the private rows, coarsely, and covered by no guarantee: keep it to yourself"
MANY = "over a tenth"


@dataclass(frozen=True)
class Finding:
    """One column, what of it does not fit, and what share of its cells that is."""

    column: str
    what: str
    share: str

    def __str__(self) -> str:
        return f"{self.column}: {self.what}: {self.share} of the cells"


def share(part: int, whole: int) -> str | None:
    """A share in four steps; None for none."""
    if not part or not whole:
        return None
    return "under a hundredth" if part < 0.01 * whole else "under a tenth" if part < 0.1 * whole else MANY


def check(schema: Schema, source: Source) -> list[Finding]:
    """What does not fit, column by column; an empty list where everything does. Structural faults are errors."""
    ingest = Ingest(schema)
    for name in ingest.names:
        source.require(name)
    ingest.check_types(source.columns)
    wrong: Counter[tuple[str, str]] = Counter()
    rows = unusable = 0
    for batch in source.batches(ingest.names):
        rows += batch.num_rows
        unusable += int((~ingest.fields(batch)["usable"]).sum())
        for column in schema.columns:
            for what, count in faults(batch.column(column.name), column, schema.file.missing):
                wrong[column.name, what] += count
    findings = [Finding(name, what, part) for (name, what), n in wrong.items() if (part := share(n, rows))]
    if part := share(unusable, rows):
        findings.append(Finding("(rows)", "cannot be used, keep their place and contribute nothing", part))
    return findings


def faults(array: pa.Array, column: Column, missing: Sequence[str]) -> list[tuple[str, int]]:
    """How many of a column's cells each rule applies to."""
    if column.kind == "number":
        values = cells.numbers(array, missing)
        outside = (values < column.bounds[0]) | (values > column.bounds[1])
        return [
            ("missing or not a finite number", int(np.isnan(values).sum())),
            ("outside the bounds", int(outside.sum())),
        ]
    if column.kind == "category":
        found = cells.codes(array, column.values, missing)
        return [
            ("missing", int((found == cells.MISSING).sum())),
            ("not among the declared values", int((found == cells.UNSEEN).sum())),
        ]
    if column.kind == "boolean":
        return [("neither of the two words", int((cells.booleans(array, column, missing) < 0).sum()))]
    if column.kind in ("image", "vector"):
        return [("of another shape, or unreadable", int((~cells.block(array, column)[1]).sum()))]
    return [("empty", int(np.asarray(cells.codes(array, ("",), missing) == cells.MISSING).sum()))]
