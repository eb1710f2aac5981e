"""scikit-learn's own checks. What fails is listed with its reason, and the reason is tested too."""

import contextlib
import warnings
from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator, parametrize_with_checks

from momentree.errors import PrivacyLeakWarning
from momentree.sklearn import PrivateClassifier, PrivateRegressor, SpendingWarning, expected_failed_checks
from momentree.sklearn.checks import TWICE

QUICK = {"epsilon": 100.0, "strategy": "identity", "epochs": 2}
ignored = [
    pytest.mark.filterwarnings("ignore::momentree.errors.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::momentree.sklearn.SpendingWarning"),
]
pytestmark = ignored


@parametrize_with_checks(
    [PrivateClassifier(**QUICK), PrivateRegressor(**QUICK)], expected_failed_checks=expected_failed_checks
)
def test_scikit_learn_s_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", [PrivateClassifier, PrivateRegressor])
def test_checks_that_compare_two_fits_fail_for_the_noise_alone(kind, same_key):
    """With one key for every fit they pass: nothing else differs from fit to fit."""
    named = {name for name, reason in expected_failed_checks(kind(**QUICK)).items() if reason == TWICE}
    passed = set()
    for estimator, check in estimator_checks_generator(kind(**QUICK)):
        name = getattr(check, "func", check).__name__
        if name in named:
            with contextlib.suppress(SkipTest):  # one of them needs pandas
                check(estimator)
            passed.add(name)
    assert passed == named


@pytest.mark.verify
@pytest.mark.parametrize("kind", [PrivateClassifier, PrivateRegressor])
def test_the_checks_with_default_parameters(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        warnings.simplefilter("ignore", SpendingWarning)
        check_estimator(kind(), on_skip=None, expected_failed_checks=expected_failed_checks(kind()))
