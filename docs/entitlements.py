"""The table of what is priced and what is refused, made by asking the library for every cell.

`python docs/entitlements.py` rewrites the part of docs/guarantees.md between its two marks; `--check` says whether it
is up to date. A cell is asked with the smallest plan that has room for it: 12 examples, 3 steps an epoch, 2 epochs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from momentree.errors import NoProofError
from momentree.order import ORDERS
from momentree.plan import Plan
from momentree.presets import ALGORITHMS
from momentree.query.base import ADJACENCIES
from momentree.strategy.build import STRATEGIES

PAGE = Path(__file__).parent / "guarantees.md"
START, END = "<!-- table: begin -->", "<!-- table: end -->"
SIZES: dict[str, Any] = {"examples": 12, "batch_size": 4, "epochs": 2, "noise_multiplier": 5.0, "delta": 1e-3}


def cell(algorithm: str, order: str, strategy: str, adjacency: str) -> Plan | NoProofError:
    """The plan of one combination, or the refusal."""
    facts = SIZES | {"algorithm": algorithm, "order": order, "strategy": strategy, "adjacency": adjacency}
    if order == "single-pass":
        facts["epochs"] = 1
    if order == "cyclic-poisson":
        facts["parts"] = 3
    if strategy in ("bsr", "bisr"):
        facts["band"] = 3
    if ALGORITHMS[algorithm].full_batch:
        del facts["batch_size"]
    try:
        return Plan(**facts)
    except NoProofError as refusal:
        return refusal


def mark(found: Plan | NoProofError) -> str:
    """`exact`, `bound`, `amplified` or `–`."""
    if isinstance(found, NoProofError):
        return "–"
    if found.amplified:
        return "amplified"
    return "exact" if found.sensitivity_of(found.strategy).exact else "bound"


def table() -> str:
    """Order × strategy for dp-nsgd under each adjacency, then order × strategy of every other algorithm."""
    lines = ["| order | strategy | " + " | ".join(ADJACENCIES) + " |", "|---|---|" + "---|" * len(ADJACENCIES)]
    for order in ORDERS:
        for strategy in STRATEGIES:
            marks = [mark(cell("dp-nsgd", order, strategy, adjacency)) for adjacency in ADJACENCIES]
            lines.append(f"| `{order}` | `{strategy}` | " + " | ".join(marks) + " |")
    lines += ["", "| algorithm | orders | strategies |", "|---|---|---|"]
    for name, algorithm in ALGORITHMS.items():
        chosen = ", ".join(f"`{s}`" for s in algorithm.strategies) or "all of the order's"
        lines.append(f"| `{name}` | {', '.join(f'`{o}`' for o in algorithm.orders)} | {chosen} |")
    return "\n".join(lines)


def page_with(text: str, made: str) -> str:
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{made}\n{END}{after}"


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    new = page_with(text, table())
    if "--check" in sys.argv:
        if new != text:
            raise SystemExit("docs/guarantees.md is not up to date: run python docs/entitlements.py")
        return
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
