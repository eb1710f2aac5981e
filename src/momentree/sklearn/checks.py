"""Which of scikit-learn's own checks these estimators fail, and why: for its `expected_failed_checks`."""

from __future__ import annotations

from typing import Any

TWICE = "compares two fits, and each draws its noise from a secret key of its own; with one key for both it passes"
FEW = "asks for R² above 0.5 from 200 rows, which the noise of a small epsilon does not allow; at epsilon 100 it passes"


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    """The names of the checks, each with its reason."""
    expected = {"check_fit_idempotent": TWICE, "check_supervised_y_2d": TWICE}
    if estimator.__sklearn_tags__().estimator_type == "classifier":
        return expected | {"check_classifier_data_not_an_array": TWICE}
    failing = expected | {"check_regressor_data_not_an_array": TWICE, "check_regressors_int": TWICE}
    return failing | {"check_regressors_train": FEW} if (estimator.epsilon or 0.0) < 10 else failing
