"""`PrivateClassifier`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from momentree.sklearn.base import PrivateEstimator, Scored
from momentree.sklearn.rows import Floats, Refused, codes, schema_of


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateClassifier(Scored, ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier trained with (`epsilon`, `delta`)-differential privacy; by default a linear one.

    Declare `bounds=(low, high)` (numbers, or one number a column) and `classes`, or a `schema`, from public knowledge;
    what is left out is read from the rows, with a `PrivacyLeakWarning`. Rows are clipped to the bounds, scaled to
    [-1, 1], given a constant feature, and scaled to norm 1. A row whose y is none of the declared classes contributes
    zero. None for any other parameter: the rule of `momentree train` chooses from the number of rows.

    `random_state` decides the first weights and the public order of the rows, never the noise. `plan_options` holds
    further settings of a plan (`band`, `parts`, `noise_multiplier`, `examples` where N is declared, …). `out` keeps the
    run's folder; it has to be new for every fit.

    Fitted: `classes_`, `certificate_` (a dict), `plan_`, `model_`, `n_iter_`, `n_features_in_`, and for a linear model
    `coef_`, `intercept_`: for x within the bounds, `decision_function` is `x @ coef_.T + intercept_` divided by the
    norm of x's scaled row, so it has the same sign and the same order of classes.
    """

    classes: Any = None

    def fit(self, X: Any, y: Any) -> PrivateClassifier:
        """One private run over the rows. Nothing of them is kept."""
        table, usable, column = self._read(X, y, reset=True)
        leaks: list[str] = []
        self._front = self._front_of(table, leaks)
        self.classes_ = self._classes_of(column, leaks)
        place = codes(column, self.classes_)
        usable = usable & (place >= 0)
        self._train(table, usable, np.where(usable, place, 0), len(self.classes_), F.cross_entropy, leaks)
        if self.model == "linear":
            coef, intercept = self._linear()
            two = len(self.classes_) == 2
            self.coef_ = coef[1:] - coef[:1] if two else coef
            self.intercept_ = intercept[1:] - intercept[:1] if two else intercept
        return self

    def _classes_of(self, column: NDArray[Any], leaks: list[str]) -> NDArray[Any]:
        """Declared, by the schema or by `classes`; else what y holds, which is a leak."""
        if self.classes is not None:
            given = np.asarray(list(self.classes))
        elif self.schema is not None:
            given = self._schema_classes(column)
        else:
            check_classification_targets(column)
            found = np.unique(column)
            if len(found) < 2:
                raise Refused("y holds 1 class: a classifier needs at least two; declare classes=")
            leaks.append("the classes were read from the data (declare classes=)")
            return found
        distinct = np.unique(given)
        if given.ndim != 1 or len(distinct) < 2 or len(distinct) != len(given):
            raise Refused(f"classes holds {len(distinct)} distinct values of {given.size}: give two or more, each once")
        return distinct

    def _schema_classes(self, column: NDArray[Any]) -> NDArray[Any]:
        """The schema's values for the target, as what y is stored as."""
        schema = schema_of(self.schema)
        if schema.task != "classes":
            raise Refused("the schema's target is not one category: give classes=, or use PrivateRegressor")
        names = np.array(schema.classes)
        if column.dtype.kind == "b":
            return np.array([False, True])
        if column.dtype.kind in "iuf":
            try:
                return names.astype(np.float64).astype(column.dtype)
            except ValueError:
                raise Refused("y holds numbers and the schema's target words: give y as words, or classes=") from None
        return names

    def decision_function(self, X: Any) -> Floats:
        """Scores of the classes, (rows, classes); of two classes, the second one's above the first's."""
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the classes, in the order of `classes_`."""
        return torch.softmax(torch.from_numpy(self._outputs(X)), 1).numpy()

    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of the probabilities."""
        return torch.log_softmax(torch.from_numpy(self._outputs(X)), 1).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        best = self._outputs(X).argmax(axis=1)
        answer: NDArray[Any] = self.classes_[best]
        return answer
