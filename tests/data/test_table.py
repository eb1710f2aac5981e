"""A table: every format gives the same rows, rows keep their places, and no row moves another."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import fixtures
from momentree.data.holdout import Holdout
from momentree.data.ingest import Ingest
from momentree.data.schema import Column, Schema
from momentree.data.table import Table, read_table
from momentree.errors import InputError


def whole(table: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return table.batch(np.arange(len(table)))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.npz"])
@pytest.mark.parametrize("norm", [None, 2.0])
def test_every_format_gives_what_the_rows_say(tmp_path: Path, name: str, norm: float | None) -> None:
    write = {"csv": fixtures.write_csv, "parquet": fixtures.write_parquet, "npz": fixtures.write_npz}[
        name.split(".")[1]
    ]
    table = read_table(write(tmp_path / name), fixtures.schema(row_norm=norm)).private
    x, y, usable = whole(table)
    assert usable.tolist() == [True, True, True, True, False, True]
    assert y.tolist() == [1, 0, 1, 0, 0, 0]
    for row, features, counts in zip(fixtures.ROWS, x, usable, strict=True):
        expected = fixtures.slow_features(row, norm) if counts else [0.0] * x.shape[1]
        np.testing.assert_allclose(features, expected, atol=2e-6)
    assert x.shape[1] == table.schema.dimension == len(table.encoder.names())
    item, target = table[1]
    np.testing.assert_array_equal(item.numpy(), x[1])
    assert target.item() == y[1]
    np.testing.assert_array_equal(table.features(3), x[3])


def random_column(rng: np.random.Generator, rows: int) -> list[object]:
    pool = [None, "", "Ulm", "Bern", "yes", "0", "1", "-3.5", "nan", "1e999", "a b c", "a", "b", "x" * 50, "12", "7.25"]
    return [pool[i] for i in rng.integers(0, len(pool), rows)]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), place=st.integers(0, 19))
def test_changing_one_row_moves_no_other(seed: int, place: int) -> None:
    rng = np.random.default_rng(seed)
    schema = fixtures.schema(group="who")
    one = {name: random_column(rng, 20) for name in (*fixtures.NAMES, "who")}
    two = {name: [*cells[:place], random_column(rng, 1)[0], *cells[place + 1 :]] for name, cells in one.items()}
    ingest = Ingest(schema)
    tables = [
        Table(
            schema,
            ingest.fields(pa.record_batch([pa.array(c, pa.string()) for c in cells.values()], names=list(cells))),
        )
        for cells in (one, two)
    ]
    others = np.flatnonzero(np.arange(20) != place)
    for a, b in zip(whole(tables[0]), whole(tables[1]), strict=True):
        np.testing.assert_array_equal(a[others], b[others])
        assert np.isfinite(a).all()
    first, second = (table._fields["group"] for table in tables)
    np.testing.assert_array_equal(first[others], second[others])


@pytest.mark.parametrize("encoded", [0, 1 << 20])
def test_rows_on_disk_are_the_rows_in_memory(tmp_path: Path, encoded: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [fixtures.ROWS[i % 6] for i in range(300)]
    path = fixtures.write_csv(tmp_path / "t.csv", rows)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    near = read_table(path, fixtures.schema()).private
    monkeypatch.setattr("momentree.data.table.ENCODED", encoded)
    far = read_table(path, fixtures.schema(), memory=0, scratch=scratch).private
    assert near.scratch is None
    assert far.scratch == scratch
    assert list(scratch.iterdir()) == []  # the copy has no name, from the start
    order = np.random.default_rng(1).permutation(300)[:77]
    for a, b in zip(near.batch(order), far.batch(order), strict=True):
        np.testing.assert_array_equal(a, b)
    assert digest(near) == digest(far)
    far.close()
    assert len(far) == 0


def digest(table: Table) -> str:
    out = hashlib.sha256()
    for chunk in table.digest_chunks():
        out.update(chunk)
    return out.hexdigest()


def test_the_digest_moves_with_every_cell_and_with_the_schema(tmp_path: Path) -> None:
    seen = {digest(read_table(fixtures.write_csv(tmp_path / "t.csv"), fixtures.schema()).private)}
    seen.add(digest(read_table(tmp_path / "t.csv", fixtures.schema(row_norm=1.0)).private))
    changes = {0: 32, 1: 7.0, 2: "Bern", 3: "no", 4: "another note", 5: "a"}
    for column, cell in changes.items():
        rows = [list(row) for row in fixtures.ROWS]
        rows[0][column] = cell
        seen.add(digest(read_table(fixtures.write_csv(tmp_path / "t.csv", rows), fixtures.schema()).private))
    swapped = (fixtures.ROWS[1], fixtures.ROWS[0], *fixtures.ROWS[2:])
    seen.add(digest(read_table(fixtures.write_csv(tmp_path / "t.csv", swapped), fixtures.schema()).private))
    assert len(seen) == 9


def test_tasks(tmp_path: Path) -> None:
    path = fixtures.write_csv(tmp_path / "t.csv", [(1, "yes", 5.0), (2, "no", 99), (3, "huh", "x")], ("a", "b", "c"))
    number = Column("a", "number", bounds=(0.0, 4.0))
    labels = Schema(columns=(number, Column("b", "boolean"), Column("c", "boolean")), target=("b", "c"))
    assert labels.task == "labels"
    assert labels.classes == ("b", "c")
    bounded = Schema(columns=(number, Column("c", "number", bounds=(0.0, 10.0))), target=("c",))
    _, y, usable = whole(read_table(path, bounded).private)
    assert bounded.task == "bounded"
    assert y.tolist() == [0.0, 1.0, 0.0]
    assert usable.tolist() == [True, True, False]
    _, y, usable = whole(read_table(path, labels).private)
    assert y.shape == (3, 2)
    assert usable.tolist() == [False, False, False]
    boolean = Schema(columns=(number, Column("b", "boolean")), target=("b",))
    assert boolean.task == "classes"
    assert boolean.classes == ("false", "true")
    assert whole(read_table(path, boolean).private)[1].tolist() == [1, 0, 0]
    x, _, usable = whole(read_table(path, boolean, target=False).private)
    assert usable.all()
    np.testing.assert_allclose(x[:, 0], [-0.5, 0.0, 0.5])


@pytest.mark.parametrize("rule", ["zero", "other", "row"])
def test_rules_for_missing_and_unseen(tmp_path: Path, rule: str) -> None:
    path = fixtures.write_csv(tmp_path / "t.csv", [("", "", 1), ("x", "red", 0), (1, "blue", 1)], ("n", "c", "y"))
    columns = (
        Column("n", "number", bounds=(0.0, 2.0), missing=rule),
        Column("c", "category", values=("blue", "green"), missing=rule, unseen=rule),
        Column("y", "boolean"),
    )
    x, _, usable = whole(read_table(path, Schema(columns=columns, target=("y",))).private)
    assert usable.tolist() == [rule != "row", rule != "row", True]
    if rule == "other":
        assert x.tolist() == [[0, 1, 0, 0, 1], [0, 1, 0, 0, 1], [0, 0, 1, 0, 0]]
    else:
        assert x.tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_a_declared_fill_stands_for_what_is_missing(tmp_path: Path) -> None:
    path = fixtures.write_csv(tmp_path / "t.csv", [("", 1), (3, 0), (500, 0)], ("n", "y"))
    column = Column("n", "number", bounds=(0.0, 1000.0), transform="log", missing=3.0)
    x, _, _ = whole(read_table(path, Schema(columns=(column, Column("y", "boolean")), target=("y",))).private)
    assert x[0] == x[1] != x[2]


# --- holdout -----------------------------------------------------------------------------------------------------


def people(tmp_path: Path, count: int = 200) -> Path:
    rows = [(i, "train" if i % 4 else " test", i // 5 if i % 50 else "", "b" if i % 3 else "a") for i in range(count)]
    return fixtures.write_csv(tmp_path / "p.csv", rows, ("n", "part", "who", "y"))


def numbers_of(table: Table) -> list[int]:
    return np.rint((table.batch(np.arange(len(table)))[0][:, 0] + 1) * 100).astype(int).tolist()


SPLIT = Schema(
    columns=(Column("n", "number", bounds=(0.0, 200.0)), Column("y", "category", values=("a", "b"))), target=("y",)
)


def test_a_column_names_the_holdout(tmp_path: Path) -> None:
    tables = read_table(people(tmp_path), SPLIT, holdout=Holdout.parse("part=test"))
    assert tables.held_out is not None
    assert numbers_of(tables.held_out) == list(range(0, 200, 4))
    assert numbers_of(tables.private) == [i for i in range(200) if i % 4]


def test_a_fraction_is_drawn_by_the_seed_and_by_nothing_in_the_rows(tmp_path: Path) -> None:
    path = people(tmp_path)
    drawn = [read_table(path, SPLIT, holdout=Holdout.parse("0.2"), seed=seed).held_out for seed in (1, 1, 2)]
    kept = [numbers_of(table) for table in drawn if table is not None]
    assert len(kept[0]) == 40
    assert kept[0] == kept[1] != kept[2]
    other = replace(SPLIT, columns=(SPLIT.columns[0], Column("y", "category", values=("b", "a"))))
    again = read_table(path, other, holdout=Holdout.parse("0.2"), seed=1).held_out
    assert again is not None
    assert numbers_of(again) == kept[0]


def test_groups_stay_together_and_rows_without_one_stay_private(tmp_path: Path) -> None:
    schema = replace(SPLIT, group="who")
    tables = read_table(people(tmp_path), schema, holdout=Holdout.parse("0.3"), seed=3)
    assert tables.held_out is not None
    inside, outside = numbers_of(tables.private), numbers_of(tables.held_out)
    assert len(inside) + len(outside) == 200
    # Unusable rows show as zero features, so they read as 100: compare the groups of the others.
    assert sorted(i for i in inside + outside if i != 100) == [i for i in range(200) if i % 50]
    assert not {i // 5 for i in inside if i % 50 and i != 100} & {i // 5 for i in outside if i % 50 and i != 100}
    assert 0.1 * 200 < len(outside) < 0.5 * 200
    groups = tables.private.groups
    assert groups is not None
    assert set(groups[~tables.private.usable]) == {-1}
    assert set(groups) - {-1} == set(range(len(set(groups)) - 1))


def test_a_group_is_held_out_whatever_the_other_groups_are() -> None:
    from momentree.data.holdout import by_group

    group = np.arange(1000, dtype=np.int64)
    some = by_group(group, 0.25, seed=5)
    np.testing.assert_array_equal(by_group(group[::7], 0.25, seed=5), some[::7])
    assert abs(some.mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 1000)


@pytest.mark.parametrize("text", ["0", "1", "-0.5", "nan", "x", "=test", "part=", "part=tset"])
def test_holdouts_that_cannot_be(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="holdout"):
        read_table(people(tmp_path), SPLIT, holdout=Holdout.parse(text))


# --- resources ---------------------------------------------------------------------------------------------------


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    path = fixtures.write_csv(tmp_path / "t.csv", [fixtures.ROWS[0]] * 5000)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = f"""
        import resource, sys
        sys.path[:0] = {sys.path!r}
        from data import fixtures
        from momentree.data.table import read_table
        from momentree.errors import InputError
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            read_table({str(path)!r}, fixtures.schema(), memory=0, scratch={str(scratch)!r})
        except InputError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("the private copy of the rows cannot be written"), done.stderr
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    assert list(scratch.iterdir()) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def peak_of_reading(tmp_path: Path, rows: int) -> int:
    """Bytes of anonymous memory at the peak, beyond what the imports take."""
    rng = np.random.default_rng(0)
    path = tmp_path / f"{rows}.parquet"
    with pq.ParquetWriter(
        path, pa.schema([(f"n{j}", pa.float64()) for j in range(19)] + [("y", pa.int64())])
    ) as writer:
        for start in range(0, rows, 100_000):
            size = min(100_000, rows - start)
            columns = [rng.normal(size=size) for _ in range(19)] + [rng.integers(0, 2, size)]
            writer.write_table(pa.table(columns, schema=writer.schema))
    code = f"""
        import sys
        sys.path[:0] = {sys.path!r}
        import numpy as np
        from momentree.data.schema import Column, Schema
        from momentree.data.table import read_table
        columns = [Column(f"n{{j}}", "number", bounds=(-4.0, 4.0)) for j in range(19)] + [Column("y", "boolean")]
        schema = Schema(columns=tuple(columns), target=("y",))
        def anonymous():
            text = open("/proc/self/status").read()
            return int(text.split("RssAnon:")[1].split()[0]) * 1024
        before = anonymous()
        table = read_table({str(path)!r}, schema, memory=16 << 20, scratch={str(tmp_path)!r}).private
        x, y, usable = table.batch(np.arange(len(table) - 4096, len(table)))
        assert len(table) == {rows} and x.shape == (4096, 19) and table.scratch is not None
        print(anonymous() - before)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    path.unlink()
    return int(done.stdout)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads /proc/self/status")
@pytest.mark.parametrize("rows", [400_000, pytest.param(10_000_000, marks=pytest.mark.verify)])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, rows: int) -> None:
    # Ten million rows of twenty columns are 1.6 GB: what is allowed beside them is a constant and 24 bytes a row
    # (the places of the rows, whether they count, and what `batch` indexes), not the rows themselves.
    assert peak_of_reading(tmp_path, rows) < (300 << 20) + 24 * rows
