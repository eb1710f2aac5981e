"""The recorded figures of the amplified orders: within what was promised, printed as recorded, certified again."""

import importlib.util
import json
from pathlib import Path

import pytest

from momentree.privacy.amplified import amplified_account
from momentree.privacy.events import Release

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "records" / "amplification.jsonl"


def benchmark():
    spec = importlib.util.spec_from_file_location("amplification_benchmark", ROOT / "benchmarks" / "amplification.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def records():
    return [json.loads(line) for line in RECORD.read_text().splitlines()[1:]]


def best(order, epsilon, largest_band=10**9):
    return min(
        r["iterate_rmse"]
        for r in records()
        if (r["order"], r["epsilon"]) == (order, epsilon) and r["band"] <= largest_band
    )


@pytest.mark.parametrize(
    ("epsilon", "band", "most"),
    [
        (1.0, 100, 22.9),
        (2.0, 100, 12.7),
        (4.0, 100, 7.2),
        (8.0, 100, 4.2),
        (1.0, 16, 22.9),
        (2.0, 16, 12.8),
        (4.0, 16, 7.5),
    ],
)
def test_random_allocation_needs_no_more_noise_than_this(epsilon, band, most):
    assert best("random-allocation", epsilon, band) <= most


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0, 8.0])
def test_correlation_pays_under_random_allocation(epsilon):
    assert best("random-allocation", epsilon) < best("poisson", epsilon)
    assert best("random-allocation", epsilon) < best("fixed", epsilon)


def test_every_amplified_row_was_certified_at_its_epsilon():
    for row in records():
        assert row["epsilon_upper"] <= row["epsilon"] * (1 + 1e-9)
        assert row["failure_probability"] <= 1e-6


def test_the_page_prints_the_record():
    page = (ROOT / "docs" / "guarantees" / "amplified.md").read_text()
    assert benchmark().table(RECORD) in page


def again(row, samples=None):
    made = benchmark()
    order = next(o for o, _ in made.rows(row["epsilon"]) if o.name == row["order"])
    release = Release(made.banded(row["band"]), order, "zero-out", row["noise_multiplier"])
    return amplified_account(release, seed=row["seed"], samples=samples).epsilon(row["delta"])


def test_a_computed_row_comes_out_the_same():
    row = next(r for r in records() if (r["order"], r["band"], r["epsilon"]) == ("random-allocation", 1, 1.0))
    assert again(row).upper == pytest.approx(row["epsilon_upper"], rel=1e-9)


@pytest.mark.verify
def test_the_sampled_rows_come_out_the_same():
    for row in records():
        if row["order"] == "random-allocation" and row["band"] > 1:
            assert again(row).upper == pytest.approx(row["epsilon_upper"], rel=1e-6)
