"""What has no proof is refused on the command line: exit code 2, one line that says why, nothing on stdout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from momentree.cli import main

EQUAL = ",".join(["10"] * 20)


def plan(*more: str, command: str = "plan", batch: str = "10", epochs: str = "2") -> list[str]:
    noise = ["--epsilon", "1"] if command == "plan" else ["--noise-multiplier", "1"]
    return [command, "--examples", "100", "--batch-size", batch, "--epochs", epochs, *noise, *more]


REFUSED: list[tuple[str, list[str], str]] = [
    ("bsr on poisson", plan("--order", "poisson", "--strategy", "bsr"), "independent noise only"),
    ("tree on cyclic-poisson", plan("--order", "cyclic-poisson", "--parts", "5", "--strategy", "tree"), "banded"),
    (
        "a band wider than the cycle",
        plan("--order", "cyclic-poisson", "--parts", "3", "--strategy", "bsr", "--band", "4"),
        "4 diagonals",
    ),
    ("sr-nsgd on reshuffled", plan("--algorithm", "sr-nsgd", "--order", "reshuffled"), "fixed"),
    ("sr-nsgd with another tree", plan("--algorithm", "sr-nsgd", "--strategy", "tree"), "tree-full"),
    *(
        (f"negative entries on {order}", plan("--order", order, "--strategy", "dense", *parts), "negative entries")
        for order, parts in (
            ("balls-in-bins", ()),
            ("random-allocation", ()),
            ("cyclic-poisson", ("--parts", "5")),
        )
    ),
    (
        "random allocation, a band above n and no restart",
        plan("--order", "random-allocation", "--strategy", "bsr", "--band", "5", batch="25"),
        "at most 4",
    ),
    (
        "random allocation, wide and restarted every 2 epochs",
        plan("--order", "random-allocation", "--strategy", "tree", "--restart-every", "2", epochs="4"),
        "restart every epoch exactly",
    ),
    *(
        (
            f"replace-one on {order}",
            plan("--order", order, *more, "--adjacency", "replace-one"),
            "twice the sensitivity",
        )
        for order, more in (
            ("balls-in-bins", ("--strategy", "tree")),
            ("random-allocation", ("--strategy", "identity")),
            ("cyclic-poisson", ("--strategy", "identity", "--parts", "5")),
        )
    ),
    *(
        (
            f"equal batches declared as {order}",
            plan("--order", order, "--strategy", "identity", "--batch-sizes", EQUAL, *more, command="account"),
            "shuffled partition",
        )
        for order, more in (
            ("balls-in-bins", ()),
            ("random-allocation", ()),
            ("poisson", ()),
            ("cyclic-poisson", ("--parts", "5")),
        )
    ),
    (
        "batches of any size declared as poisson",
        plan("--order", "poisson", "--strategy", "identity", "--batch-sizes", "9,12,10", command="account"),
        "cannot be read off",
    ),
    (
        "a loader that is no partition",
        plan("--order", "fixed", "--batch-sizes", "10,7,10", command="account"),
        "twice in an epoch",
    ),
    ("sizes that are none", plan("--order", "fixed", "--batch-sizes", "10,ten", command="account"), "batch-sizes"),
    *(
        (f"add-remove on {order}", plan("--order", order, "--adjacency", "add-remove", epochs="1"), "moves every other")
        for order in ("fixed", "reshuffled", "single-pass")
    ),
]


def refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(command) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("momentree: ")
    assert shown.err.count("\n") == 1
    return shown.err


@pytest.mark.parametrize(("command", "words"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_no_proof_no_price(command: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refused(command, capsys)


@pytest.mark.parametrize(
    "command",
    [
        plan("--order", "fixed", "--batch-sizes", EQUAL, command="account"),
        plan("--order", "reshuffled", "--batch-sizes", EQUAL, command="account"),
        plan("--order", "poisson", "--strategy", "identity", "--adjacency", "replace-one", command="account"),
        plan("--order", "cyclic-poisson", "--parts", "4", "--strategy", "bsr", "--band", "4", command="account"),
        plan("--order", "poisson", "--strategy", "identity", "--adjacency", "add-remove", command="account"),
    ],
)
def test_their_neighbours_are_priced(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 0
    assert "promise" in capsys.readouterr().out


def test_a_large_delta_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(plan("--delta", "0.01", command="account")) == 0
    assert "1/examples" in capsys.readouterr().err


SCHEMA = """version = 1
target = "y"
row_norm = 1.0
{group}
[columns."a"]
kind = "number"
bounds = [0.0, 1.0]

[columns."y"]
kind = "category"
values = ["no", "yes"]
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    columns = {"a": np.linspace(0, 1, 40), "y": ["no", "yes"] * 20}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    (tmp_path / "schema.toml").write_text(SCHEMA.format(group=""))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_add_remove_with_rows_that_were_counted(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "rows.parquet", "--schema", "schema.toml", "--target", "y", "--out", "run", "--epsilon", "5"]
    more = ["--order", "poisson", "--algorithm", "dp-sgd", "--adjacency", "add-remove", "--epochs", "1"]
    assert "declare N" in refused([*command, *more], capsys)
    assert not (table / "run").exists()


def test_persons_without_a_column_that_names_them(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With one, every order bounds a person: the sampled ones let a person's rows draw together."""
    command = ["train", "rows.parquet", "--schema", "schema.toml", "--target", "y", "--out", "run", "--epsilon", "5"]
    assert "group column" in refused([*command, "--rows-per-person", "2", "--epochs", "1"], capsys)
