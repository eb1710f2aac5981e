"""What the guarantee rests on: planned noise from a secret key, public bounds and classes, no trace left."""

import pickle
import random
import tempfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import chi2, norm

from momentree.errors import InputError, PrivacyLeakWarning
from momentree.sklearn import PrivateClassifier, PrivateRegressor
from momentree.sklearn.rows import Bounded, PrivateRows

DECLARED = {"bounds": (-4, 4), "classes": (0, 1), "strategy": "bsr", "epochs": 2}


def epsilon_of(mu, delta):
    """The closed form of μ-GDP, written out."""

    def above(epsilon):
        return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(above, 0, 200, xtol=1e-12)


def test_declared_facts_bring_no_warning(blobs):
    model = PrivateClassifier(**DECLARED).fit(*blobs)  # warnings are errors here
    assert not any("read from the data" in line for line in model.certificate_["caveats"])
    public = " ".join(model.certificate_["taken_as_public"])
    assert "declared bounds" in public
    assert "declared classes" in public


@pytest.mark.parametrize("missing", ["bounds", "classes"])
def test_what_is_read_from_the_rows_warns_and_is_certified(blobs, missing):
    with pytest.warns(PrivacyLeakWarning, match=missing) as seen:
        model = PrivateClassifier(**DECLARED | {missing: None}).fit(*blobs)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert any(missing in line and "read from the data" in line for line in model.certificate_["caveats"])


def test_target_bounds_read_from_the_rows_warn(blobs):
    X, _ = blobs
    declared = {"bounds": (-4, 4), "strategy": "identity", "epochs": 1}
    with pytest.warns(PrivacyLeakWarning, match="bounds of y"):
        PrivateRegressor(**declared).fit(X, X[:, 0])
    PrivateRegressor(**declared, target_bounds=(-4, 4)).fit(X[1:], X[1:, 0])  # warnings are errors here


@pytest.mark.filterwarnings("ignore::momentree.sklearn.SpendingWarning")
def test_random_state_never_seeds_the_noise(blobs):
    fitted = []
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        torch.manual_seed(0)
        fitted.append(PrivateClassifier(**DECLARED, random_state=0).fit(*blobs))
    one, two = fitted
    assert one.plan_.digest() == two.plan_.digest()
    assert not np.any(one.coef_ == two.coef_)


@pytest.mark.filterwarnings("ignore::momentree.sklearn.SpendingWarning")
def test_random_state_decides_the_order_and_the_first_weights(blobs, same_key):
    def fit(state, model="mlp"):
        return PrivateClassifier(**DECLARED, model=model, random_state=state).fit(*blobs)

    one, same, other = fit(1), fit(1), fit(2)
    assert np.array_equal(one.decision_function(blobs[0]), same.decision_function(blobs[0]))
    assert one.plan_.seed != other.plan_.seed
    assert not np.array_equal(one.plan_.order.batch(1), other.plan_.order.batch(1))
    assert fit(None).plan_.seed != fit(None).plan_.seed


def test_the_global_generators_are_left_alone(blobs):
    before = (random.getstate(), torch.get_rng_state().clone(), np.random.get_state()[1].copy())  # noqa: NPY002
    PrivateClassifier(**DECLARED, model="mlp", random_state=3).fit(*blobs)
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert np.array_equal(np.random.get_state()[1], before[2])  # noqa: NPY002


@pytest.mark.parametrize("strategy", ["identity", "bsr"])
def test_the_noise_in_the_model_is_of_the_planned_size(strategy):
    """Rows whose y is no declared class contribute zero, so the weights are noise: C written out gives their spread."""
    columns, examples = 700, 64
    X, y = np.zeros((examples, columns)), np.full(examples, 7)
    rate, clip, sigma = 2.0, 0.3, 1.7
    model = PrivateClassifier(
        None, 1e-5, bounds=(-1, 1), classes=(0, 1, 2), strategy=strategy, epochs=2, batch_size=4, clip=clip,
        learning_rate=rate, momentum=0.8, schedule="constant", plan_options={"noise_multiplier": sigma},
    ).fit(X, y)  # fmt: skip
    T, C = 32, model.plan_.strategy.matrix()
    assert C.shape == (T, T)
    gradients = np.linalg.inv(C) * sigma * clip / 4
    momentum = np.array([[0.2 * 0.8 ** (t - s) if s <= t else 0.0 for s in range(T)] for t in range(T)])
    spread = rate * np.linalg.norm((momentum @ gradients).sum(axis=0))
    weights = next(model.model_.parameters()).detach().numpy().ravel()
    assert len(weights) == 3 * (columns + 1)

    def passes(claimed):
        return 1e-6 < chi2.cdf(np.sum(weights**2) / claimed**2, len(weights)) < 1 - 1e-6

    assert passes(spread)
    assert not passes(spread * 2 / 3)
    assert not passes(spread * 1.2)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_epsilon_is_that_of_the_written_out_mechanism(blobs, epsilon):
    model = PrivateClassifier(epsilon, 1e-5, **DECLARED | {"batch_size": 9}).fit(*blobs)
    plan, n = model.plan_, 10
    C = plan.strategy.matrix()
    mu = max(np.linalg.norm(C[:, j] + C[:, j + n]) for j in range(n)) / plan.noise_multiplier
    assert model.certificate_["epsilon"] == plan.bracket.upper <= epsilon
    assert epsilon_of(mu, 1e-5) == pytest.approx(epsilon, rel=1e-6)
    assert model.certificate_["finished"]
    assert model.certificate_["noise_source"] == "chacha20"


@pytest.mark.filterwarnings("ignore::momentree.sklearn.SpendingWarning")
@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_what_lies_beyond_the_bounds_counts_as_the_bound(blobs, same_key, kind):
    """Same key, same clipped rows: the very same model. (Other rows would have other noise: see the second half.)"""
    X, y = blobs
    wild = X.copy()
    wild[X == -4] = -4  # already there
    wild[5] = [1e300, -1e12, 4.0001]
    inside = wild.copy()
    inside[5] = [4, -4, 4]
    if kind == "classifier":
        make, near, far = lambda: PrivateClassifier(**DECLARED, random_state=0), y, y
    else:
        options = {"bounds": (-4, 4), "target_bounds": (0, 1), "strategy": "bsr", "epochs": 2, "random_state": 0}
        make, near, far = lambda: PrivateRegressor(**options), y, np.where(np.arange(len(y)) == 5, -1e200, y)
        near = np.where(np.arange(len(y)) == 5, 0.0, y)
    one, two = make().fit(wild, far), make().fit(inside, near)
    assert np.array_equal(one.coef_, two.coef_)
    inside[5] = [3, -4, 4]
    assert not np.array_equal(one.coef_, make().fit(inside, near).coef_)
    assert np.array_equal(one.predict(wild), two.predict(np.clip(wild, -4, 4)))


@settings(deadline=None, derandomize=True, max_examples=50)
@given(
    st.integers(0, 4),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3),
    st.booleans(),
)
def test_a_row_moves_no_other_row_and_has_norm_at_most_one(place, cells, unit):
    front = Bounded(np.array([-1.0, 0.0, 1e-300]), np.array([1.0, 1e300, 5.0]), unit)
    table = np.arange(15.0).reshape(5, 3) - 7
    before = front.rows(table)
    table[place] = cells
    after = front.rows(table)
    assert np.array_equal(np.delete(before, place, 0), np.delete(after, place, 0))
    assert np.all(np.linalg.norm(after.astype(np.float32), axis=1) <= 1 + 1e-6)
    assert np.all(np.isfinite(after))


def test_a_row_of_no_declared_class_keeps_its_place_and_counts_zero(blobs, monkeypatch):
    X, y = blobs
    y = y.copy()
    y[[3, 60]] = 9
    given_to_the_run = []
    first = PrivateRows.__init__

    def note(self, inputs, targets, usable):
        first(self, inputs, targets, usable)
        given_to_the_run.append(self)

    monkeypatch.setattr(PrivateRows, "__init__", note)
    model = PrivateClassifier(**DECLARED).fit(X, y)
    (rows,) = given_to_the_run
    assert len(rows) == 90 == model.plan_.examples
    assert np.flatnonzero(~rows.usable).tolist() == [3, 60]
    assert not rows.batch(np.array([2, 3]))[2][1]


def test_nothing_is_left_on_disk_and_no_row_in_the_pickle(blobs, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    X, y = blobs
    X = X.copy()
    X[7] = canary = np.array([1.2345678901, -2.3456789012, 3.4567890123])
    model = PrivateClassifier(**DECLARED).fit(X, y)
    assert list(tmp_path.glob("momentree-fit-*")) == []
    raw = pickle.dumps(model)
    kept = PrivateClassifier(**DECLARED)
    for value in canary:
        assert np.float64(value).tobytes() not in raw
        assert np.float32(value).tobytes() not in raw
    assert b"momentree-fits-" not in raw
    assert np.array_equal(pickle.loads(raw).decision_function(X), model.decision_function(X))
    monkeypatch.setattr(kept, "device", "no such device")
    with pytest.raises(InputError), pytest.warns():
        kept.fit(X, y)
    assert list(tmp_path.glob("momentree-fit-*")) == []


def test_refusals_quote_no_cell(blobs):
    X, y = blobs
    table = X.astype(object)
    table[4, 1] = "SECRET-CELL"
    with pytest.raises(ValueError, match="not a number") as seen:
        PrivateClassifier(**DECLARED).fit(table, y)
    assert "SECRET" not in str(seen.value)
    words = np.where(np.arange(90) == 8, "SECRET-CLASS", "a")
    with pytest.raises(InputError, match="y holds words and classes holds numbers") as refused:
        PrivateClassifier(**DECLARED).fit(X, words)
    assert "SECRET" not in str(refused.value)
    with pytest.raises(InputError, match=r"not a number|numeric") as third:
        PrivateRegressor(bounds=(-4, 4), target_bounds=(0, 1)).fit(X, words.astype(object))
    assert "SECRET" not in str(third.value)


def test_rows_of_another_shape_are_refused_without_quoting_them(blobs):
    X, y = blobs
    model = PrivateClassifier(**DECLARED).fit(X, y)
    for refused in (lambda: PrivateClassifier(**DECLARED).fit(X[:, 0], y), lambda: model.predict(X[0])):
        with pytest.raises(InputError, match="Reshape your data") as caught:
            refused()
        assert str(X[0, 0])[:6] not in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1


def test_options_are_a_dict(blobs):
    with pytest.raises(InputError, match="plan_options is a int"):
        PrivateClassifier(**DECLARED, plan_options=3).fit(*blobs)
