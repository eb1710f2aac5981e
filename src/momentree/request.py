"""What is asked of a plan: every number and name that a user can give, checked one by one. Public facts only."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Any

from momentree.errors import InputError, nearest, number, one_of, whole
from momentree.order import ORDERS
from momentree.presets import ALGORITHMS, SCHEDULES, UPDATES
from momentree.query.base import ADJACENCIES, Adjacency
from momentree.strategy.build import STRATEGIES
from momentree.strategy.setting import MEASURES, Measure

_SIZES = {"": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


MOST_STEPS = 20_000_000
LEAKING = ("epoch-lag", "storm", "sensitivity-reduced")
"""Queries that mix a full gradient into every difference."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The facts a plan is worked out from; names are those of the command line's flags. None: choose for me."""

    examples: int
    batch_size: int | None = None
    epochs: int = 10
    algorithm: str = "dp-nsgd"
    order: str | None = None
    strategy: str | None = None
    adjacency: Adjacency = "zero-out"
    dimension: int | None = None
    momentum: float | None = None
    clip: float = 1.0
    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    learning_rate: float | None = None
    update: str | None = None
    schedule: str = "constant"
    seed: int = 0
    band: int | None = None
    buffers: int | None = None
    restart_every: int | None = None
    parts: int | None = None
    leak: float | None = None
    difference_clip: float | None = None
    lipschitz: float | None = None
    smoothness: float | None = None
    initial_gap: float | None = None
    physical_batch_size: int | None = None
    budget_memory: str | float | None = None
    measure: Measure = "iterates"
    rows_per_person: int = 1
    examples_counted: bool = False
    account_seed: int = 0

    @staticmethod
    def of(facts: dict[str, Any]) -> Request:
        """A checked request. Unknown names are refused with the nearest one suggested."""
        known = [field.name for field in fields(Request)]
        for name in facts:
            if name not in known:
                raise InputError(f"{name!r} is not a setting of a plan{nearest(name, known)}")
        if facts.get("examples") is None:
            raise InputError("examples is missing: give N, the public number of rows in the data")
        return Request(**facts).checked()

    def checked(self) -> Request:
        """The same request with every value validated and of its own type; defaults that need no other value set."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        n = whole("examples", self.examples, do="it is the public number of rows")
        full = ALGORITHMS[one_of("algorithm", self.algorithm, ALGORITHMS)].full_batch
        usual = n if full else min(n, 256)
        batch = usual if self.batch_size is None else whole("batch_size", self.batch_size)
        if full and batch != n:
            raise InputError(f"batch_size {batch} with {self.algorithm}: it takes all {n} examples; leave it out")
        if batch > n:
            raise InputError(f"batch_size {batch} is above examples {n}: give a batch of at most {n}")
        steps = -(-n // batch) * whole("epochs", self.epochs)
        if steps > MOST_STEPS:
            raise InputError(f"{steps} steps are more than {MOST_STEPS}: give fewer epochs or a larger batch_size")
        given |= {
            "examples": n,
            "batch_size": batch,
            "epochs": whole("epochs", self.epochs),
            "algorithm": self.algorithm,
            "order": None if self.order is None else one_of("order", self.order, ORDERS),
            "strategy": None if self.strategy is None else one_of("strategy", self.strategy, ("auto", *STRATEGIES)),
            "adjacency": one_of("adjacency", self.adjacency, ADJACENCIES),
            "update": None if self.update is None else one_of("update", self.update, UPDATES),
            "schedule": one_of("schedule", self.schedule, SCHEDULES),
            "measure": one_of("measure", self.measure, MEASURES),
            "clip": number("clip", self.clip, above=0, do="1.0 is common"),
            "seed": whole("seed", self.seed, at_least=0),
            "account_seed": whole("account_seed", self.account_seed, at_least=0),
            "rows_per_person": whole("rows_per_person", self.rows_per_person),
            "delta": self._delta(n),
        }
        if (self.epsilon is None) == (self.noise_multiplier is None):
            what = "neither" if self.epsilon is None else "both"
            raise InputError(f"{what} of epsilon and noise_multiplier given: give exactly one, the other follows")
        for name in ("epsilon", "noise_multiplier", "learning_rate", "lipschitz", "smoothness", "initial_gap"):
            given[name] = self._optional(name, above=0)
        for name in ("band", "buffers", "restart_every", "parts", "dimension", "physical_batch_size"):
            value = getattr(self, name)
            given[name] = None if value is None else whole(name, value)
        given["momentum"] = self._optional("momentum", at_least=0, below=1)
        given["leak"] = self._optional("leak", above=0, at_most=1)
        given["difference_clip"] = self._optional("difference_clip", above=0)
        self._refuse_what_does_not_apply()
        given["budget_memory"] = None if self.budget_memory is None else self._budget(given["dimension"])
        return Request(**given)

    def _refuse_what_does_not_apply(self) -> None:
        """A setting that nothing would read is a misunderstanding: better told now than believed."""
        preset = ALGORITHMS[self.algorithm]
        strategy = self.strategy or preset.strategy
        for name, strategies in (("band", ("bsr", "bisr")), ("buffers", ("blt",))):
            if getattr(self, name) is not None and strategy not in ("auto", *strategies):
                raise InputError(
                    f"{name} {getattr(self, name)} with strategy {strategy}: only {' and '.join(strategies)} read it; "
                    "leave it out, or change the strategy"
                )
        for name, queries in (("leak", LEAKING), ("difference_clip", (*LEAKING, "spider"))):
            if getattr(self, name) is not None and preset.query not in queries:
                users = ", ".join(a.name for a in ALGORITHMS.values() if a.query in queries)
                raise InputError(
                    f"{name} {getattr(self, name)} with {self.algorithm}: only {users} read it; leave it out"
                )

    @property
    def checked_delta(self) -> float:
        """δ, which a checked request always has."""
        return self._delta(self.examples) if self.delta is None else self.delta

    def _optional(self, name: str, **bounds: Any) -> float | None:
        value = getattr(self, name)
        return None if value is None else number(name, value, **bounds)

    def _delta(self, n: int) -> float:
        """Without a δ: the largest power of ten that is at most 1/(10 N)."""
        if self.delta is None:
            return float(f"1e{math.floor(-math.log10(10 * n) + 1e-12)}")
        return number("delta", self.delta, above=0, below=1, do="below 1/examples, 1e-5 is common")

    def _budget(self, dimension: int | None) -> float:
        """A memory budget in model-sized vectors: a bare number is that already, 512MB or 2GiB are bytes."""
        text = str(self.budget_memory).strip().lower()
        match = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*([kmg]i?b)?", text)
        if match is None:
            raise InputError(f"budget_memory {text!r} is no size: give model-sized vectors (16) or bytes (512MB, 2GiB)")
        amount = number("budget_memory", match[1], at_least=0)
        if not match[2]:
            return amount
        if dimension is None:
            raise InputError(f"budget_memory {text} in bytes needs dimension: give it, or a number of vectors")
        return math.floor(amount * _SIZES[match[2]] / (4.0 * dimension))

    def facts(self) -> dict[str, Any]:
        """What was asked, without what was left open: enough to make the same plan again (`plan.toml`)."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
