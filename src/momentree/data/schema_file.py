"""`schema.toml`: read strictly, written with its comments."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path

from momentree.data.schema import BLANKS, COMMON, KEYS, KINDS, VERSION, Column, FileFormat, Schema
from momentree.errors import InputError, nearest, one_of

TOP = (
    "version",
    "target",
    "derived",
    "group",
    "drop",
    "row_norm",
    "unconfirmed",
    "confirmed",
    "source",
    "file",
    "columns",
)
FILE = ("delimiter", "encoding", "missing", "names")
MAX_BYTES = 16 << 20
LEAKS = "read from the data: leaks"


def read(path: str | Path) -> Schema:
    """The schema in a file. Whatever the bytes are, the answer is a schema or one line."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"schema {path} is larger than {MAX_BYTES >> 20} MiB: declare fewer values")
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"schema {path} cannot be read: {error.strerror}; draft one with `schema draft`") from None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"schema {path} is not UTF-8 text: save it as UTF-8") from None
    return parse(text, str(path))


def parse(text: str, where: str = "schema") -> Schema:
    """The schema in a TOML text."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        line = first_bad_line(text)
        raise InputError(f"schema {where} is not valid TOML{line}: mend it, or draft it again") from None
    return from_dict(table)


def first_bad_line(text: str) -> str:
    """' (line k)' of a TOML error, without its text: a derived schema's lines carry data."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = str(error).rpartition("line ")[2].partition(",")[0]
        return f" (line {place})" if place.isdigit() else ""
    except (RecursionError, ValueError):
        return ""
    return ""


def known(where: str, table: Mapping[str, object], keys: Iterable[str]) -> None:
    keys = list(keys)
    for key in table:
        if key not in keys:
            hint = nearest(key, keys)
            raise InputError(f"unknown key {where}{key!r} in the schema: choose one of {', '.join(keys)}{hint}")


def table_of(name: str, given: object) -> dict[str, object]:
    if not isinstance(given, dict):
        raise InputError(f"{name} in the schema is not a table: write [{name}] with a key and a value on each line")
    return given


def string(name: str, given: object) -> str:
    if not isinstance(given, str):
        raise InputError(f"{name} in the schema is not a string: put it in quotes")
    return given


def strings(name: str, given: object) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        raise InputError(f'{name} in the schema is not a list of strings: write ["one", "two"]')
    return tuple(given)


def yes_no(name: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise InputError(f"{name} in the schema is neither true nor false: write one of them")
    return given


def value_text(name: str, given: object) -> str:
    """A declared value as the text that cells are compared with: 1, 1.0 and "1" are the same value."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, float) and not math.isfinite(given):
        raise InputError(f"{name} in the schema has a number that is not finite: put it in quotes if it is a word")
    if isinstance(given, float) and given == int(given):
        return str(int(given))
    if isinstance(given, (int, float)):
        try:
            return str(given)
        except ValueError:
            raise InputError(
                f"{name} in the schema has a whole number of thousands of digits: put it in quotes"
            ) from None
    return string(name, given).strip(BLANKS)


def listed(name: str, given: object) -> list[object]:
    if not isinstance(given, list):
        raise InputError(f"{name} in the schema is not a list: write [one, two]")
    return given


def real(name: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise InputError(f"{name} in the schema is not a number")
    try:
        return float(given)
    except OverflowError:
        raise InputError(
            f"{name} in the schema is beyond the range of numbers: give one that is at most 1e30"
        ) from None


def integer(name: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise InputError(f"{name} in the schema is not a whole number")
    return given


def from_dict(table: Mapping[str, object]) -> Schema:
    """A schema from the parsed TOML: unknown keys are refused, with the nearest known one."""
    if table.get("version") != VERSION or isinstance(table.get("version"), bool):
        given = table.get("version")
        shown = given if isinstance(given, (int, float)) else "(none)" if given is None else "(not a number)"
        raise InputError(f"schema version {shown} cannot be read: this version reads version = {VERSION}")
    known("", table, TOP)
    target = table.get("target")
    if target is None:
        raise InputError('the schema names no target: add target = "COLUMN"')
    columns = tuple(column_from(name, item) for name, item in table_of("columns", table.get("columns", {})).items())
    file = table_of("file", table.get("file", {}))
    known("file.", file, FILE)
    return Schema(
        columns=columns,
        target=(target,) if isinstance(target, str) else strings("target", target),
        group=string("group", table["group"]) if "group" in table else None,
        drop=strings("drop", table.get("drop", [])),
        derived=yes_no("derived", table.get("derived", False)),
        row_norm=real("row_norm", table["row_norm"]) if "row_norm" in table else None,
        drafted=top_lines("unconfirmed", table),
        vouched=top_lines("confirmed", table),
        source=string("source", table.get("source", "")),
        file=FileFormat(
            delimiter=string("file.delimiter", file.get("delimiter", ",")),
            encoding=string("file.encoding", file.get("encoding", "utf-8")),
            missing=strings("file.missing", file.get("missing", [""])),
            names=strings("file.names", file.get("names", [])),
        ),
    )


def top_lines(name: str, table: Mapping[str, object]) -> tuple[str, ...]:
    """The lines outside the columns' tables that were read from the data: the list of dropped columns."""
    keys = strings(name, table.get(name, []))
    known(f"{name}: ", dict.fromkeys(keys), ("drop",))
    return keys


def column_from(name: str, given: object) -> Column:
    where = f"columns.{name}"
    table = table_of(where, given)
    if "kind" not in table:
        raise InputError(f"{where}.kind is missing: choose one of {', '.join(KINDS)}")
    kind = one_of(f"{where}.kind", table["kind"], KINDS)
    known(f"{where}.", table, (*COMMON, *KEYS[kind]))
    facts: dict[str, object] = {}
    if "bounds" in table:
        bounds = listed(f"{where}.bounds", table["bounds"])
        facts["bounds"] = tuple(real(f"{where}.bounds", bound) for bound in bounds)
    if "values" in KEYS[kind] and (kind == "category" or "values" in table):
        values = listed(f"{where}.values", table.get("values", []))
        facts["values"] = tuple(value_text(f"{where}.values", value) for value in values)
    if kind in ("image", "vector"):
        facts["shape"] = tuple(integer(f"{where}.shape", n) for n in listed(f"{where}.shape", table.get("shape", [])))
    if kind == "text":
        facts["dimension"] = integer(f"{where}.dimension", table.get("dimension", 2048))
        ngrams = [integer(f"{where}.ngrams", n) for n in listed(f"{where}.ngrams", table.get("ngrams", [1, 1]))]
        if len(ngrams) != 2:
            raise InputError(f"{where}.ngrams has {len(ngrams)} entries: give [shortest, longest]")
        facts["ngrams"] = tuple(ngrams)
    if "transform" in table:
        facts["transform"] = string(f"{where}.transform", table["transform"])
    if "knots" in table:
        facts["knots"] = integer(f"{where}.knots", table["knots"])
    if "missing" in table:
        missing = table["missing"]
        facts["missing"] = missing if isinstance(missing, str) else real(f"{where}.missing", missing)
    if "unseen" in table:
        facts["unseen"] = string(f"{where}.unseen", table["unseen"])
    for key in ("unconfirmed", "confirmed"):
        facts[key] = strings(f"{where}.{key}", table.get(key, []))
        known(f"{where}.{key}: ", dict.fromkeys(strings(f"{where}.{key}", table.get(key, []))), ("kind", *KEYS[kind]))
    return Column(name=name, kind=kind, **facts)  # type: ignore[arg-type]


def quoted(value: object) -> str:
    """A TOML value. JSON strings are TOML strings once the one escape that TOML lacks is spelled out."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(quoted(item) for item in value) + "]"
    return repr(value)


def write(schema: Schema) -> str:
    """The schema as TOML, defaults left out, a comment on each line that was read from the data."""
    lines = [f"version = {schema.version}"]
    target: object = schema.target[0] if len(schema.target) == 1 else schema.target
    lines.append(f"target = {quoted(target)}")
    if schema.derived:
        lines.append("derived = true  # drafted from the data itself: every line marked below leaks something about it")
    for key in ("group", "drop", "row_norm", "source"):
        if getattr(schema, key):
            mark = (
                f"  # {LEAKS}" if key in schema.drafted else f"  # {LEAKS}; confirmed" if key in schema.vouched else ""
            )
            lines.append(f"{key} = {quoted(getattr(schema, key))}{mark}")
    lines += [f"unconfirmed = {quoted(schema.drafted)}"] if schema.drafted else []
    lines += [f"confirmed = {quoted(schema.vouched)}"] if schema.vouched else []
    lines += format_lines(schema.file)
    for column in schema.columns:
        lines += ["", *column_lines(column)]
    return "\n".join(lines) + "\n"


def format_lines(file: FileFormat) -> list[str]:
    """The table [file], where it says anything."""
    default = FileFormat()
    changed = [f.name for f in fields(default) if getattr(file, f.name) != getattr(default, f.name)]
    return ["", "[file]", *(f"{key} = {quoted(getattr(file, key))}" for key in changed)] if changed else []


def column_lines(column: Column) -> list[str]:
    blank = Column(name=column.name, kind=column.kind)
    required = {"number": ("bounds",), "category": ("values",), "text": ("dimension",)}.get(column.kind, ("shape",))
    lines = [f"[columns.{quoted(column.name)}]"]
    for key in ("kind", *KEYS[column.kind]):
        value = getattr(column, key)
        if key == "kind" or key in required or value != getattr(blank, key):
            if key == "values" and not value:
                continue
            mark = f"  # {LEAKS}" if key in column.unconfirmed else ""
            mark = f"  # {LEAKS}; confirmed" if key in column.confirmed else mark
            lines.append(f"{key} = {quoted(value)}{mark}")
    for key in ("unconfirmed", "confirmed"):
        if getattr(column, key):
            lines.append(f"{key} = {quoted(getattr(column, key))}")
    return lines
