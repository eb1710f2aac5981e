"""Delimited text: what Python's own csv module reads, with every record in its place, whatever the blocks are."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from momentree.data import csv_file
from momentree.data.readers import open_source
from momentree.data.schema import FileFormat
from momentree.errors import InputError

CELL = st.text(st.sampled_from('ab",;\n\r\t \x00é1.'), max_size=6)


def read(path: Path, file: FileFormat | None = None) -> list[dict[str, bytes | None]]:
    source = open_source(path, file)
    return [row for batch in source.batches(list(source.columns)) for row in batch.to_pylist()]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=1, max_size=12),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    last=st.booleans(),
    block=st.sampled_from([1, 7, 64, 1 << 20]),
    delimiter=st.sampled_from([",", ";", "\t"]),
)
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], end: str, last: bool, block: int, delimiter: str
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([["x", "y", "z"], *rows])
    raw = text.getvalue().encode()
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(raw if last else raw.removesuffix(end.encode()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "READ", block)
        found = read(path, FileFormat(delimiter=delimiter))
    assert [[(cell or b"").decode() for cell in row.values()] for row in found] == rows


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    rows=st.lists(
        st.one_of(
            st.lists(st.sampled_from(["1", "", "ab", '"q,""\n"', "\xff"]), min_size=2, max_size=2),
            st.lists(st.sampled_from(["bad", '"b,\n"', "\xff\xfe"]), min_size=1, max_size=5).filter(
                lambda r: len(r) != 2
            ),
            st.just([""]),
        ),
        min_size=1,
        max_size=15,
    ),
    block=st.sampled_from([1, 13, 1 << 20]),
)
def test_malformed_records_are_rows_of_nulls_in_their_places(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[list[str]],
    block: int,
) -> None:
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(b"x,y\n" + b"".join(",".join(row).encode("latin-1") + b"\n" for row in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "READ", block)
        found = read(path)
    assert len(found) == len(rows)
    for row, got in zip(rows, found, strict=True):
        if len(row) != 2:
            assert list(got.values()) == [None, None]
        else:
            plain = next(csv.reader(io.StringIO(",".join(row), newline="")))
            assert [(cell or b"").decode("latin-1") for cell in got.values()] == plain


def test_malformed_records_say_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"x,y\n1,2\nSECRET\xff\n3,4,SECRET\n\n5,6\n")
    assert len(read(path)) == 5
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.parametrize(
    "raw",
    [
        b'x,y\n1,"2\n3,4\n',
        b'x,y\n1,2"\n3,4\n',
        b'x,y\n1,"2"3\n4,5\n',
        b'x,y\n1,5" pipe\n',
        b'x,y\n1,"a" "b"\n',
        b'x,"y\n1,2\n',
        b'x,y\n1, "2"\n',
    ],
)
@pytest.mark.parametrize("block", [1, 5, 1 << 20])
def test_broken_quoting_is_a_defect_of_the_file(tmp_path: Path, raw: bytes, block: int) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(raw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "READ", block)
        with pytest.raises(InputError, match="broken quoting"):
            read(path)


def test_the_record_that_is_named_is_the_one(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'x,y\n"a\n\n",1\n2,2\n3,3"\n')
    with pytest.raises(InputError, match="near record 4:"):
        read(path)


def test_a_record_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "READ", 1000)
    monkeypatch.setattr(csv_file, "MAX_RECORD", 5000)
    path = tmp_path / "t.csv"
    path.write_bytes(b"x,y\n1," + b"a" * 20_000)
    with pytest.raises(InputError, match="record of more than"):
        read(path)


def test_files_without_a_first_line_of_names(tmp_path: Path) -> None:
    path = tmp_path / "t.data"
    path.write_bytes(b"1;2\n3;4\n")
    found = read(path, FileFormat(delimiter=";", names=("p", "q")))
    assert found == [{"p": b"1", "q": b"2"}, {"p": b"3", "q": b"4"}]


def test_a_byte_order_mark_has_to_be_announced(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbfx,y\n1,2\n")
    with pytest.raises(InputError, match="byte-order mark"):
        read(path)
    assert read(path, FileFormat(encoding="utf-8-sig")) == [{"x": b"1", "y": b"2"}]


def test_only_the_wanted_columns_are_converted(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_bytes(b"x\ty\tz\n1\t2\t3\n")
    batches = list(open_source(path).batches(["z", "x"]))
    assert [batch.schema.names for batch in batches] == [["z", "x"]]
    assert batches[0].schema.types == [pa.binary()] * 2
