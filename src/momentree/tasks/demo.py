"""The demonstration: scikit-learn's digits through the same door as anybody's table."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from sklearn.datasets import load_digits

from momentree.data.schema import Column, Schema
from momentree.files import write_bytes, write_text
from momentree.tasks.train import Choices, train
from momentree.tasks.use import evaluate

DATA = "digits.parquet"
TEST_SHARE = 0.25
STEPS_PER_EPOCH = 8
SETTINGS: dict[str, Any] = {
    "algorithm": "dp-nsgd",
    "order": "fixed",
    "delta": 1e-5,
    "epochs": 20,
    "clip": 0.3,
    "learning_rate": 8.0,
    "schedule": "linear",
}
"""ε = 2, δ = 1e-5, the paper's algorithm: momentum with correlated noise and normalised steps."""


def digits() -> tuple[bytes, Schema]:
    """The data as a Parquet file, and its schema: pixels go from 0 to 16, as its documentation says."""
    x, y = load_digits(return_X_y=True)
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    columns = {name: pa.array(x[:, k]) for k, name in enumerate(names)}
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(pa.table({**columns, "digit": pa.array([str(v) for v in y])}), sink)
    schema = Schema(
        columns=(
            *(Column(name, "number", bounds=(0.0, 16.0)) for name in names),
            Column("digit", "category", values=tuple(str(k) for k in range(10))),
        ),
        target=("digit",),
        row_norm=1.0,
        source="scikit-learn, load_digits: 8 × 8 pixels from 0 to 16, digits 0 to 9",
    )
    return sink.getvalue().to_pybytes(), schema


def demo(out: Path, *, epsilon: float | str = 2.0, seed: int | str = 0) -> tuple[float, dict[str, Any]]:
    """Train, evaluate on a quarter that was held out, leave data and run in `out`. Gives accuracy and certificate."""
    content, schema = digits()
    with tempfile.TemporaryDirectory(prefix="momentree-demo-") as place:
        data, declared = Path(place) / DATA, Path(place) / "schema.toml"
        write_bytes(data, content)
        write_text(declared, schema.to_toml())
        batch = -(-int(np.ceil(1797 * (1 - TEST_SHARE))) // STEPS_PER_EPOCH)
        facts = SETTINGS | {"epsilon": epsilon, "seed": seed, "batch_size": batch}
        run = train(data, declared, facts, out, choices=Choices(holdout=str(TEST_SHARE)))
        found = evaluate(out, data)
    write_bytes(out / DATA, content)
    return float(found["accuracy"]), run.certificate()
