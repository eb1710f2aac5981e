"""Without noise and with a clip that never binds, each algorithm is its textbook self, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from momentree.plan import Plan
from momentree.training.run import Run, start
from momentree.update import Drawn
from training.standins import Slow, flat, small_data, small_model, squared

FACTS: dict[str, dict[str, Any]] = {
    "dp-nsgd": {"momentum": 0.8, "strategy": "tree"},
    "dp-sgd": {"order": "fixed"},
    "dp-gd": {"batch_size": None},
    "dp-ftrl": {"momentum": 0.8, "strategy": "tree"},
    "rrsgd": {"order": "fixed"},
}
RATE = 0.07


def without_noise(tmp_path: Path, name: str) -> Run:
    facts = {"examples": 11, "batch_size": 4, "epochs": 3, "clip": 1e6, "noise_multiplier": 1.0, "delta": 1e-5}
    plan = Plan(algorithm=name, learning_rate=RATE, **{**facts, **FACTS[name]})
    run = start(plan, small_model(), squared, small_data(11), out=tmp_path / "run")
    release: Any = run._release
    release.noise_scale = 0.0
    return run


def gradients(run: Run) -> Any:
    """The sum of a step's gradients over the public batch size, at any weights."""
    x, y = small_data(11)
    slow = Slow(small_model(), squared, None)

    def at(w: np.ndarray, step: int) -> np.ndarray:
        start_at = 0
        with torch.no_grad():
            for p in slow.parameters:
                p.copy_(torch.from_numpy(w[start_at : start_at + p.numel()]).reshape(p.shape))
                start_at += p.numel()
        rows = run.plan.order.batch(step, b"")
        return sum(flat(slow.gradient(x[i], y[i])) for i in rows) / run.plan.shape.batch_size

    return at


@pytest.mark.parametrize("name", FACTS)
def test_equals_the_textbook(tmp_path: Path, name: str) -> None:
    run = without_noise(tmp_path, name)
    gradient, beta = gradients(run), run.plan.momentum
    w = flat(run._parameters)
    m, path = np.zeros_like(w), [w]
    for batch in run:
        g = gradient(w, batch.step)
        m = beta * m + (1 - beta) * g
        w = w - RATE * {"dp-nsgd": m / np.linalg.norm(m), "dp-ftrl": m}.get(name, g)
        path.append(w)
        run.step(batch)
        if not run.finished:
            np.testing.assert_allclose(flat(run._parameters), w, rtol=1e-6, atol=1e-9)
    if name == "rrsgd":
        drawn = Drawn(run.plan.seed)
        w = path[max(t for t in range(1, run.steps + 1) if drawn.takes(t)) - 1]
    np.testing.assert_allclose(flat(run._parameters), w, rtol=1e-6, atol=1e-9)
    assert run.steps == 3 * (1 if name == "dp-gd" else 3)
