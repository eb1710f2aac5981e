"""`momentree list algorithms|orders|strategies`: what there is, one line each, with what each is entitled to."""

from __future__ import annotations

import argparse
import json
from typing import Any

from momentree.cli.parser import add_json_flag
from momentree.errors import one_of

KINDS = ("algorithms", "orders", "strategies")


def add_arguments(commands: Any) -> None:
    parser = commands.add_parser("list", help="what there is, one line each", description=__doc__)
    parser.add_argument("kind", metavar="|".join(KINDS))
    add_json_flag(parser)
    parser.set_defaults(run=run)


def catalogue(kind: str) -> dict[str, str]:
    """Names and their one line."""
    if kind == "algorithms":
        from momentree.presets import ALGORITHMS

        return {a.name: f"{a.summary}; orders: {', '.join(a.orders)}" for a in ALGORITHMS.values()}
    if kind == "orders":
        from momentree.order import ORDERS

        return {name: f"{entry.description}; {entry.entitled}" for name, entry in ORDERS.items()}
    from momentree.strategy.build import STRATEGIES

    return {name: entry.description for name, entry in STRATEGIES.items()}


def run(parsed: argparse.Namespace) -> int:
    kind = one_of("list", parsed.kind, KINDS)
    entries = catalogue(kind)
    if parsed.json:
        print(json.dumps(entries, indent=2, ensure_ascii=False))
    else:
        width = max(map(len, entries))
        print("\n".join(f"{name:<{width}}  {text}" for name, text in entries.items()))
    return 0
