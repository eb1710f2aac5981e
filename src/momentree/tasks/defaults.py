"""What `train` chooses where nobody says: a short rule over public numbers, printed with its reasons.

1. Rows are scaled to norm 1 by the schema (`row_norm`), so the clip is a fixed number: 0.3 for every task.
2. 32 steps an epoch, 20 epochs: with noise correlated over the epoch, more steps cost little, and fewer are too few
   for a linear model to arrive (`benchmarks/accuracy.py`).
3. Momentum 0.9, steps that fall linearly to zero, the fixed order, the strategy with the least noise on the iterates.
4. The step size: noise alone may move the score of a row of norm 1 by `NOISE_ON_A_SCORE`, a predicted number (scaled to
   [−1, 1]) by `NOISE_ON_A_NUMBER` before the falling steps average it away. With r the noise on one
   coordinate of Σ m̂ that the plan states (units of clip / batch), that is η = noise · B / (r · clip); never
   above `LARGEST_STEP` / clip (a squared loss is steeper, and diverges sooner: `LARGEST_STEP_ON_A_NUMBER`).
"""

from __future__ import annotations

from typing import Any

from momentree.errors import whole
from momentree.presets import ALGORITHMS

STEPS_PER_EPOCH = 32
EPOCHS = 20
CLIP = 0.3
NOISE_ON_A_SCORE = 2.5
NOISE_ON_A_NUMBER = 1.0
LARGEST_STEP = 256.0
LARGEST_STEP_ON_A_NUMBER = 24.0


def fill(facts: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The facts of a plan for a table, completed where they are silent, and a line of reason for each choice."""
    chosen, why = dict(facts), []

    def choose(name: str, value: Any, reason: str) -> None:
        if chosen.get(name) is None:
            chosen[name] = value
            why.append(f"{name.replace('_', '-')} {value}: {reason}")

    examples = whole("examples", facts["examples"])
    choose("algorithm", "dp-ftrl", "momentum on correlated noise; plain steps need no tuning beside the step size")
    if not (chosen["algorithm"] in ALGORITHMS and ALGORITHMS[chosen["algorithm"]].full_batch):
        choose("batch_size", -(-examples // STEPS_PER_EPOCH), f"{STEPS_PER_EPOCH} steps an epoch")
    choose("epochs", EPOCHS, "enough for a linear model to arrive, at little cost with correlated noise")
    choose("clip", CLIP, "rows have norm 1, so few gradients of a trained model are longer")
    choose("schedule", "linear", "the last steps average the noise away")
    return chosen, why


def learning_rate(plan: Any, kind: str = "classes") -> float:
    """η by rule 4, from public numbers of the plan alone; `kind` is the task's."""
    from momentree.strategy.error import iterate_rmse

    noise = plan.noise_multiplier * iterate_rmse(plan.strategy, plan.momentum)
    number = kind == "bounded"
    allowed = NOISE_ON_A_NUMBER if number else NOISE_ON_A_SCORE
    natural = allowed * plan.batch_size / max(noise, 1e-12)
    return float(min(natural, LARGEST_STEP_ON_A_NUMBER if number else LARGEST_STEP)) / float(plan.clip)


def plain(plan: Any) -> bool:
    """Whether the plan's update is plain momentum or descent, whose step has the gradient's own size."""
    from momentree.training.defaults import kind

    return kind(plan) in ("momentum", "nesterov", "sgd", "random-round")
