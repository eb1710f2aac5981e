"""Writes cells.md: every order × strategy × adjacency and every algorithm × order, priced or refused, with the reason.

    python docs/guarantees/make_cells.py

The answers are asked of `momentree.privacy.entitlement` and `momentree.presets`; nothing is decided here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from momentree.errors import NoProofError
from momentree.order import ORDERS, Order, Shape, make
from momentree.presets import ALGORITHMS
from momentree.privacy.entitlement import entitlement
from momentree.query.base import ADJACENCIES
from momentree.strategy.base import Strategy
from momentree.strategy.bisr import Bisr
from momentree.strategy.blt import Blt
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense
from momentree.strategy.identity import Identity
from momentree.strategy.restarted import Restarted
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from momentree.strategy.tree_ls import TreeLS

SHAPE = Shape(600, 100, 4)  # n = 6 steps an epoch, T = 24; cyclic-poisson with 3 parts
N, T = SHAPE.steps_per_epoch, SHAPE.steps
BLT = (np.array([0.3]), np.array([0.9]))


def band(p: int) -> np.ndarray:
    return 0.5 ** np.arange(p)


STRATEGIES: dict[str, Strategy] = {
    "`identity`": Identity(T),
    "`tree`": Tree(T, 0.9),
    "`tree-full`": TreeFull(T, 0.9),
    "`tree-ls`": TreeLS(T, 0.9),
    "`bsr`, band 3": Bsr(T, band(3)),
    "`bsr`, band 6": Bsr(T, band(6)),
    "`bsr`, band 7": Bsr(T, band(7)),
    "`bisr`": Bisr(T, np.array([1.0, -0.5, -0.1])),
    "`blt`": Blt(T, *BLT),
    "`dense`, C ≥ 0": Dense(np.tril(np.ones((T, T)))),
    "`dense`, signed": Dense(np.eye(T) - 0.5 * np.eye(T, k=-1)),
    "`tree`, restarted every epoch": Restarted(Tree(N, 0.9), 4, None),
    "`blt`, restarted every epoch": Restarted(Blt(N, *BLT), 4, None),
    "`blt`, restarted every 2 epochs": Restarted(Blt(2 * N, *BLT), 2, None),
}


def order_of(name: str, declared: bool) -> Order:
    shape = Shape(600, 100, 1) if name == "single-pass" else SHAPE
    return make(name, shape, parts=3 if name == "cyclic-poisson" else None, declared=declared)


def markdown() -> str:
    """The whole page."""
    notes: dict[str, int] = {}

    def note(sentence: str) -> str:
        return f"[{notes.setdefault(sentence, len(notes) + 1)}]"

    lines = [
        "# Every cell, priced or refused",
        "",
        "Made by `make_cells.py` from the rules that the library follows; a test holds this page against them.",
        "✓: priced, ✗: refused; numbers are the sentences below. n = 6, 4 epochs, 3 parts; N is counted,",
        "and declared in the last column (with a counted N every add-remove is refused).",
        "",
    ]
    for name in ORDERS:
        lines += [
            f"## `{name}`",
            "",
            "| strategy | " + " | ".join(ADJACENCIES) + " |",
            "|---|" + "---|" * len(ADJACENCIES),
        ]
        for label, strategy in STRATEGIES.items():
            row = []
            for adjacency in ADJACENCIES:
                try:
                    order = order_of(name, adjacency == "add-remove")
                    row.append("✓ " + note(entitlement(order, strategy, adjacency)))
                except NoProofError as error:
                    sentence = str(error).replace(f"strategy {strategy.name}", "this strategy")
                    row.append("✗ " + note(sentence.replace("a this", "a")))
            lines.append(f"| {label} | " + " | ".join(row) + " |")
        lines.append("")
    lines += ["## Algorithms", "", "| algorithm | " + " | ".join(f"`{o}`" for o in ORDERS) + " | strategies |"]
    lines.append("|---|" + "---|" * (len(ORDERS) + 1))
    for algorithm in ALGORITHMS.values():
        row = ["✓" if name in algorithm.orders else "✗" for name in ORDERS]
        strategies = ", ".join(f"`{s}`" for s in algorithm.strategies) or "any"
        lines.append(f"| `{algorithm.name}` | " + " | ".join(row) + f" | {strategies} |")
    lines += [
        "",
        "✓ where the order's own table has one for the strategy; ✗ is refused whatever the strategy.",
        "",
        "## Sentences",
        "",
    ]
    lines += [f"{number}. {sentence}" for sentence, number in notes.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("cells.md").write_text(markdown(), encoding="utf-8")
