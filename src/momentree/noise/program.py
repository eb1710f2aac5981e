"""What the executor needs to know of an instruction before it runs it, and which instructions a state depends on."""

from __future__ import annotations

from dataclasses import dataclass

from momentree.strategy.base import Instruction, Strategy, Term


@dataclass(frozen=True, slots=True)
class Lean:
    """An instruction without terms of weight 0 and rows that nobody reads.

    `drawn`: the places in `fresh` that are read. `output_in_fresh`: the place of the row in whose buffer the output is
    summed, where the output starts with it and nothing else reads it, or is nothing but it: one pass fewer.
    """

    fresh: tuple[int, ...]
    drawn: tuple[int, ...]
    output: tuple[Term, ...]
    store: tuple[tuple[int, tuple[Term, ...]], ...]
    output_in_fresh: int | None


def lean(instruction: Instruction) -> Lean:
    """The instruction, ready to run."""
    output = _weighty(instruction.output)
    store = tuple((slot, _weighty(terms)) for slot, terms in instruction.store)
    stored = [term for _, terms in store for term in terms]
    drawn = tuple(sorted({i for source, i, _ in (*output, *stored) if source == "fresh"}))
    home: int | None = None
    if output and output[0][0] == "fresh" and output[0][2] == 1.0:
        first = output[0][1]
        if len(output) == 1 or all((source, i) != ("fresh", first) for source, i, _ in (*output[1:], *stored)):
            home = first
    return Lean(instruction.fresh, drawn, output, store, home)


def live(strategy: Strategy, step: int) -> list[Lean]:
    """The instructions 1 … `step`, cut down to what the slots after `step` depend on, oldest first.

    Backwards from the last step: a store into a slot that somebody needs is kept, and what it reads is needed before
    it. The search ends where nothing is needed any more.
    """
    needed = set(range(strategy.noise_vectors))
    kept: list[Lean] = []
    for t in range(step, 0, -1):
        if not needed:
            break
        instruction = strategy.instruction(t)
        stores: list[tuple[int, tuple[Term, ...]]] = []
        for slot, terms in reversed(instruction.store):
            if slot not in needed:
                continue
            needed.discard(slot)
            terms = _weighty(terms)
            needed.update(i for source, i, _ in terms if source == "slot")
            stores.append((slot, terms))
        if not stores:
            continue
        shown = any(source == "output" for _, terms in stores for source, _, _ in terms)
        output = _weighty(instruction.output) if shown else ()
        needed.update(i for source, i, _ in output if source == "slot")
        kept.append(lean(Instruction(instruction.fresh, output, tuple(reversed(stores)))))
    return kept[::-1]


def _weighty(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    return tuple(term for term in terms if term[2] != 0.0)
