"""`momentree demo`: the whole path on data that everybody has, scikit-learn's handwritten digits."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from momentree.cli.parser import add_json_flag


def add_arguments(commands: Any) -> None:
    parser = commands.add_parser("demo", help="train on the embedded digits, under a minute")
    parser.add_argument("--out", metavar="DIR", default="demo-run", help="a new folder for the run (default: demo-run)")
    parser.add_argument("--epsilon", metavar="X", default="2", help="ε (default 2)")
    parser.add_argument("--seed", metavar="N", default="0", help="of the split and the order; not of the noise")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    from momentree.privacy.account import rounded_up
    from momentree.tasks.demo import demo

    folder = Path(parsed.out)
    accuracy, certificate = demo(folder, epsilon=parsed.epsilon, seed=parsed.seed)
    if parsed.json:
        promise = {name: certificate[name] for name in ("epsilon", "delta", "adjacency", "unit")}
        print(json.dumps({"run": str(folder), "accuracy": accuracy, **promise}, indent=2))
        return 0
    print(f"test accuracy {accuracy:.3f} on held-out digits")
    print(f"({rounded_up(certificate['epsilon'])}, {certificate['delta']:g})-DP, adjacency {certificate['adjacency']}")
    print(f"report: {folder / 'report.html'}, record: {folder / 'record.json'}")
    return 0
