"""Bad inputs through the command line: exit code 2, one line, nothing written, and never a cell in a message."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import fixtures
from momentree.cli import main

SECRET = "Zq7Canary"
GOOD = (
    'version = 1\ntarget = "y"\n[columns.a]\nkind = "number"\nbounds = [0, 1]\n'
    '[columns.y]\nkind = "category"\nvalues = ["p", "q"]\n'
)


def raw(name: str, content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def truncated_parquet(folder: Path) -> Path:
    fixtures.write_parquet(folder / "t.parquet")
    content = (folder / "t.parquet").read_bytes()
    (folder / "t.parquet").write_bytes(content[: len(content) // 2])
    return folder / "t.parquet"


def parquet_of(**columns: object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        pq.write_table(pa.table(columns), folder / "t.parquet")
        return folder / "t.parquet"

    return make


def pickled(folder: Path) -> Path:
    np.savez(folder / "t.npz", a=np.array([SECRET, 1], dtype=object), y=np.array([0, 1]))
    return folder / "t.npz"


def unreadable(folder: Path) -> Path:
    fixtures.write_csv(folder / "t.csv")
    (folder / "t.csv").chmod(0)
    return folder / "t.csv"


def folder_of(*names: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        for name in names:
            (folder / "d" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "d" / name).write_bytes(b"x")
        (folder / "d").mkdir(exist_ok=True)
        return folder / "d"

    return make


ROWS = b"a,y\n0.5,p\n0.25,q\n"
DATA: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing file": (lambda folder: folder / "none.csv", "does not exist"),
    "empty file": (raw("t.csv", b""), "is empty"),
    "header only": (raw("t.csv", b"a,y\n"), "no rows"),
    "header without end": (raw("t.csv", b"a,y"), "no rows"),
    "blank first line": (raw("t.csv", b"\n" + ROWS), "blank line"),
    "empty directory": (folder_of(), "folder"),
    "directory of other files": (folder_of("notes.txt", "t.csv"), "folder"),
    "images beside folders": (folder_of("x.png", "a/y.png"), "folder"),
    "truncated parquet": (truncated_parquet, "truncated or damaged"),
    "parquet that is text": (raw("t.parquet", ROWS), "truncated or damaged"),
    "parquet without rows": (parquet_of(a=pa.array([], pa.float64()), y=pa.array([], pa.string())), "no rows"),
    "wrong delimiter": (raw("t.csv", ROWS.replace(b",", b";")), "delimiter"),
    "byte-order mark": (raw("t.csv", b"\xef\xbb\xbf" + ROWS), "byte-order mark"),
    "UTF-16": (raw("t.csv", ROWS.decode().encode("utf-16")), "byte-order mark"),
    "latin-1 names": (raw("t.csv", b"a,y,\xe9\n1,p,2\n"), "UTF-8"),
    "duplicate columns": (raw("t.csv", b"a,y,a\n1,p,2\n"), "more than once"),
    "nameless column": (raw("t.csv", b"a,,y\n1,p,2\n"), "without a name"),
    "target missing": (raw("t.csv", f"a,{SECRET}\n1,p\n".encode()), "'y' is not in"),
    "column missing": (raw("t.csv", f"{SECRET},y\n1,p\n".encode()), "'a' is not in"),
    "no header": (raw("t.csv", f"0.5,{SECRET}\n0.25,q\n".encode()), "first line is taken as names"),
    "open quote": (raw("t.csv", ROWS + b'0.5,"' + SECRET.encode()), "broken quoting"),
    "stray quote": (raw("t.csv", ROWS + b'0.5,5"' + SECRET.encode()), "broken quoting"),
    "nested lists": (parquet_of(a=[[1.0], [2.0]], y=["p", "q"]), "nested lists"),
    "dates": (parquet_of(a=pa.array([1, 2], pa.timestamp("s")), y=["p", "q"]), "dates"),
    "not gzip": (raw("t.csv.gz", ROWS), "gzip"),
    "truncated gzip": (raw("t.csv.gz", b"\x1f\x8b\x08\0\0\0\0\0"), "gzip"),
    "pickled objects": (pickled, "never unpickled"),
    "not a zip": (raw("t.npz", ROWS), "truncated or damaged"),
    "not NumPy": (raw("t.npy", ROWS), "truncated or damaged"),
    "not IDX": (raw("t-images-idx3-ubyte", ROWS), "IDX"),
    "unknown ending": (raw("t.xlsx", ROWS), "unknown ending"),
    "a device": (lambda folder: Path("/dev/null"), "not a regular file"),
    "a path with a NUL": (lambda folder: folder / "a\0b.csv", ""),
}
if os.geteuid():  # root reads everything
    DATA["no permission"] = (unreadable, "cannot be opened")

SCHEMAS: dict[str, tuple[str | None, str]] = {
    "missing": (None, "cannot be read"),
    "not TOML": (GOOD + f'x = "{SECRET}', "not valid TOML"),
    "unknown key": (GOOD.replace("target", "traget"), "did you mean target"),
    "wrong version": (GOOD.replace("version = 1", "version = 9"), "version 9"),
    "one class": (GOOD.replace('["p", "q"]', f'["{SECRET}"]'), "at least two"),
    "reversed bounds": (GOOD.replace("[0, 1]", "[1, 0]"), "reversed"),
    "bounds that are NaN": (GOOD.replace("[0, 1]", "[nan, 1]"), "not finite"),
    "huge category count": (GOOD.replace('["p", "q"]', str([f"{SECRET}{i}" for i in range(10_001)])), "at most"),
    "declared twice": (GOOD + "[columns.a]\nkind = 'text'\n", "not valid TOML"),
    "undeclared target": (GOOD.replace('target = "y"', 'target = "z"'), "not declared"),
}


def one_line(capsys: pytest.CaptureFixture[str], says: str) -> None:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("momentree: ")
    assert captured.err.count("\n") == 1
    assert says in captured.err
    assert SECRET not in captured.err


@pytest.mark.parametrize("case", DATA)
def test_bad_data(tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, says = DATA[case]
    (tmp_path / "schema.toml").write_text(GOOD)
    data = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert main(["schema", "check", str(data), "--schema", str(tmp_path / "schema.toml")]) == 2
    one_line(capsys, says)
    draft = ["schema", "draft", str(data), "--target", "y", "--out", str(tmp_path / "out.toml")]
    if case not in ("column missing", "nested lists", "dates"):  # those are faults of the schema, not of the file
        assert main(draft) == 2
        one_line(capsys, "")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("case", SCHEMAS)
def test_bad_schemas(tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, says = SCHEMAS[case]
    if text is not None:
        (tmp_path / "schema.toml").write_text(text)
    (tmp_path / "t.csv").write_bytes(ROWS)
    assert main(["schema", "check", str(tmp_path / "t.csv"), "--schema", str(tmp_path / "schema.toml")]) == 2
    one_line(capsys, says)
    assert main(["schema", "confirm", str(tmp_path / "schema.toml"), "--all"]) == 2
    one_line(capsys, says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", "schema.toml"], "exists"),
        (["--out", "none/schema.toml"], "cannot be written"),
        (["--out", "new.toml", "--target", "z"], "'z' is not in"),
        (["--out", "new.toml", "--drop", "z"], "'z' is not in"),
        (["--out", "new.toml", "--group", "z"], "'z' is not in"),
        (["--out", "new.toml", "--delimiter", "xx"], "delimiter"),
        (["--out", "new.toml", "--encoding", "latin-1"], "encoding"),
        (["--out", "new.toml", "--drop", "a"], "no column beside the target"),
        (["--out", "new.toml", "--drop", "y"], "the target"),
    ],
)
def test_bad_drafts(
    tmp_path: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_bytes(ROWS)
    Path("schema.toml").write_text(GOOD)
    target = [] if "--target" in arguments else ["--target", "y"]
    assert main(["schema", "draft", "t.csv", *target, *arguments]) == 2
    one_line(capsys, says)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["schema.toml", "t.csv"]


def test_bad_cells_are_no_errors_and_say_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from momentree.data.schema import Schema
    from momentree.data.table import read_table

    cells = ["nan", "inf", "1e308", SECRET, "", "0.5"]
    lines = "".join(f"{cell},{answer}\n" for cell, answer in zip(cells, [*"pqpq", SECRET, "p"], strict=True))
    (tmp_path / "t.csv").write_text("a,y\n" + lines + f"{SECRET}\n{SECRET},p,{SECRET}\n")
    (tmp_path / "schema.toml").write_text(GOOD)
    table = read_table(tmp_path / "t.csv", Schema.read(tmp_path / "schema.toml")).private
    x, _, usable = table.batch(np.arange(len(table)))
    assert x[:, 0].tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert usable.tolist() == [True, True, True, True, False, True, False, False]
    assert capfd.readouterr() == ("", "")
    assert main(["schema", "check", str(tmp_path / "t.csv"), "--schema", str(tmp_path / "schema.toml")]) == 1
    captured = capfd.readouterr()
    assert SECRET not in captured.out + captured.err


def test_the_real_command_and_a_full_disk(tmp_path: Path) -> None:
    rows = "".join(f"{i / 7},{'p' if i % 2 else 'q'},{'word ' * 400}{i}\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f"a,y,{'n' * 9000}\n" + rows)
    command = "from momentree.cli import main; raise SystemExit(main())"
    done = subprocess.run(
        [sys.executable, "-c", command, "schema", "draft", str(tmp_path / "t.csv"), "--target", "y", "--out", "s.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "cannot be written" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
