"""What the two estimators share: a plan made from their parameters, one run a fit, scores from its model."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    check_random_state,
    column_or_1d,
    validate_data,
)
from torch import nn

from momentree.errors import PrivacyLeakWarning
from momentree.models import make_model
from momentree.plan import Plan
from momentree.presets import ALGORITHMS
from momentree.request import Request
from momentree.sklearn import spending
from momentree.sklearn.rows import Bounded, Declared, Floats, Mask, PrivateRows, Refused, limits, schema_of
from momentree.tasks import defaults
from momentree.training.defaults import default_update
from momentree.training.ledger import Notes

Factory = Callable[[int, int], nn.Module]
OWN = ("epsilon", "delta", "algorithm", "order", "strategy", "adjacency", "batch_size", "epochs", "momentum", "clip",
       "learning_rate", "schedule")  # fmt: skip
ELSEWHERE = {
    **{name: f"give {name}= itself" for name in OWN},
    "seed": "random_state decides it",
    "rows_per_person": "the unit here is a row; momentree train reads a group column",
}
CHUNK = 65_536


@functools.lru_cache(maxsize=16)
def _plan(request: Request) -> Plan:
    """Equal requests have equal plans, and a plan cannot be changed: a search need not fit the strategy again."""
    return Plan(**request.facts())


@dataclass(eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share. Parameters are public; `fit` is where the rows come in.

    The fields are the parameters: scikit-learn reads their names off the constructor that they make.
    """

    _unit_rows = True

    epsilon: float = 1.0
    delta: float | None = None
    _: KW_ONLY
    bounds: Any = None
    schema: Any = None
    algorithm: str = "dp-ftrl"
    order: str | None = None
    strategy: str | None = None
    adjacency: str = "zero-out"
    batch_size: int | None = None
    epochs: int | None = None
    momentum: float | None = None
    clip: float | None = None
    learning_rate: float | None = None
    schedule: str | None = None
    model: str | Factory = "linear"
    plan_options: dict[str, Any] | None = None
    random_state: Any = None
    out: Any = None
    device: Any = None

    @property
    def _kind(self) -> str:
        """The task's kind, as the documented rule for what is not given knows it."""
        return "bounded" if is_regressor(self) else "classes"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # the noise is drawn from a secret key; random_state has no say in it
        return tags

    def __sklearn_clone__(self) -> Any:
        """A clone is counted together with what it was cloned from: a search fits nothing but clones."""
        copy = super().__sklearn_clone__()
        copy._line = self._own_line()
        return copy

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        if "model_" in state:  # a fitted model goes out; only what still has to be fitted is counted elsewhere
            state = {name: value for name, value in state.items() if name != "_line"}
        return state

    def _own_line(self) -> str:
        if not hasattr(self, "_line"):
            self._line = spending.new_line()
        return self._line

    # What the rows are turned into.

    def _read(self, X: Any, y: Any = None, *, reset: bool, **checks: Any) -> tuple[Floats, Mask, Any]:
        """X as a table of numbers, which of its rows count, and y as a column; `reset`: in fit."""
        if self.schema is not None:
            return self._read_declared(X, y, reset=reset)
        given = {"y": y} if reset else {}
        try:
            read = validate_data(self, X, **given, reset=reset, dtype=np.float64, **checks)
        except ValueError as error:
            if "convert" in str(error):  # numpy quotes the cell
                raise Refused("X holds something that is not a number: encode it, or declare a schema") from None
            if "array=" in str(error):  # scikit-learn quotes the rows
                raise Refused(
                    "X has not two dimensions. Reshape your data: array.reshape(-1, 1) if it is one column, "
                    "array.reshape(1, -1) if it is one row"
                ) from None
            raise
        table, column = read if reset else (read, None)
        return table, np.ones(len(table), np.bool_), column

    def _read_declared(self, X: Any, y: Any, *, reset: bool) -> tuple[Floats, Mask, Any]:
        schema = schema_of(self.schema)
        table, usable = Declared(schema).table(X)
        if not reset:
            return table, usable, None
        if y is None:
            raise Refused(f"{type(self).__name__} requires y to be passed, but the target y is None")
        column = column_or_1d(y, warn=True)
        check_consistent_length(table, column)
        names = [column.name for column in schema.features]
        self.n_features_in_ = len(names)
        self.feature_names_in_ = np.array(names, object)
        return table, usable, column

    def _front_of(self, table: Floats, leaks: list[str]) -> Bounded | Declared:
        """The public transformation of the rows; what had to be read from them is added to `leaks`."""
        if self.schema is not None:
            if self.bounds is not None:
                raise Refused("both bounds and schema given: the schema declares the bounds of its columns")
            schema = schema_of(self.schema)
            if schema.unconfirmed():
                leaks.append(f"{len(schema.unconfirmed())} lines of the schema were read from the data (confirm them)")
            return Declared(schema)
        if self.bounds is None:
            leaks.append("the bounds of the features were read from the data (declare bounds=)")
            return Bounded(table.min(axis=0), table.max(axis=0), self._unit_rows)
        return Bounded(*limits("bounds", self.bounds, table.shape[1]), self._unit_rows)

    # The run.

    def _request(self, rows: int, dimension: int, seed: int) -> Request:
        if not isinstance(self.plan_options, dict | None):
            raise Refused(f"plan_options is a {type(self.plan_options).__name__}: give a dict of a plan's settings")
        options = dict(self.plan_options or {})
        for name, instead in ELSEWHERE.items():
            if name in options:
                raise Refused(f"{name!r} in plan_options: {instead}")
        facts = {name: getattr(self, name) for name in OWN}
        if "noise_multiplier" in options:
            facts["epsilon"] = None
        if getattr(ALGORITHMS.get(self.algorithm), "full_batch", False) and self.batch_size is None:
            facts["batch_size"] = options.get("examples", rows)
        facts |= {"examples": rows, "examples_counted": "examples" not in options, "dimension": dimension, "seed": seed}
        given = {name: value for name, value in (facts | options).items() if value is not None}
        chosen, _ = defaults.fill(given, kind=self._kind)
        return Request.of(chosen)

    def _train(
        self,
        table: Floats,
        usable: Mask,
        targets: NDArray[Any],
        outputs: int,
        loss: Any,
        leaks: list[str],
    ) -> None:
        """One run of the plan; sets everything that `fit` leaves behind."""
        front = self._front
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        model, note = self._model_of(front.width, outputs, seed)
        plan = _plan(self._request(len(table), sum(p.numel() for p in model.parameters() if p.requires_grad), seed))
        self._warn(table, plan, leaks)
        rate = None
        if plan.learning_rate is None and defaults.plain(plan):
            rate = defaults.learning_rate(plan, self._kind)
        update = default_update(plan, momentum_included=plan.preset.query == "sensitivity-reduced", rate=rate)
        rows = PrivateRows(front.rows(table).astype(np.float32), targets, usable)
        with self._folder() as folder:
            run = plan.start(
                model, loss, rows,
                out=folder, update=update, device=self.device, init_note=note, notes=self._notes(leaks),
            )  # fmt: skip
            try:
                # without a folder to keep there is nothing to resume, so only the end is written
                run.fit(checkpoint_every=plan.steps if self.out is None else None)
                self.certificate_ = run.certificate()
            finally:
                run.close()
        self.model_ = model.cpu().double().eval()
        self.plan_ = plan
        self.n_iter_ = plan.steps

    def _model_of(self, width: int, outputs: int, seed: int) -> tuple[nn.Module, str]:
        """A linear model starts at zero and has the constant feature for its intercept; others come from the seed."""
        if self.model == "linear":
            layer = nn.Linear(width, outputs, bias=False)
            nn.init.zeros_(layer.weight)
            return layer, "zeros"
        note = f"drawn from the public seed {seed}"
        if isinstance(self.model, str):
            return make_model(self.model, (width,), outputs, seed=seed), note
        if not callable(self.model):
            kind = type(self.model).__name__
            raise Refused(f"model is a {kind}: give linear, mlp, or a function of (features, outputs)")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.model(width, outputs)
        if not isinstance(model, nn.Module):
            raise Refused(f"model returned a {type(model).__name__}: it has to return a torch.nn.Module")
        return model, note

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Any]:
        """Where the run lives: `out`, or a private folder that is removed whatever happens."""
        if self.out is not None:
            yield os.fspath(self.out)
            return
        with tempfile.TemporaryDirectory(prefix="momentree-fit-") as folder:
            yield folder

    def _notes(self, leaks: list[str]) -> Notes:
        name = self.model if isinstance(self.model, str) else getattr(self.model, "__name__", type(self.model).__name__)
        return Notes(
            model={"name": str(name), "estimator": type(self).__name__},
            public_facts=(f"{self.n_features_in_} columns and their names", *self._declared()),
            caveats=tuple(leaks),
        )

    def _declared(self) -> tuple[str, ...]:
        named = ("bounds", "schema", "classes", "target_bounds")
        return tuple(
            f"the declared {name.replace('_', ' ')}" for name in named if getattr(self, name, None) is not None
        )

    def _warn(self, table: Floats, plan: Plan, leaks: list[str]) -> None:
        """Say what leaks and what the fits so far cost together, before anything is spent."""
        for leak in leaks:
            text = f"{type(self).__name__}: {leak}, so the guarantee does not cover them"
            warnings.warn(text, PrivacyLeakWarning, stacklevel=4)
        this = spending.Spent.by(plan)
        fits = spending.enter(this, self._own_line(), spending.identity(table))
        if len(fits) > 1:
            warnings.warn(spending.sentence(fits, this), spending.SpendingWarning, stacklevel=4)

    # What comes out.

    def _outputs(self, X: Any) -> Floats:
        """The model's outputs, a row each."""
        check_is_fitted(self)
        table, _, _ = self._read(X, reset=False)
        parts = []
        with torch.no_grad():
            for start in range(0, len(table), CHUNK):
                rows = torch.from_numpy(self._front.rows(table[start : start + CHUNK]))
                parts.append(self.model_(rows).numpy().reshape(len(rows), -1))
        return np.concatenate(parts)

    def _linear(self) -> tuple[Floats, Floats]:
        """(coef, intercept) in the units of X, an output each, for rows within the bounds."""
        weights: Floats = next(self.model_.parameters()).detach().numpy()
        coef, intercept = weights[:, :-1], weights[:, -1]
        if isinstance(self._front, Bounded):
            coef = coef / self._front.half
            intercept = intercept - coef @ self._front.middle
        return coef, intercept


class Scored:
    """`score` with a word of warning; it stands before scikit-learn's mixin, whose figure it returns."""

    def score(self: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """As in scikit-learn. A score of private rows is a release that no account covers."""
        check_is_fitted(self)
        if spending.fitted_on(spending.identity(self._read(X, reset=False)[0])):
            text = "score on rows that were trained on: the figure is made from private rows and no epsilon covers it"
            warnings.warn(text, PrivacyLeakWarning, stacklevel=2)
        of_scikit_learn: Any = super()
        return float(of_scikit_learn.score(X, y, sample_weight))
