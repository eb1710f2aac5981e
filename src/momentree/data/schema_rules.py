"""What makes a schema usable: every rule in one place, each failure one line. Values of categories are never quoted."""

from __future__ import annotations

import json
import math
from collections import Counter

from momentree.data.schema import BLANKS, KINDS, MAX_FEATURES, MAX_VALUES, RULES, VERSION, Column, FileFormat, Schema
from momentree.errors import InputError, number, one_of, whole

TRANSFORMS = {"number": ("linear", "log"), "image": ("linear", "contrast", "edges")}


def check(schema: Schema) -> None:
    """Everything that makes a schema usable; one line where it is not. Values of categories are never quoted."""
    if schema.version != VERSION:
        raise InputError(
            f"schema version {schema.version!r} cannot be read: this version reads {VERSION}; draft it again"
        )
    names = [column.name for column in schema.columns]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InputError(f"column {twice[0]!r} is declared twice: keep one of the two")
    if not schema.target:
        raise InputError('the schema names no target: add target = "COLUMN" and declare that column')
    for name in schema.target:
        if name not in names:
            raise InputError(f"target {name!r} is not declared in the schema: add [columns.{json.dumps(name)}]")
    if len(set(schema.target)) < len(schema.target):
        raise InputError("the target names a column twice: name each once")
    both = [name for name in names if name in schema.drop or name == schema.group]
    if both:
        raise InputError(f"column {both[0]!r} is declared and also dropped or the group: choose one of the two")
    if not schema.features:
        raise InputError("the schema declares no column beside the target: declare at least one to learn from")
    for column in schema.columns:
        check_column(column)
    if len(schema.target) > 1 and any(column.kind != "boolean" for column in schema.targets):
        raise InputError(
            "several targets have to be boolean columns, one label each: declare them so, or name one target"
        )
    if schema.targets[0].kind not in ("number", "category", "boolean"):
        raise InputError(
            f"target {schema.target[0]!r} is declared as {schema.targets[0].kind}: declare a category (classes), "
            "a boolean, or a number (regression within bounds)"
        )
    if schema.row_norm is not None:
        number("row_norm", schema.row_norm, above=0.0, at_most=1e6)
    if schema.dimension > MAX_FEATURES:
        raise InputError(f"the schema gives {schema.dimension} features: at most {MAX_FEATURES}; declare fewer values")
    check_file(schema.file)


def check_column(column: Column) -> None:
    """One column's own rules."""
    where = f"columns.{column.name}"
    if not column.name or column.name != column.name.strip():
        raise InputError("a column's name is empty or has blanks around it: give the name as the file has it, trimmed")
    one_of(f"{where}.kind", column.kind, KINDS)
    if column.kind in ("number", "image", "vector"):
        if len(column.bounds) != 2:
            raise InputError(
                f"{where}.bounds has {len(column.bounds)} entries: fill in [low, high] from a public source"
            )
        low = number(f"{where}.bounds[0]", column.bounds[0], at_least=-1e30, at_most=1e30)
        high = number(f"{where}.bounds[1]", column.bounds[1], at_least=-1e30, at_most=1e30)
        if not low < high:
            raise InputError(
                f"{where}.bounds [{low:g}, {high:g}] are reversed or equal: give [low, high] with low < high"
            )
    if column.kind in TRANSFORMS:
        one_of(f"{where}.transform", column.transform, TRANSFORMS[column.kind])
    if column.kind == "number":
        whole(f"{where}.knots", column.knots, at_least=0, at_most=1000, do="0 keeps the number itself")
        if column.knots == 1:
            raise InputError(f"{where}.knots 1 carries nothing: give 0 (the number itself) or at least 2")
    check_missing(where, column)
    if column.kind == "category":
        one_of(f"{where}.unseen", column.unseen, RULES)
        check_values(where, column.values)
    elif column.kind == "boolean" and column.values:
        check_values(where, column.values)
        if len(column.values) != 2:
            raise InputError(f"{where}.values has {len(column.values)} entries: a boolean has two, [false, true]")
    elif column.kind == "text":
        whole(f"{where}.dimension", column.dimension, at_least=2, at_most=MAX_FEATURES)
        first, last = (whole(f"{where}.ngrams", n, at_least=1, at_most=5) for n in column.ngrams)
        if first > last:
            raise InputError(f"{where}.ngrams [{first}, {last}] are reversed: give [shortest, longest]")
    elif column.kind in ("image", "vector"):
        check_shape(where, column)


def check_missing(where: str, column: Column) -> None:
    if isinstance(column.missing, str):
        one_of(f"{where}.missing", column.missing, RULES)
    elif column.kind == "number":
        number(f"{where}.missing", column.missing, at_least=column.bounds[0], at_most=column.bounds[1])
    else:
        raise InputError(
            f"{where}.missing is a number: only a number column takes one; choose one of {', '.join(RULES)}"
        )
    if column.kind == "text" and column.missing == "other":
        raise InputError(f"{where}.missing 'other' has no meaning for a text: choose zero or row")


def check_values(where: str, values: tuple[str, ...]) -> None:
    if len(values) < 2:
        raise InputError(f"{where}.values has {len(values)} entries: declare at least two, or drop the column")
    if len(values) > MAX_VALUES:
        raise InputError(
            f"{where}.values has {len(values)} entries: at most {MAX_VALUES}; declare the frequent ones and let unseen "
            'values fall under unseen = "other", or use kind = "text"'
        )
    seen: dict[str, int] = {}
    for place, value in enumerate(values, 1):
        if value != value.strip(BLANKS):
            raise InputError(f"{where}.values: entry {place} has blanks around it; cells are trimmed, so trim it too")
        if value in seen:
            raise InputError(f"{where}.values: entry {place} repeats entry {seen[value]}; keep one")
        seen[value] = place


def check_shape(where: str, column: Column) -> None:
    if len(column.shape) not in ((2, 3) if column.kind == "image" else (1,)):
        wanted = "[height, width] or [height, width, channels]" if column.kind == "image" else "[length]"
        raise InputError(f"{where}.shape has {len(column.shape)} entries: give {wanted}")
    sizes = [whole(f"{where}.shape", size, at_least=1, at_most=MAX_FEATURES) for size in column.shape]
    if math.prod(sizes) > MAX_FEATURES:
        raise InputError(f"{where}.shape has {math.prod(sizes)} numbers: at most {MAX_FEATURES}")
    if column.kind == "image" and len(sizes) == 3 and sizes[2] not in (1, 3):
        raise InputError(f"{where}.shape has {sizes[2]} channels: give 1 (grey) or 3 (red, green, blue)")


def check_file(file: FileFormat) -> None:
    if len(file.delimiter) != 1 or not file.delimiter.isascii() or file.delimiter in '"\r\n' or not file.delimiter:
        raise InputError(f"file.delimiter {file.delimiter!r} cannot be used: give one ASCII character that is no quote")
    one_of("file.encoding", file.encoding, ("utf-8", "utf-8-sig"))
    if len(set(file.names)) < len(file.names):
        raise InputError("file.names has a name twice: give each column a name of its own")
