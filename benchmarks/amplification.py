"""Noise on Σm̂ under the amplified orders at the same (ε, δ): every σ is certified, none is an estimate.

n = 100 steps an epoch, 10 epochs, momentum 0.9, δ = 1e-4, zero-out; root mean square over the steps in units of
`clip / batch_size`; banded square root of the running sum's workload, `band` coefficients. `unamplified` is the fixed
order. Writes one JSON line a row to benchmarks/records/amplification.jsonl.

    python benchmarks/amplification.py [--quick] [--epsilon 1 2 4 8] [--out FILE]
    python benchmarks/amplification.py --table        # the table of docs/guarantees/amplified.md, from the record
    python benchmarks/amplification.py --computed     # accounts without sampling beside certified ones, same σ
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from momentree.order import BallsInBins, Fixed, Order, Poisson, RandomAllocation
from momentree.order.base import Shape
from momentree.privacy.account_of import calibrate
from momentree.privacy.amplified import amplified_account, calibrate_release
from momentree.privacy.computed import ComputedAccount
from momentree.privacy.events import Release
from momentree.privacy.settle import places_of
from momentree.strategy import Strategy, iterate_rmse
from momentree.strategy.bsr import Bsr
from momentree.strategy.identity import Identity
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from momentree.strategy.workload import iterate_workload

STEPS_PER_EPOCH, EPOCHS, MOMENTUM, DELTA = 100, 10, 0.9, 1e-4
SHAPE = Shape(STEPS_PER_EPOCH * 10, 10, EPOCHS)
BANDS = {1.0: (4, 16), 2.0: (4, 16, 32), 4.0: (4, 16, 32), 8.0: (4, 16, 32, 64)}
KEPT_BANDS = {1.0: (1, 64), 2.0: (1, 64), 4.0: (1, 64, 100), 8.0: (1, 100)}


def banded(band: int) -> Strategy:
    steps = SHAPE.steps
    if band == 1:
        return Identity(steps)
    return Bsr(steps, iterate_workload(steps, MOMENTUM).square_root(band))


def rows(epsilon: float) -> Iterator[tuple[Order, int]]:
    yield Poisson(SHAPE), 1
    for band in KEPT_BANDS[epsilon]:
        yield BallsInBins(SHAPE), band
    for band in (1, *BANDS[epsilon]):
        yield RandomAllocation(SHAPE), band
    for band in (1, STEPS_PER_EPOCH):
        yield Fixed(SHAPE, seed=0), band


def measure(order: Order, band: int, epsilon: float, seed: int) -> dict[str, object]:
    strategy, start = banded(band), time.perf_counter()
    release = Release(strategy, order, "zero-out", 10.0 / epsilon)
    if order.participation == "amplified":
        found = calibrate_release(release, epsilon, DELTA, seed=seed)
        sigma, account, used = found.noise_multiplier, found.account, found.seed
        bracket = account.epsilon(DELTA)
        method, failure = account.method, account.failure_probability
    else:
        sigma, used, failure = calibrate(release, epsilon, DELTA), seed, 0.0
        bracket, method = None, "Gaussian, closed form"
    return {
        "order": order.name,
        "band": band,
        "epsilon": epsilon,
        "delta": DELTA,
        "noise_multiplier": sigma,
        "iterate_rmse": sigma * iterate_rmse(strategy, MOMENTUM),
        "epsilon_lower": epsilon if bracket is None else bracket.lower,
        "epsilon_upper": epsilon if bracket is None else bracket.upper,
        "method": method,
        "failure_probability": failure,
        "seed": used,
        "seconds": round(time.perf_counter() - start, 1),
    }


WITHOUT_SAMPLING: tuple[tuple[str, int, int, int, float], ...] = (
    ("bsr", 100, 10, 64, 27.4),
    ("bsr", 100, 10, 64, 8.61),
    ("bsr", 100, 10, 100, 10.36),
    ("bsr", 100, 10, 16, 20.0),
    ("bsr", 100, 10, 16, 10.0),
    ("bsr", 100, 10, 4, 12.0),
    ("bsr", 20, 10, 20, 8.0),
    ("tree-full", 100, 10, 0, 7.0),
    ("tree-full", 100, 10, 0, 3.4),
    ("tree", 20, 2, 0, 3.0),
    ("bsr", 100, 1, 4, 100.0),
)


def without_sampling(seed: int) -> Iterator[dict[str, object]]:
    """ε at δ = 1e-4 under balls-in-bins: each kind of proof alone, the computed account, the sampled one."""
    for name, n, epochs, band, sigma in WITHOUT_SAMPLING:
        steps = n * epochs
        strategy: Strategy
        if name == "bsr":
            strategy = Bsr(steps, iterate_workload(steps, MOMENTUM).square_root(band))
        else:
            strategy = TreeFull(steps, MOMENTUM) if name == "tree-full" else Tree(steps, MOMENTUM)
        release = Release(strategy, BallsInBins(Shape(10 * n, 10, epochs)), "zero-out", sigma)
        places = places_of(release)
        assert places is not None
        start = time.perf_counter()
        computed = ComputedAccount(places, sigma, DELTA)
        bracket = computed.epsilon(DELTA)
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        sampled = amplified_account(release, seed=seed).epsilon(DELTA)
        yield {
            "strategy": name if name != "bsr" else f"bsr, {band}",
            "steps_per_epoch": n,
            "epochs": epochs,
            "noise_multiplier": sigma,
            **{kind: alone(computed, kind) for kind in computed.bounds(1.0)},
            "computed": (bracket.lower, bracket.upper),
            "sampled": (sampled.lower, sampled.upper),
            "seconds": (round(seconds, 1), round(time.perf_counter() - start, 1)),
        }


def alone(account: ComputedAccount, kind: str) -> float:
    """ε at δ by one kind of proof in both directions."""

    def excess(epsilon: float) -> float:
        return max(account.bounds(epsilon)[kind]) - DELTA

    if excess(0.0) <= 0 or excess(100.0) > 0:
        return 0.0 if excess(0.0) <= 0 else float("inf")
    return float(brentq(excess, 0.0, 100.0, xtol=1e-6))


def table(path: Path) -> str:
    """The recorded rows as a Markdown table: one line an order and band, one column an ε."""
    records = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    epsilons = sorted({r["epsilon"] for r in records})
    kinds = list(dict.fromkeys((r["order"], r["band"]) for r in sorted(records, key=lambda r: r["epsilon"])))
    orders = list(dict.fromkeys(order for order, _ in kinds))
    kinds.sort(key=lambda kind: (orders.index(kind[0]), kind[1]))
    lines = [
        "| order | band | " + " | ".join(f"ε = {e:g}" for e in epsilons) + " |",
        "|---" * (2 + len(epsilons)) + "|",
    ]
    for order, band in kinds:
        found = {r["epsilon"]: f"{r['iterate_rmse']:.3g}" for r in records if (r["order"], r["band"]) == (order, band)}
        name = "`fixed`, unamplified" if order == "fixed" else f"`{order}`"
        shown = "identity" if band == 1 else str(band)
        lines.append(f"| {name} | {shown} | " + " | ".join(found.get(e, "") for e in epsilons) + " |")
    return "\n".join(lines)


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the rows that are computed without sampling, at ε = 1")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "records" / "amplification.jsonl")
    parser.add_argument("--computed", action="store_true", help="accounts without sampling beside certified ones")
    parser.add_argument("--table", action="store_true", help="print the record as a table, measure nothing")
    args = parser.parse_args()
    if args.table:
        print(table(args.out))
        return
    if args.computed:
        for found in without_sampling(args.seed):
            print(json.dumps(found), flush=True)
        return
    head = {"commit": commit(), "machine": platform.processor() or platform.machine(), "numpy": np.__version__}
    print(json.dumps(head))
    lines = [json.dumps(head)]
    for epsilon in [1.0] if args.quick else args.epsilon:
        for order, band in rows(epsilon):
            if args.quick and band != 1:
                continue
            row = measure(order, band, epsilon, args.seed)
            lines.append(json.dumps(row))
            noise, seconds = row["iterate_rmse"], row["seconds"]
            print(f"ε={epsilon:g} {order.name:18} band {band:3d}  noise {noise:8.3f}   {seconds} s", flush=True)
            if not args.quick:
                args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
