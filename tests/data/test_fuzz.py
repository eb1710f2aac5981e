"""Files with random damage: every reader and the schema either read them or raise the project's own error, in one line.

By default a slice; `--verify` goes on for `MOMENTREE_FUZZ_SECONDS` (300) each, with fresh seeds.
"""

from __future__ import annotations

import gzip
import io
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from data import fixtures
from momentree.data import schema_file
from momentree.data.draft import draft
from momentree.data.readers import open_source
from momentree.data.schema import Column, Schema
from momentree.data.table import read_table
from momentree.errors import InputError

EXAMPLES = int(os.environ.get("MOMENTREE_FUZZ_EXAMPLES", "80"))
SECONDS = float(os.environ.get("MOMENTREE_FUZZ_SECONDS", "300"))
JUNK = [b'"', b",", b"\n", b"\r", b"\0", b"\xff", b"nan", b"1e999", b"[", b"{", b"=", b"'", b"(", b"9" * 30, b'"' * 99]

EDIT = st.tuples(
    st.sampled_from(["set", "flip", "cut", "insert", "copy", "end"]),
    st.floats(0, 1),
    st.integers(0, 255),
    st.sampled_from(JUNK),
    st.booleans(),
)


def damaged(raw: bytes, edits: list[tuple[str, float, int, bytes, bool]]) -> bytes:
    out = bytearray(raw)
    for kind, where, value, junk, at_an_end in edits:
        span = min(len(out), 200) if at_an_end else len(out)
        place = int(where * span) if where < 0.5 or not at_an_end else len(out) - int((1 - where) * span)
        if kind == "set" and place < len(out):
            out[place] = value
        elif kind == "flip" and place < len(out):
            out[place] ^= 1 << value % 8
        elif kind == "cut":
            del out[place : place + value % 32]
        elif kind == "insert":
            out[place:place] = junk
        elif kind == "copy":
            out[place:place] = out[value * 7 : value * 7 + 50]
        elif kind == "end" and value < 64:
            del out[place:]
    return bytes(out)


@dataclass(frozen=True)
class Subject:
    """A good file, where it lies, and how it is read."""

    name: str
    raw: bytes
    schema: Schema | None
    data: str = ""
    beside: dict[str, bytes] | None = None


def subjects() -> dict[str, Subject]:
    rng = np.random.default_rng(0)
    plain = fixtures.schema()

    def written(write: Callable[[io.BytesIO], object]) -> bytes:
        out = io.BytesIO()
        write(out)
        return out.getvalue()

    rows = fixtures.ROWS * 4
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(fixtures.NAMES)})
    table = table.append_column("v", pa.array([[1.0, 2.0]] * len(rows)))
    vector = Schema(columns=(*plain.columns, Column("v", "vector", shape=(2,), bounds=(0.0, 255.0))), target=("y",))
    lines = "\n".join(",".join(f'"{fixtures.text_of(c)}"' for c in row).replace('""no""', "no") for row in rows)
    text = (
        ",".join(fixtures.NAMES) + "\n" + lines.replace('"no""', 'no"').replace('"she said "', '"she said ') + "\n"
    ).encode()
    member = {name: np.array([fixtures.text_of(row[i]) for row in rows]) for i, name in enumerate(fixtures.NAMES)}
    columns = Schema(
        columns=(Column("data.0", "number", bounds=(-1.0, 1.0)), Column("data.1", "number", bounds=(-1.0, 1.0))),
        target=("data.1",),
    )
    label = Column("label", "category", values=("0", "1", "cls"))
    digits = Schema(columns=(Column("image", "image", shape=(4, 4), transform="edges"), label), target=("label",))
    found = {
        "csv": Subject("f.csv", text, plain),
        "csv.gz": Subject("f.csv.gz", gzip.compress(text), plain),
        "parquet": Subject("f.parquet", written(lambda out: pq.write_table(table, out)), vector),
        "parquet plain": Subject(
            "f.parquet", written(lambda out: pq.write_table(table, out, compression=None)), vector
        ),
        "npz": Subject("f.npz", written(lambda out: np.savez(out, **member)), plain),
        "npy": Subject("f.npy", written(lambda out: np.save(out, rng.normal(size=(20, 2)))), columns),
        "idx": Subject(
            "t-images-idx3-ubyte",
            struct.pack(">HBB3I", 0, 8, 3, 20, 4, 4) + rng.bytes(320),
            digits,
            beside={"t-labels-idx1-ubyte": struct.pack(">HBBI", 0, 8, 1, 20) + bytes([0, 1] * 10)},
        ),
        "schema": Subject("schema.toml", vector.to_toml().encode(), None),
    }
    try:
        from PIL import Image
    except ImportError:
        return found
    picture = Image.fromarray(rng.integers(0, 255, (9, 9, 3)).astype(np.uint8))
    for ending in ("PNG", "JPEG", "GIF", "TIFF"):
        raw = written(lambda out, ending=ending: picture.save(out, ending))  # type: ignore[misc]
        other = {f"d/0/g.{ending.lower()}": raw}  # a draft wants two classes
        found[f"image {ending}"] = Subject(f"d/cls/f.{ending.lower()}", raw, digits, "d", other)
    return found


SUBJECTS = subjects()


def attack(folder: Path, subject: Subject, raw: bytes) -> bool:
    """Whether the damaged file could still be read. Anything but the project's own error goes through."""
    path = folder / subject.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    for name, content in (subject.beside or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    data = folder / subject.data if subject.data else path
    try:
        if subject.schema is None:
            schema = Schema.read(path)
            assert schema_file.parse(schema.to_toml()) == schema
            return True
        table = read_table(data, subject.schema, memory=1000).private
        x, _, usable = table.batch(np.arange(min(len(table), 1000)))
        assert np.isfinite(x).all()
        assert not x[~usable].any()
        draft(open_source(data), subject.schema.target)
    except InputError as error:
        raised = str(error)
    else:
        return True
    assert "\n" not in raised
    assert len(raised) < 1000
    return False


@pytest.mark.parametrize("kind", SUBJECTS)
def test_the_undamaged_file_is_read(tmp_path: Path, kind: str) -> None:
    if kind == "schema":
        assert attack(tmp_path, SUBJECTS[kind], SUBJECTS[kind].raw)
        return
    subject = SUBJECTS[kind]
    path = tmp_path / subject.name
    assert attack(tmp_path, subject, subject.raw)
    assert len(read_table(tmp_path / subject.data if subject.data else path, subject.schema).private) > 0  # type: ignore[arg-type]


def property_of(folder: Path, kind: str, examples: int, tally: list[int] | None = None) -> Callable[[], None]:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=examples == EXAMPLES,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(edits=st.lists(EDIT, min_size=1, max_size=6))
    def run(edits: list[tuple[str, float, int, bytes, bool]]) -> None:
        read = attack(folder, SUBJECTS[kind], damaged(SUBJECTS[kind].raw, edits))
        if tally is not None:
            tally[read] += 1

    return run


@pytest.mark.parametrize("kind", SUBJECTS)
@pytest.mark.filterwarnings("ignore")
def test_damage_is_one_line_or_nothing(tmp_path: Path, kind: str) -> None:
    property_of(tmp_path, kind, EXAMPLES)()


@pytest.mark.verify
@pytest.mark.parametrize("kind", SUBJECTS)
@pytest.mark.filterwarnings("ignore")
def test_damage_for_minutes(tmp_path: Path, kind: str) -> None:
    end, number, tally = time.monotonic() + SECONDS, int(time.time()), [0, 0]
    while time.monotonic() < end:
        number += 1
        seed(number)(property_of(tmp_path, kind, 500, tally))()
    print(f"{kind}: {tally[0]} damaged files refused, {tally[1]} read, {SECONDS:g} s")
