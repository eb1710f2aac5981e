"""Accuracy of `train` with its defaults on real tables, beside the issue of every private trainer: what did it cost?

Each figure is the mean over seeds (split, order, weights; the noise has no seed). Run with MOMENTREE_DATA naming the
folder of the data sets; prints a table and writes benchmarks/records/accuracy.json.

    python benchmarks/accuracy.py [--quick] [--only adult,bank] [--epsilon-factor 0.3]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from momentree.data.confirm import confirm, write_whole
from momentree.data.draft import draft
from momentree.data.readers import open_source
from momentree.data.schema import Schema
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


def run_case(folder: Path, case: Case, seed: int, epsilon: float, facts: dict[str, object]) -> tuple[float, float]:
    """The figure on the held-out rows, and the seconds from the file to the model."""
    data = folder / case.file
    with tempfile.TemporaryDirectory(prefix="momentree-accuracy-") as place:
        declared = Path(place) / "schema.toml"
        found = draft(open_source(data), [case.target], drop=list(case.drop))
        write_whole(declared, found.to_toml())
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
    parser.add_argument("--quick", action="store_true", help="one seed, the small data sets")
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float)
    parser.add_argument("--dp-sgd", action="store_true", help="our own dp-sgd on Poisson batches at the usual defaults")
    parser.add_argument("--out", default=str(HERE / "records" / "accuracy.json"))
    options = parser.parse_args()
    folder = Path(os.environ.get("MOMENTREE_DATA", HERE.parent.parent / "shared" / "data"))
    if not folder.is_dir():
        raise SystemExit("MOMENTREE_DATA names no folder of data sets: nothing was measured")
    names = options.only.split(",") if options.only else list(CASES)
    if options.quick:
        names = [n for n in names if n in ("mushrooms", "credit")]
    rows = []
    for name in names:
        case = CASES[name]
        epsilon = options.epsilon or case.epsilon
        seeds = 1 if options.quick else options.seeds
        facts: dict[str, object] = dp_sgd(name) if options.dp_sgd else {}
        results = [run_case(folder, case, seed, epsilon, facts) for seed in range(seeds)]
        values = [value for value, _ in results]
        row = {
            "data": name, "epsilon": epsilon, "delta": case.delta, "figure": case.figure,
            "method": "dp-sgd" if options.dp_sgd else "default", "mean": statistics.mean(values), "values": values,
            "seconds": statistics.median(s for _, s in results),
        }  # fmt: skip
        rows.append(row)
        print(
            f"{name:<11} ε={epsilon:<4g} {case.figure:<9} {row['mean']:.4f}  {values}  {row['seconds']:.1f} s",
            flush=True,
        )
    if not options.quick:
        facts_of_run = {"torch": torch.__version__, "threads": torch.get_num_threads(), "machine": platform.processor()}
        Path(options.out).write_text(json.dumps({"environment": facts_of_run, "rows": rows}, indent=2) + "\n")


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
