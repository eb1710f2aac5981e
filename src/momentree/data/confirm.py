"""Confirming a drafted schema, line by line: somebody says that a public source gives the same value.

A confirmed line is still compared with the data when a model is trained: where it equals what a draft would write, the
certificate lists it as read from the data (`read_from_data`): a confirmation does not change where it came from.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from momentree.data import draft, schema_file
from momentree.data.profile import profiles
from momentree.data.readers import Source
from momentree.data.schema import Schema
from momentree.errors import InputError, nearest


def value_of(schema: Schema, line: str) -> str:
    """What an unconfirmed line says, for the person who is asked about it."""
    if line in schema.drafted:
        return schema_file.quoted(getattr(schema, line))
    name, _, key = line.rpartition(".")
    return schema_file.quoted(getattr(schema.column(name), key))


def confirm(path: str | Path, lines: Iterable[str], source: str = "") -> Schema:
    """Mark these unconfirmed lines of the file as confirmed, and give the schema as it is now. Comments are kept."""
    path = Path(path)
    schema = Schema.read(path)
    lines = list(lines)
    for line in lines:
        if line not in schema.unconfirmed():
            hint = nearest(line, schema.unconfirmed())
            raise InputError(
                f"line {line!r} is not one that waits to be confirmed: write COLUMN.KEY, such as age.bounds{hint}"
            )
    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8"))
    except (TOMLKitError, OSError, ValueError):
        raise InputError(f"schema {path} cannot be edited: mend it, or draft it again") from None
    for line in lines:
        name, _, key = line.rpartition(".")
        table = document["columns"][name] if name else document
        waiting = [other for other in table["unconfirmed"] if other != key]
        if waiting:
            table["unconfirmed"] = waiting
        else:
            del table["unconfirmed"]
        table["confirmed"] = [*table.get("confirmed", []), key]
        table[key].comment(f"{schema_file.LEAKS}; confirmed")
    if source:
        document["source"] = source
    text = tomlkit.dumps(document)
    confirmed = schema_file.parse(text, str(path))
    write_whole(path, text)
    return confirmed


def write_whole(path: Path, text: str) -> None:
    """The whole file or nothing of it."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(
            f"schema {path} cannot be written: {error.strerror}; give a place with room and access"
        ) from None


def read_from_data(schema: Schema, source: Source) -> list[str]:
    """The lines of a drafted schema whose values are the data's own, confirmed or not: what a certificate has to list.

    A bound counts where it is the column's least or greatest number, or what a draft makes of it; a list of values
    where a draft lists the same ones; a kind where nobody confirmed it; the list of dropped columns always. Of a schema
    that was declared and never drafted, nothing is compared: an answer would itself say something about the data.
    """
    if not schema.derived:
        return []
    marked = [column for column in schema.columns if column.confirmed or column.unconfirmed]
    found = profiles(source, [column.name for column in marked], schema.file.missing)
    same = [*schema.drafted, *schema.vouched]
    for column in marked:
        profile = found[column.name]
        again = draft.again(source, profile, schema)
        for key in (*column.confirmed, *column.unconfirmed):
            own = getattr(column, key)
            drafted = again is not None and getattr(again, key) == own
            exact = key == "bounds" and column.kind == "number" and (own[0] == profile.low or own[1] == profile.high)
            if (key != "kind" or key in column.unconfirmed) and (
                drafted or exact or (key == "values" and own_values(own, profile.counts))
            ):
                same.append(f"{column.name}.{key}")
    return same


def own_values(values: tuple[str, ...], counts: dict[bytes, int] | None) -> bool:
    """Whether a list of values is the set of those that occur."""
    return counts is not None and {value.encode() for value in values} == set(counts)
