"""Accuracy of `train` with its defaults on real tables, beside our own dp-sgd: what did privacy cost?

Each figure is the mean over seeds (split, order, weights; the noise has no seed). Run with MOMENTREE_DATA naming the
folder of the data sets; prints a table and writes benchmarks/records/accuracy.json after every run. A run that is
already there with these settings and this commit's default rule is kept (`--fresh` forgets it), so a long table may be
made in pieces.

    python benchmarks/accuracy.py [--quick] [--only adult,bank] [--epsilon 0.3] [--methods default,dp-sgd]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from momentree.data.confirm import confirm, write_whole
from momentree.data.draft import ROW_NORM, draft
from momentree.data.readers import open_source
from momentree.data.schema import Schema
from momentree.tasks import defaults
from momentree.tasks.train import Choices, train
from momentree.tasks.use import evaluate

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """One data set: file, target, ε, δ, what is held out, and a column that is no feature."""

    file: str
    target: str
    epsilon: float
    delta: float = 1e-5
    holdout: str | None = "0.2"
    drop: tuple[str, ...] = ()
    test_file: str | None = None
    figure: str = "accuracy"


CASES = {
    "adult": Case("adult.parquet", "income", 1.0, holdout="split=test", drop=("split",)),
    "bank": Case("bank_marketing_additional_full.parquet", "y", 1.0),
    "credit": Case("credit_default.parquet", "default payment", 1.0),
    "covtype": Case("covtype.parquet", "Cover_Type", 1.0, delta=1e-6),
    "california": Case("california_housing.parquet", "MedHouseVal", 2.0, figure="r2"),
    "mushrooms": Case("mushrooms_uci.parquet", "class", 2.0),
    "fashion": Case(
        "fashion_mnist/train-images-idx3-ubyte.gz", "label", 2.0, holdout=None,
        test_file="fashion_mnist/t10k-images-idx3-ubyte.gz",
    ),
    "sst2": Case("sst2.parquet", "label", 4.0, holdout="split=test", drop=("split",)),
}  # fmt: skip


METHODS = {"default": ROW_NORM, "dp-sgd": 1.0, "dp-sgd-4": 4.0}
"""The norm of the rows: our own dp-sgd on Poisson batches, as people start, in rows of norm 1 and in a draft's."""


def run_case(
    folder: Path, case: Case, seed: int, epsilon: float, facts: dict[str, object], row_norm: float = ROW_NORM
) -> tuple[float, float]:
    """The figure on the held-out rows, and the seconds from the file to the model."""
    data = folder / case.file
    with tempfile.TemporaryDirectory(prefix="momentree-accuracy-") as place:
        declared = Path(place) / "schema.toml"
        found = draft(open_source(data), [case.target], drop=list(case.drop)).schema
        write_whole(declared, replace(found, row_norm=row_norm).to_toml())
        confirm(declared, Schema.read(declared).unconfirmed())
        start = time.perf_counter()
        run = Path(place) / "run"
        train(
            data, declared, {"epsilon": epsilon, "delta": case.delta, "seed": seed, **facts}, run,
            choices=Choices(holdout=case.holdout),
        )  # fmt: skip
        seconds = time.perf_counter() - start
        figures = evaluate(run, folder / case.test_file, rows="all") if case.test_file else evaluate(run, data)
        shutil.rmtree(run)
    return float(figures[case.figure]), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, the small data sets, nothing written")
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", default="main", help="main, or numbers; several apart by commas")
    parser.add_argument(
        "--methods", default="default,dp-sgd", help="dp-sgd: our own, on Poisson batches, as people start"
    )
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further run after so long")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--merge", default="", help="records of other pieces, taken into --out first")
    parser.add_argument("--out", default=str(HERE / "records" / "accuracy.json"))
    options = parser.parse_args()
    folder = Path(os.environ.get("MOMENTREE_DATA", HERE.parent.parent / "shared" / "data"))
    if not folder.is_dir():
        raise SystemExit("MOMENTREE_DATA names no folder of data sets: nothing was measured")
    names = ["mushrooms", "credit"] if options.quick else options.only.split(",")
    record = None if options.quick else Path(options.out)
    rows = [] if record is None or options.fresh or not record.exists() else json.loads(record.read_text())["rows"]
    for other in filter(None, options.merge.split(",")):
        for row in json.loads(Path(other).read_text())["rows"]:
            mine = row_of(rows, row["data"], row["epsilon"], row["method"])
            if {**mine, "values": 0, "seconds": 0} == {**row, "values": 0, "seconds": 0}:  # same rule, same settings
                mine |= max(mine, row, key=lambda found: len(found["values"]))
    if record is not None and options.merge:
        record.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=2) + "\n")
    end = time.monotonic() + options.seconds
    for asked in options.epsilon.split(","):
        for name in names:
            epsilon = CASES[name].epsilon if asked == "main" else float(asked)
            for method in options.methods.split(","):
                row = row_of(rows, name, epsilon, method)
                for seed in range(len(row["values"]), 1 if options.quick else options.seeds):
                    if time.monotonic() > end:
                        raise SystemExit("out of time: the same command goes on from here")
                    value, seconds = run_case(folder, CASES[name], seed, epsilon, row["settings"], METHODS[method])
                    row["values"].append(value)
                    row["seconds"].append(seconds)
                    if record is not None:
                        record.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=2) + "\n")
                values, spent = row["values"], statistics.median(row["seconds"])
                shown = " ".join(f"{v:.4f}" for v in values)
                mean = statistics.mean(values)
                print(
                    f"{name:<11} ε={epsilon:<4g} {method:<8} {row['figure']} {mean:.4f} ({shown})  {spent:.1f} s",
                    flush=True,
                )


def row_of(rows: list[dict[str, Any]], name: str, epsilon: float, method: str) -> dict[str, Any]:
    """The row of these settings, begun where there is none; one of other settings or of another rule is dropped."""
    case = CASES[name]
    facts = {
        "data": name, "epsilon": epsilon, "delta": case.delta, "figure": case.figure, "method": method,
        "settings": {} if method == "default" else dp_sgd(name), "row_norm": METHODS[method],
        "rule": rule() if method == "default" else {},
    }  # fmt: skip
    for row in rows:
        if (row["data"], row["epsilon"], row["method"]) == (name, epsilon, method):
            if any(row.get(key) != value for key, value in facts.items()):
                row.clear()
                row |= {**facts, "values": [], "seconds": []}
            return row
    rows.append({**facts, "values": [], "seconds": []})
    return rows[-1]


def rule() -> dict[str, float]:
    """The constants of the documented rule."""
    found = {name.lower(): value for name, value in vars(defaults).items() if name.isupper() and name != "ALGORITHMS"}
    return found


def environment() -> dict[str, Any]:
    return {"torch": torch.__version__, "threads": torch.get_num_threads(), "machine": platform.processor()}


def dp_sgd(name: str) -> dict[str, object]:
    """What people start from: independent noise on Poisson batches, lr·clip = 0.5, clip 1."""
    large = name == "covtype"
    small = name in ("mushrooms", "sst2")
    return {
        "algorithm": "dp-sgd", "order": "poisson", "batch_size": 1024 if large else 256, "clip": 1.0,
        "epochs": 20 if small else 5, "learning_rate": 0.5, "schedule": "constant",
    }  # fmt: skip


if __name__ == "__main__":
    main()
