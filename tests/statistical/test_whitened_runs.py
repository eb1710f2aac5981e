"""Neighbouring runs through the public door, whitened: what `Plan.start` releases against what the plan claims.

Everything is the product's own but for two things. The draws are unit vectors (or nothing), so the released stream of
a run without data is the matrix M of its noise, σ, clip and batch size included. The update follows a script, so two
neighbours ask at the same points. Their streams differ by D, and ‖M⁺D‖ is the largest μ that any distinguisher sees.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import momentree as mt
from momentree.training import assemble
from momentree.training.releases.store import InMemory

CLIP = 0.5
KEY = bytes(range(32))


class Steep(nn.Module):
    """Loss x·w|w|/2: a row's gradient is x|w|, which grows along a growing script; rows of zero have none."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(size, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0] * (self.w * self.w.abs()).sum() / 2


class Units:
    """Base row k is the k-th unit vector."""

    name = "chacha20"

    def __init__(self, subkey: bytes) -> None:
        self.names: dict[tuple[int, int], int] = {}

    def fill_(self, out: Tensor, stream: int, row: int, start: int) -> Tensor:
        out.zero_()
        out[self.names.setdefault((stream, row), len(self.names)) - start] = 1.0
        return out


class Silence(Units):
    def fill_(self, out: Tensor, stream: int, row: int, start: int) -> Tensor:
        return out.zero_()


class Script:
    """An update that goes its own way and notes what it was given."""

    name = "script"

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def step_(self, parameters: Any, released: Any) -> None:
        self.seen.append(released[0].detach().numpy().copy())
        with torch.no_grad():
            parameters[0].fill_(1.0 + 2.0 * len(self.seen))

    def hand_over(self, parameters: Any) -> Any:
        return list(parameters)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        return None

    def describe(self) -> dict[str, object]:
        return {"name": self.name}


def value(output: Tensor, target: Tensor) -> Tensor:
    return output


def stream(
    plan: mt.Plan, out: Path, x: Tensor, size: int, source: Any, monkeypatch: Any, **options: Any
) -> tuple[np.ndarray, Any]:
    """What the run of the plan releases, step by step; and who took part."""
    monkeypatch.setattr(assemble, "KeyedNormals", source)
    model = Steep(size)
    with torch.no_grad():
        model.w.fill_(1.0)
    script = Script()
    rows = torch.stack([x, x], 1)
    run = plan.start(model, value, (rows, x), out=out, key=KEY, update=script, **options)
    places = [set(run._batch_of(t).tolist()) for t in range(1, plan.steps + 1)]
    run.fit(checkpoint_every=10**6)
    return np.array(script.seen), places


class Neighbours:
    """A plan's noise matrix, and how far apart two data sets are in its metric."""

    def __init__(self, plan: mt.Plan, tmp_path: Path, monkeypatch: Any, **options: Any) -> None:
        self.plan, self.folder, self.patch, self.options, self.count = plan, tmp_path, monkeypatch, options, 0
        size = 3 * (2 * plan.steps + 2)
        self.matrix, _ = self.run(torch.zeros(plan.examples, dtype=torch.float64), size, Units)

    def run(self, x: Tensor, size: int, source: Any) -> tuple[np.ndarray, Any]:
        self.count += 1
        return stream(self.plan, self.folder / str(self.count), x, size, source, self.patch, **self.options)

    def moved(self, rows: list[int], to: float = 0.0) -> tuple[float, list[set[int]]]:
        """‖M⁺D‖ where these rows go from 1 to `to`."""
        x = torch.ones(self.plan.examples, dtype=torch.float64)
        whole, places = self.run(x, 1, Silence)
        x[rows] = to
        less, same = self.run(x, 1, Silence)
        if not self.plan.order.secret:
            assert places == same or self.plan.order.name == "reshuffled"
        apart = (whole - less)[:, 0]
        shift, *_ = np.linalg.lstsq(self.matrix, apart, rcond=None)
        np.testing.assert_allclose(self.matrix @ shift, apart, atol=1e-9)
        return float(np.linalg.norm(shift)), places


STRATEGIES = ("identity", "tree", "tree-full", "tree-ls", "bsr", "bisr", "blt", "dense")
COMBINATIONS = [
    *(("dp-nsgd", "fixed", s, {}) for s in STRATEGIES),
    *(("dp-nsgd", "fixed", s, {"restart_every": 2}) for s in ("tree", "bsr", "tree-ls", "blt")),
    ("dp-nsgd", "fixed", "bsr", {"band": 2}),
    ("dp-nsgd", "fixed", "bsr", {"band": 9}),
    ("dp-nsgd", "fixed", "tree", {"schedule": "linear", "restart_every": 1}),
    ("dp-ftrl", "fixed", "tree", {}),
    ("dp-ftrl", "fixed", "dense", {"measure": "momentum"}),
    ("dp-sgd", "fixed", "identity", {}),
    ("dp-gd", "fixed", "identity", {"batch_size": None}),
    ("rrsgd", "fixed", "identity", {}),
    *(("epoch-lag", "fixed", s, {}) for s in STRATEGIES),
    ("epoch-lag", "fixed", "tree", {"restart_every": 1, "leak": 0.3, "difference_clip": 0.02}),
    ("dp-srm", "fixed", "identity", {}),
    ("dp-spider", "fixed", "identity", {"difference_clip": 0.3}),
    ("sr-nsgd", "fixed", "tree-full", {}),
    ("sr-nsgd", "fixed", "tree-full", {"batch_size": 1, "epochs": 3, "momentum": 0.5}),
    ("sr-nsgd", "fixed", "tree-full", {"batch_size": 7, "epochs": 5}),
]


@pytest.mark.parametrize(("algorithm", "order", "strategy", "more"), COMBINATIONS)
def test_no_place_moves_more_than_is_claimed(
    algorithm: str, order: str, strategy: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"examples": 7, "batch_size": 2, "epochs": 3, "clip": CLIP, "noise_multiplier": 1.3, "delta": 1e-3} | more
    plan = mt.Plan(**facts, algorithm=algorithm, order=order, strategy=strategy)
    pair = Neighbours(plan, tmp_path, monkeypatch)
    found = [pair.moved([row])[0] for row in range(plan.examples)]
    assert max(found) <= plan.mu * (1 + 1e-9)
    if strategy in ("tree-full", "tree-ls"):  # every node is paid for, and the stream shows less than every node
        assert max(found) >= 0.3 * plan.mu
    elif plan.sensitivity_of(plan.strategy).exact:
        assert max(found) >= plan.mu * (1 - 1e-6)


@pytest.mark.parametrize("algorithm", ["dp-nsgd", "epoch-lag", "sr-nsgd", "dp-srm", "dp-spider"])
def test_replacing_a_row_moves_twice_as_far(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"examples": 6, "batch_size": 2, "epochs": 3, "clip": CLIP, "noise_multiplier": 0.8, "delta": 1e-3}
    plan = mt.Plan(**facts, algorithm=algorithm, order="fixed", adjacency="replace-one")
    one = mt.Plan(**facts, algorithm=algorithm, order="fixed")
    assert plan.mu == pytest.approx(2 * one.mu)
    pair = Neighbours(plan, tmp_path, monkeypatch)
    removed = max(pair.moved([row])[0] for row in range(6))
    found = max(pair.moved([row], to=-1.0)[0] for row in range(6))
    assert found == pytest.approx(2 * removed, rel=1e-6)
    assert found <= plan.mu * (1 + 1e-9)
    assert algorithm == "sr-nsgd" or found >= plan.mu * (1 - 1e-6)


@pytest.mark.parametrize(("examples", "batch", "epochs"), [(5, 1, 4), (7, 2, 5), (3, 3, 6), (6, 1, 3)])
@pytest.mark.parametrize("rows", [1, 2])
def test_the_nodes_of_algorithm_2_at_their_own_noise(
    examples: int, batch: int, epochs: int, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that the store and the checkpoints hold together, on both sides of the border at step 2n."""
    facts = {"examples": examples, "batch_size": batch, "epochs": epochs, "clip": CLIP, "delta": 1e-3}
    plan = mt.Plan(**facts, noise_multiplier=0.9, algorithm="sr-nsgd", rows_per_person=rows)
    if rows > 1:
        assert plan.mu == pytest.approx(rows * mt.Plan(**facts, noise_multiplier=0.9, algorithm="sr-nsgd").mu)
    kept: dict[tuple[str, int], np.ndarray] = {}
    put = InMemory.put

    def noted(self: Any, name: str, step: int, tensors: Any) -> Any:
        kept[name, step] = tensors[0].detach().numpy().copy()
        return put(self, name, step, tensors)

    monkeypatch.setattr(InMemory, "put", noted)
    pair = Neighbours(plan, tmp_path, monkeypatch)
    size = 3 * (2 * plan.steps + 2)

    def everything(x: Tensor, size: int, source: Any) -> np.ndarray:
        kept.clear()
        stream_of_m, _ = pair.run(x, size, source)
        return np.concatenate([stream_of_m, [kept[key] for key in sorted(kept)]])

    whole_set = torch.ones(examples, dtype=torch.float64)
    matrix = everything(0 * whole_set, size, Units)
    whole = everything(whole_set, 1, Silence)
    found = 0.0
    for gone in itertools.combinations(range(examples), rows):
        x = whole_set.clone()
        x[list(gone)] = 0.0
        apart = (whole - everything(x, 1, Silence))[:, 0]
        shift, *_ = np.linalg.lstsq(matrix, apart, rcond=None)
        np.testing.assert_allclose(matrix @ shift, apart, atol=1e-9)
        found = max(found, float(np.linalg.norm(shift)))
    assert found <= plan.mu * (1 + 1e-9)
    if rows == 1:  # every node that is paid for is there to be seen; a step that opens an epoch has no r
        n = plan.steps_per_epoch
        places = {f.name: f.squares(n) / f.noise_multiplier**2 for f in plan.families}
        places["iterate-difference"][0] = 0.0
        assert found == pytest.approx(np.sqrt(sum(places.values()).max()), rel=1e-6)
    assert found >= 0.7 * plan.mu or rows > batch


@pytest.mark.parametrize("strategy", ["identity", "tree", "bsr", "tree-ls"])
def test_reshuffled_stays_below_its_worst_case(strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"examples": 6, "batch_size": 2, "epochs": 3, "clip": CLIP, "noise_multiplier": 1.1, "delta": 1e-3}
    plan = mt.Plan(**facts, algorithm="dp-nsgd", order="reshuffled", strategy=strategy)
    pair = Neighbours(plan, tmp_path, monkeypatch)
    # the order's key depends on the data's digest: here it is given to both neighbours
    monkeypatch.setattr("momentree.training.run.data_hmac", lambda key, chunks: "the same")
    monkeypatch.setattr("momentree.training.run.uuid", _SameName)
    found = [pair.moved([row])[0] for row in range(6)]
    assert max(found) <= plan.mu * (1 + 1e-9)
    assert max(found) >= 0.5 * plan.mu


class _SameName:
    hex = "0" * 32

    @staticmethod
    def uuid4() -> Any:
        return _SameName


SAMPLED = [
    ("dp-sgd", "poisson", "identity", {}),
    ("dp-srm", "poisson", "identity", {}),
    ("dp-spider", "poisson", "identity", {}),
    ("rrsgd", "random-allocation", "identity", {}),
    ("dp-nsgd", "cyclic-poisson", "bsr", {"parts": 3, "band": 3}),
    ("dp-nsgd", "balls-in-bins", "tree", {}),
    ("dp-nsgd", "balls-in-bins", "bsr", {}),
    ("dp-ftrl", "random-allocation", "bsr", {"band": 2}),
]


@pytest.mark.parametrize(("algorithm", "order", "strategy", "more"), SAMPLED)
def test_sampled_orders_add_the_columns_of_the_steps_that_were_drawn(
    algorithm: str, order: str, strategy: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given who took part, a row moves the release by its columns of C and by nothing else: what the accounts price."""
    facts = {"examples": 9, "batch_size": 3, "epochs": 2, "clip": CLIP, "noise_multiplier": 2.0, "delta": 1e-2} | more
    plan = mt.Plan(**facts, algorithm=algorithm, order=order, strategy=strategy)
    monkeypatch.setattr("momentree.training.run.data_hmac", lambda key, chunks: "the same")
    monkeypatch.setattr("momentree.training.run.uuid", _SameName)
    pair = Neighbours(plan, tmp_path, monkeypatch, physical_batch_size=2)
    C = plan.strategy.matrix()
    for row in range(9):
        found, places = pair.moved([row])
        taken = [t for t, members in enumerate(places) if row in members]
        assert found == pytest.approx(np.linalg.norm(C[:, taken].sum(axis=1)) / 2.0, rel=1e-6)


@pytest.mark.parametrize("algorithm", ["dp-nsgd", "epoch-lag", "sr-nsgd"])
@pytest.mark.parametrize(("examples", "batch"), [(8, 3), (4, 1)])
def test_a_person_with_several_rows(
    algorithm: str, examples: int, batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"examples": examples, "batch_size": batch, "epochs": 3, "clip": CLIP, "delta": 1e-3, "momentum": 0.8}
    plan = mt.Plan(**facts, noise_multiplier=1.3, algorithm=algorithm, order="fixed", rows_per_person=2)
    pair = Neighbours(plan, tmp_path, monkeypatch)
    one = max(pair.moved([row])[0] for row in range(examples))
    found = max(pair.moved([a, b])[0] for a in range(examples) for b in range(a))
    assert one * (1 + 1e-6) < found <= plan.mu * (1 + 1e-9)
    if batch > 1:
        assert found == pytest.approx(2 * one, rel=1e-6)
