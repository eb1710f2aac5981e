"""Forked runs of neighbours, whitened: all that both attempts have shown against two runs composed.

As in `test_whitened_runs`: draws are unit vectors, so what is released without data is the matrix of the noise, and
‖M⁺D‖ is the largest μ that any distinguisher of the two releases sees.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import momentree as mt
from momentree.training import assemble
from momentree.training.run import load
from statistical.test_whitened_runs import CLIP, KEY, Script, Silence, Steep, Units, _SameName, value

Released = list[np.ndarray]


class Shared(Units):
    """Unit vectors that no two subkeys share; `same` is what a fork must not do, the first attempt's draws again."""

    known: dict[tuple[Any, int, int], int]
    same = False

    def __init__(self, subkey: bytes) -> None:
        self.subkey = None if self.same else subkey

    def fill_(self, out: torch.Tensor, stream: int, row: int, start: int) -> torch.Tensor:
        out.zero_()
        out[self.known.setdefault((self.subkey, stream, row), len(self.known)) - start] = 1.0
        return out


def forked(plan: mt.Plan, out: Path, x: torch.Tensor, size: int, *, at: int, back: int) -> Released:
    """What a run shows that is killed after step `at` and forks from the checkpoint at step `back`."""
    rows = torch.stack([x, x], 1)

    def model() -> Steep:
        made = Steep(size)
        with torch.no_grad():
            made.w.fill_(1.0)
        return made

    first, second = Script(), Script()
    run = plan.start(model(), value, (rows, x), out=out, key=KEY, update=first)
    run.checkpoint_every = 10**6
    for batch in run:
        run.step(batch)
        if batch.step == back:
            run.checkpoint()
        if batch.step == at:
            break
    run.close()
    run = load(out, model(), value, (rows, x), update=second, fork=True)
    assert run.done == back
    second.seen = first.seen[:back]
    run.fit()
    return [*first.seen, *second.seen[back:]]


CASES = [
    *(("dp-nsgd", "fixed", s, {}) for s in ("identity", "tree", "tree-ls", "bsr", "blt", "dense")),
    ("dp-nsgd", "fixed", "tree", {"restart_every": 1}),
    ("dp-nsgd", "reshuffled", "tree", {}),
    ("epoch-lag", "fixed", "tree", {}),
    ("sr-nsgd", "fixed", "tree-full", {}),
    ("dp-srm", "fixed", "identity", {}),
    ("dp-spider", "fixed", "identity", {}),
]


@pytest.mark.parametrize(("algorithm", "order", "strategy", "more"), CASES)
def test_both_attempts_show_no_more_than_two_runs(
    algorithm: str, order: str, strategy: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"examples": 4, "batch_size": 2, "epochs": 3, "clip": CLIP, "noise_multiplier": 1.3, "delta": 1e-3} | more
    plan = mt.Plan(**facts, algorithm=algorithm, order=order, strategy=strategy)
    monkeypatch.setattr("momentree.training.run.data_hmac", lambda key, chunks: "the same")
    monkeypatch.setattr("momentree.training.run.uuid", _SameName)
    monkeypatch.setattr("momentree.training.fork.uuid", _SameName)
    for at, back in ((plan.steps - 1, 0), (plan.steps - 1, 1), (3, 2), (4, 4)):
        matrix, apart = neighbours(plan, tmp_path / f"{at}-{back}", monkeypatch, at, back)
        found = [whitened(matrix, each) for each in apart]
        assert max(found) <= math.sqrt(2) * plan.mu * (1 + 1e-9)
        if (at, back) == (plan.steps - 1, 0) and order == "fixed" and algorithm != "sr-nsgd":
            assert max(found) > 1.1 * plan.mu  # one attempt's account would be too small


def test_the_same_draws_again_would_give_everything_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs move along the script, so a step shown twice at different points differs by its signal alone."""
    facts = {"examples": 4, "batch_size": 2, "epochs": 3, "clip": CLIP, "noise_multiplier": 1.3, "delta": 1e-3}
    plan = mt.Plan(**facts, algorithm="dp-nsgd", order="fixed", strategy="tree")
    monkeypatch.setattr(Shared, "same", True)
    matrix, apart = neighbours(plan, tmp_path, monkeypatch, 4, 2, turned=True)
    with pytest.raises(AssertionError, match="Not equal"):
        [whitened(matrix, each) for each in apart]


def neighbours(
    plan: mt.Plan, folder: Path, monkeypatch: pytest.MonkeyPatch, at: int, back: int, *, turned: bool = False
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The matrix of the noise of both attempts, and how far apart the signals are for every row that is removed."""
    monkeypatch.setattr(Shared, "known", {}, raising=False)
    monkeypatch.setattr(assemble, "KeyedNormals", Shared)
    size = 6 * (2 * plan.steps + 2)
    matrix = np.array(forked(plan, folder / "noise", torch.zeros(4).double(), size, at=at, back=back))
    monkeypatch.setattr(assemble, "KeyedNormals", Silence)
    rows = [torch.ones(4).double(), *(1 - torch.eye(4).double())]
    whole, *less = (np.array(forked(plan, folder / str(i), x, 1, at=at, back=back))[:, 0] for i, x in enumerate(rows))
    apart = [whole - each for each in less]
    if turned:  # the second attempt asks where the gradient points the other way
        for each in apart:
            each[at:] *= -1
    return matrix, apart


def whitened(matrix: np.ndarray, apart: np.ndarray) -> float:
    shift, *_ = np.linalg.lstsq(matrix, apart, rcond=None)
    np.testing.assert_allclose(matrix @ shift, apart, atol=1e-9)
    return float(np.linalg.norm(shift))
