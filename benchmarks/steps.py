"""What a private step costs, as a ratio to a plain SGD step in the same process, interleaved, on made-up data.

    python benchmarks/steps.py                          # every workload, clipping and tree noise, two threads
    python benchmarks/steps.py --peer PYTHON            # the same table with Opacus, run by another interpreter
    python benchmarks/steps.py --device cuda --rounds 5 --record steps-cuda.json     # minutes; extra workloads too

Medians over steps; in every round each method runs for about the same time, so that whatever else the machine does
falls on all of them (the fastest fifth is given too). `--record FILE` keeps the raw figures. Peak memory is that of
tensors allocated during a step, at its highest.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from workloads import EXTRA, WORKLOADS, token_loss

START = time.perf_counter()
Step = Callable[[], None]


BATCHES = {
    False: dict[str, int](),
    True: {"logistic 784-10": 4096, "mlp 784-256-128-10": 4096, "mnist cnn": 2048, "vgg-6 32x32": 1024},
}
"""What is given to the model at once where nothing is asked: on a GPU small batches only measure launches."""
RATE = 1e-3


def plain(model: nn.Module, x: Tensor, y: Tensor, loss: Any) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return step


def sgd(model: nn.Module) -> tuple[list[Tensor], torch.optim.Optimizer]:
    """Sums that are the gradients the optimizer reads."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return [p.grad for p in model.parameters()], optimizer


def private(model: nn.Module, x: Tensor, y: Tensor, loss: Any, noise: Any = None) -> Step:
    from momentree.query.clipped import ClippedGradients

    query = ClippedGradients(model, loss, clip=1.0)
    sums, optimizer = sgd(model)

    def step() -> None:
        torch._foreach_zero_(sums)
        query.add_(sums, x, y)
        if noise is not None:
            noise.add_(sums, 1.0)
        torch._foreach_mul_(sums, 1 / len(x))
        optimizer.step()

    return step


def lagged(model: nn.Module, x: Tensor, y: Tensor, loss: Any, noise: Any = None) -> Step:
    from momentree.query.differences import ClippedDifferences

    query = ClippedDifferences(model, loss, clip=1.0, difference_clip=0.1)
    sums, optimizer = sgd(model)
    before = [p.detach() * 0.999 for p in query.parameters]

    def step() -> None:
        torch._foreach_zero_(sums)
        query.add_lagged_(sums, x, y, lagged=before, leak=0.1)
        if noise is not None:
            noise.add_(sums, 1.0)
        torch._foreach_mul_(sums, 1 / len(x))
        optimizer.step()

    return step


def tree_noise(model: nn.Module) -> Any:
    """A stream of tree noise in the model's shapes, or None where this version has none."""
    try:
        from momentree.noise.normals import KeyedNormals
        from momentree.noise.stream import NoiseStream
        from momentree.strategy.tree import Tree
    except ImportError:
        return None
    shapes = [tuple(p.shape) for p in model.parameters()]
    device = next(model.parameters()).device
    return NoiseStream(Tree(1 << 20, 0.9), KeyedNormals(bytes(32)), shapes, dtype=torch.float32, device=device)


def opacus(model: nn.Module, x: Tensor, y: Tensor, loss: Any, mode: str) -> Step:
    from opacus import GradSampleModule
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    inner = torch.optim.SGD(model.parameters(), lr=RATE)
    facts: dict[str, Any] = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": len(x)}
    if mode == "hooks":
        wrapped = GradSampleModule(model)
        optimizer = DPOptimizer(inner, **facts)

        def step() -> None:
            optimizer.zero_grad()
            loss(wrapped(x), y).backward()
            optimizer.step()

        return step
    ghost = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0, use_ghost_clipping=True)
    clipping = DPOptimizerFastGradientClipping(inner, **facts)
    if loss is token_loss:
        criterion: nn.Module = TokenLoss()
    else:
        criterion = nn.MSELoss(reduction="mean") if loss is F.mse_loss else nn.CrossEntropyLoss(reduction="mean")
    bounded = DPLossFastGradientClipping(ghost, clipping, criterion)

    def ghost_step() -> None:
        clipping.zero_grad()
        bounded(ghost(x), y).backward()
        clipping.step()

    return ghost_step


class TokenLoss(nn.Module):
    """The mean over an example's tokens, as Opacus wants losses: one number an example without reduction."""

    reduction = "mean"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        each = F.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(1)
        return each if self.reduction == "none" else each.mean()


def timed(step: Step, times: int, device: str) -> list[float]:
    """Seconds of each of several steps, after one that is not counted (the caches are another method's then)."""
    found = []
    step()
    if device == "cuda":  # steps overlap with the host there: only their mean can be had
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            step()
        torch.cuda.synchronize()
        return [(time.perf_counter() - start) / times]
    for _ in range(times):
        start = time.perf_counter()
        step()
        found.append(time.perf_counter() - start)
    return found


def peak(step: Step, device: str) -> int:
    """Bytes of tensors allocated during one step at its highest, above what was there before."""
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        step()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = highest = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        highest = max(highest, now)
    return highest


def fast(seconds: list[float]) -> float:
    """What a fifth of the steps stay below: on a busy machine, the ones that nothing else interrupted."""
    return sorted(seconds)[len(seconds) // 5]


def measure(name: str, methods: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    make, data, loss = {**WORKLOADS, **EXTRA}[name]
    torch.manual_seed(0)
    x, y = (t.to(args.device) for t in data(args.batch or BATCHES[args.device == "cuda"].get(name, 256)))
    steps: dict[str, Step] = {}
    for method, build in methods.items():
        model = make().to(args.device)
        try:
            built = build(model, x, y, loss)
            built()
            built()
            steps[method] = built
        except Exception as error:  # what a method cannot do is a fact of the table
            print(f"# {name}: {method} does not run: {type(error).__name__}: {error}", file=sys.stderr)
    if "plain" not in steps:
        raise SystemExit(f"{name}: not even the plain step runs; see the line above")
    times = {m: max(1, min(50, int(args.slice / min(timed(s, 2, args.device))))) for m, s in steps.items()}
    found: dict[str, list[float]] = {m: [] for m in steps}
    for _ in range(args.rounds):
        for method, step in steps.items():
            found[method] += timed(step, times[method], args.device)
    base = statistics.median(found["plain"])
    memory = {m: peak(s, args.device) for m, s in steps.items()}
    return {
        "workload": name,
        "batch": len(x),
        "plain_ms": base * 1e3,
        "ratio": {m: statistics.median(v) / base for m, v in found.items()},
        "ratio_of_fast_fifth": {m: fast(v) / fast(found["plain"]) for m, v in found.items()},
        "peak_bytes": memory,
        "microseconds": {m: [round(1e6 * second) for second in v] for m, v in found.items()},
    }


def rows(args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.as_peer:
        methods: dict[str, Any] = {
            "plain": plain,
            "opacus hooks": lambda *a: opacus(*a, "hooks"),
            "opacus ghost": lambda *a: opacus(*a, "ghost"),
        }
    else:
        methods = {"plain": plain, "clip": private, "epoch-lag clip": lagged}
        if tree_noise(nn.Linear(2, 2)) is not None:
            methods["clip + tree"] = lambda m, *a: private(m, *a, noise=tree_noise(m))
            methods["epoch-lag + tree"] = lambda m, *a: lagged(m, *a, noise=tree_noise(m))
    everything = {**WORKLOADS, **EXTRA}
    chosen = [n for n in everything if any(n.startswith(w) for w in args.workloads.split(","))]
    if not args.workloads:
        chosen = list(everything if args.device == "cuda" else WORKLOADS)
    found = []
    for name in chosen:
        if args.seconds and time.perf_counter() - START > args.seconds:
            print(f"# {name}: left out, {args.seconds:.0f} seconds are over", file=sys.stderr)
            continue
        row = measure(name, methods, args)
        found.append(row)
        print(line(row), file=sys.stderr if args.as_peer else sys.stdout, flush=True)
        if args.out and not args.as_peer:
            write(args, found)
    return found


def line(row: dict[str, Any]) -> str:
    fastest, base = row["ratio_of_fast_fifth"], max(1, row["peak_bytes"]["plain"])
    ratios = "  ".join(f"{m} {r:.2f} ({fastest[m]:.2f})" for m, r in row["ratio"].items() if m != "plain")
    peaks = "  ".join(f"{m} {b / base:.2f}" for m, b in row["peak_bytes"].items() if m != "plain")
    return f"{row['workload']:24s} B={row['batch']:<5d} plain {row['plain_ms']:8.3f} ms   {ratios}   | memory: {peaks}"


def write(args: argparse.Namespace, ours: list[dict[str, Any]], peer: list[dict[str, Any]] | None = None) -> None:
    cuda = args.device.startswith("cuda")
    record = {
        "machine": torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "device": args.device,
        "threads": args.threads,
        "tf32": args.tf32,
        "rounds": args.rounds,
        "ours": ours,
        **({} if peer is None else {"peer": peer}),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tf32", action="store_true", help="let the model's own products use tf32 on a GPU")
    parser.add_argument("--batch", type=int, default=0, help="256 if not given; on a GPU a size for each workload")
    parser.add_argument("--quick", action="store_true", help="three rounds, for a first look")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slice", type=float, default=0.05, help="seconds for each method in each round")
    parser.add_argument(
        "--workloads", default="", help="beginnings of names, with commas between; all of them if empty"
    )
    parser.add_argument("--peer", help="an interpreter that has Opacus")
    parser.add_argument("--seconds", type=float, default=0.0, help="start no further workload after as many seconds")
    parser.add_argument("--record", "--out", dest="out", type=Path, help="where the raw figures go, as JSON")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.rounds = min(args.rounds, 3) if args.quick else args.rounds
    torch.set_num_threads(args.threads)
    if args.tf32:
        torch.set_float32_matmul_precision("high")
    found = rows(args)
    if args.as_peer:
        print(json.dumps(found))
        return
    if args.peer:
        command = [args.peer, __file__, "--as-peer", *(a for a in sys.argv[1:] if a not in ("--peer", args.peer))]
        answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        peer = json.loads(answer.stdout.strip().splitlines()[-1])
        if args.out:
            write(args, found, peer)


if __name__ == "__main__":
    main()
