"""Optimising and ranking every strategy on offer: time, memory and noise as the run grows from 10³ to 10⁶ steps.

    OMP_NUM_THREADS=1 python benchmarks/strategies.py            # 10³ … 10⁶ steps, writes benchmarks/records/
    python benchmarks/strategies.py --quick                      # 10³ and 10⁴ only, prints, writes nothing
    python benchmarks/strategies.py --dense                      # instead: the dense optimum at 512 and 2,000 steps
    python benchmarks/strategies.py --peer /path/to/python       # instead: BLT fits beside jax_privacy's

Each size runs in a process of its own, so that the peak memory is its own: that of the whole process, with numpy, scipy
and what the account imports; `imports_mib` is the part that was there before. Sensitivities are those of the account.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parent / "records"
SIZES = [(1_000, 1), (100, 10), (1_000, 10), (1_000, 100), (10_000, 100)]
SIGMA = 3.730632
"""Noise multiplier at sensitivity 1 for ε = 1, δ = 1e-5."""


def mebibytes() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def rank(steps_per_epoch: int, epochs: int, momentum: float, measure: str) -> dict[str, Any]:
    """One comparison, in this process."""
    from momentree.privacy.sensitivity import sensitivity
    from momentree.strategy import STRATEGIES, Setting, compare
    from momentree.strategy.choose import DEFAULT_BUDGET, explain

    imports = mebibytes()
    spent: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)

    def priced(strategy: Any) -> float:
        start = time.perf_counter()
        value = sensitivity(strategy, "fixed", steps_per_epoch).value
        spent[strategy.name] += time.perf_counter() - start
        calls[strategy.name] += 1
        return value

    setting = Setting(steps_per_epoch, epochs, momentum, measure)
    start, processor = time.perf_counter(), time.process_time()
    found = compare(setting, priced)
    seconds, processor_seconds = time.perf_counter() - start, time.process_time() - processor
    apart = {}
    for name in (c.name for c in found):
        begun = time.perf_counter()
        compare(setting, priced, [name])
        apart[name] = round(time.perf_counter() - begun, 3)
    return {
        "steps_per_epoch": steps_per_epoch,
        "epochs": epochs,
        "steps": setting.steps,
        "momentum": momentum,
        "measure": measure,
        "budget_vectors": DEFAULT_BUDGET,
        "seconds": round(seconds, 3),
        "processor_seconds": round(processor_seconds, 3),
        "peak_mib": mebibytes(),
        "imports_mib": imports,
        "seconds_apart": apart,
        "sensitivity_calls": {name: calls[name] // 2 for name in apart},
        "sensitivity_seconds": {name: round(spent[name] / 2, 3) for name in apart},
        "not_ranked": sorted(set(STRATEGIES) - set(apart)),
        "chosen": explain(setting, found, DEFAULT_BUDGET)[1],
        "noise_at_epsilon_1": {
            c.name: {
                "iterates": SIGMA * c.iterate_error,
                "momentum": SIGMA * c.momentum_error,
                "vectors": c.noise_vectors,
            }
            for c in found
        },
    }


def dense(steps_per_epoch: int, epochs: int, momentum: float) -> dict[str, Any]:
    """The dense optimum, its bound, and the structured strategies without a budget."""
    from momentree.strategy.dense_fit import fit_dense
    from momentree.strategy.participation import fixed_sensitivity
    from momentree.strategy.workload import iterate_workload

    start, processor = time.perf_counter(), time.process_time()
    fit = fit_dense(iterate_workload(steps_per_epoch * epochs, momentum), steps_per_epoch)
    return {
        "steps_per_epoch": steps_per_epoch,
        "epochs": epochs,
        "momentum": momentum,
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "iterates_at_epsilon_1": SIGMA * fit.loss,
        "lower_bound_at_epsilon_1": SIGMA * fit.bound,
        "gap": fit.gap,
        "sensitivity": fixed_sensitivity(fit.strategy, steps_per_epoch),
        "peak_mib": mebibytes(),
    }


PEER = """
import json, sys, time
from jax_privacy.matrix_factorization import buffered_toeplitz as bt
out = []
for n, epochs, buffers in json.loads(sys.argv[1]):
    begun = time.perf_counter()
    blt = bt.optimize(n=n * epochs, min_sep=n, max_participations=epochs, error="mean",
                      min_buffers=buffers, max_buffers=buffers)
    out.append({"seconds": time.perf_counter() - begun, "scales": [float(x) for x in blt.output_scale],
                "decays": [float(x) for x in blt.buf_decay]})
print(json.dumps(out))
"""
PATIENCE = 300
PEER_SIZES = [(128, 4, 3), (100, 100, 3), (1_000, 100, 3)]


def beside_a_peer(python: str) -> list[dict[str, Any]]:
    """BLT fits for prefix sums under the fixed order, both judged by our formulas: root mean square × ‖C‖."""
    import numpy as np

    from momentree.strategy.blt import Blt
    from momentree.strategy.blt_fit import fit_blt
    from momentree.strategy.error import rms_error
    from momentree.strategy.participation import fixed_sensitivity
    from momentree.strategy.workload import prefix_workload

    rows = []
    for n, epochs, buffers in PEER_SIZES:
        workload = prefix_workload(n * epochs)
        begun = time.perf_counter()
        ours, _ = fit_blt(workload, n, buffers)
        row: dict[str, Any] = {"steps_per_epoch": n, "epochs": epochs, "buffers": buffers}
        row["ours_seconds"] = round(time.perf_counter() - begun, 3)
        row["ours_loss"] = rms_error(ours, workload) * fixed_sensitivity(ours, n)
        command = [python, "-c", PEER, json.dumps([(n, epochs, buffers)])]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            row["peer_seconds_above"] = PATIENCE
            rows.append(row)
            print(row, flush=True)
            continue
        if done.returncode:
            row["peer"] = done.stderr.strip().splitlines()[-1:]
        else:
            found = json.loads(done.stdout.splitlines()[-1])[0]
            theirs = Blt(n * epochs, np.array(found["scales"]), np.array(found["decays"]))
            row["peer_seconds"] = round(found["seconds"], 3)
            row["peer_loss"] = rms_error(theirs, workload) * fixed_sensitivity(theirs, n)
        rows.append(row)
        print(row, flush=True)
    return rows


def in_own_process(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # type: ignore[no-any-return]


def commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--dense", action="store_true")
    parser.add_argument("--peer")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kind, n, epochs, momentum, *measure = options.one
        result = (
            dense(int(n), int(epochs), float(momentum))
            if kind == "dense"
            else rank(int(n), int(epochs), float(momentum), measure[0])
        )
        print(json.dumps(result))
        return
    where = {
        "benchmark": "strategies",
        "commit": commit(),
        "python": platform.python_version(),
        "machine": platform.processor() or platform.machine(),
        "threads": os.environ.get("OMP_NUM_THREADS", "unset"),
        "load_average": os.getloadavg(),
    }
    if options.peer:
        keep("strategies-peer.json", {**where, "blt": beside_a_peer(options.peer)})
        return
    if options.dense:
        fits = [{**in_own_process("dense", str(n), "4", "0.9"), "where": where} for n in (128, 500)]
        keep("strategies-dense.json", {"benchmark": "strategies", "dense": fits})
        return
    ranked = []
    for n, epochs in SIZES[:3] if options.quick else SIZES:
        for measure in ("iterates", "momentum"):
            ranked.append(in_own_process("rank", str(n), str(epochs), "0.9", measure))
            row = ranked[-1]
            figures = (
                f"{row['seconds']:6.2f} s ({row['processor_seconds']:.2f} s of processor), {row['peak_mib']:6.0f} MiB"
            )
            print(f"{row['steps']:>8} steps, {measure}: {figures}; {row['chosen']}", flush=True)
    ranked.append(in_own_process("rank", "128", "4", "0.9", "iterates"))
    for name, row in ranked[-1]["noise_at_epsilon_1"].items():
        print(f"  n=128, E=4, ε=1: {name:>9} {row['iterates']:7.2f} on the iterates, {row['vectors']} vectors")
    if not options.quick:
        keep("strategies.json", {**where, "ranked": ranked})


def keep(name: str, record: dict[str, Any]) -> None:
    RECORDS.mkdir(exist_ok=True)
    (RECORDS / name).write_text(json.dumps(record, indent=1) + "\n")
    print(RECORDS / name)


if __name__ == "__main__":
    main()
