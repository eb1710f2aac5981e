"""Using a finished run's model on other rows: predictions and figures. Nothing here is covered by the run's promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from sklearn import metrics
from torch import nn

from momentree.data.holdout import Holdout
from momentree.data.schema import Schema
from momentree.data.table import Table, Tables, read_table
from momentree.errors import InputError
from momentree.files import write_bytes
from momentree.report.record import read_record
from momentree.tasks.task import Task
from momentree.tasks.train import SCHEMA, Choices, build, load_weights

CHUNK = 8192


@dataclass(frozen=True)
class Trained:
    """A run's model, ready to be used, with its schema and task."""

    model: nn.Module
    schema: Schema
    task: Task
    choices: Choices

    @staticmethod
    def of(folder: str | Path) -> Trained:
        """From a run's folder: the record, the schema and the weights."""
        folder = Path(folder)
        record = read_record(folder)
        if not (folder / "model.safetensors").exists():
            raise InputError(f"run {folder} has no model yet: it never finished, go on with momentree resume")
        choices = Choices.of(record.get("model") or {})
        schema = Schema.read(folder / SCHEMA)
        task = Task.of(schema, choices.class_weights)
        model = build(schema, task, choices, 0)
        load_weights(model, folder / "model.safetensors")
        model.eval()
        return Trained(model, schema, task, choices)

    @torch.no_grad()
    def scores(self, table: Table) -> Iterator[tuple[NDArray[np.float64], NDArray[Any], NDArray[np.bool_]]]:
        """Chunks of (scores, targets, usable) in the order of the rows."""
        for start in range(0, len(table), CHUNK):
            x, y, usable = table.batch(np.arange(start, min(start + CHUNK, len(table))))
            yield self.task.scores(self.model(torch.from_numpy(x))), y, usable


def predict(folder: str | Path, data: str | Path, out: str | Path) -> int:
    """Write one line a row of DATA: the prediction and, for classes, every probability. CSV or Parquet by the name."""
    out = Path(out)
    if out.suffix not in (".csv", ".parquet"):
        raise InputError(f"output {out.name} has no known form: give a name that ends in .csv or .parquet")
    trained = Trained.of(folder)
    table = read_table(data, trained.schema, target=False).private
    try:
        parts = [(s, usable) for s, _, usable in trained.scores(table)]
    finally:
        table.close()
    scores = np.concatenate([s for s, _ in parts])
    usable = np.concatenate([u for _, u in parts])
    columns: dict[str, Any] = {}
    task = trained.task
    if task.kind == "classes":
        columns["prediction"] = pa.array([task.classes[k] for k in scores.argmax(1)], mask=~usable)
    if task.kind == "bounded":
        columns["prediction"] = pa.array(scores, mask=~usable)
    else:
        for k, name in enumerate(task.classes):
            columns[f"probability of {name}"] = pa.array(scores[:, k], mask=~usable)
    sink = pa.BufferOutputStream()
    arrow = pa.table(columns)
    if out.suffix == ".csv":
        pyarrow.csv.write_csv(arrow, sink)
    else:
        pyarrow.parquet.write_table(arrow, sink)
    write_bytes(out, sink.getvalue().to_pybytes())
    return len(scores)


def evaluate(folder: str | Path, data: str | Path, *, rows: str = "held-out") -> dict[str, Any]:
    """Figures on the rows of DATA: those that the run held out (`held-out`, where it held any out), or all of them."""
    trained = Trained.of(folder)
    holdout = trained.choices.holdout
    record = read_record(Path(folder))
    seed = int(record["plan"].get("seed", 0))
    asked = Holdout.parse(holdout) if holdout is not None and rows == "held-out" else None
    tables = None if asked is None else held_out_of(data, trained.schema, asked, seed, record.get("data") or {})
    if tables is None:
        asked = None
        tables = read_table(data, trained.schema, holdout=None, seed=seed)
    table = tables.held_out if tables.held_out is not None else tables.private
    try:
        parts = list(trained.scores(table))
    finally:
        tables.private.close()
    keep = np.concatenate([p[2] for p in parts])
    scores, targets = (np.concatenate([p[i] for p in parts])[keep] for i in (0, 1))
    if not len(scores):
        raise InputError("no row can be used under the schema: look with momentree schema check")
    found = {"rows": len(keep), "rows_are": "held out" if asked else "all of the file"}
    return found | figures(trained.task, scores, targets)


def held_out_of(data: str | Path, schema: Schema, holdout: Holdout, seed: int, facts: dict[str, Any]) -> Tables | None:
    """The rows of DATA that the run held out. None where a fraction does not name them: of another file than the one
    that was trained on, where it would name other rows, private ones among them if the file has only grown.
    """
    try:
        tables = read_table(data, schema, holdout=holdout, seed=seed)
    except InputError:
        if holdout.fraction is None:
            raise
        return None  # too few rows for the fraction; whatever else is wrong is found again without it
    held_out = 0 if tables.held_out is None else len(tables.held_out)
    same = facts.get("held_out_rows", held_out) == held_out and facts.get("rows") == len(tables.private)
    if holdout.fraction is None or same:
        return tables
    tables.private.close()
    return None


def figures(task: Task, scores: NDArray[np.float64], targets: NDArray[Any]) -> dict[str, Any]:
    """Accuracy, AUC, log loss, calibration and a table a class; R² and errors for a number."""
    if task.kind == "bounded":
        low, high = task.bounds
        truth = low + (targets + 1) / 2 * (high - low)
        return {
            "r2": float(metrics.r2_score(truth, scores)) if len(truth) > 1 else None,
            "mean_absolute_error": float(metrics.mean_absolute_error(truth, scores)),
            "root_mean_squared_error": float(metrics.root_mean_squared_error(truth, scores)),
        }
    if task.kind == "labels":
        return {
            "accuracy": float(((scores > 0.5) == (targets > 0.5)).mean()),
            "labels": [_binary(name, scores[:, k], targets[:, k] > 0.5) for k, name in enumerate(task.classes)],
        }
    count = len(task.classes)
    predicted = scores.argmax(1)
    known = np.arange(count)
    precision, recall, f1, support = metrics.precision_recall_fscore_support(
        targets, predicted, labels=known, zero_division=0
    )
    confidence = scores.max(1)
    return {
        "accuracy": float((predicted == targets).mean()),
        "auc": _auc(scores, targets, count),
        "log_loss": float(-np.log(np.maximum(scores[np.arange(len(targets)), targets], 1e-300)).mean()),
        "calibration_error": calibration_error(confidence, predicted == targets),
        "classes": [
            {"class": task.classes[k], "precision": float(precision[k]), "recall": float(recall[k]),
             "f1": float(f1[k]), "rows": int(support[k])}
            for k in known
        ],
    }  # fmt: skip


def _binary(name: str, scores: NDArray[np.float64], truth: NDArray[np.bool_]) -> dict[str, Any]:
    both = 0 < truth.sum() < len(truth)
    return {
        "label": name,
        "accuracy": float(((scores > 0.5) == truth).mean()),
        "auc": float(metrics.roc_auc_score(truth, scores)) if both else None,
    }


def _auc(scores: NDArray[np.float64], targets: NDArray[Any], count: int) -> float | None:
    """Area under the curve; one class against the rest, averaged, where there are several. None with one class only."""
    if len(np.unique(targets)) < (2 if count == 2 else count):
        return None
    if count == 2:
        return float(metrics.roc_auc_score(targets, scores[:, 1]))
    return float(metrics.roc_auc_score(targets, scores, multi_class="ovr", labels=np.arange(count)))


def calibration_error(confidence: NDArray[np.float64], right: NDArray[np.bool_], bins: int = 15) -> float:
    """The mean gap between confidence and accuracy over bins of equal width, weighted by their rows."""
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [
        abs(confidence[place == k].mean() - right[place == k].mean()) * (place == k).mean() for k in np.unique(place)
    ]
    return float(sum(gaps))
