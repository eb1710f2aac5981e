"""What a person meets at the terminal: help, suggestions, one JSON object, exit codes, runs that have not ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from momentree.cli import main
from momentree.cli.parser import make_parser
from momentree.training.loop import Run

SCHEMA = """version = 1
target = "y"
row_norm = 1.0
[columns."a"]
kind = "number"
bounds = [0.0, 1.0]
[columns."y"]
kind = "category"
values = ["no", "yes"]
"""
TRAIN = ["train", "t.parquet", "--schema", "schema.toml", "--out", "run", "--epsilon", "5", "--epochs", "2", "--quiet"]
PLAN = ["plan", "--examples", "100", "--batch-size", "10", "--epsilon", "1", "--epochs", "2"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the test, with a table and its schema."""
    rng = np.random.default_rng(0)
    a = rng.random(80)
    pq.write_table(pa.table({"a": a, "y": np.where(a > 0.5, "yes", "no")}), tmp_path / "t.parquet")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def process(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The real command in a process of its own."""
    code = "import sys; from momentree.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, env=os.environ | environment
    )


def commands() -> list[list[str]]:
    """Every command with its actions."""
    top = make_parser()._subparsers
    assert top is not None
    found = []
    for name, parser in top._group_actions[0].choices.items():  # type: ignore[union-attr]
        deeper = parser._subparsers
        found += [[name, a] for a in deeper._group_actions[0].choices] if deeper else [[name]]
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_says_what_it_does_and_speaks_json(command: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as done:
        main([*command, "--help"])
    assert done.value.code == 0
    shown = capsys.readouterr().out
    assert "--json" in shown
    assert "--debug" in shown
    if len(command) == 1:
        assert len(shown.split("\n\n")[1]) > 20  # the description, between usage and arguments


def test_help_needs_no_torch() -> None:
    code = (
        "import sys\nfrom momentree.cli import main\ntry:\n    main(['plan', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (["trian", "x"], "did you mean train?"),
        (["schema", "drat"], "did you mean draft?"),
        ([*PLAN, "--eps", "1"], "did you mean --epsilon?"),
        ([*PLAN, "--lerning-rate", "1"], "did you mean --learning-rate?"),
        ([*PLAN, "--order", "shuffled"], "did you mean reshuffled?"),
    ],
)
def test_the_nearest_word_is_suggested(command: list[str], hint: str, capsys: Any) -> None:
    assert main(command) == 2
    assert hint in capsys.readouterr().err


def test_no_flag_is_suggested_for_a_stray_word(capsys: Any) -> None:
    assert main([*PLAN, "stray"]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_json_is_one_object_and_nothing_else(place: Path, capsys: Any) -> None:
    every = [
        ["schema", "draft", "t.parquet", "--target", "y", "--out", "drafted.toml"],
        ["schema", "confirm", "drafted.toml", "--all"],
        ["schema", "check", "t.parquet", "--schema", "drafted.toml"],
        PLAN,
        ["account", "--examples", "100", "--noise-multiplier", "1", "--epochs", "1"],
        [*TRAIN, "--holdout", "0.25"],
        ["predict", "run", "t.parquet", "--out", "p.csv"],
        ["evaluate", "run", "t.parquet"],
        ["report", "run"],
        ["certificate", "run"],
        ["certificate", "run", "--verify"],
        ["compose", "run", "run"],
        ["seal", "run"],
        ["list", "orders"],
    ]
    for command in every:
        assert main([*command, "--json"]) == 0, command
        found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert isinstance(found, dict)


def test_a_run_that_has_not_ended_is_no_run_to_report(
    place: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(run: Run, *_: Any, **__: Any) -> Run:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Run, "fit", interrupted)
        assert main(TRAIN) == 130
    assert "resume" in capsys.readouterr().err
    before = sorted(path.name for path in (place / "run").rglob("*"))
    for command in (["report"], ["certificate"], ["certificate", "--verify"], ["seal"]):
        assert main([command[0], "run", *command[1:]]) == 2
        assert "has not finished" in capsys.readouterr().err
    assert sorted(path.name for path in (place / "run").rglob("*")) == before
    assert main(["resume", "run", "--quiet"]) == 0
    assert main(["certificate", "run", "--verify"]) == 0
    assert main(["report", "run"]) == 0


def test_the_certificate_is_printed_with_its_caveats(place: Path, capsys: Any) -> None:
    drafted = SCHEMA.replace('target = "y"', 'target = "y"\nderived = true')
    drafted = drafted.replace("bounds = [0.0, 1.0]", 'bounds = [0.0, 1.0]\nunconfirmed = ["bounds"]')
    (place / "schema.toml").write_text(drafted)
    assert main([*TRAIN, "--accept-derived-schema"]) == 0
    capsys.readouterr()
    assert main(["certificate", "run"]) == 0
    shown = capsys.readouterr().out
    for line in json.loads((place / "run" / "certificate.json").read_text())["caveats"]:
        assert f"- {line}" in shown
    assert "unconfirmed" in shown


def test_a_plan_file_is_the_same_as_its_flags(place: Path, capsys: Any) -> None:
    flags = ["--batch-size", "10", "--epochs", "2", "--strategy", "tree", "--clip", "0.5", "--learning-rate", "0.1",
             "--schedule", "linear", "--seed", "3", "--delta", "1e-3", "--algorithm", "dp-ftrl"]  # fmt: skip
    assert main(["plan", "--examples", "80", "--epsilon", "2", *flags, "--out", "plan.toml", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    data = ["train", "t.parquet", "--schema", "schema.toml", "--quiet"]
    assert main([*data, "--plan", "plan.toml", "--out", "by-file"]) == 0
    assert main([*data, "--epsilon", "2", *flags, "--out", "by-flags"]) == 0
    capsys.readouterr()
    by_file, by_flags = (
        json.loads((place / run / "record.json").read_text())["figures"] for run in ("by-file", "by-flags")
    )
    assert by_file == by_flags
    assert {**planned, "dimension": None, "memory": None} == {**by_file, "dimension": None, "memory": None}


def test_a_terminal_without_greek_letters_gets_an_answer() -> None:
    done = process(*PLAN, "--strategy", "identity", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "\\u03c3" in done.stdout


def test_a_reader_that_stops_reading_is_no_error() -> None:
    code = "import sys; from momentree.cli import main; sys.exit(main(['list', 'orders']))"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_price_of_earlier_runs_is_said_first(place: Path, capsys: Any) -> None:
    assert main(TRAIN) == 0
    alone = capsys.readouterr().out.splitlines()[0]
    second = [*TRAIN, "--init", "run"]
    second[second.index("run")] = "second"
    assert main(second) == 0
    said = capsys.readouterr().out.splitlines()
    both = json.loads((place / "second" / "certificate.json").read_text())["with_earlier_runs"]["epsilon"]
    first, own = (float(line[1 : line.index(",")]) for line in said[:2])
    assert "together with 1 earlier run(s), adjacency zero-out" in said[0]
    assert first == pytest.approx(both, rel=1e-3)
    assert first >= both
    assert "by itself" in said[1]
    assert own == float(alone[1 : alone.index(",")]) < first
    second[second.index("second")] = "third"
    assert main([*second, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert next(iter(told)) == "with_earlier_runs"
    assert told["with_earlier_runs"]["epsilon"] == pytest.approx(both, rel=1e-9)
