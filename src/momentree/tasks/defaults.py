"""What `train` chooses where nobody says: a short rule over public numbers, printed with its reasons.

1. Rows are scaled to one norm R by the schema (`row_norm`; a draft takes 4, so that the constant input of the bias is a
   seventeenth of a row's squared length), and the clip is 0.3 R for every task.
2. 32 steps an epoch, 20 epochs: with noise correlated over the epoch, more steps cost little, and fewer are too few
   for a linear model to arrive (`benchmarks/accuracy.py`).
3. Momentum 0.9, steps that fall linearly to zero, the fixed order, the strategy with the least noise on the iterates.
4. Where noise drowns the gradient there is no minimum to settle into, only a direction to be added up: every row counts
   the same in a sum of equal steps, and fewer, larger batches come closer to one sum. So a classifier takes constant
   steps, 8 an epoch, where N μ / √d is below `DROWNED`: N μ is the signal of a sum over N rows that all agree, in units
   of its noise a coordinate, √d the length of that noise over d parameters.
5. The step size: noise alone may move the score of a row by 2.5 before the falling steps average it away, by 0.8 where
   they stay constant; a predicted number (scaled to [−1, 1]) by 0.5. With r the noise on one coordinate of Σ m̂ that the
   plan states (units of clip / batch), that is η = noise · B / (r · clip · R); never above `LARGEST_STEP` / (clip · R)
   (a squared loss is steeper, and diverges sooner: `LARGEST_STEP_ON_A_NUMBER`).
"""

from __future__ import annotations

import math
from typing import Any

from momentree.errors import whole
from momentree.presets import ALGORITHMS
from momentree.privacy.gaussian import largest_mu
from momentree.request import Request

STEPS_PER_EPOCH = 32
EPOCHS = 20
CLIP = 0.3
NOISE_ON_A_SCORE = 2.5
NOISE_ON_A_NUMBER = 0.5
LARGEST_STEP = 256.0
LARGEST_STEP_ON_A_NUMBER = 24.0
DROWNED = 70.0
DROWNED_STEPS_PER_EPOCH = 8
NOISE_OF_CONSTANT_STEPS = 0.8


def fill(facts: dict[str, Any], *, row_norm: float = 1.0, kind: str = "classes") -> tuple[dict[str, Any], list[str]]:
    """The facts of a plan for a table, completed where they are silent, and a line of reason for each choice."""
    chosen, why = dict(facts), []

    def choose(name: str, value: Any, reason: str) -> None:
        if chosen.get(name) is None:
            chosen[name] = value
            why.append(f"{name.replace('_', '-')} {value}: {reason}")

    examples = whole("examples", facts["examples"])
    choose("algorithm", "dp-ftrl", "momentum on correlated noise; plain steps need no tuning beside the step size")
    ratio = math.inf if kind == "bounded" else signal_to_noise(chosen)
    drowned = ratio < DROWNED
    steps = min(DROWNED_STEPS_PER_EPOCH, examples) if drowned else STEPS_PER_EPOCH
    drowning = f"N·μ/√d is {ratio:.3g}, below {DROWNED:g}, so noise drowns the gradient"
    if not (chosen["algorithm"] in ALGORITHMS and ALGORITHMS[chosen["algorithm"]].full_batch):
        choose("batch_size", -(-examples // steps), f"{steps} steps an epoch" + (f"; {drowning}" if drowned else ""))
    choose("epochs", EPOCHS, "enough for a linear model to arrive, at little cost with correlated noise")
    choose(
        "clip", round(CLIP * row_norm, 12), f"{CLIP} of a row's norm, so few gradients of a trained model are longer"
    )
    if drowned:
        choose("schedule", "constant", f"{drowning}, and every row should count the same")
    else:
        choose("schedule", "linear", "the last steps average the noise away")
    return chosen, why


def signal_to_noise(facts: dict[str, Any]) -> float:
    """N μ / √d of rule 4 for the plain steps of dp-ftrl; infinite where it is not known before the plan is made."""
    if facts["algorithm"] != "dp-ftrl" or facts.get("update") not in (None, "momentum", "nesterov", "sgd"):
        return math.inf
    request = Request.of({name: value for name, value in facts.items() if value is not None and name != "batch_size"})
    if request.epsilon is None or request.dimension is None:
        return math.inf
    mu = largest_mu(request.epsilon, request.checked_delta) / request.rows_per_person
    return request.examples * mu / math.sqrt(request.dimension)


def learning_rate(plan: Any, kind: str = "classes", *, row_norm: float = 1.0) -> float:
    """η by rule 5, from public numbers of the plan alone; `kind` is the task's."""
    from momentree.strategy.error import iterate_rmse

    noise = plan.noise_multiplier * iterate_rmse(plan.strategy, plan.momentum)
    number = kind == "bounded"
    falling = plan.request.schedule != "constant"
    allowed = NOISE_ON_A_NUMBER if number else NOISE_ON_A_SCORE if falling else NOISE_OF_CONSTANT_STEPS
    natural = allowed * plan.batch_size / max(noise, 1e-12)
    return float(min(natural, LARGEST_STEP_ON_A_NUMBER if number else LARGEST_STEP)) / float(plan.clip * row_norm)


def plain(plan: Any) -> bool:
    """Whether the plan's update is plain momentum or descent, whose step has the gradient's own size."""
    from momentree.training.defaults import kind

    return kind(plan) in ("momentum", "nesterov", "sgd", "random-round")
