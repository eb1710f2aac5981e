"""What a strategy is: a causal matrix C, and a small program that draws C⁺z step by step.

Released at step t is `ĝ_t = g_t + (C⁺ z)_t`, z base noise of variance σ² a row (DESIGN.md). A strategy knows the
matrix and the program, and nothing of torch, orders, or privacy. Units are `clip / batch_size`; a step's own entry of
C is 1.

The program is linear and tiny. It owns `noise_vectors` slots, each as large as the model. At step t an `Instruction`
draws some fresh base rows, writes the step's noise, and updates the slots. One executor (`momentree.noise.stream`)
runs it for every strategy, block by block; the materialised matrices below are what it is tested against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Source = Literal["fresh", "slot", "output"]
Term = tuple[Source, int, float]
"""(where from, index there, coefficient). `("output", 0, c)` is the noise of this step, once it is written."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of a noise stream.

    `fresh`: identifiers of the base rows drawn now; every identifier is drawn at one step only, at most once.
    `output`: the noise of this step as a sum of terms over fresh rows and the slots as they were before.
    `store`: afterwards, in this order, `slot[i] = Σ terms` (terms may name the slot itself and the output; a later
    store sees what an earlier one has written).
    """

    fresh: tuple[int, ...]
    output: tuple[Term, ...]
    store: tuple[tuple[int, tuple[Term, ...]], ...] = ()


@runtime_checkable
class Strategy(Protocol):
    """A causal matrix C with T = `steps` columns, and the program that streams `C⁺ z`."""

    @property
    def name(self) -> str:
        """The name on the command line: `tree`, `bsr`, …"""

    @property
    def steps(self) -> int:
        """T, the number of columns of C."""

    @property
    def noise_vectors(self) -> int:
        """How many model-sized vectors the program keeps between steps."""

    @property
    def non_negative(self) -> bool:
        """Whether every entry of C is ≥ 0, checked on the numbers that are used."""

    def instruction(self, step: int) -> Instruction:
        """The program at step t = 1 … T."""

    def matrix(self) -> Array:
        """C, materialised: one column a step, one row a base row. For small T: the judge of everything else."""

    def decoder(self) -> Array:
        """C⁺, materialised: T rows, one column a base row; `decoder() @ matrix()` is the identity."""

    def describe(self) -> dict[str, object]:
        """The public facts that define it, for a record: name and parameters, enough to build it again."""


def materialise(strategy: Strategy) -> Array:
    """C⁺ as the program really computes it: propagate unit draws through the instructions. O(T²·slots)."""
    instructions = [strategy.instruction(t) for t in range(1, strategy.steps + 1)]
    rows = sorted({row for instruction in instructions for row in instruction.fresh})
    place = {row: k for k, row in enumerate(rows)}
    slots = np.zeros((strategy.noise_vectors, len(rows)))
    outputs = np.zeros((strategy.steps, len(rows)))
    for t, instruction in enumerate(instructions):
        fresh = np.zeros((len(instruction.fresh), len(rows)))
        for i, row in enumerate(instruction.fresh):
            fresh[i, place[row]] = 1.0
        sources = {"fresh": fresh, "slot": slots, "output": outputs[t : t + 1]}
        outputs[t] = sum(c * sources[s][i] for s, i, c in instruction.output)
        for target, terms in instruction.store:
            slots[target] = sum((c * sources[s][i] for s, i, c in terms), np.zeros(len(rows)))
    return outputs
