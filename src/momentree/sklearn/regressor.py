"""`PrivateRegressor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from momentree.sklearn.base import PrivateEstimator, Scored
from momentree.sklearn.rows import Bounded, Floats, Refused, limits, schema_of
from momentree.tasks.task import Task


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRegressor(Scored, RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """A regressor trained with (`epsilon`, `delta`)-differential privacy; by default a linear one.

    As `PrivateClassifier`, with `target_bounds=(low, high)` in place of `classes`: y is clipped to them and scaled to
    [-1, 1], the loss is ½(output − y)², and predictions stay within them. Rows are clipped to `bounds`, scaled to
    [-1, 1] and divided by √(columns + 1), so the model is linear in the clipped columns: within the bounds, and before
    it is clipped to `target_bounds`, a prediction of a linear model is `x @ coef_ + intercept_`.
    """

    _unit_rows = False

    target_bounds: Any = None

    def fit(self, X: Any, y: Any) -> PrivateRegressor:
        """One private run over the rows. Nothing of them is kept."""
        checks = {"y_numeric": True} if self.schema is None else {}
        table, usable, column = self._read(X, y, reset=True, **checks)
        try:
            column = np.asarray(column, np.float64)
        except (TypeError, ValueError):
            raise Refused("y holds something that is not a number: give numbers") from None
        leaks: list[str] = []
        self._front = self._front_of(table, leaks)
        self._target = self._target_of(column, leaks)
        low, high = self._target
        scaled = (np.clip(column, low, high) - (low / 2 + high / 2)) / (high / 2 - low / 2)
        usable = usable & np.isfinite(column)
        targets = np.where(usable, np.clip(scaled, -1, 1), 0.0).astype(np.float32)
        self._train(table, usable, targets, 1, Task("bounded").loss(), leaks)
        if self.model == "linear":
            coef, intercept = self._linear()
            if isinstance(self._front, Bounded):
                root = np.sqrt(self._front.width)
                coef, intercept = coef / root, intercept / root
            half = high / 2 - low / 2
            self.coef_ = coef[0] * half
            self.intercept_ = float(intercept[0] * half + low / 2 + high / 2)
        return self

    def _target_of(self, column: Floats, leaks: list[str]) -> tuple[float, float]:
        """The declared bounds of y; else its own, which are a leak."""
        if self.target_bounds is not None:
            lows, highs = limits("target_bounds", self.target_bounds, 1)
            return float(lows[0]), float(highs[0])
        if self.schema is not None:
            schema = schema_of(self.schema)
            if schema.task != "bounded":
                raise Refused("the schema's target is not a number: give target_bounds=, or use PrivateClassifier")
            if schema.targets[0].transform != "linear":
                raise Refused("the schema transforms its target, which is not done here: transform y, declare linear")
            low, high = schema.targets[0].bounds
            return float(low), float(high)
        leaks.append("the bounds of y were read from the data (declare target_bounds=)")
        low, high = float(column.min()), float(column.max())
        return (low, high) if low < high else (low - 1.0, high + 1.0)

    def predict(self, X: Any) -> Floats:
        """A number within the bounds of y for each row."""
        scaled = np.clip(self._outputs(X)[:, 0], -1.0, 1.0)
        low, high = self._target
        return np.asarray(low / 2 + high / 2 + scaled * (high / 2 - low / 2))
