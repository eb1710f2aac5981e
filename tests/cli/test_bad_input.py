"""Bad input through the command line: exit code 2, one line that names it, nothing left on disk."""

from __future__ import annotations

import gzip
import json
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

from momentree.cli import main

SCHEMA = """version = 1
target = "y"
row_norm = 1.0

[columns."a"]
kind = "number"
bounds = [0.0, 1.0]

[columns."c"]
kind = "category"
values = ["red", "blue"]

[columns."y"]
kind = "category"
values = ["no", "yes"]
"""
PLAN = ["plan", "--examples", "100", "--batch-size", "10", "--epsilon", "1", "--epochs", "1"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a good table and schema, and the working directory of the test."""
    rng = np.random.default_rng(0)
    table = {
        "a": rng.random(60),
        "c": ["red", "blue"] * 30,
        "y": ["no", "yes", "yes"] * 20,
    }
    pq.write_table(pa.table(table), tmp_path / "good.parquet")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(data: str = "good.parquet", schema: str = "schema.toml", *more: str, epsilon: bool = True) -> list[str]:
    wanted = ["--epsilon", "5", "--epochs", "1", "--strategy", "identity"] if epsilon else []
    return ["train", data, "--schema", schema, "--target", "y", "--out", "run", *wanted, *more]


def edited(old: str, new: str) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        assert old in SCHEMA
        (place / "schema.toml").write_text(SCHEMA.replace(old, new))

    return write


def content(name: str, data: bytes) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        (place / name).write_bytes(data)

    return write


def nested(place: Path) -> None:
    pq.write_table(pa.table({"a": [[1.0]] * 60, "c": ["red"] * 60, "y": ["no"] * 60}), place / "nested.parquet")


def truncated(place: Path) -> None:
    (place / "cut.parquet").write_bytes((place / "good.parquet").read_bytes()[:200])


def unfinished(place: Path) -> None:
    (place / "run").mkdir()
    (place / "run" / "record.json").write_text("{}")


def other_version(place: Path) -> None:
    (place / "old").mkdir()
    (place / "old" / "record.json").write_text(json.dumps({"version": 99, "plan": {}, "run": {}}))


def taken(place: Path) -> None:
    (place / "run").mkdir()
    (place / "run" / "x").touch()


def nothing(place: Path) -> None:
    return None


HEAD = b"a,c,y\n"
MIXING = b"""from torch import nn
def make(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs[0], 4), nn.BatchNorm1d(4), nn.Linear(4, outputs))
"""
CUT = gzip.compress(HEAD + bytes(range(33, 120)) * 9)[:60]
CASES: list[tuple[str, Callable[[Path], None], list[str], str]] = [
    ("missing file", nothing, train("nowhere.csv"), "nowhere.csv"),
    ("empty file", content("empty.csv", b""), train("empty.csv"), "empty.csv"),
    ("header only", content("head.csv", HEAD), train("head.csv"), "row"),
    ("a directory", lambda p: (p / "folder").mkdir(), train("folder"), "folder"),
    ("truncated parquet", truncated, train("cut.parquet"), "cut.parquet"),
    ("not what its name says", content("x.parquet", b"hello"), train("x.parquet"), "x.parquet"),
    ("not gzip", content("x.csv.gz", b"a,c,y\n1,red,no\n"), train("x.csv.gz"), "x.csv.gz"),
    ("cut gzip", content("y.csv.gz", CUT), train("y.csv.gz"), "y.csv.gz"),
    ("wrong delimiter", content("semi.csv", b"a;c;y\n0.5;red;no\n0.1;red;yes\n"), train("semi.csv"), "column"),
    ("duplicate columns", content("twice.csv", b"a,a,c,y\n1,1,red,no\n"), train("twice.csv"), "twice"),
    ("broken quoting", content("q.csv", HEAD + b'"0.5,red,no\n0.2,blue,yes\n'), train("q.csv"), "q.csv"),
    ("target not in the file", content("t.csv", b"a,c\n1,red\n"), train("t.csv"), "y"),
    ("unknown form", content("x.xls", b"a"), train("x.xls"), "xls"),
    ("nested lists in a number", nested, train("nested.parquet"), "a"),
    ("schema missing", nothing, train(schema="none.toml"), "none.toml"),
    ("schema no TOML", content("schema.toml", b"version = "), train(), "schema.toml"),
    ("schema version", edited("version = 1", "version = 7"), train(), "version"),
    ("unknown key", edited('kind = "number"', 'kind = "number"\nbound = 3'), train(), "bounds"),
    ("unknown kind", edited('kind = "number"', 'kind = "nmber"'), train(), "number"),
    ("bounds reversed", edited("[0.0, 1.0]", "[1.0, 0.0]"), train(), "bounds"),
    ("bounds NaN", edited("[0.0, 1.0]", "[nan, 1.0]"), train(), "bounds"),
    ("bounds one number", edited("[0.0, 1.0]", "[1.0]"), train(), "bounds"),
    ("one class", edited('["no", "yes"]', '["no"]'), train(), "y"),
    ("huge category count", edited('["red", "blue"]', str([f"v{i}" for i in range(20_001)])), train(), "c"),
    ("another target", nothing, ["train", "good.parquet", "--schema", "schema.toml", "--target", "z", "--epsilon", "1",
                                "--out", "run"], "target"),
    ("unconfirmed draft", edited('target = "y"', 'target = "y"\nderived = true\ndrop = ["d"]\nunconfirmed = ["drop"]'),
     train(), "confirm"),
    ("epsilon missing", nothing, train(epsilon=False), "epsilon"),
    ("epsilon negative", nothing, [*train(epsilon=False), "--epsilon", "-1"], "epsilon"),
    ("epsilon no number", nothing, [*train(epsilon=False), "--epsilon", "two"], "epsilon"),
    ("epsilon NaN", nothing, [*train(epsilon=False), "--epsilon", "nan"], "epsilon"),
    ("delta one", nothing, train("good.parquet", "schema.toml", "--delta", "1"), "delta"),
    ("batch above N", nothing, train("good.parquet", "schema.toml", "--batch-size", "61"), "batch"),
    ("output exists", taken, train(), "run"),
    ("output is a file", lambda p: (p / "run").touch(), train(), "run"),
    ("output not writable", nothing, [*train()[:7], "/proc/nowhere/run", *train()[8:]], "/proc/nowhere"),
    ("model does not import", nothing, train("good.parquet", "schema.toml", "--model", "no_such:make"), "no_such"),
    ("unknown model", nothing, train("good.parquet", "schema.toml", "--model", "resnet"), "linear"),
    ("images for cnn", nothing, train("good.parquet", "schema.toml", "--model", "cnn"), "cnn"),
    ("no such device", nothing, train("good.parquet", "schema.toml", "--device", "cuda:7"), "device"),
    ("holdout no fraction", nothing, train("good.parquet", "schema.toml", "--holdout", "1.5"), "holdout"),
    ("holdout of nobody", nothing, train("good.parquet", "schema.toml", "--holdout", "c=green"), "holdout"),
    ("weights no file", nothing, train("good.parquet", "schema.toml", "--init", "w.safetensors"), "w.safetensors"),
    ("weights no safetensors", content("w.safetensors", b"x" * 40), train("good.parquet", "schema.toml", "--init",
                                                                          "w.safetensors"), "w.safetensors"),
    ("class weights", nothing, train("good.parquet", "schema.toml", "--class-weights", "1,2,3"), "class-weights"),
    ("plan and flags", nothing, train("good.parquet", "schema.toml", "--plan", "p.toml"), "--plan"),
    ("plan no file", nothing, [*train(epsilon=False), "--plan", "p.toml"], "p.toml"),
    ("plan unknown part", content("p.toml", b"version = 1\n[plan]\nexamples = 5\nepsilom = 1\n"),
     [*train(epsilon=False), "--plan", "p.toml"], "epsilon"),
    ("unknown flag", nothing, [*PLAN, "--epsilom", "1"], "--epsilon"),
    ("unknown command", nothing, ["trian", "x"], "train"),
    ("no command", nothing, [], "COMMAND"),
    ("unknown list", nothing, ["list", "algoritms"], "algorithms"),
    ("unknown algorithm", nothing, [*PLAN, "--algorithm", "dp-nsg"], "dp-nsgd"),
    ("unknown strategy", nothing, [*PLAN, "--strategy", "tre"], "tree"),
    ("unknown order", nothing, [*PLAN, "--order", "poison"], "poisson"),
    ("band out of range", nothing, [*PLAN, "--strategy", "bsr", "--band", "0"], "band"),
    ("band above steps", nothing, [*PLAN, "--strategy", "bsr", "--band", "11"], "band"),
    ("buffers out of range", nothing, [*PLAN, "--strategy", "blt", "--buffers", "9"], "buffers"),
    ("dense above its size", nothing, ["plan", "--examples", "3000", "--batch-size", "1", "--epsilon", "1", "--epochs",
                                       "1", "--strategy", "dense"], "dense"),
    ("too many steps", nothing, [*PLAN, "--epochs", "1000000000"], "steps"),
    ("zero epochs", nothing, [*PLAN, "--epochs", "0"], "epochs"),
    ("epochs no number", nothing, [*PLAN, "--epochs", "many"], "epochs"),
    ("momentum one", nothing, [*PLAN, "--momentum", "1"], "momentum"),
    ("clip infinite", nothing, [*PLAN, "--clip", "inf"], "clip"),
    ("examples missing", nothing, ["plan", "--epsilon", "1"], "examples"),
    ("account without sigma", nothing, ["account", "--examples", "10"], "noise-multiplier"),
    ("account with epsilon", nothing, ["account", "--examples", "10", "--noise-multiplier", "1", "--epsilon", "1"],
     "epsilon"),
    ("bsr on poisson", nothing, [*PLAN, "--order", "poisson", "--strategy", "bsr"], "identity"),
    ("tree on cyclic-poisson", nothing, [*PLAN, "--order", "cyclic-poisson", "--parts", "5", "--strategy", "tree"],
     "band"),
    ("band wider than the cycle", nothing, [*PLAN, "--order", "cyclic-poisson", "--parts", "2", "--strategy", "bsr",
                                            "--band", "3"], "parts"),
    ("sr-nsgd on reshuffled", nothing, [*PLAN, "--algorithm", "sr-nsgd", "--order", "reshuffled"], "fixed"),
    ("sr-nsgd with tree", nothing, [*PLAN, "--algorithm", "sr-nsgd", "--strategy", "tree"], "tree-full"),
    ("replace-one amplified", nothing, [*PLAN, "--order", "balls-in-bins", "--strategy", "bsr", "--adjacency",
                                        "replace-one"], "replace-one"),
    ("add-remove on fixed", nothing, [*PLAN, "--adjacency", "add-remove"], "add-remove"),
    ("wide band, random allocation", nothing, ["plan", "--examples", "100", "--batch-size", "25", "--epsilon", "1",
                                               "--epochs", "3", "--order", "random-allocation", "--strategy", "bsr",
                                               "--band", "5"], "4"),
    ("restarts every 2 epochs", nothing, ["plan", "--examples", "100", "--batch-size", "25", "--epsilon", "1",
                                          "--epochs", "4", "--order", "random-allocation", "--strategy", "tree",
                                          "--restart-every", "2"], "epoch"),
    ("band with blt", nothing, [*PLAN, "--strategy", "blt", "--band", "3"], "band"),
    ("buffers with bsr", nothing, [*PLAN, "--strategy", "bsr", "--buffers", "3"], "buffers"),
    ("band with dp-sgd", nothing, [*PLAN, "--algorithm", "dp-sgd", "--band", "3"], "band"),
    ("leak with dp-nsgd", nothing, [*PLAN, "--leak", "0.2"], "epoch-lag"),
    ("leak with dp-spider", nothing, [*PLAN, "--algorithm", "dp-spider", "--leak", "0.2"], "leak"),
    ("difference clip with dp-ftrl", nothing, [*PLAN, "--algorithm", "dp-ftrl", "--difference-clip", "0.2"], "read it"),
    ("factory mixes rows", content("mixing.py", MIXING), train("good.parquet", "schema.toml", "--model", "mixing:make"),
     "GroupNorm"),
    ("factory fails", nothing, train("good.parquet", "schema.toml", "--model", "builtins:dict"), "TypeError"),
    ("device without numbers", nothing, train("good.parquet", "schema.toml", "--device", "meta"), "device"),
    ("dimension of another model", nothing, train("good.parquet", "schema.toml", "--dimension", "7"), "dimension 7"),
    ("examples of another table", nothing, train("good.parquet", "schema.toml", "--examples", "70"), "60 rows"),
    ("people without a group", nothing, train("good.parquet", "schema.toml", "--rows-per-person", "2"), "group"),
    ("hidden huge", nothing, train("good.parquet", "schema.toml", "--model", "mlp", "--hidden", "9" * 11), "hidden"),
    ("hidden half", nothing, train("good.parquet", "schema.toml", "--model", "mlp", "--hidden", "2.5"), "hidden"),
    ("held out is a secret", nothing, train("good.parquet", "schema.toml", "--holdout", "0.2", "--held-out-is", "no"),
     "held-out-is"),
    ("held out is, of nobody", nothing, train("good.parquet", "schema.toml", "--held-out-is", "public"), "holdout"),
    ("scratch is no folder", nothing, train("good.parquet", "schema.toml", "--scratch", "good.parquet"), "scratch"),
    ("demo seed", nothing, ["demo", "--out", "demo", "--seed", "x"], "seed"),
    ("plan of lists", content("p.toml", b"version = 1\n[plan]\nexamples = [60]\nepsilon = 1\n"),
     [*train(epsilon=False), "--plan", "p.toml"], "examples"),
    ("seal a folder of letters", lambda p: (p / "letters").mkdir(), ["seal", "letters"], "record"),
    ("unknown action", nothing, ["schema", "drat"], "did you mean draft"),
    ("report of no run", nothing, ["report", "nowhere"], "nowhere"),
    ("report of another version", other_version, ["report", "old"], "version"),
    ("certificate of an unfinished run", unfinished, ["certificate", "run"], "record"),
    ("evaluate an unfinished run", unfinished, ["evaluate", "run", "good.parquet"], "record"),
    ("seal nothing", nothing, ["seal", "nowhere"], "nowhere"),
    ("resume nothing", nothing, ["resume", "nowhere", "good.parquet"], "nowhere"),
    ("compose nothing", nothing, ["compose", "nowhere"], "nowhere"),
]  # fmt: skip


def listing(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if "__pycache__" not in path.parts}


@pytest.mark.parametrize(("name", "prepare", "command", "word"), CASES, ids=[case[0] for case in CASES])
def test_bad_input_is_one_line(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    prepare: Callable[[Path], None],
    command: list[str],
    word: str,
) -> None:
    prepare(place)
    before = listing(place)
    assert main(command) == 2
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert len(lines) == 1, shown.err
    assert lines[0].startswith("momentree: ")
    assert word in lines[0]
    assert shown.out == ""
    assert listing(place) == before


def test_bad_cells_are_no_errors(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{v},{c},{y}\n" for v, c, y in [
        ("nan", "red", "no"), ("inf", "blue", "yes"), ("1e308", "green", "no"), ("word", "red", "maybe"),
        ("", "", ""), ("0.5", "red", "no")] * 10)  # fmt: skip
    (place / "cells.csv").write_text("a,c,y\n" + rows)
    assert main([*train("cells.csv"), "--quiet"]) == 0
    shown = capsys.readouterr()
    for cell in ("1e308", "green", "maybe", "word"):
        assert cell not in shown.out + shown.err


def test_a_full_disk_leaves_nothing(place: Path) -> None:
    """A limit on the size of files stands for a full disk: the command says so in one line and tidies up."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200));"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from momentree.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *train(), "--quiet"], cwd=place, capture_output=True, text=True, env=os.environ
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 200
    assert done.returncode == 2, done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("momentree: ")]) == 1
    assert not (place / "run").exists() or not any((place / "run").iterdir())


def test_an_unexpected_error_is_one_line_without_data(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    import momentree.cli.listing as listing_module

    def broken(kind: str) -> dict[str, str]:
        raise KeyError("a secret value 4711")

    monkeypatch.setattr(listing_module, "catalogue", broken)
    assert main(["list", "orders"]) == 3
    shown = capsys.readouterr().err
    assert "4711" not in shown
    assert len(shown.splitlines()) == 1
    assert main(["list", "orders", "--debug"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_a_large_delta_is_a_warning_and_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--delta", "0.02", "--strategy", "identity", "--json"]) == 0
    shown = capsys.readouterr()
    assert "warning: delta 0.02 is at least 1/examples" in shown.err
    assert json.loads(shown.out)["delta"] == 0.02
