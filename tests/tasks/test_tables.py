"""The path of a table: train, evaluate, predict, resume, certificate; through the command line where people use it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from momentree.cli import main
from momentree.errors import InputError
from momentree.plan import Plan
from momentree.privacy.gaussian import GaussianAccount
from momentree.report.record import read_record
from momentree.tasks import defaults
from momentree.tasks.people import counted
from momentree.tasks.task import Task
from momentree.tasks.train import Choices, resume, train
from momentree.tasks.use import calibration_error, evaluate, figures, predict

SCHEMA = """version = 1
target = "y"
row_norm = 1.0
{group}
[columns."a"]
kind = "number"
bounds = [-3.0, 3.0]
knots = 6

[columns."c"]
kind = "category"
values = ["red", "blue"]
unseen = "other"

[columns."y"]
{target}
"""
CLASSES = 'kind = "category"\nvalues = ["no", "yes"]'
NUMBER = 'kind = "number"\nbounds = [-2.0, 2.0]'
QUICK = {"epsilon": 8.0, "delta": 1e-4, "epochs": 2, "strategy": "bsr", "band": 4}


def table(place: Path, rows: int = 400, *, target: str = CLASSES, group: bool = False) -> tuple[Path, Path]:
    rng = np.random.default_rng(1)
    a = rng.normal(size=rows)
    c = rng.choice(["red", "blue"], rows)
    y = a + (c == "red") > 0.3
    answers = pa.array(np.where(y, "yes", "no")) if target == CLASSES else pa.array(np.clip(a, -2, 2))
    columns = {"a": pa.array(a), "c": pa.array(c), "y": answers, "who": pa.array(np.arange(rows) // 4)}
    pq.write_table(pa.table(columns), place / "data.parquet")
    declared = SCHEMA.format(target=target, group='group = "who"' if group else "")
    (place / "schema.toml").write_text(declared)
    return place / "data.parquet", place / "schema.toml"


def test_from_a_file_to_a_certificate_on_the_command_line(tmp_path: Path, capsys, monkeypatch) -> None:
    table(tmp_path)
    monkeypatch.chdir(tmp_path)
    asked = ["--epsilon", "8", "--delta", "1e-4", "--epochs", "3", "--holdout", "0.25", "--quiet"]
    assert main(["train", "data.parquet", "--target", "y", "--schema", "schema.toml", "--out", "run", *asked]) == 0
    shown = capsys.readouterr()
    assert "(8, 0.0001)-DP" in shown.out
    assert "held-out accuracy" in shown.out
    assert "batch-size" in shown.err
    assert main(["certificate", "run", "--verify"]) == 0
    assert main(["evaluate", "run", "data.parquet", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.split("\n", 1)[1])
    assert found["rows"] == 100
    assert found["accuracy"] > 0.7
    assert main(["predict", "run", "data.parquet", "--out", "p.csv"]) == 0
    predictions = pyarrow.csv.read_csv("p.csv")
    assert predictions.num_rows == 400
    assert predictions.column_names == ["prediction", "probability of no", "probability of yes"]
    assert main(["compose", "run", "run", "--json"]) == 0
    assert main(["report", "run"]) == 0
    assert {p.name for p in Path("run").iterdir()} == {
        "record.json", "model.safetensors", "certificate.json", "report.html", "plan.toml", "schema.toml"
    }  # fmt: skip


def test_a_changed_certificate_or_record_does_not_verify(tmp_path: Path, capsys) -> None:
    data, schema = table(tmp_path)
    train(data, schema, QUICK, tmp_path / "run")
    path = tmp_path / "run" / "certificate.json"
    good = json.loads(path.read_text())
    for change in (
        {"epsilon": good["epsilon"] * (1 - 1e-6)},
        {"delta": 1e-5},
        {"adjacency": "replace-one"},
        {"steps_done": 1},
        {"caveats": []},
        {"plan": good["plan"] | {"noise_multiplier": good["plan"]["noise_multiplier"] * 1.001}},
        {"surprise": 1},
    ):
        path.write_text(json.dumps(good | change))
        assert main(["certificate", str(tmp_path / "run"), "--verify"]) == 1, change
    path.write_text(json.dumps(good))
    assert main(["certificate", str(tmp_path / "run"), "--verify"]) == 0
    record = tmp_path / "run" / "record.json"
    text = record.read_text()
    assert '"steps_done": 62' in text
    record.write_text(text.replace('"steps_done": 62', '"steps_done": 61'))
    assert main(["certificate", str(tmp_path / "run"), "--verify"]) == 1
    capsys.readouterr()


@pytest.mark.parametrize("order", ["fixed", "reshuffled", "poisson", "balls-in-bins", "random-allocation"])
def test_every_order_trains_and_certifies(tmp_path: Path, order: str) -> None:
    data, schema = table(tmp_path, 120)
    strategy = {"strategy": "identity", "band": None}
    facts = {**QUICK, **strategy, "order": order, "batch_size": 30, "momentum": 0.0}
    run = train(data, schema, facts, tmp_path / "run")
    certificate = run.certificate()
    assert certificate["epsilon"] <= 8.0
    assert ("must stay secret" in " ".join(certificate["caveats"])) == run.plan.order.secret
    assert main(["certificate", str(tmp_path / "run"), "--verify"]) == 0


def test_a_number_within_bounds(tmp_path: Path) -> None:
    data, schema = table(tmp_path, target=NUMBER)
    train(data, schema, {**QUICK, "epsilon": 20.0, "epochs": 6}, tmp_path / "run", choices=Choices(holdout="0.25"))
    assert evaluate(tmp_path / "run", data)["r2"] > 0.5
    assert predict(tmp_path / "run", data, tmp_path / "p.parquet") == 400
    predicted = pq.read_table(tmp_path / "p.parquet")["prediction"].to_numpy()
    assert np.abs(predicted).max() <= 2.0


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    data, schema = table(tmp_path)

    class Killed(Exception):
        pass

    def kill(facts: object) -> None:
        if facts.step == 30:  # type: ignore[attr-defined]
            raise Killed

    with pytest.raises(Killed):
        train(data, schema, QUICK, tmp_path / "run", keep_key=True, progress=kill)
    before = json.loads((tmp_path / "run" / "record.json").read_text())
    assert not before["run"]["finished"]
    moved = data.rename(tmp_path / "moved.parquet")
    with pytest.raises(InputError, match="no longer where it was"):
        resume(tmp_path / "run")
    moved.rename(data)
    resumed = resume(tmp_path / "run")
    assert resumed.certificate()["finished"]
    other = data.with_name("other.parquet")
    pq.write_table(pq.read_table(data).slice(0, 399), other)
    with pytest.raises(InputError):
        resume(tmp_path / "run", other)


def test_public_weights_are_named_and_must_fit(tmp_path: Path) -> None:
    data, schema = table(tmp_path)
    train(data, schema, QUICK, tmp_path / "first")
    (tmp_path / "public.safetensors").write_bytes((tmp_path / "first" / "model.safetensors").read_bytes())
    run = train(data, schema, QUICK, tmp_path / "second", init=tmp_path / "public.safetensors", init_is_public=True)
    assert "public.safetensors" in run.certificate()["initial_weights"]
    torch.save({"a": torch.zeros(1)}, tmp_path / "pickle.safetensors")
    with pytest.raises(InputError, match="safetensors"):
        train(data, schema, QUICK, tmp_path / "third", init=tmp_path / "pickle.safetensors")
    with pytest.raises(InputError, match="fit the model"):
        train(
            data, schema, QUICK, tmp_path / "third", init=tmp_path / "first" / "model.safetensors",
            choices=Choices(model="mlp", hidden=(3,)),
        )  # fmt: skip
    assert not (tmp_path / "third").exists()


@pytest.mark.parametrize("given", ["first", "first/model.safetensors"])
def test_the_model_of_a_private_run_is_paid_for(tmp_path: Path, given: str) -> None:
    data, schema = table(tmp_path)
    train(data, schema, QUICK, tmp_path / "first")
    promise = train(data, schema, QUICK, tmp_path / "second", init=tmp_path / given).certificate()
    plan = Plan(**read_record(tmp_path / "second")["plan"])
    together = GaussianAccount(float(np.hypot(plan.mu, plan.mu))).epsilon(plan.delta).upper
    assert promise["with_earlier_runs"]["epsilon"] == pytest.approx(together, rel=1e-9)


def test_a_fraction_names_rows_of_the_file_that_was_trained_on_only(tmp_path: Path, capsys) -> None:
    """In a file that has grown the same fraction would name other rows, private ones among them."""
    data, schema = table(tmp_path)
    train(data, schema, QUICK, tmp_path / "run", choices=Choices(holdout="0.25"))
    assert evaluate(tmp_path / "run", data)["rows_are"] == "held out"
    rows = pq.read_table(data)
    for count in (1, 399, 401, 404):
        pq.write_table(pa.concat_tables([rows, rows]).slice(0, count), tmp_path / "other.parquet")
        found = evaluate(tmp_path / "run", tmp_path / "other.parquet")
        assert (found["rows"], found["rows_are"]) == (count, "all of the file")
    assert main(["evaluate", str(tmp_path / "run"), str(tmp_path / "other.parquet"), "--json"]) == 0
    shown = capsys.readouterr()
    assert "warning" in shown.err
    assert json.loads(shown.out)["rows"] == 404


@pytest.mark.filterwarnings("error")
def test_figures_that_one_row_does_not_define_are_null(tmp_path: Path, capsys) -> None:
    data, schema = table(tmp_path, target=NUMBER)
    train(data, schema, QUICK, tmp_path / "run")
    pq.write_table(pq.read_table(data).slice(0, 1), tmp_path / "one.parquet")
    assert evaluate(tmp_path / "run", tmp_path / "one.parquet")["r2"] is None
    assert main(["evaluate", str(tmp_path / "run"), str(tmp_path / "one.parquet")]) == 0
    assert "undefined" in capsys.readouterr().out


def test_rows_of_one_person_beyond_the_declared_number_do_not_count() -> None:
    groups = np.array([5, 5, -1, 7, 5, 7, 7, -1])
    for most in (1, 2, 3):
        expected, seen = [], {}
        for group in groups:
            seen[group] = seen.get(group, 0) + 1
            expected.append(group >= 0 and seen[group] <= most)
        assert counted(groups, most).tolist() == expected
    assert counted(np.array([], np.int64), 1).tolist() == []


def test_a_person_costs_as_much_as_all_rows_that_count(tmp_path: Path) -> None:
    data, schema = table(tmp_path, group=True)
    facts = {**QUICK, "strategy": "identity", "band": None, "momentum": 0.0}
    one = train(data, schema, facts, tmp_path / "one")
    two = train(data, schema, {**facts, "rows_per_person": 2}, tmp_path / "two")
    assert two.plan.noise_multiplier == pytest.approx(2 * one.plan.noise_multiplier, rel=1e-9)
    assert two.certificate()["unit"] == "person (column who)"


def test_what_the_rule_chooses_follows_from_public_numbers() -> None:
    facts, why = defaults.fill({"examples": 1000, "epsilon": 1.0})
    assert facts["batch_size"] == 32
    assert len(why) == 5
    plan = Plan(**facts)
    rate = defaults.learning_rate(plan)
    noise = plan.to_dict()["iterate_rmse"]
    assert rate == pytest.approx(min(2.5 * 32 / noise, 256) / 0.3, rel=1e-6)
    kept, _ = defaults.fill({"examples": 1000, "epsilon": 1.0, "batch_size": 7, "epochs": 3, "clip": 2.0})
    assert (kept["batch_size"], kept["epochs"], kept["clip"]) == (7, 3, 2.0)


def test_figures_against_their_definitions() -> None:
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.ones(3), 500)
    targets = rng.integers(0, 3, 500)
    found = figures(Task("classes", ("x", "y", "z")), scores, targets)
    assert found["accuracy"] == pytest.approx((scores.argmax(1) == targets).mean())
    assert found["log_loss"] == pytest.approx(-np.log(scores[np.arange(500), targets]).mean())
    pairs = [np.mean(scores[targets == k, k][:, None] > scores[targets != k, k][None, :]) for k in range(3)]
    assert found["auc"] == pytest.approx(np.mean(pairs), abs=1e-9)
    assert calibration_error(np.array([0.9, 0.9, 0.6]), np.array([True, False, True])) == pytest.approx(
        (2 * 0.4 + 1 * 0.4) / 3
    )


def test_the_model_starts_where_the_seed_says_and_the_noise_does_not(tmp_path: Path) -> None:
    data, schema = table(tmp_path)
    weights = [
        load_file(train(data, schema, QUICK, tmp_path / name).folder.path / "model.safetensors") for name in "ab"
    ]
    assert any(not torch.equal(weights[0][k], weights[1][k]) for k in weights[0])
