"""A distinctive value in every place of a data file shows up in no output, message, warning or traceback."""

from __future__ import annotations

import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

from data import fixtures
from momentree.cli import main
from momentree.data import schema_file
from momentree.data.holdout import Holdout
from momentree.data.schema import Column, Schema
from momentree.data.table import read_table
from momentree.errors import InputError

CANARY = "Zq7canary"
NUMBER = "73519.0625"
SCHEMA = Schema(
    columns=(
        Column("n", "number", bounds=(0.0, 100000.0)),
        Column("c", "category", values=("p", "q"), unseen="other"),
        Column("b", "boolean"),
        Column("t", "text", dimension=64),
        Column("y", "category", values=("no", "yes")),
    ),
    target=("y",),
    group="who",
)
NAMES = ("n", "c", "b", "t", "y", "who")
KINDS = {"csv": fixtures.write_csv, "csv.gz": fixtures.write_csv, "parquet": fixtures.write_parquet}


def files(folder: Path) -> list[Path]:
    """Data with the canary in each column in turn, in each format; and some that no reader can finish."""
    found = []
    for place in range(len(NAMES)):
        rows = [[NUMBER, "pq"[i % 2], str(i % 2), "some words", ("no", "yes")[i % 2], str(i)] for i in range(20)]
        for row in rows[5:15]:
            row[place] = CANARY
        for kind, write in KINDS.items():
            found.append(write(folder / f"{place}.{kind}", rows, NAMES))
    text = (folder / "0.csv").read_bytes()
    broken = {
        "quote": text + f'1,"{CANARY}'.encode(),
        "stray": text + f'1,{CANARY}",1\n'.encode(),
        "cells": text + f"{CANARY}\n{CANARY},{CANARY}\n\n".encode() + CANARY.encode() + b"\xff,\xfe\n",
        "nameless": text.split(b"\n", 1)[1],
        "bytes": text + CANARY.encode() + b"\xff,p,1,\xff,yes,1\n",
    }
    for name, raw in broken.items():
        (folder / f"{name}.csv").write_bytes(raw)
        found.append(folder / f"{name}.csv")
    raw = (folder / "1.parquet").read_bytes()
    for i, cut in enumerate((len(raw) // 3, len(raw) - 20)):
        (folder / f"cut{i}.parquet").write_bytes(raw[:cut] + raw[cut + 9 :])
        found.append(folder / f"cut{i}.parquet")
    return found


def assert_silent(*texts: str) -> None:
    for text in texts:
        assert CANARY not in text
        assert "7351" not in text


def test_reading_and_checking_show_no_value(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    read = 0
    for path in files(tmp_path):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                tables = read_table(path, SCHEMA, holdout=Holdout.parse("0.3"), memory=0, scratch=tmp_path)
                tables.private.batch(np.arange(len(tables.private)))
                assert_silent(repr(tables.private), str(tables))
                read += 1
            except InputError as error:
                assert_silent(str(error), repr(error))
                assert_silent("".join(traceback.format_exception(error)))
            assert_silent(*(str(warning.message) for warning in caught))
        code = main(["schema", "check", str(path), "--schema", str(tmp_path / "schema.toml")])
        assert code in (0, 1, 2)
        captured = capfd.readouterr()
        assert captured.out or captured.err
        assert_silent(captured.out, captured.err)
    assert read >= 18
    assert_silent(*(path.name for path in tmp_path.iterdir()))


def test_a_draft_shows_values_in_the_file_that_says_so_and_nowhere_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    written = 0
    for number, path in enumerate(files(tmp_path)):
        out = tmp_path / f"{number}.toml"
        main(["schema", "draft", str(path), "--target", "y", "--group", "who", "--out", str(out)])
        captured = capfd.readouterr()
        assert_silent(captured.out, captured.err)
        if out.exists():
            written += 1
            for line in out.read_text().splitlines():
                assert "leaks" in line or CANARY not in line
    assert written >= 10


def test_a_derived_schema_s_values_are_not_quoted_when_it_is_broken() -> None:
    text = SCHEMA.to_toml().replace('"p", "q"', f'"{CANARY}", "{CANARY}"')
    broken = [text, text.replace(f'"{CANARY}"]', f'"{CANARY}'), text.replace(f'"{CANARY}"]', f'"{CANARY}", [1]]')]
    for one in broken:
        with pytest.raises(InputError) as caught:
            schema_file.parse(one)
        assert_silent(str(caught.value), "".join(traceback.format_exception(caught.value)))
