"""Plan: the one place where order, query, strategy, update and account meet. This is the file to audit.

Guarantee. A run that follows a plan releases `ĝ_t = g_t + σ (C⁺ z)_t` for t = 1 … T and nothing else of the private
data; `g_t` is the clipped sum over the order's batch t divided by the public batch size, in units of
`clip / batch_size`. The plan's account bounds what all of that gives away: for data sets that differ as `adjacency`
says, the released stream, and so everything computed from it, is (`epsilon_at(delta)`, `delta`)-differentially
private. It takes as public: N (`examples`), every setting of the plan, and the model's shape. It is over real
arithmetic unless the release is rounded to a public grid.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from momentree import order as orders
from momentree.errors import NoProofError, whole
from momentree.figures import all_facts
from momentree.order.base import Order, Shape
from momentree.presets import ALGORITHMS, Algorithm
from momentree.privacy.account import Account, Bracket, epsilon_within, rounded_up
from momentree.privacy.account_of import account, calibrate, noise_for
from momentree.privacy.computed import ComputedAccount
from momentree.privacy.entitlement import entitlement
from momentree.privacy.events import Release
from momentree.privacy.families import Family, account_of_families, families, joint_mu
from momentree.privacy.gaussian import largest_mu
from momentree.privacy.monte_carlo import FAILURE
from momentree.privacy.sensitivity import Sensitivity, sensitivity
from momentree.privacy.settle import Settled, settled_account, settled_calibration
from momentree.public import PublicNumbers
from momentree.request import Request
from momentree.sampled_choice import candidates as sampled_candidates
from momentree.sampled_choice import widest_band
from momentree.strategy.base import Array, Strategy
from momentree.strategy.build import make
from momentree.strategy.choose import DEFAULT_BUDGET, Candidate, compare, explain
from momentree.strategy.setting import Setting
from momentree.strategy.tree_full import TreeFull
from momentree.update.schedule import Schedule

if TYPE_CHECKING:
    from momentree.training.loop import Run


@dataclass(frozen=True)
class StepFamily:
    """Steps of one kind: an example moves them by at most `share`, and their noise is in proportion to that."""

    name: str
    strategy: Strategy
    share: float
    noise_multiplier: float


class Plan(PublicNumbers):
    """A private run, worked out: every number it needs and what it costs. Keyword-only; cannot be changed afterwards.

    >>> import momentree as mt
    >>> plan = mt.Plan(examples=1000, batch_size=50, epochs=2, noise_multiplier=1.0, strategy="identity", delta=1e-5)
    >>> round(plan.epsilon_at(1e-5), 2)
    6.57
    """

    order: Order
    strategy: Strategy
    strategy_reason: str
    entitlement: str
    noise_multiplier: float
    account: Account
    computed: ComputedAccount | None = None
    """The account without sampling where there is one: the plan's own, or one to read beside it."""
    warnings: tuple[str, ...]

    def __init__(self, **facts: Any) -> None:
        request = Request.of(facts)
        # One thread: sums in another order give other last digits, and a certificate has to be found again anywhere.
        with threadpool_limits(1):
            self._work_out(request)

    def _work_out(self, request: Request) -> None:
        preset = ALGORITHMS[request.algorithm]
        self.__dict__["request"] = request
        self.__dict__["algorithm"] = request.algorithm
        batch_size = request.batch_size or request.examples
        self.__dict__["shape"] = Shape(request.examples, batch_size, request.epochs)
        self.__dict__["order"] = self._make_order(preset)
        self.__dict__["strategy"], self.__dict__["strategy_reason"] = self._make_strategy(preset)
        self.__dict__["entitlement"] = entitlement(self.order, self.strategy, self.adjacency)
        self.__dict__["noise_multiplier"], self.__dict__["account"] = self._price()
        self.__dict__["warnings"] = self._warnings()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a plan cannot be changed; make another one with {name}= given")

    def _make_order(self, preset: Algorithm) -> Order:
        request = self.request
        name = request.order or preset.orders[0]
        if name not in preset.orders:
            raise NoProofError(
                f"{preset.name} has no account under the order {name}: choose one of {', '.join(preset.orders)}"
            )
        sampled = orders.ORDERS[name].kind in orders.SAMPLED
        return orders.make(
            name,
            self.shape,
            seed=request.seed,
            parts=request.parts,
            declared=not request.examples_counted,
            together=sampled and request.rows_per_person > 1,
        )

    @cached_property
    def setting(self) -> Setting:
        """The public facts that a strategy is made for."""
        request = self.request
        return Setting(
            steps_per_epoch=self.steps_per_epoch,
            epochs=self.epochs,
            momentum=self.momentum,
            measure=request.measure,
            band=request.band,
            buffers=request.buffers,
            restart_every=request.restart_every,
            decay=None if self.preset.decayed else 1.0,
            schedule=None if request.schedule == "constant" else self.schedule(),
        )

    def schedule(self) -> Array:
        """The factor on the step size at every step: public, so a strategy may be made for it."""
        kind = Schedule(self.request.schedule, steps=self.steps + 1)  # type: ignore[arg-type]
        return np.array([kind(step) for step in range(1, self.steps + 1)])

    def _make_strategy(self, preset: Algorithm) -> tuple[Strategy, str]:
        name = self.request.strategy or preset.strategy
        if preset.strategies and name not in preset.strategies:
            raise NoProofError(
                f"{preset.name} has no account with the strategy {name}: choose one of {', '.join(preset.strategies)}"
            )
        if name == "auto" and self.amplified:
            if self.request.band is not None:
                name = "bsr"  # the one that a band was asked for
            elif self.request.epsilon is None or self.order.name == "poisson":
                return widest_band(self)
        if name == "auto":
            best, why = explain(self.setting, self.candidates, self.budget_vectors)
            return best.strategy, why
        return make(name, self.setting, self.kept_place), "as asked"

    @property
    def amplified(self) -> bool:
        """Whether the account is a loss distribution over secret places instead of a worst case."""
        return self.order.participation == "amplified"

    @cached_property
    def candidates(self) -> list[Candidate]:
        """Every strategy that the algorithm and the order allow, best first, at the same privacy."""
        with threadpool_limits(1):
            if self.amplified:
                return sampled_candidates(self, self.request.epsilon or self.bracket.upper)
            return compare(self.setting, self.kept_place, self.preset.strategies or None, self.budget_vectors)

    @property
    def budget_vectors(self) -> int:
        """Model-sized vectors that a chosen strategy may keep."""
        given = self.request.budget_memory
        return DEFAULT_BUDGET if given is None else int(given)

    def kept_place(self, strategy: Strategy) -> float:
        return self.sensitivity_of(strategy).value

    def sensitivity_of(self, strategy: Strategy) -> Sensitivity:
        """‖C‖ under the order, for zero-out adjacency; amplified orders use the kept place as a yardstick only."""
        kind = self.order.participation
        kind = "fixed" if kind == "amplified" else kind
        return sensitivity(strategy, kind, self.steps_per_epoch, scales=self.scales)

    @property
    def share(self) -> float:
        """How sensitive a difference query is, relative to the clip."""
        if self.preset.query == "spider":
            return self.difference_clip
        return (1 - self.leak) * self.difference_clip + self.leak

    @property
    def scales(self) -> tuple[float, ...]:
        """s_e, the sensitivity of every epoch's queries relative to the clip, where the noise is not in proportion."""
        if self.preset.query != "epoch-lag":
            return ()
        return (1.0, *([self.share] * (self.epochs - 1)))

    @cached_property
    def families(self) -> tuple[Any, ...]:
        """What has noise of its own. `sr-nsgd`: Algorithm 2's families, priced together. dp-srm and dp-spider: starts
        and differences, each with noise in proportion to its sensitivity, so a step costs what a step of dp-sgd costs.
        """
        sigma = self.noise_multiplier
        if self.preset.query == "sensitivity-reduced":
            return tuple(replace(f, noise_multiplier=sigma * f.noise_multiplier) for f in self._bare_families)
        if self.preset.query in ("storm", "spider"):
            return (
                StepFamily("gradient", self.strategy, 1.0, sigma),
                StepFamily("difference", self.strategy, self.share, sigma * self.share),
            )
        return ()

    @cached_property
    def _bare_families(self) -> tuple[Family, ...]:
        """Algorithm 2's families with noise equal to their own sensitivities: to be multiplied by one number."""
        if not isinstance(self.strategy, TreeFull):
            raise NoProofError(
                "restart_every with sr-nsgd: its windows reach back over every epoch, and no proof covers restarts; "
                "leave it out"
            )
        return families(self.strategy, self.steps_per_epoch, self.difference_clip)

    def release(self, noise_multiplier: float, strategy: Strategy | None = None) -> Release:
        """What the run gives away, as the accountants see it."""
        return Release(
            strategy=strategy or self.strategy,
            order=self.order,
            adjacency=self.request.adjacency,
            noise_multiplier=noise_multiplier,
            scales=self.scales,
            group_size=self.request.rows_per_person,
        )

    def _price(self) -> tuple[float, Account]:
        """σ and the account at it: calibrated to ε, or the account of the σ that was asked for."""
        request = self.request
        if self.preset.query == "sensitivity-reduced":
            return self._price_families()
        if request.epsilon is None:
            assert request.noise_multiplier is not None  # the request has exactly one of the two
            release = self.release(request.noise_multiplier)
            if self.amplified:
                return self._settled(
                    settled_account(release, self.delta, seed=request.account_seed, failure_probability=self._failure)
                )
            return request.noise_multiplier, account(release)
        if self.amplified:
            return self._settled(
                settled_calibration(
                    self.release(self._likely_noise(request.epsilon)),
                    request.epsilon,
                    self.delta,
                    seed=request.account_seed,
                    failure_probability=self._failure,
                )
            )
        sigma = calibrate(self.release(1.0), request.epsilon, self.delta)
        return sigma, account(self.release(sigma))

    def _likely_noise(self, epsilon: float) -> float:
        """Where the search for σ starts: what the comparison found, else what a kept place would need."""
        for candidate in self.__dict__.get("candidates", ()):
            if candidate.strategy is self.strategy:
                return float(candidate.scale)
        return self.request.rows_per_person * self.kept_place(self.strategy) / largest_mu(epsilon, self.delta)

    def _settled(self, settled: Settled) -> tuple[float, Account]:
        computed = settled.account if isinstance(settled.account, ComputedAccount) else settled.computed
        self.__dict__["computed"] = computed
        return settled.noise_multiplier, settled.account

    @property
    def _failure(self) -> float:
        """How likely an account that is certified on a sample may be wrong: a hundredth of δ at most, and part of δ."""
        return min(FAILURE, self.delta / 100)

    def _price_families(self) -> tuple[float, Account]:
        """The same for Algorithm 2: σ multiplies the noise of all its families, which are priced together."""
        request, bare, n = self.request, self._bare_families, self.steps_per_epoch
        rows = min(request.rows_per_person, request.examples)
        sigma = request.noise_multiplier
        if sigma is None:
            assert request.epsilon is not None  # the request has exactly one of the two
            moved = joint_mu(bare, n, self.adjacency, rows) * (1 + 1e-12)
            sigma = noise_for(moved, request.epsilon, self.delta)
        members = tuple(replace(f, noise_multiplier=sigma * f.noise_multiplier) for f in bare)
        return sigma, account_of_families(members, n, self.adjacency, rows)

    @property
    def mu(self) -> float | None:
        """The run is μ-GDP; None where its account is not Gaussian."""
        return self.account.mu

    @cached_property
    def bracket(self) -> Bracket:
        return epsilon_within(self.account, self.delta)

    @property
    def epsilon(self) -> float:
        """What was asked; where the noise multiplier was given, the upper end of the account."""
        return self.bracket.upper if self.request.epsilon is None else self.request.epsilon

    def epsilon_at(self, delta: float) -> float:
        """The run's ε at another δ: the upper end of the account's bracket."""
        return epsilon_within(self.account, delta).upper

    def _warnings(self) -> tuple[str, ...]:
        if self.delta >= 1 / self.examples:
            return (
                f"delta {self.delta:g} is at least 1/examples = {1 / self.examples:.3g}: a mechanism that publishes "
                "somebody's row would pass; choose delta well below 1/examples",
            )
        return ()

    def start(self, model: torch.nn.Module, loss: Any, dataset: Any, *, out: Any, **options: Any) -> Run:
        """Begin the run in the folder `out`: see `momentree.training.run.start` for the options."""
        from momentree.training.run import start

        return start(self, model, loss, dataset, out=out, **options)

    def noise_stream(self, *, dimension: int, key: bytes) -> Iterator[Array]:
        """Step by step the noise that reaches m̂_t, in units of `clip / batch_size`; a pure function of key and plan."""
        from momentree.plan_noise import noise_on_momentum

        return noise_on_momentum(self, whole("dimension", dimension), key)

    def to_dict(self, *, alternatives: bool = True) -> dict[str, Any]:
        """Everything public about the plan, as `momentree plan --json` prints it; the other strategies if wanted."""
        return all_facts(self, alternatives=alternatives)

    def digest(self) -> str:
        """SHA-256 of everything the release depends on: two plans with equal digests release the same stream."""
        facts = {
            "request": self.request.facts(),
            "order": self.order.describe(),
            "strategy": self.strategy.describe(),
            "noise_multiplier": repr(self.noise_multiplier),
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()

    def __repr__(self) -> str:
        return (
            f"Plan({self.algorithm}, {self.order.name}, {self.strategy.name}: {self.steps} steps, "
            f"noise_multiplier={self.noise_multiplier:.4g}, epsilon={rounded_up(self.bracket.upper)}, "
            f"delta={self.delta:g})"
        )
