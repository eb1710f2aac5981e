"""What the executor needs to know of an instruction before it runs it, and which instructions a state depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from momentree.strategy.base import Instruction, Strategy, Term

Parts = Sequence[tuple[Any, float]]
Arithmetic = Callable[[Any, float | None, Parts, Any], None]
"""into = own · into + Σ c · value over the parts in their order, in place, one rounding an operation: every product,
every sum. Without `own` the first part sets `into`. The last argument is as large as `into` and may be overwritten."""
Store = tuple[tuple[int, tuple[Term, ...]], ...]


def add_up(xp: Any, into: Any, own: float | None, parts: Parts, spare: Any) -> None:
    """`Arithmetic` by numpy or torch."""
    empty = own is None
    if not empty and own != 1.0:
        xp.multiply(into, own, out=into)
    for value, c in parts:
        if empty:
            if c == 1.0:
                into[...] = value
            else:
                xp.multiply(value, c, out=into)
            empty = False
        elif c == 1.0:
            into += value
        elif c == -1.0:
            into -= value
        else:
            xp.multiply(value, c, out=spare)
            into += spare
    if empty:
        into[...] = 0.0


@dataclass(frozen=True, slots=True)
class Sum:
    """into = own · into + Σ terms; `own` is None where `into` holds nothing that counts.

    Terms with a weight other than ±1 come first: to set a vector to a product takes one pass, to add one takes two.
    """

    own: float | None
    terms: tuple[Term, ...]

    def run(self, arithmetic: Arithmetic, values: dict[str, list[Any]], into: Any, spare: Any) -> None:
        """`values`: what each source of a term holds."""
        arithmetic(into, self.own, [(values[source][i], c) for source, i, c in self.terms], spare)


@dataclass(frozen=True, slots=True)
class Lean:
    """An instruction without terms of weight 0 and rows that nobody reads; it names rows by their place in `fresh`.

    `drawn`: the places that are read. `output_in_fresh`: the place of the row in whose buffer the output is summed,
    where the output starts with it and nothing else reads it, or is nothing but it: one pass fewer.
    """

    drawn: tuple[int, ...]
    output: Sum
    store: tuple[tuple[int, Sum], ...]
    output_in_fresh: int | None


def lean(instruction: Instruction) -> Lean:
    """The instruction, ready to run. Steps that differ in their rows alone share it; very long ones are not kept."""
    make = _lean if len(instruction.output) + len(instruction.store) < 64 else _lean.__wrapped__
    return make(instruction.output, instruction.store)


@lru_cache(maxsize=256)
def _lean(output: tuple[Term, ...], store: Store) -> Lean:
    output = _weighty(output)
    store = tuple((slot, _weighty(terms)) for slot, terms in store)
    stored = [term for _, terms in store for term in terms]
    drawn = tuple(sorted({i for source, i, _ in (*output, *stored) if source == "fresh"}))
    home: int | None = None
    if output and output[0][0] == "fresh" and output[0][2] == 1.0:
        first = output[0][1]
        if len(output) == 1 or all((source, i) != ("fresh", first) for source, i, _ in (*output[1:], *stored)):
            home = first
    summed = _sum(output, None) if home is None else Sum(1.0, _sum(output[1:], None).terms)
    return Lean(drawn, summed, tuple((slot, _sum(terms, slot)) for slot, terms in store), home)


def _sum(terms: tuple[Term, ...], slot: int | None) -> Sum:
    """Σ terms into a slot, or into the output, which no term of an output names."""
    own = [c for source, i, c in terms if source == "slot" and i == slot]
    others = [term for term in terms if term[0] != "slot" or term[1] != slot]
    return Sum(sum(own) if own else None, tuple(sorted(others, key=lambda term: abs(term[2]) == 1.0)))


def live(strategy: Strategy, step: int) -> list[tuple[tuple[int, ...], Lean]]:
    """Of the instructions 1 … `step` what the slots after `step` depend on, oldest first, each with its fresh rows.

    Backwards from the last step: a store into a slot that somebody needs is kept, and what it reads is needed before
    it. The search ends where nothing is needed any more.
    """
    needed = set(range(strategy.noise_vectors))
    kept: list[tuple[tuple[int, ...], Lean]] = []
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
        kept.append((instruction.fresh, lean(Instruction(instruction.fresh, output, tuple(reversed(stores))))))
    return kept[::-1]


def _weighty(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    return tuple(term for term in terms if term[2] != 0.0)
