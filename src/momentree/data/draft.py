"""A first `schema.toml`, drafted from the data and marked so on every line that was; or from the names alone.

The rules are few and read no labels: what only words can hold is a category, or text where its cells have many words,
or is dropped; whole numbers with few distinct values are categories; other numbers are numbers. Bounds are rounded
outward to two figures and values with fewer than `RARE` rows fall under `other`, so that a draft shows as little of a
single person as it can; it still leaks.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from momentree.data.cells import NUMERAL, is_listed, is_scalar
from momentree.data.profile import Profile, profiles
from momentree.data.readers import Source
from momentree.data.schema import WORDS, Column, FileFormat, Schema
from momentree.errors import InputError

FEW = 12
NARROW = 100
RARE = 10
MANY_VALUES = 300
MAX_CLASSES = 100
KNOTS = 16
TEXT_DIMENSION = 8192
ROW_NORM = 4.0
TAIL = 0.1
SPLIT_WORDS = ("split", "fold", "subset", "partition")


@dataclass(frozen=True)
class Draft:
    """The drafted schema, and why a column was left out (a word a column; public once the draft is)."""

    schema: Schema
    dropped: dict[str, str]

    def to_toml(self) -> str:
        lines = [f"# {name}: dropped, {why}" for name, why in self.dropped.items()]
        return self.schema.to_toml() + (
            "\n" + "\n".join(" ".join(line.split()) for line in lines) + "\n" if lines else ""
        )


def draft(
    source: Source,
    target: Sequence[str],
    *,
    group: str | None = None,
    drop: Sequence[str] = (),
    file: FileFormat | None = None,
) -> Draft:
    """A schema read from the data: `derived`, every line unconfirmed."""
    file = file or FileFormat()
    refuse_rows_for_names(source, file)
    for name in (*target, *([group] if group else []), *drop):
        source.require(name)
    left_out = dict.fromkeys(drop, "as asked")
    for name in source.columns:
        if name.lower() in SPLIT_WORDS and name not in (*target, group, *drop):
            left_out[name] = "its name says that it splits the rows (--holdout COLUMN=VALUE reads it)"
    wanted = [name for name in source.columns if name not in left_out and name != group]
    wanted = without_twins(source, wanted, target)
    columns: list[Column] = []
    for name, profile in profiles(source, wanted, file.missing).items():
        found = target_column(profile, len(target) > 1) if name in target else feature_column(source, profile)
        if isinstance(found, str):
            left_out[name] = found
        else:
            columns.append(marked(found))
    if len(columns) == len(target):
        raise InputError("no column beside the target can be used: declare the columns by hand, from --names-only")
    schema = Schema(
        columns=tuple(columns),
        target=tuple(target),
        group=group,
        drop=tuple(left_out),
        derived=True,
        drafted=("drop",) if set(left_out) - set(drop) else (),
        row_norm=ROW_NORM,
        file=file,
    )
    return Draft(schema, left_out)


def refuse_rows_for_names(source: Source, file: FileFormat) -> None:
    """A delimited file without a line of names would put its first row, somebody's, into the schema."""
    numerals = sum(re.match(NUMERAL, name) is not None for name in source.columns)
    if source.format == "csv" and not file.names and 2 * numerals >= len(source.columns):
        raise InputError(
            f"data {source.path} begins with a line that looks like a row, half of it numbers, where the names of the "
            "columns belong: add such a line, or give the names with --column-names A,B,C"
        )


def without_twins(source: Source, names: list[str], target: Sequence[str]) -> list[str]:
    """NumPy arrays are offered whole and by column: a draft takes `X`, or all of `X.0`, `X.1`, … where it is narrow."""
    if source.format != "numpy":
        return names
    parts = Counter(name.rpartition(".")[0] for name in names)
    narrow = {name for name in names if is_listed(source.columns[name]) and 0 < parts[name] <= NARROW}
    used = {name.rpartition(".")[0] for name in target} | narrow
    return [
        name
        for name in names
        if name in target
        or (name not in used if is_listed(source.columns[name]) else parts_of(name, source) in (None, *used))
    ]


def parts_of(name: str, source: Source) -> str | None:
    """The array that a column is a part of."""
    whole = name.rpartition(".")[0]
    return whole if whole in source.columns else None


def marked(column: Column) -> Column:
    """The lines of a column that came from the data."""
    own = {"number": ("bounds", "transform"), "category": ("values",), "boolean": (), "text": ()}
    keys = own.get(column.kind, ("shape",))
    keys = tuple(key for key in keys if key != "transform" or column.transform != "linear")
    return replace(column, unconfirmed=("kind", *keys))


def feature_column(source: Source, profile: Profile) -> Column | str:
    """A column to learn from, or why there is none."""
    name = profile.name
    shape = source.shapes.get(name, profile.size)
    if is_listed(profile.stored) or profile.size:
        return listed_column(profile, shape)
    if not is_scalar(profile.stored):
        return "its stored type is none that can be declared"
    if profile.counts is not None and len(profile.counts) < 2:
        return "it has a single value"
    if profile.numeric >= 0.95 * profile.filled:
        return number_column(profile)
    if profile.counts is not None and len(profile.counts) <= MANY_VALUES:
        return category_column(profile, RARE if profile.rows >= 100 * RARE else 1) or "it has no frequent value"
    if profile.spaces >= 2 * profile.filled:
        return Column(name=name, kind="text", dimension=TEXT_DIMENSION)
    return "it has too many different values for a category and too few words for a text"


def listed_column(profile: Profile, shape: tuple[int, ...]) -> Column | str:
    if len(shape) in (2, 3) and (len(shape) == 2 or shape[2] in (1, 3)):
        return Column(
            name=profile.name, kind="image", shape=shape, transform="edges" if min(shape[:2]) >= 12 else "contrast"
        )
    if profile.high > profile.low and profile.rows and profile.numeric % profile.rows == 0:
        bounds = outward(profile.low, profile.high)
        return Column(name=profile.name, kind="vector", shape=(profile.numeric // profile.rows,), bounds=bounds)
    return "its lists differ in length or hold a single value"


def number_column(profile: Profile) -> Column | str:
    words = profile.counts
    if profile.whole and words is not None and set(words) <= {b"0", b"1"}:
        return Column(name=profile.name, kind="boolean")
    if profile.whole and words is not None and len(words) <= FEW:
        return category_column(profile, RARE if profile.rows >= 100 * RARE else 1) or "it has no frequent value"
    if not profile.low < profile.high:
        return "it has a single value"
    bounds = outward(profile.low, profile.high)
    transform = "log" if heavy_tail(profile) else "linear"
    return Column(name=profile.name, kind="number", bounds=bounds, transform=transform, knots=KNOTS)


def heavy_tail(profile: Profile) -> bool:
    """Whether the mean sits in the lowest tenth of non-negative numbers' range: logarithms spread those better."""
    mean = profile.total / max(1, profile.numeric)
    return profile.low >= 0 and profile.high >= 10 and mean - profile.low < TAIL * (profile.high - profile.low)


def category_column(profile: Profile, least: int) -> Column | None:
    counts = profile.counts or {}
    values = []
    for word, times in counts.items():
        try:
            if times >= least:
                values.append(word.decode("utf-8"))
        except UnicodeDecodeError:
            continue
    if len(values) < 2:
        return None
    return Column(name=profile.name, kind="category", values=ordered(values), missing="other", unseen="other")


def ordered(values: list[str]) -> tuple[str, ...]:
    """Sorted, whole numbers by size: the order of the rows leaves no trace."""
    numbers = [value for value in values if value.removeprefix("-").isdecimal() and len(value) < 16]
    words = [value for value in values if value not in numbers]
    return (*sorted(numbers, key=int), *sorted(words))


def target_column(profile: Profile, label: bool) -> Column:
    """The target: classes, or a number within bounds where there are many different ones."""
    name, counts = profile.name, profile.counts
    if not is_scalar(profile.stored):
        raise InputError(f"target {name!r} is stored as lists: give a column with one plain value a row")
    if label:
        return Column(name=name, kind="boolean")
    if counts is not None and len(counts) < 2:
        raise InputError(f"target {name!r} has a single value: there is nothing to learn")
    few = counts is not None and len(counts) <= MAX_CLASSES
    if profile.numeric >= 0.95 * profile.filled and not (few and profile.whole):
        return Column(name=name, kind="number", bounds=outward(profile.low, profile.high))
    if not few:
        raise InputError(f"target {name!r} has more than {MAX_CLASSES} classes: name another, or declare them by hand")
    found = category_column(profile, 1)
    if found is None:
        raise InputError(f"target {name!r} has words that are not UTF-8: mend them first")
    values = found.values
    if len(values) == 2 and {values[0].lower(), values[1].lower()} <= {*WORDS[0], *WORDS[1]}:
        # The order of a boolean's words: false first, so that class 1 is the yes.
        values = tuple(sorted(values, key=lambda word: word.lower() in WORDS[1]))
    return Column(name=name, kind="category", values=values)


def outward(low: float, high: float) -> tuple[float, float]:
    """Bounds rounded outward to a round number: a hundredth to a tenth of what they span."""
    step = 10.0 ** (math.floor(math.log10(high - low)) - 1)
    return clean(math.floor(low / step), step), clean(math.ceil(high / step), step)


def clean(count: int, step: float) -> float:
    """count·step without the dust of binary fractions."""
    return float(f"{count * step:.12g}")


def again(source: Source, profile: Profile, schema: Schema) -> Column | None:
    """The column as a draft of this file would declare it."""
    try:
        found = (
            target_column(profile, len(schema.target) > 1)
            if profile.name in schema.target
            else feature_column(source, profile)
        )
    except InputError:
        return None
    return None if isinstance(found, str) else found


def names_only(
    source: Source,
    target: Sequence[str],
    *,
    group: str | None = None,
    drop: Sequence[str] = (),
    file: FileFormat | None = None,
) -> str:
    """A form to fill in, from the names alone: no value is read, so nothing leaks; it passes once it is filled in."""
    from momentree.data.schema_file import format_lines, quoted

    refuse_rows_for_names(source, file or FileFormat())
    for name in (*target, *([group] if group else []), *drop):
        source.require(name)
    lines = ["version = 1", f"target = {quoted(target[0] if len(target) == 1 else tuple(target))}"]
    lines += [f"group = {quoted(group)}"] if group else []
    lines += [f"drop = {quoted(tuple(drop))}"] if drop else []
    lines += format_lines(file or FileFormat())
    for name in without_twins(source, list(source.columns), target):
        if name in drop or name == group:
            continue
        lines += ["", f"[columns.{quoted(name)}]"]
        if is_listed(source.columns[name]):
            lines += ['kind = "vector"  # or image', "shape = []  # fill in: [length], or [height, width] of an image"]
        elif name in target and len(target) == 1:
            lines += ['kind = "category"  # or number, with bounds', "values = []  # fill in: the classes"]
        elif name in target:
            lines += ['kind = "boolean"']
        else:
            lines += ['kind = "number"  # or category (values = […]), boolean, text, or put the name into drop']
            lines += ["bounds = []  # fill in: [low, high] from a public source"]
    return "\n".join(lines) + "\n"
