"""Side by side: every strategy for a setting at the same privacy, and the one to take.

At the same μ the noise is proportional to sensitivity × error at σ = 1, so that product ranks strategies whatever the
privacy level. The memory budget is counted in model-sized vectors that the noise keeps. The default, 8, is meant to be
small beside training itself: a private step holds at least parameters, gradient, momentum and the activations and
gradients of a physical batch, measured at 19 vectors for a transformer with 124 million parameters at batch 32 and at
dozens for smaller models. 8 is also as much as helps: beyond 3 or 4 buffers `blt` gains under 1%.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from momentree.errors import InputError, NoProofError, one_of, whole
from momentree.strategy.build import STRATEGIES, Sensitivity, make
from momentree.strategy.dense import LARGEST
from momentree.strategy.error import rms_error
from momentree.strategy.restarted import Restartable
from momentree.strategy.setting import Setting

DEFAULT_BUDGET = 8
"""Model-sized vectors that `auto` may spend on noise unless told otherwise."""


@dataclass(frozen=True)
class Candidate:
    """A strategy and its figures. Errors are scale × root mean square at σ = 1, units of clip / batch_size.

    `scale` is its sensitivity: multiply by 1/μ for the noise at μ-Gaussian DP. (Under an amplified order it is the σ
    that the strategy needs.) `loss` is on what the strategies are ranked by.
    """

    name: str
    strategy: Restartable
    scale: float
    momentum_error: float
    iterate_error: float
    loss: float
    within_budget: bool

    @property
    def noise_vectors(self) -> int:
        """How many model-sized vectors its noise keeps."""
        return self.strategy.noise_vectors


def compare(
    setting: Setting,
    sensitivity: Sensitivity,
    names: Iterable[str] | None = None,
    budget_vectors: int | None = DEFAULT_BUDGET,
) -> list[Candidate]:
    """Every strategy named (all by default), best first; those over the budget come after those within it.

    Left out: strategies for which `sensitivity` finds no proof under the order, and, where none are named, `dense`
    unless its T − 1 vectors are within the budget (it takes seconds to minutes, and more memory than the model).
    """
    if budget_vectors is not None:
        whole("budget_vectors", budget_vectors, at_least=0)
    found: list[Candidate] = []
    refusal: NoProofError | None = None
    for name in (
        _offered(setting, budget_vectors) if names is None else [one_of("strategy", n, STRATEGIES) for n in names]
    ):
        if name == "blt" and budget_vectors == 0:
            continue
        try:
            strategy = make(name, setting, sensitivity, budget_vectors=budget_vectors)
            scale = sensitivity(strategy)
        except NoProofError as error:
            refusal = error
            continue
        on_momentum = scale * rms_error(strategy, setting.momentum_workload)
        on_iterates = scale * rms_error(strategy, setting.iterate_workload)
        loss = scale * rms_error(strategy, setting.target)
        fits = budget_vectors is None or strategy.noise_vectors <= budget_vectors
        found.append(Candidate(name, strategy, scale, on_momentum, on_iterates, loss, fits))
    if not found:
        raise refusal or InputError("no strategy to compare: name at least one")
    return sorted(found, key=lambda c: (not c.within_budget, c.loss, c.noise_vectors))


def _offered(setting: Setting, budget: int | None) -> list[str]:
    room = LARGEST if budget is None else min(LARGEST, budget + 1)
    return [name for name in STRATEGIES if name != "dense" or setting.steps <= room]


def auto(
    setting: Setting,
    sensitivity: Sensitivity,
    names: Iterable[str] | None = None,
    budget_vectors: int | None = DEFAULT_BUDGET,
) -> tuple[Candidate, str]:
    """The best strategy within the budget by the setting's measure, and why in a sentence."""
    return explain(setting, compare(setting, sensitivity, names, budget_vectors), budget_vectors)


def explain(setting: Setting, candidates: list[Candidate], budget_vectors: int | None) -> tuple[Candidate, str]:
    """The choice among candidates that `compare` has ranked; a tie within a thousandth goes to the least memory."""
    allowed = [c for c in candidates if c.within_budget]
    if not allowed:
        least = min(c.noise_vectors for c in candidates)
        raise InputError(f"no strategy on offer keeps at most {budget_vectors} vectors: allow at least {least}")
    close = [c for c in allowed if c.loss <= 1.001 * allowed[0].loss]
    best = min(close, key=lambda c: c.noise_vectors)
    others = [c for c in allowed if c is not best]
    on = "iterates" if setting.measure == "iterates" else "momentum"
    room = "" if budget_vectors is None else f" within a budget of {budget_vectors} model-sized vectors"
    text = f"least noise on the {on}{room} (keeps {best.noise_vectors})"
    if others:
        text += "; " + ", ".join(f"{c.name} {_more(c.loss / best.loss)}" for c in others[:3])
    return best, text


def _more(ratio: float) -> str:
    if not math.isfinite(ratio):
        return "has no finite error"
    return "the same" if abs(ratio - 1.0) < 5e-4 else f"{ratio - 1.0:+.1%}"
