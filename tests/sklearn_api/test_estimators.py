"""What the estimators give: fitted attributes, linear models in the units of X, refusals in one line."""

import re

import numpy as np
import pyarrow as pa
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from momentree.certificate import verify
from momentree.data.schema import Schema
from momentree.errors import InputError, MomentreeError, PrivacyLeakWarning
from momentree.files import read_json
from momentree.report.record import read_record
from momentree.sklearn import PrivateClassifier, PrivateRegressor
from momentree.tasks.defaults import learning_rate

QUICK = {"strategy": "identity", "epochs": 2}
DECLARED = QUICK | {"bounds": (-4, 4), "classes": (0, 1)}
SCHEMA = """
version = 1
target = "buys"
{derived}
[columns.age]
kind = "number"
bounds = [0, 100]
{age}
[columns.job]
kind = "category"
values = ["baker", "cook", "smith"]
unseen = "row"
[columns.buys]
kind = "category"
values = ["no", "yes"]
"""


def schema_file(folder, derived="", age="", target=None):
    text = SCHEMA.format(derived=derived, age=age)
    if target:
        text = text[: text.index("[columns.buys]")] + target
    (folder / "schema.toml").write_text(text)
    return folder / "schema.toml"


def people(rows=80):
    draw = np.random.default_rng(5)
    age, job = draw.uniform(0, 100, rows), draw.choice(["baker", "cook", "smith"], rows)
    return pa.table({"job": job, "age": age}), np.where((age > 50) ^ (job == "cook"), "yes", "no"), age


def test_classifier_learns_and_its_coefficients_decide():
    X, y = load_breast_cancer(return_X_y=True)
    X, Xt, y, yt = train_test_split(X, y, random_state=0)
    bounds = (X.min(axis=0), X.max(axis=0))  # of the test's own making
    model = PrivateClassifier(1.0, 1e-5, bounds=bounds, classes=(0, 1), strategy="blt").fit(X, y)
    assert model.score(Xt, yt) > 0.85
    assert model.coef_.shape == (1, 30)
    inside = np.clip(Xt, *bounds)
    scaled = 2 * (inside - bounds[0]) / (bounds[1] - bounds[0]) - 1
    norm = np.sqrt(1 + np.sum(scaled**2, axis=1))
    linear = (inside @ model.coef_.T + model.intercept_)[:, 0]
    assert np.allclose(linear / norm, model.decision_function(Xt))
    assert np.array_equal(model.predict(Xt), (linear > 0).astype(int))
    assert np.allclose(model.predict_proba(Xt)[:, 1], 1 / (1 + np.exp(-linear / norm)))
    assert np.allclose(np.exp(model.predict_log_proba(Xt)), model.predict_proba(Xt))


def test_regressor_learns_and_is_linear_within_the_bounds():
    X, y = load_diabetes(return_X_y=True)
    model = PrivateRegressor(8.0, 1e-4, bounds=(-0.2, 0.2), target_bounds=(0, 400), strategy="blt").fit(
        X[:350], y[:350]
    )
    assert model.score(X[350:], y[350:]) > 0.25
    linear = X @ model.coef_ + model.intercept_
    assert np.allclose(model.predict(X), np.clip(linear, 0, 400))
    assert np.all((model.predict(1e9 * X) >= 0) & (model.predict(1e9 * X) <= 400))


def test_several_classes_as_words_in_any_order(blobs):
    X, _ = blobs
    words = np.array(["low", "high", "mid"])[np.arange(90) % 3]
    model = PrivateClassifier(**DECLARED | {"classes": ["mid", "low", "high", "none"]}).fit(X, words)
    assert model.classes_.tolist() == ["high", "low", "mid", "none"]
    assert model.coef_.shape == (4, 3)
    assert model.decision_function(X).shape == model.predict_proba(X).shape == (90, 4)
    assert set(model.predict(X)) <= set(model.classes_)


def test_fitted_attributes(blobs):
    X, y = blobs
    model = PrivateClassifier(**DECLARED).fit(X, y)
    assert model.n_features_in_ == 3
    assert model.n_iter_ == model.plan_.steps == 16  # noise drowns 90 rows: 8 steps an epoch
    assert model.certificate_["plan"]["strategy"] == "identity"
    assert model.certificate_["delta"] == 1e-3  # the largest power of ten at most 1/(10 N)
    assert model.plan_.algorithm == "dp-ftrl"
    assert model.plan_.clip == 0.3


@pytest.mark.parametrize("rows", [2, 5, 31, 33])
def test_few_rows_work(rows):
    X, y = np.linspace(-3, 3, 3 * rows).reshape(rows, 3) + rows / 100, np.arange(rows) % 2
    model = PrivateClassifier(**DECLARED).fit(X, y)
    assert model.plan_.examples == rows
    assert np.isfinite(model.predict_proba(X)).all()


def shown(value):
    """An id that is the same in every process."""
    return re.sub(r" at 0x\w+", "", str(value))


def two_layers(features, outputs):
    return torch.nn.Sequential(torch.nn.Linear(features, 5), torch.nn.Linear(5, outputs))


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "dp-nsgd"},
        {"algorithm": "dp-gd", "strategy": None},
        {"algorithm": "dp-sgd", "order": "poisson", "batch_size": 30},
        {"order": "reshuffled", "strategy": "tree"},
        {"strategy": "bsr", "plan_options": {"band": 4}},
        {"adjacency": "replace-one", "momentum": 0.5, "schedule": "cosine", "learning_rate": 0.5, "batch_size": 30},
        {"model": "mlp"},
        {"model": two_layers},
        {"plan_options": {"examples": 90}},
    ],
    ids=shown,
)  # fmt: skip
def test_what_a_plan_can_say_can_be_said_here(blobs, options):
    model = PrivateClassifier(**DECLARED | options).fit(*blobs)
    for name, value in options.items():
        if name not in ("model", "plan_options") and value is not None:
            described = model.certificate_["plan"]
            assert described.get(name, getattr(model.plan_.request, name)) == value
    assert hasattr(model, "coef_") == ("model" not in options)


def test_in_a_pipeline_and_one_against_the_rest(blobs):
    X, y = blobs
    pipeline = make_pipeline(FunctionTransformer(np.tanh), PrivateClassifier(**DECLARED | {"bounds": (-1, 1)}))
    assert pipeline.fit(X, y).predict(X).shape == (90,)
    with pytest.warns(UserWarning, match="private fits count together"):  # one private fit a class
        rest = OneVsRestClassifier(PrivateClassifier(**DECLARED)).fit(X, np.arange(90) % 3)
    assert rest.predict(X).shape == (90,)


def test_out_keeps_the_run_s_folder(blobs, tmp_path):
    X, y = blobs
    model = PrivateClassifier(**DECLARED, out=tmp_path / "run").fit(X, y)
    folder = tmp_path / "run"
    assert read_json(folder / "certificate.json", "certificate") == model.certificate_
    assert verify(read_record(folder), model.certificate_) == []
    assert not (folder / "noise.key").exists()
    stated = read_record(folder)["model"]["update"]
    assert learning_rate(model.plan_) in stated.values()
    with pytest.warns(), pytest.raises(InputError, match="not empty"):
        model.fit(X, y)


def test_a_schema_reads_tables(tmp_path):
    X, y, _ = people()
    model = PrivateClassifier(50.0, schema=schema_file(tmp_path), strategy="blt").fit(X, y)
    assert model.feature_names_in_.tolist() == ["age", "job"]
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.n_features_in_ == 2
    assert model.coef_.shape == (1, 4)
    arrays = np.column_stack([X["age"].to_pylist(), X["job"].to_pylist()]).astype(object)
    assert np.array_equal(model.predict(arrays), model.predict(X))
    one = model.predict_proba({"age": [20.0, None], "job": ["a job that no one declared", None]})
    assert np.isfinite(one).all()
    assert "the declared schema" in model.certificate_["taken_as_public"]
    assert PrivateClassifier(schema=Schema.read(tmp_path / "schema.toml"), **QUICK).fit(X.slice(1), y[1:]) is not None
    with pytest.raises(InputError, match="column 'job' of the schema is not in X"):
        model.predict(X.select(["age"]))


def test_numbers_for_a_schema_s_classes_and_bounded_targets(tmp_path):
    X, _, age = people()
    target = '[columns.buys]\nkind = "category"\nvalues = ["0", "1"]\n'
    model = PrivateClassifier(schema=schema_file(tmp_path, target=target), **QUICK)
    model.fit(X.slice(1), (age > 50)[1:].astype(int))
    assert model.predict(X).dtype.kind == "i"
    target = '[columns.buys]\nkind = "number"\nbounds = [0, 100]\n'
    regressor = PrivateRegressor(50.0, schema=schema_file(tmp_path, target=target), strategy="blt").fit(X, age)
    assert regressor.score(X.slice(0, 70), age[:70]) > 0.5
    assert np.all((regressor.predict(X) >= 0) & (regressor.predict(X) <= 100))


def test_a_drafted_schema_warns(tmp_path):
    X, y, _ = people(70)
    path = schema_file(tmp_path, derived="derived = true", age='unconfirmed = ["bounds"]')
    with pytest.warns(PrivacyLeakWarning, match="1 lines of the schema were read"):
        PrivateClassifier(schema=path, **QUICK).fit(X, y)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epsilon": -1}, "epsilon -1 is out of range"),
        ({"epsilon": "much"}, "epsilon 'much' is not a number"),
        ({"epsilon": None}, "neither of epsilon and noise_multiplier"),
        ({"delta": 2}, "delta 2 is out of range"),
        ({"bounds": (4, -4)}, "low 4 not below high -4"),
        ({"bounds": (0, [1, 2])}, "bounds cannot be read"),
        ({"bounds": 3}, "bounds cannot be read"),
        ({"bounds": (-4, float("nan"))}, "bounds is not finite"),
        ({"classes": (0,)}, "classes holds 1 distinct"),
        ({"classes": (0, 1, 1)}, "classes holds 2 distinct values of 3"),
        ({"classes": ("a", "b")}, "y holds numbers and classes holds words"),
        ({"strategy": "tre"}, "did you mean tree"),
        ({"batch_size": 91}, "above examples"),
        ({"plan_options": {"epochs": 3}}, "give epochs= itself"),
        ({"plan_options": {"epsilon": 3}}, "give epsilon= itself"),
        ({"plan_options": {"seed": 3}}, "random_state"),
        ({"plan_options": {"rows_per_person": 3}}, "the unit here is a row"),
        ({"plan_options": {"bnad": 3}}, "did you mean band"),
        ({"model": "forest"}, "model 'forest'"),
        ({"model": 3}, "model is a int"),
        ({"model": lambda features, outputs: None}, "returned a NoneType"),
        ({"schema": "no/such/schema.toml", "bounds": None}, "cannot be read"),
        ({"schema": 3, "bounds": None}, "schema is a int"),
        ({"order": "poisson", "strategy": "dense"}, "dense"),
    ],
    ids=shown,
)
def test_bad_parameters_are_refused_in_one_line(blobs, options, says):
    with pytest.raises(MomentreeError) as refused:
        PrivateClassifier(**DECLARED | options).fit(*blobs)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_bounds_and_schema_together_are_refused(tmp_path):
    X, y, _ = people()
    with pytest.raises(ValueError, match="both bounds and schema"):
        PrivateClassifier(schema=schema_file(tmp_path), bounds=(0, 1)).fit(X, y)


def test_several_labels_are_refused(blobs):
    with pytest.raises(ValueError, match="1d array"):
        PrivateClassifier(**DECLARED).fit(blobs[0], np.zeros((90, 2), int))
