"""Several fits together: what is counted, and what it comes to by a computation of our own."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from momentree.errors import PrivacyLeakWarning
from momentree.privacy.account import rounded_up
from momentree.sklearn import PrivateClassifier, SpendingWarning, spending

TINY = {"bounds": (-4, 4), "classes": (0, 1), "strategy": "identity", "epochs": 1, "delta": 1e-5}


def mu_of(epsilon, delta):
    def above(mu):
        return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(above, 1e-6, 50, xtol=1e-14)


def epsilon_of(mu, delta):
    return brentq(lambda epsilon: mu_of(epsilon, delta) - mu, 1e-6, 200, xtol=1e-12)


def stated(caught):
    """(fits, ε) of every SpendingWarning, in order."""
    texts = [str(w.message) for w in caught if issubclass(w.category, SpendingWarning)]
    found = [re.search(r"^(\d+) private fits .* epsilon is ([0-9.]+) at delta 1e-05", text) for text in texts]
    return [(int(match[1]), float(match[2])) for match in found]


def recorded(action):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return caught


def test_one_fit_brings_no_warning(blobs):
    PrivateClassifier(**TINY).fit(*blobs)


def test_the_same_rows_by_other_estimators_are_counted(blobs):
    X, y = blobs
    epsilons, said = (0.5, 1.0, 3.0), []
    for epsilon in epsilons:
        said += stated(recorded(lambda e=epsilon: PrivateClassifier(e, **TINY).fit(X.copy(), y)))
    together = [np.sqrt(sum(mu_of(e, 1e-5) ** 2 for e in epsilons[:k])) for k in (2, 3)]
    assert said == [(k, pytest.approx(epsilon_of(mu, 1e-5), rel=1e-3)) for k, mu in zip((2, 3), together, strict=True)]
    assert said[0][1] < 1.5  # adding up would say 1.5; one fit alone 1


def test_other_rows_by_another_estimator_are_not_counted(blobs):
    X, y = blobs
    assert not stated(recorded(lambda: PrivateClassifier(**TINY).fit(X, y)))
    assert not stated(recorded(lambda: PrivateClassifier(**TINY).fit(X + 0.001, y)))


def test_a_search_says_what_it_costs(blobs):
    """Four fits on two folds for two candidates, and the one on all rows: five, whatever the pipeline does to X."""
    X, y = blobs
    pipeline = make_pipeline(MinMaxScaler((-4, 4)), PrivateClassifier(1.0, **TINY))
    search = GridSearchCV(pipeline, {"privateclassifier__epsilon": [1.0, 2.0]}, cv=KFold(2), error_score="raise")
    said = stated(recorded(lambda: search.fit(X, y)))
    best = search.best_params_["privateclassifier__epsilon"]
    mu = np.sqrt(sum(mu_of(e, 1e-5) ** 2 for e in (1, 1, 2, 2, best)))
    assert [fits for fits, _ in said] == [2, 3, 4, 5]
    assert said[-1][1] == pytest.approx(epsilon_of(mu, 1e-5), rel=1e-3)
    assert said[-1][1] > max(2.0, best)


def test_a_search_over_several_processes_counts_all_of_them(blobs):
    X, y = blobs
    search = GridSearchCV(PrivateClassifier(**TINY), {"clip": [0.3, 0.4]}, cv=KFold(2), n_jobs=2, error_score="raise")
    said = stated(recorded(lambda: search.fit(X, y)))  # what this process sees: the last fit
    assert said == [(5, pytest.approx(epsilon_of(np.sqrt(5) * mu_of(1, 1e-5), 1e-5), rel=1e-3))]


def test_cross_validation_is_counted_and_clones_of_clones(blobs):
    X, y = blobs
    estimator = PrivateClassifier(**TINY)
    assert [f for f, _ in stated(recorded(lambda: cross_val_score(estimator, X, y, cv=KFold(3))))] == [2, 3]
    assert [f for f, _ in stated(recorded(lambda: clone(clone(estimator)).fit(X, y)))] == [4]


def test_a_clone_has_the_parameters_and_nothing_fitted(blobs):
    with pytest.warns(PrivacyLeakWarning):
        fitted = PrivateClassifier(2.0, **TINY | {"bounds": None}).fit(*blobs)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "coef_")


def test_scores_of_the_trained_rows_warn(blobs):
    X, y = blobs
    model = PrivateClassifier(**TINY).fit(X, y)
    with pytest.warns(PrivacyLeakWarning, match="no epsilon covers it"):
        model.score(X, y)
    model.score(X[:10], y[:10])


def test_accounts_that_are_not_gaussian_are_added_up():
    gaussian = spending.Spent("a", "zero-out", 0.5, 1.0, 1e-5)
    other = spending.Spent("b", "zero-out", None, 0.7, 1e-6)
    epsilon, delta = spending.total([gaussian, gaussian, other], 1e-5)
    assert epsilon == pytest.approx(epsilon_of(0.5 * np.sqrt(2), 1e-5) + 0.7, rel=1e-9)
    assert delta == pytest.approx(1.1e-5)
    assert spending.total([other, other], 1e-5) == (1.4, 2e-6)


def test_a_sampled_order_is_counted_by_adding_up(blobs):
    X, y = blobs
    options = TINY | {"algorithm": "dp-sgd", "order": "poisson", "batch_size": 30, "random_state": 0}
    models = [PrivateClassifier(**options) for _ in range(2)]
    caught = recorded(lambda: [model.fit(X, y) for model in models])
    (text,) = [str(w.message) for w in caught]
    epsilon = 2 * models[0].plan_.bracket.upper
    assert f"epsilon is {rounded_up(epsilon)} at delta 2e-05" in text


def test_the_identity_of_rows_needs_the_key_of_the_process(blobs, monkeypatch):
    X = blobs[0]
    mine = spending.identity(X)
    assert mine == spending.identity(X.copy())
    assert mine != spending.identity(X[::-1])
    assert mine != spending.identity(X.reshape(3, 90))
    monkeypatch.setattr(spending, "_key", bytes(32))
    assert mine != spending.identity(X)


def test_the_shared_file_holds_public_figures_only_and_may_vanish(blobs):
    X, y = blobs
    model = clone(PrivateClassifier(**TINY))
    model.fit(X, y)
    kept = Path(model._line).read_text()
    assert set(re.findall(r'"(\w+)":', kept)) == {"name", "adjacency", "mu", "epsilon", "delta"}
    assert Path(model._line).stat().st_mode & 0o077 == 0
    Path(model._line).unlink()
    model._line += "/gone/with its folder"
    with pytest.warns(SpendingWarning, match="^2 private fits"):
        model.fit(X, y)
