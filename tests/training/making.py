"""Small runs for tests: a plan, a model, some rows, a folder."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from momentree.plan import Plan
from momentree.training.run import Run, load, start

KEY = bytes(range(32))


def rows(examples: int = 30, inputs: int = 5, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(examples, inputs, generator=generator),
        torch.randint(0, classes, (examples,), generator=generator),
    )


def net(seed: int = 0, inputs: int = 5, classes: int = 3, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 4), nn.Tanh(), nn.Dropout(dropout), nn.Linear(4, classes))


def small_plan(**facts: Any) -> Plan:
    return Plan(
        **{
            "examples": 30,
            "batch_size": 8,
            "epochs": 3,
            "noise_multiplier": 1.0,
            "delta": 1e-5,
            "strategy": "tree",
            **facts,
        }
    )


def begin(out: Path, *, plan: Plan | None = None, model: nn.Module | None = None, data: Any = None, **more: Any) -> Run:
    return start(
        plan or small_plan(), model or net(), cross_entropy, rows() if data is None else data, out=out, key=KEY, **more
    )


def again(out: Path, *, model: nn.Module | None = None, data: Any = None, **more: Any) -> Run:
    """Resume, on a model that remembers nothing. Most of these folders are copies."""
    more.setdefault("moved", True)
    return load(out, model or net(seed=99), cross_entropy, rows() if data is None else data, **more)


def killed(run: Run) -> None:
    """What is left of a run whose process was killed: its folder as it stands, the lock gone with the process."""
    handle, run.folder._lock = run.folder._lock, None
    if handle is not None:
        os.close(handle)


def copy(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def tensors_of(thing: Any, but: Any) -> list[Tensor]:
    """Every tensor that can be reached from a run, whatever it hangs on, but for what the test itself noted."""
    found, seen, todo = [], {id(but)}, [thing]
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, type | ModuleType):
            continue
        seen.add(id(each))
        if isinstance(each, FunctionType):  # what it closes over; its globals are the whole program
            todo.extend(each.__closure__ or ())
            continue
        if isinstance(each, Tensor):
            found.append(each.detach())
        todo.extend(gc.get_referents(each))
    return found


def leaks(held: list[Tensor], sums: list[list[Tensor]], batch: int) -> int:
    """How many held tensors are a private sum, scaled or not."""
    return sum(
        bool(h.shape == s.shape and s.norm() > 0 and any(torch.allclose(h.float(), s * f) for f in (1, 1 / batch)))
        for h in held
        for step in sums
        for s in step
    )
