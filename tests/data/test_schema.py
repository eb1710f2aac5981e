"""The schema: strict to read, equal when written and read again, silent about values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import fixtures
from momentree.data import schema_file
from momentree.data.schema import Column, FileFormat, Schema
from momentree.errors import InputError

NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(lambda t: t == t.strip())
FINITE = st.floats(-1e30, 1e30)
VALUE = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(lambda t: t.strip(" \t\r\n\v\f"))
RULE = st.sampled_from(["zero", "other", "row"])


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    kind = draw(st.sampled_from(["number", "category", "boolean", "text", "image", "vector"]))
    if kind == "number":
        low, high = sorted(draw(st.lists(FINITE, min_size=2, max_size=2, unique=True)))
        missing = draw(st.one_of(RULE, st.just((low + high) / 2)))
        transform = draw(st.sampled_from(["linear", "log"]))
        return Column(name, "number", (low, high), transform, draw(st.sampled_from([0, 2, 16])), missing=missing)
    if kind == "category":
        values = tuple(draw(st.lists(VALUE, min_size=2, max_size=5, unique=True)))
        return Column(name, "category", values=values, missing=draw(RULE), unseen=draw(RULE), confirmed=("values",))
    if kind == "boolean":
        values = draw(st.one_of(st.just(()), st.lists(VALUE, min_size=2, max_size=2, unique=True).map(tuple)))
        return Column(name, "boolean", values=values, missing=draw(RULE), unconfirmed=("kind",))
    if kind == "text":
        return Column(name, "text", dimension=draw(st.integers(2, 1000)), ngrams=(1, draw(st.integers(1, 5))))
    if kind == "image":
        transform = draw(st.sampled_from(["linear", "contrast", "edges"]))
        return Column(name, "image", shape=draw(st.sampled_from([(3, 4), (3, 4, 3)])), transform=transform)
    return Column(name, "vector", shape=(draw(st.integers(1, 9)),), bounds=(-1.0, 2.0))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(NAME, min_size=2, max_size=6, unique=True))
    target = Column(names[0], "category", values=("a", "b"), unconfirmed=("values",))
    return Schema(
        columns=(target, *(draw(columns(name)) for name in names[1:])),
        target=(names[0],),
        group=draw(st.one_of(st.none(), st.just("\x01group"))),
        drop=draw(st.sampled_from([(), ("\x01left out", '\x01"quoted"')])),
        derived=draw(st.booleans()),
        drafted=draw(st.sampled_from([(), ("drop",)])),
        vouched=draw(st.sampled_from([(), ("drop",)])),
        row_norm=draw(st.one_of(st.none(), st.floats(0.001, 1000))),
        source=draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=9)),
        file=FileFormat(draw(st.sampled_from([",", "\t", ";"])), "utf-8", draw(st.sampled_from([("",), ("", "?")]))),
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(schema=schemas())
def test_what_is_written_is_read(schema: Schema) -> None:
    text = schema.to_toml()
    assert schema_file.parse(text) == schema
    assert schema_file.parse(text).digest() == schema.digest()
    assert sum(column.width for column in schema.features) == schema.dimension


def test_the_digest_sees_facts_and_not_confirmations() -> None:
    schema = fixtures.schema()
    assert replace(schema, derived=True, source="a book").digest() == schema.digest()
    age, *rest = schema.columns
    assert replace(schema, columns=(replace(age, unconfirmed=("bounds",)), *rest)).digest() == schema.digest()
    assert replace(schema, columns=(replace(age, bounds=(20.0, 81.0)), *rest)).digest() != schema.digest()
    assert replace(schema, row_norm=1.0).digest() != schema.digest()


GOOD = """
version = 1
target = "y"
[columns.a]
kind = "number"
bounds = [0, 1]
[columns.c]
kind = "category"
values = ["p", "q"]
[columns.y]
kind = "category"
values = ["a", "b"]
"""

BAD: list[tuple[str, str, str]] = [
    ("version = 1", "version = 2", "version 2 cannot be read"),
    ("version = 1", "version = true", "version"),
    ("version = 1", "", "version (none)"),
    ("version = 1", "version = 1\ntraget = 1", "did you mean target"),
    ('target = "y"', "", "no target"),
    ('target = "y"', 'target = "z"', "target 'z' is not declared"),
    ('target = "y"', 'target = ["y", "y"]', "twice"),
    ('target = "y"', 'target = ["y", "a"]', "boolean"),
    ('target = "y"', "target = 3", "list of strings"),
    ("bounds = [0, 1]", "bounds = [1, 0]", "reversed"),
    ("bounds = [0, 1]", "bounds = [1, 1]", "reversed or equal"),
    ("bounds = [0, 1]", "bounds = [nan, 1]", "not finite"),
    ("bounds = [0, 1]", "bounds = [0, inf]", "not finite"),
    ("bounds = [0, 1]", "bounds = [0, 1e300]", "out of range"),
    ("bounds = [0, 1]", "bounds = [0]", "fill in"),
    ("bounds = [0, 1]", "bounds = []", "fill in"),
    ("bounds = [0, 1]", "", "fill in"),
    ("bounds = [0, 1]", 'bounds = ["0", 1]', "not a number"),
    ("bounds = [0, 1]", "bounds = 3", "not a list"),
    ("bounds = [0, 1]", f"bounds = [0, {'9' * 400}]", "range"),
    ("bounds = [0, 1]", "bounds = [0, 1]\nknots = 1", "knots"),
    ("bounds = [0, 1]", "bounds = [0, 1]\nknots = 2.5", "whole number"),
    ("bounds = [0, 1]", "bounds = [0, 1]\nmissing = 3", "out of range"),
    ("bounds = [0, 1]", 'bounds = [0, 1]\nmissing = "skip"', "choose one of"),
    ("bounds = [0, 1]", 'bounds = [0, 1]\ntransform = "lgo"', "did you mean log"),
    ("bounds = [0, 1]", 'bounds = [0, 1]\nvalues = ["x"]', "unknown key columns.a."),
    ("bounds = [0, 1]", 'bounds = [0, 1]\nunconfirmed = ["bnds"]', "did you mean bounds"),
    ('kind = "number"', 'kind = "nubmer"', "did you mean number"),
    ('kind = "number"', "", "kind is missing"),
    ('kind = "number"', "kind = 4", "unknown"),
    ('["a", "b"]', '["a"]', "at least two"),
    ('["a", "b"]', "[]", "at least two"),
    ('["a", "b"]', '["SECRET", " SECRET "]', "entry 2 repeats entry 1"),
    ('["a", "b"]', "[1, [2]]", "not a string"),
    ('["a", "b"]', "[1, 2020-01-01]", "not a string"),
    ('["a", "b"]', "[1, nan]", "not finite"),
    ('["p", "q"]', f"{[str(i) for i in range(10_001)]}", "at most 10000"),
    ("[columns.c]", "[columns.'']", "empty"),
    ("[columns.c]", "[columns.' c']", "blanks"),
    ("[columns.c]", "[columns.a]", "not valid TOML (line 7)"),
    ('kind = "category"\nvalues = ["p", "q"]', 'kind = "text"\ndimension = 1', "out of range"),
    ('kind = "category"\nvalues = ["p", "q"]', 'kind = "text"\nmissing = "other"', "no meaning"),
    ('kind = "category"\nvalues = ["p", "q"]', 'kind = "text"\nngrams = [2, 1]', "reversed"),
    ('kind = "category"\nvalues = ["p", "q"]', 'kind = "image"\nshape = [4]', "shape"),
    ('kind = "category"\nvalues = ["p", "q"]', 'kind = "image"\nshape = [4, 4, 2]', "channels"),
    ('kind = "category"\nvalues = ["p", "q"]', 'kind = "image"\nshape = [4096, 4096]', "at most"),
    ('kind = "category"\nvalues = ["p", "q"]', 'kind = "vector"\nbounds = [0, 1]\nshape = [0]', "out of range"),
    ('kind = "category"\nvalues = ["p", "q"]', 'kind = "boolean"\nvalues = ["p", "q", "r"]', "a boolean has two"),
    ('target = "y"', 'target = "y"\ndrop = ["a"]', "also dropped"),
    ('target = "y"', 'target = "y"\ngroup = "a"', "also dropped or the group"),
    ('target = "y"', 'target = "y"\ngroup = 4', "not a string"),
    ('target = "y"', 'target = "y"\nrow_norm = 0', "row_norm"),
    ('target = "y"', 'target = "y"\nderived = "yes"', "neither true nor false"),
    ('target = "y"', 'target = "y"\nfile.delimiter = ",,"', "delimiter"),
    ('target = "y"', 'target = "y"\nfile.delimeter = ","', "did you mean delimiter"),
    ('target = "y"', 'target = "y"\nfile.encoding = "latin-1"', "encoding"),
    ('target = "y"', 'target = "y"\nfile = 3', "not a table"),
    ('target = "y"', 'target = "y', "not valid TOML (line 3)"),
    ('target = "y"', f"drop = {'[' * 5000}", "not valid TOML"),
    ("[columns.a]", "[column.a]", "did you mean columns"),
]


@pytest.mark.parametrize(("old", "new", "says"), BAD, ids=range(len(BAD)))
def test_bad_schemas_are_one_line(old: str, new: str, says: str) -> None:
    schema_file.parse(GOOD)
    assert old in GOOD
    with pytest.raises(InputError) as caught:
        schema_file.parse(GOOD.replace(old, new, 1))
    message = str(caught.value)
    assert says in message
    assert "\n" not in message
    assert "SECRET" not in message
    assert len(message) < 500


def test_no_feature_and_no_columns() -> None:
    with pytest.raises(InputError, match="no column beside the target"):
        Schema(columns=(Column("y", "boolean"),), target=("y",))
    with pytest.raises(InputError, match="declared twice"):
        Schema(columns=(Column("y", "boolean"), Column("y", "boolean")), target=("y",))
    with pytest.raises(InputError, match="not declared in the schema"):
        fixtures.schema().column("agge")


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"", b"\x00", b"version = 1" + b"0" * 5000])
def test_bad_files(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "schema.toml"
    path.write_bytes(raw)
    with pytest.raises(InputError, match="schema"):
        Schema.read(path)
    with pytest.raises(InputError, match="cannot be read"):
        Schema.read(tmp_path)


def test_values_mean_the_same_as_numbers_and_as_words() -> None:
    text = GOOD.replace('["p", "q"]', '[1, 2.0, "3", true, 2.5]')
    assert schema_file.parse(text).column("c").values == ("1", "2", "3", "true", "2.5")
