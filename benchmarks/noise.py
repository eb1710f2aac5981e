"""What a step of noise costs, as a ratio to `torch.randn` of the same size in the same process, interleaved.

    python benchmarks/noise.py                       # d = 10^7, two threads, medians of 15 rounds
    python benchmarks/noise.py --quick               # d = 10^6, 5 rounds
    python benchmarks/noise.py --small               # µs a step for models of 7,850 to 1,000,000 numbers
    python benchmarks/noise.py --peer PYTHON         # and jax_privacy, run by another interpreter
    python benchmarks/noise.py --device cuda --dimension 100000000

A round runs every method in turn, so that whatever else the machine does falls on all of them; the ratio is the median
over rounds of (method's time / time of `torch.randn(d)` in that round). `randn into` is the same generator writing into
memory that exists already, for comparison. A step is drawing, correlating, and adding to a model of four blocks. The
tree's steps differ, so eight are timed together (32 of every strategy with `--small`, where rows are drawn ahead). Page
faults are those of steps once all buffers exist. The raw figures go to benchmarks/records/.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from momentree.noise.fast import FastNormals
from momentree.noise.normals import KeyedNormals
from momentree.noise.stream import NoiseStream
from momentree.strategy.base import Strategy
from momentree.strategy.bisr import Bisr
from momentree.strategy.blt import Blt
from momentree.strategy.bsr import Bsr
from momentree.strategy.identity import Identity
from momentree.strategy.tree import Tree

RECORDS = Path(__file__).parent / "records"
STEPS = 10_000
TARGETS = {"tree": 1.2, "blt, 4 buffers": 2.0, "bsr, 16 bands": 2.0}


def strategies() -> dict[str, Strategy]:
    """The coefficients do not matter for speed; they are those of ordinary strategies."""
    root = np.cumprod([1.0, *[(2 * k - 1) / (2 * k) for k in range(1, 16)]])
    inverse = np.cumprod([1.0, *[(2 * k - 3) / (2 * k) for k in range(1, 16)]])
    return {
        "identity": Identity(STEPS),
        "tree": Tree(STEPS, 0.9),
        "blt, 4 buffers": Blt(STEPS, np.array([0.2, 0.1, 0.1, 0.05]), np.array([0.999, 0.95, 0.8, 0.3])),
        "bsr, 16 bands": Bsr(STEPS, root),
        "bisr, 16 bands": Bisr(STEPS, inverse),
    }


def resident() -> int:
    """Bytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def blocks_of(dimension: int, device: str) -> list[torch.Tensor]:
    sizes = [dimension // 2, dimension // 4, 1000]
    return [torch.zeros(size, device=device) for size in (*sizes, dimension - sum(sizes))]


def timed(work: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(dimension: int, rounds: int, device: str, threads: int | None) -> dict[str, Any]:
    source, blocks = KeyedNormals(bytes(range(32))), blocks_of(dimension, device)
    shapes = [len(block) for block in blocks]
    into = torch.zeros(dimension, device=device)
    repeats = {"tree": 8}
    work: dict[str, Callable[[], object]] = {
        "randn": lambda: torch.randn(dimension, device=device),
        "randn into": lambda: into.normal_(),
        "draw alone": lambda: source.fill_(into, 0, 0, 0),
    }
    memory: dict[str, float] = {}
    cases = [(name, strategy, source) for name, strategy in strategies().items()]
    cases.append(("tree, fast source", Tree(STEPS, 0.9), FastNormals(0)))  # type: ignore[arg-type]
    for name, strategy, drawn_by in cases:
        before = resident()
        stream = NoiseStream(strategy, drawn_by, shapes, device=device, threads=threads)
        stream.add_(blocks, 0.5)
        for _ in range(17 if "bands" in name else 2):
            stream.add_(blocks, 0.5)
        memory[name] = (resident() - before) / (4 * dimension)
        count = repeats.get(name, 1)
        work[name] = lambda stream=stream, count=count: [stream.add_(blocks, 0.5) for _ in range(count)]  # type: ignore[misc]
    times: dict[str, list[float]] = {name: [] for name in work}
    for once in range(rounds + 1):
        for name, run in work.items():
            taken = timed(run, device) / repeats.get(name, 1)
            if once:
                times[name].append(taken)
    faults: dict[str, float] = {}
    for name, run in work.items():
        before_faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        run()
        faults[name] = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before_faults) / repeats.get(name, 1)
    ratios = {n: [t / base for t, base in zip(times[n], times["randn"], strict=True)] for n in work}
    return {
        name: {
            "ratio": statistics.median(ratios[name]),
            "ratio_to_randn_into": statistics.median(
                t / base for t, base in zip(times[name], times["randn into"], strict=True)
            ),
            "seconds": statistics.median(times[name]),
            "fastest_seconds": min(times[name]),
            "page_faults": faults[name],
            "memory_in_d": memory.get(name),
            "target": TARGETS.get(name),
            "raw_seconds": times[name],
        }
        for name in work
    }


SMALL = {
    "logistic 784-10": [7840, 10],
    "mnist cnn": [1024, 16, 8192, 32, 16384, 32, 320, 10],
    "mlp 784-256-128-10": [200_704, 256, 32_768, 128, 1280, 10],
    "10^6": [500_000, 250_000, 1000, 249_000],
}


def small(rounds: int) -> dict[str, Any]:
    """Microseconds a step of small models: the fastest and the median of the rounds, 32 steps each."""
    source, streams = KeyedNormals(bytes(range(32))), {}
    for model, sizes in SMALL.items():
        for name, strategy in strategies().items():
            stream, blocks = NoiseStream(strategy, source, sizes), [torch.zeros(n) for n in sizes]
            streams[model, name] = stream, blocks
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in streams}
    for _ in range(rounds + 1):
        for key, (stream, blocks) in streams.items():
            taken[key].append(timed(lambda s=stream, b=blocks: [s.add_(b, 0.5) for _ in range(32)], "cpu") / 32)  # type: ignore[misc]
    figures: dict[str, Any] = {}
    for (model, name), seconds in taken.items():
        fastest, median = min(seconds[1:]), statistics.median(seconds[1:])
        figures.setdefault(model, {"dimension": sum(SMALL[model])})[name] = {
            "fastest_microseconds": 1e6 * fastest,
            "median_microseconds": 1e6 * median,
            "fastest_nanoseconds_a_coordinate": 1e9 * fastest / sum(SMALL[model]),
        }
    return figures


def small_table(figures: dict[str, Any]) -> str:
    names = list(strategies())
    lines = [f"{'µs a step (fastest, median)':28}{'d':>10}" + "".join(f"{name:>20}" for name in names)]
    for model, row in figures.items():
        cells = (f"{row[n]['fastest_microseconds']:.0f}, {row[n]['median_microseconds']:.0f}" for n in names)
        lines.append(f"{model:28}{row['dimension']:>10,}" + "".join(f"{cell:>20}" for cell in cells))
    return "\n".join(lines)


PEER = """
import json, statistics, sys, time
import jax, jax.numpy as jnp, torch
from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz
from jax_privacy import noise_addition
torch.set_num_threads(int(sys.argv[3]))
d, rounds = int(sys.argv[1]), int(sys.argv[2])
coefficients = [1.0]
for k in range(1, 16): coefficients.append(coefficients[-1] * (2 * k - 1) / (2 * k))
# The builder itself: the public way insists on float64, which its optimiser needs and a stream does not.
made = {"blt, 4 buffers": buffered_toeplitz.BufferedToeplitz.build(
            buf_decay=[0.999, 0.95, 0.8, 0.3], output_scale=[0.2, 0.1, 0.1, 0.05], dtype=jnp.float32
            )._streaming_matrix_builder().build_inverse(),
        "bsr, 16 bands": toeplitz.inverse_as_streaming_matrix(jnp.array(coefficients))}
times = {"randn": []}
runs = {}
for name, matrix in made.items():
    privatizer = noise_addition.matrix_factorization_privatizer(
        matrix, stddev=1.0, prng_key=jax.random.key(0), dtype=jnp.float32)
    gradient = jnp.zeros(d, jnp.float32)
    state = privatizer.init(gradient)
    update = jax.jit(privatizer.update)
    runs[name] = [update, gradient, state]
    times[name] = []
for once in range(rounds + 2):
    start = time.perf_counter(); torch.randn(d); taken = time.perf_counter() - start
    if once > 1: times["randn"].append(taken)
    for name, run in runs.items():
        start = time.perf_counter()
        out, run[2] = run[0](run[1], run[2]); jax.block_until_ready((out, run[2]))
        taken = time.perf_counter() - start
        if once > 1: times[name].append(taken)
print(json.dumps({n: {"ratio": statistics.median(a / b for a, b in zip(t, times["randn"])), "raw_seconds": t}
                  for n, t in times.items()}))
"""


def peer(python: str, dimension: int, rounds: int, threads: int) -> dict[str, Any] | str:
    """jax_privacy's figures in a process of its own, each a ratio to torch.randn there; or why there are none."""
    command = [python, "-c", PEER, str(dimension), str(rounds), str(threads)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": ""}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"did not run: {type(error).__name__}"
    if done.returncode != 0:
        return f"did not run: {done.stderr.strip().splitlines()[-1][:200]}"
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def machine(device: str) -> dict[str, Any]:
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": model[0].split(":")[1].strip() if model else platform.processor(),
        "cores": os.cpu_count(),
        "cores_allowed": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"


def table(figures: dict[str, Any], peers: dict[str, Any] | str | None, dimension: int) -> str:
    lines = [f"noise of one step, d = {dimension:,}", ""]
    lines.append(f"{'':20}{'x randn':>9}{'target':>8}{'x randn into':>14}{'ms':>9}{'page faults':>13}{'memory/d':>10}")
    for name, f in figures.items():
        target = f"{f['target']:.1f}" if f["target"] else ""
        memory = "" if f["memory_in_d"] is None else f"{f['memory_in_d']:.1f}"
        lines.append(
            f"{name:20}{f['ratio']:9.2f}{target:>8}{f['ratio_to_randn_into']:14.2f}{1000 * f['seconds']:9.2f}"
            f"{f['page_faults']:13.0f}{memory:>10}"
        )
    if isinstance(peers, str):
        lines.append(f"jax_privacy: {peers}")
    elif peers:
        lines += [f"{'jax_privacy, ' + name:33}{f['ratio']:9.2f}" for name, f in peers.items() if name != "randn"]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimension", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--threads", type=int, default=2, help="torch's threads, and at most the stream's")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter that has jax_privacy")
    parser.add_argument("--quick", action="store_true", help="d = 10^6, 5 rounds, no record")
    parser.add_argument("--small", action="store_true", help="steps of small models on the CPU, in microseconds")
    parser.add_argument("--out", type=Path, help="the record; without it benchmarks/records/noise-DEVICE.json")
    given = parser.parse_args()
    dimension = given.dimension or (10**6 if given.quick else 10**7)
    rounds = given.rounds or (5 if given.quick else 15)
    torch.set_num_threads(given.threads)
    what = {"commit": commit(), "command": [Path(sys.argv[0]).name, *sys.argv[1:]], "threads": given.threads}
    if given.small:
        print(small_table(figures := small(given.rounds or 40)))
        record = {**what, "machine": machine("cpu"), "figures": figures}
        (given.out or RECORDS / "noise-small.json").write_text(json.dumps(record, indent=1) + "\n")
        return 0
    figures = measure(dimension, rounds, given.device, given.threads)
    peers = peer(given.peer, dimension, min(rounds, 7), given.threads) if given.peer else None
    print(table(figures, peers, dimension))
    if given.out or not given.quick:
        out = given.out or RECORDS / f"noise-{given.device}.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        record = {
            "what": "seconds a step of noise; ratio: median over rounds to torch.randn of the same size, interleaved",
            **what,
            "dimension": dimension,
            "rounds": rounds,
            "machine": machine(given.device),
            "figures": figures,
            "jax_privacy": peers,
        }
        out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
