"""The declared schema: what is public about a table's columns before anybody has looked at its rows.

Guarantee: a `Schema` is a public object. Every number that scales, clips or places a cell comes from here and from
nothing else, so what one row turns into is a function of that row and of the schema alone: no other row can move it.
That is true of the schema itself only where it was *declared*; one that was read from the data (`derived`) leaks, says
so on each line, and `unconfirmed()` names the lines that nobody has vouched for.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from momentree.errors import InputError, nearest

VERSION = 1
MAX_VALUES = 10_000
MAX_FEATURES = 1 << 20
CELL, DIRECTIONS = 4, 8
BLANKS = " \t\r\n\v\f"

Kind = Literal["number", "category", "boolean", "text", "image", "vector"]
Task = Literal["classes", "labels", "bounded"]
KINDS: tuple[Kind, ...] = ("number", "category", "boolean", "text", "image", "vector")
RULES = ("zero", "other", "row")
"""What a cell without a usable value becomes: `zero` contributes nothing, `other` has a feature of its own, `row` makes
the whole row unusable (it keeps its place and contributes zero)."""

KEYS: dict[str, tuple[str, ...]] = {
    "number": ("bounds", "transform", "knots", "missing"),
    "category": ("values", "missing", "unseen"),
    "boolean": ("values", "missing"),
    "text": ("dimension", "ngrams", "missing"),
    "image": ("shape", "bounds", "transform"),
    "vector": ("shape", "bounds"),
}
COMMON = ("kind", "unconfirmed", "confirmed")
WORDS = (("0", "false", "f", "no", "n"), ("1", "true", "t", "yes", "y"))


@dataclass(frozen=True)
class Column:
    """One declared column. Fields that its kind does not use keep their defaults."""

    name: str
    kind: Kind
    bounds: tuple[float, ...] = ()
    transform: str = "linear"
    knots: int = 0
    values: tuple[str, ...] = ()
    missing: str | float = "zero"
    unseen: str = "zero"
    shape: tuple[int, ...] = ()
    dimension: int = 0
    ngrams: tuple[int, int] = (1, 1)
    unconfirmed: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind == "image" and not self.bounds:
            object.__setattr__(self, "bounds", (0.0, 255.0))

    @property
    def width(self) -> int:
        """How many features the column is turned into."""
        if self.kind == "number":
            return (self.knots or 1) + (self.missing == "other")
        if self.kind == "category":
            return len(self.values) + ("other" in (self.missing, self.unseen))
        if self.kind == "boolean":
            return 1 + (self.missing == "other")
        return self.dimension if self.kind == "text" else math.prod(self.feature_shape)

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """(channels, height, width) of what an image is turned into; (length,) of a vector."""
        if self.kind != "image":
            return self.shape
        height, width, channels = (*self.shape, 1)[:3]
        if self.transform == "edges":
            return (channels * DIRECTIONS, -(-height // CELL), -(-width // CELL))
        return (channels, height, width)


@dataclass(frozen=True)
class FileFormat:
    """How to read a delimited file: facts about the file, never guessed from its rows."""

    delimiter: str = ","
    encoding: str = "utf-8"
    missing: tuple[str, ...] = ("",)
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schema:
    """Columns in their order, the target (one column or several booleans), the unit of privacy, what is left out."""

    columns: tuple[Column, ...]
    target: tuple[str, ...]
    group: str | None = None
    drop: tuple[str, ...] = ()
    derived: bool = False
    row_norm: float | None = None
    drafted: tuple[str, ...] = ()
    vouched: tuple[str, ...] = ()
    source: str = ""
    file: FileFormat = field(default_factory=FileFormat)
    version: int = VERSION

    def __post_init__(self) -> None:
        from momentree.data.schema_rules import check

        check(self)

    @property
    def features(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.name not in self.target)

    @property
    def targets(self) -> tuple[Column, ...]:
        return tuple(self.column(name) for name in self.target)

    @property
    def task(self) -> Task:
        """`classes`: one class of several; `labels`: several yes-or-no answers; `bounded`: a number within bounds."""
        if len(self.target) > 1:
            return "labels"
        return "bounded" if self.targets[0].kind == "number" else "classes"

    @property
    def classes(self) -> tuple[str, ...]:
        """The declared classes in the order of their numbers; the names of the labels where there are several."""
        if self.task == "labels":
            return self.target
        target = self.targets[0]
        return (target.values or ("false", "true")) if self.task == "classes" else ()

    @property
    def dimension(self) -> int:
        """d: how many features a row is turned into."""
        return sum(column.width for column in self.features)

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """(channels, height, width) where one image is all there is, else (d,)."""
        if len(self.features) == 1 and self.features[0].kind == "image":
            return self.features[0].feature_shape
        return (self.dimension,)

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        hint = nearest(name, [column.name for column in self.columns])
        raise InputError(f"column {name!r} is not declared in the schema: add [columns.{json.dumps(name)}]{hint}")

    def unconfirmed(self) -> tuple[str, ...]:
        """The lines that were read from the data and that nobody has confirmed: `column.key`."""
        return (*self.drafted, *(f"{column.name}.{key}" for column in self.columns for key in column.unconfirmed))

    def digest(self) -> str:
        """SHA-256 of the facts that decide what a row turns into; comments and confirmations do not count."""
        facts = [
            (
                c.name,
                c.kind,
                c.bounds,
                c.transform,
                c.knots,
                c.values,
                c.missing,
                c.unseen,
                c.shape,
                c.dimension,
                c.ngrams,
            )
            for c in self.columns
        ]
        text = json.dumps(
            [self.version, facts, self.target, self.group, self.row_norm, vars(self.file)], sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def read(cls, path: str | Path) -> Schema:
        """The schema in a TOML file, or one line that says what is wrong with it."""
        from momentree.data import schema_file

        return schema_file.read(path)

    def to_toml(self) -> str:
        """The same schema as TOML; `Schema.read` of it gives an equal one."""
        from momentree.data import schema_file

        return schema_file.write(self)
