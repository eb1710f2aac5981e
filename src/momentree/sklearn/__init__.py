"""scikit-learn's conventions over a private run: `PrivateClassifier` and `PrivateRegressor`.

Guarantee. A fitted estimator is the outcome of one run of its `plan_`, and `certificate_` is that run's certificate:
the unit is a row of X with its y. Taken as public: the number of rows, the number (and names) of the columns, every
parameter, and the declared `bounds`, `classes`, `target_bounds` or `schema`. Where one of these is not declared it is
read from the rows, a `PrivacyLeakWarning` says so, and so does the certificate. Whatever was done to the rows before
`fit` (a scaler fitted on them, a selection of columns) is outside the promise. Every `fit` is a release of its own;
`SpendingWarning` says what several of them cost together.
"""

from momentree.sklearn.checks import expected_failed_checks
from momentree.sklearn.classifier import PrivateClassifier
from momentree.sklearn.regressor import PrivateRegressor
from momentree.sklearn.spending import SpendingWarning

__all__ = ["PrivateClassifier", "PrivateRegressor", "SpendingWarning", "expected_failed_checks"]
