"""`schema draft | confirm | check` as a person uses them, and the library functions behind them."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import fixtures
from momentree.cli import main
from momentree.data.confirm import read_from_data
from momentree.data.draft import RARE, draft, outward
from momentree.data.readers import open_source
from momentree.data.schema import Column, Schema
from momentree.errors import InputError

RNG = np.random.default_rng(0)
ROWS = 2000


def people(path: Path) -> Path:
    columns = {
        "age": RNG.integers(18, 91, ROWS),
        "pay": np.round(RNG.lognormal(3, 2, ROWS), 2),
        "town": ["Ulm" if i % 3 else "Bern" for i in range(ROWS - 3)] + ["SECRETVILLE"] * 3,
        "member": RNG.integers(0, 2, ROWS),
        "kids": RNG.integers(0, 5, ROWS),
        "note": [f"words number {i} of a long note" for i in range(ROWS)],
        "id": [f"id{i}" for i in range(ROWS)],
        "same": [7] * ROWS,
        "split": ["train"] * ROWS,
        "y": ["no" if i % 4 else "yes" for i in range(ROWS)],
    }
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def drafted(tmp_path: Path) -> Path:
    people(tmp_path / "p.parquet")
    command = ["schema", "draft", str(tmp_path / "p.parquet"), "--target", "y", "--out", str(tmp_path / "s.toml")]
    assert main(command) == 0
    return tmp_path / "s.toml"


def test_a_draft_says_what_leaks_and_shows_no_single_person(drafted: Path) -> None:
    schema = Schema.read(drafted)
    text = drafted.read_text()
    assert schema.derived
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds == {
        "age": "number", "pay": "number", "town": "category", "member": "boolean", "kids": "category",
        "note": "text", "y": "category",
    }  # fmt: skip
    assert set(schema.drop) == {"id", "same", "split"}
    assert schema.column("town").values == ("Bern", "Ulm")
    assert schema.column("town").unseen == "other"
    assert "SECRET" not in text
    assert schema.column("kids").values == ("0", "1", "2", "3", "4")
    assert schema.column("pay").transform == "log"
    low, high = schema.column("age").bounds
    assert low <= 18 < 90 <= high
    for column in schema.columns:
        assert "kind" in column.unconfirmed
    for line in text.splitlines():
        if re.match("(kind|bounds|values|transform|drop) =", line):
            assert line.endswith("# read from the data: leaks")
    assert RARE == 10


def test_bounds_are_rounded_outward() -> None:
    rng = np.random.default_rng(3)
    for _ in range(500):
        a, b = np.sort(rng.normal(size=2) * 10.0 ** rng.integers(-6, 12))
        low, high = outward(float(a), float(b))
        assert low <= a < b <= high
        assert high - low <= 1.3 * (b - a)


def test_confirming_line_by_line(
    drafted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drafted.write_text(drafted.read_text().replace("knots = 16", "knots = 16 # my own remark", 1))
    waiting = Schema.read(drafted).unconfirmed()
    assert waiting[0] == "drop"
    monkeypatch.setattr("sys.stdin", io.StringIO("y\nn\nyes\n"))
    assert main(["schema", "confirm", str(drafted)]) == 0
    now = Schema.read(drafted)
    assert now.unconfirmed() == (waiting[1], *waiting[3:])
    assert "my own remark" in drafted.read_text()
    assert main(["schema", "confirm", str(drafted), "--line", "town.values", "--source", "the register of towns"]) == 0
    assert "town.values" not in Schema.read(drafted).unconfirmed()
    assert Schema.read(drafted).source == "the register of towns"
    assert Schema.read(drafted).column("town").confirmed == ("values",)
    assert main(["schema", "confirm", str(drafted), "--all"]) == 0
    done = Schema.read(drafted)
    assert done.unconfirmed() == ()
    assert done.derived
    assert main(["schema", "confirm", str(drafted), "--line", "town.vlues"]) == 2
    assert "waits to be confirmed" in capsys.readouterr().err
    again = drafted.read_text()
    assert main(["schema", "confirm", str(drafted)]) == 0
    assert drafted.read_text() == again


def test_confirming_by_editing(drafted: Path) -> None:
    text = re.sub(r"\nunconfirmed = .*", "", drafted.read_text())
    drafted.write_text(text)
    assert Schema.read(drafted).unconfirmed() == ()


def test_confirmed_values_that_are_the_data_s_own_are_listed(drafted: Path) -> None:
    source = open_source(drafted.parent / "p.parquet")
    main(["schema", "confirm", str(drafted), "--all"])
    schema = Schema.read(drafted)
    listed = read_from_data(schema, source)
    assert Schema.read(drafted).vouched == ("drop",)
    assert {"drop", "age.bounds", "pay.bounds", "town.values", "kids.values", "y.values"} <= set(listed)

    def with_bounds(low: float, high: float) -> list[str]:
        columns = tuple(replace(c, bounds=(low, high)) if c.name == "age" else c for c in schema.columns)
        return read_from_data(replace(schema, columns=columns), source)

    assert "age.bounds" not in with_bounds(0.0, 120.0)
    assert "age.bounds" in with_bounds(0.0, 90.0)  # one end is the data's own
    assert read_from_data(replace(schema, derived=False), source) == []


def test_names_only_reads_no_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.csv"
    path.write_bytes(b'age,town,y\n1,"broken\n')  # reading a value of this file would fail
    out = tmp_path / "s.toml"
    fixtures.write_csv(path, [(5, "SECRET", "a")] * 3, ("age", "town", "y"))
    assert main(["schema", "draft", str(path), "--target", "y", "--names-only", "--out", str(out)]) == 0
    assert "SECRET" not in out.read_text()
    with pytest.raises(InputError, match="fill in"):
        Schema.read(out)
    text = out.read_text().replace("bounds = []", "bounds = [0, 9]").replace("values = []", 'values = ["a", "b"]')
    out.write_text(text)
    schema = Schema.read(out)
    assert not schema.derived
    assert [column.kind for column in schema.columns] == ["number", "number", "category"]
    capsys.readouterr()


def test_a_draft_of_names_only_does_not_ask_for_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_rows(*args: object) -> None:
        raise AssertionError("a value was read")

    monkeypatch.setattr("momentree.data.readers.Source.batches", no_rows)
    people(tmp_path / "p.parquet")
    out = tmp_path / "s.toml"
    assert (
        main(["schema", "draft", str(tmp_path / "p.parquet"), "--target", "y", "--names-only", "--out", str(out)]) == 0
    )


def test_check_finds_what_does_not_fit_and_shows_nothing(drafted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(drafted.parent / "p.parquet")
    capsys.readouterr()
    assert main(["schema", "check", data, "--schema", str(drafted)]) == 0
    out = capsys.readouterr().out
    assert "town: not among the declared values: under a hundredth" in out
    assert "SECRET" not in out
    assert "the schema fits" in out
    text = re.sub(r'(\[columns."age"\](\n.*)*?\nbounds = )\[[^\]]*\]', r"\1[0.5, 20.25]", drafted.read_text(), count=1)
    drafted.write_text(text)
    assert main(["schema", "check", data, "--schema", str(drafted), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert {"column": "age", "what": "outside the bounds", "share": "over a tenth"} in facts["findings"]
    assert facts["fits"] is False
    assert facts["unconfirmed"]


def test_check_of_every_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {
        "v": [[1, 2], [1], None, [3, 4]],
        "t": ["a b", "", None, "c"],
        "b": ["yes", "no", "hm", None],
        "c": ["p", "q", None, "r"],
        "n": ["1", "x", "99", ""],
        "y": ["0", "1", "0", "2"],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    schema = Schema(
        columns=(
            Column("v", "vector", shape=(2,), bounds=(0.0, 255.0)),
            Column("t", "text", dimension=4),
            Column("b", "boolean"),
            Column("c", "category", values=("p", "q")),
            Column("n", "number", bounds=(0.0, 5.0)),
            Column("y", "boolean"),
        ),
        target=("y",),
    )
    (tmp_path / "s.toml").write_text(schema.to_toml())
    assert main(["schema", "check", str(tmp_path / "t.parquet"), "--schema", str(tmp_path / "s.toml"), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    found = {(f["column"], f["what"]) for f in facts["findings"]}
    assert found == {
        ("v", "of another shape, or unreadable"), ("t", "empty"), ("b", "neither of the two words"), ("c", "missing"),
        ("c", "not among the declared values"), ("n", "missing or not a finite number"), ("n", "outside the bounds"),
        ("y", "neither of the two words"), ("(rows)", "cannot be used, keep their place and contribute nothing"),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["npz", "idx", "csv", "labels", "number"])
def test_drafts_of_other_files(tmp_path: Path, kind: str) -> None:
    if kind == "npz":
        np.savez(tmp_path / "d.npz", X=RNG.normal(size=(50, 3)), big=RNG.normal(size=(50, 300)), y=np.arange(50) % 2)
        found = draft(open_source(tmp_path / "d.npz"), ["y"]).schema
        assert {c.name: c.kind for c in found.columns} == {
            "X.0": "number", "X.1": "number", "X.2": "number", "big": "vector", "y": "category"
        }  # fmt: skip
    elif kind == "idx":
        images = RNG.integers(0, 256, (30, 28, 28)).astype(np.uint8)
        fixtures.write_idx(tmp_path / "d", "train", images, np.arange(30) % 3)
        found = draft(open_source(tmp_path / "d"), ["label"]).schema
        assert found.column("image").shape == (28, 28)
        assert found.feature_shape == (8, 7, 7)
    elif kind == "csv":
        path = fixtures.write_csv(tmp_path / "d.csv", [(1.5 * i, f"{i % 2}", "ab"[i % 2]) for i in range(40)], "nby")
        found = draft(open_source(path), ["y"]).schema
        assert [c.kind for c in found.columns] == ["number", "boolean", "category"]
    elif kind == "labels":
        path = fixtures.write_csv(tmp_path / "d.csv", [(1.5 * i, i % 2, 0) for i in range(40)], "npq")
        assert draft(open_source(path), ["p", "q"]).schema.task == "labels"
    else:
        path = fixtures.write_csv(tmp_path / "d.csv", [(1.5 * i, i / 7) for i in range(40)], "ny")
        found = draft(open_source(path), ["y"]).schema
        assert found.task == "bounded"
        assert found.column("y").bounds == (0.0, 5.6)


def test_a_file_without_names_is_drafted_only_with_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.data").write_text("".join(f"{i}.5;{i % 2};SECRET\n" for i in range(60)))
    draft = ["schema", "draft", str(tmp_path / "t.data"), "--delimiter", ";", "--out", str(tmp_path / "s.toml")]
    for more in ([], ["--names-only"]):
        assert main([*draft, "--target", "y", *more]) == 2
        assert "--column-names" in capsys.readouterr().err
    assert main([*draft, "--target", "y", "--column-names", "n, y, w"]) == 0
    schema = Schema.read(tmp_path / "s.toml")
    assert schema.file.names == ("n", "y", "w")
    assert schema.drop == ("w",)
    assert main(["schema", "check", str(tmp_path / "t.data"), "--schema", str(tmp_path / "s.toml")]) == 0
    capsys.readouterr()
