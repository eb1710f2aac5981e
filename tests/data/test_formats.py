"""Parquet, NumPy, IDX, folders of images: what was stored comes out, in order; a defect is one line."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import fixtures
from momentree.data import idx_file, image_folder, numpy_file
from momentree.data.holdout import Holdout
from momentree.data.readers import open_source
from momentree.data.schema import Column, Schema
from momentree.data.table import read_table
from momentree.errors import InputError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (50, 6, 5)).astype(np.uint8)
LABELS = RNG.integers(0, 3, 50)
IMAGE = Column("image", "image", shape=(6, 5))
LABEL = Column("label", "category", values=("0", "1", "2"))


def all_rows(table: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return table.batch(np.arange(len(table)))  # type: ignore[attr-defined, no-any-return, arg-type]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("batch_bytes", [1, 8 << 20])
def test_idx(tmp_path: Path, zipped: bool, batch_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idx_file, "BATCH_BYTES", batch_bytes)
    path = fixtures.write_idx(tmp_path / "d", "train", IMAGES[:30], LABELS[:30], zipped=zipped)
    fixtures.write_idx(tmp_path / "d", "t10k", IMAGES[30:], LABELS[30:], zipped=zipped)
    schema = Schema(columns=(IMAGE, LABEL), target=("label",))
    x, y, usable = all_rows(read_table(path, schema).private)
    np.testing.assert_allclose(x, IMAGES[:30].reshape(30, -1) / 127.5 - 1, atol=1e-6)
    np.testing.assert_array_equal(y, LABELS[:30])
    assert usable.all()
    both = read_table(tmp_path / "d", schema, holdout=Holdout.parse("split=test"))
    assert both.held_out is not None
    assert (len(both.private), len(both.held_out)) == (30, 20)
    np.testing.assert_allclose(all_rows(both.held_out)[0], IMAGES[30:].reshape(20, -1) / 127.5 - 1, atol=1e-6)
    assert both.private.schema.feature_shape == (1, 6, 5)


def test_idx_of_other_types(tmp_path: Path) -> None:
    values = np.array([[1.5, -2.0], [3.0, 4.0]], ">f4")
    (tmp_path / "v.idx").write_bytes(struct.pack(">HBB2I", 0, 13, 2, 2, 2) + values.tobytes())
    batch = next(open_source(tmp_path / "v.idx").batches(["image"]))
    assert batch.column("image").to_pylist() == values.tolist()


@pytest.mark.parametrize(
    "raw",
    [
        b"\0\0",
        b"\0\0\x08\x03",
        struct.pack(">HBB3I", 0, 8, 3, 5, 2, 2) + b"1" * 19,
        struct.pack(">HBB3I", 1, 8, 3, 5, 2, 2) + b"1" * 20,
        struct.pack(">HBB3I", 0, 7, 3, 5, 2, 2) + b"1" * 20,
        struct.pack(">HBB3I", 0, 8, 3, 0, 2, 2),
        struct.pack(">HBB3I", 0, 8, 3, 5, 2**31, 2**31),
        struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2, 2) + b"1" * 20,
        b"\x1f\x8b\x08",
    ],
)
def test_damaged_idx(tmp_path: Path, raw: bytes) -> None:
    for name in ("t-images-idx3-ubyte", "t-images-idx3-ubyte.gz"):
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(InputError):
            list(open_source(tmp_path / name).batches(["image"]))


def test_idx_files_that_do_not_belong_together(tmp_path: Path) -> None:
    fixtures.write_idx(tmp_path / "d", "train", IMAGES, LABELS)
    fixtures.write_idx(tmp_path / "e", "train", IMAGES[:9], LABELS[:9])
    (tmp_path / "e" / "train-labels-idx1-ubyte").rename(tmp_path / "d" / "train-labels-idx1-ubyte")
    with pytest.raises(InputError, match="not one label for each image"):
        open_source(tmp_path / "d")


@pytest.mark.parametrize("batch_bytes", [1, 8 << 20])
def test_npz(tmp_path: Path, batch_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_file, "BATCH_BYTES", batch_bytes)
    x = RNG.normal(size=(50, 3)).astype(np.float32)
    np.savez_compressed(
        tmp_path / "t.npz", x=x, f=np.asfortranarray(x), i=IMAGES, w=np.array(["a", "bé"] * 25), label=LABELS
    )
    source = open_source(tmp_path / "t.npz")
    assert set(source.columns) == {"x", "x.0", "x.1", "x.2", "f", "f.0", "f.1", "f.2", "i", "w", "label"}
    rows = pa.Table.from_batches(list(source.batches(list(source.columns))))
    assert rows.num_rows == 50
    for name in ("x", "f"):
        np.testing.assert_array_equal(np.array(rows[name].to_pylist(), np.float32), x)
        np.testing.assert_array_equal(rows[f"{name}.1"].to_numpy(), x[:, 1])
    np.testing.assert_array_equal(np.array(rows["i"].to_pylist()), IMAGES.reshape(50, -1))
    assert rows["w"].to_pylist() == ["a", "bé"] * 25
    vector = Column("x", "vector", shape=(3,), bounds=(-5.0, 5.0))
    features, y, _ = all_rows(read_table(source, Schema(columns=(vector, LABEL), target=("label",))).private)
    np.testing.assert_allclose(features, x / 5, atol=1e-6)
    np.testing.assert_array_equal(y, LABELS)


def test_npy(tmp_path: Path) -> None:
    x = RNG.normal(size=(7, 2))
    np.save(tmp_path / "t.npy", x)
    source = open_source(tmp_path / "t.npy")
    assert list(source.columns) == ["data", "data.0", "data.1"]
    np.testing.assert_array_equal(next(source.batches(["data.1"])).column(0).to_numpy(), x[:, 1])


def npz_of(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in members.items():
            archive.writestr(f"{name}.npy", raw)
    return path


def npy_of(array: np.ndarray, **options: object) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **options)  # type: ignore[arg-type]
    return out.getvalue()


def test_pickles_and_damaged_arrays_are_refused(tmp_path: Path) -> None:
    good = npy_of(np.arange(5))
    cases: dict[str, dict[str, bytes]] = {
        "never unpickled": {"x": npy_of(np.array([{}, []], dtype=object), allow_pickle=True)},
        "another kind": {"x": npy_of(np.array(["2020-01-01"], "M8[D]"))},
        "different numbers of rows": {"x": good, "y": npy_of(np.arange(6))},
        "truncated": {"x": good[:-3]},
        "damaged": {"x": good.replace(b"(5,)", b"(5,(")},
        "no rows": {"x": npy_of(np.zeros(0))},
        "no table": {"x": npy_of(np.float64(3))},
        "holds no array": {},
        "more than once": {"x": npy_of(np.zeros((2, 2))), "x.0": npy_of(np.zeros(2))},
    }
    for says, members in cases.items():
        path = npz_of(tmp_path / "t.npz", **members)
        with pytest.raises(InputError, match=says):
            list(open_source(path).batches(["x"]))
    huge = good.replace(b"(5,), }" + b" " * 12, b"(5000000000000,), }")
    assert huge != good
    (tmp_path / "t.npy").write_bytes(huge)
    with pytest.raises(InputError, match="truncated"):
        list(open_source(tmp_path / "t.npy").batches(["data"]))


def test_parquet_in_row_groups(tmp_path: Path) -> None:
    table = pa.table({"a": range(1000), "b": [str(i % 3) for i in range(1000)], "l": [[i, i] for i in range(1000)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=64, use_dictionary=True)
    source = open_source(tmp_path / "t.parquet")
    assert source.rows == 1000
    got = pa.Table.from_batches(list(source.batches(["b", "a"])))
    assert got.column_names == ["b", "a"]
    assert got["a"].to_pylist() == list(range(1000))
    with pytest.raises(InputError, match="'zz' is not in"):
        source.batches(["zz"])


def test_a_folder_of_images(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is an extra")
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for i in range(3):
            value = 40 * i + (100 if label == "dog" else 0)
            pillow.fromarray(np.full((8, 8), value, np.uint8)).save(tmp_path / label / f"{i}.png")
    (tmp_path / "dog" / "1.png").write_bytes(b"\x89PNG no image")
    (tmp_path / "dog" / "notes.txt").write_text("not an image")
    column = Column("image", "image", shape=(4, 4))
    schema = Schema(columns=(column, Column("label", "category", values=("cat", "dog"))), target=("label",))
    x, y, usable = all_rows(read_table(tmp_path, schema).private)
    assert usable.tolist() == [True, True, True, True, False, True]
    assert y.tolist() == [0, 0, 0, 1, 0, 1]
    np.testing.assert_allclose((x[usable, 0] + 1) * 127.5, [0, 40, 80, 100, 180], atol=0.01)
    color = Schema(columns=(Column("image", "image", shape=(4, 4, 3)), schema.columns[1]), target=("label",))
    assert all_rows(read_table(tmp_path, color).private)[0].shape == (6, 48)


def test_a_folder_of_images_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_folder, "BATCH_FILES", 2)
    for part in ("test", "train"):
        for label in ("a", "b"):
            (tmp_path / part / label).mkdir(parents=True)
            (tmp_path / part / label / "x.png").write_bytes(b"")
    rows = [row for batch in open_source(tmp_path).batches(["split", "label"]) for row in batch.to_pylist()]
    assert [tuple(row.values()) for row in rows] == [("test", "a"), ("test", "b"), ("train", "a"), ("train", "b")]


@pytest.mark.parametrize("names", [[], ["x.png"], ["a/x.png", "a/b/y.png"], ["a/b/c/d.png"], ["a/x.txt"]])
def test_folders_that_are_no_data(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match="folder"):
        open_source(tmp_path)


def test_truncated_gzip(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    raw = gzip.compress(b"a,b\n" + b"1,2\n" * 5000)
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(InputError, match="gzip"):
        list(open_source(path).batches(["a"]))
