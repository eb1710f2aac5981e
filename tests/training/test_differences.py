"""The methods that look back, as whole runs: resumed to the same bits with vectors in memory and on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from momentree.errors import CheckError, MomentreeError
from momentree.memory import memory_floats
from momentree.training.releases.store import InMemory, OnDisk
from training.making import again, begin, copy, killed, leaks, net, rows, small_plan, tensors_of, weights

METHODS = ("sr-nsgd", "epoch-lag", "dp-srm", "dp-spider")


def plan_of(name: str, **more: Any) -> Any:
    given: dict[str, Any] = {"algorithm": name, "strategy": None, "noise_multiplier": 2.0, "order": "fixed", **more}
    return small_plan(**given)


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize("name", METHODS)
def test_killed_and_resumed_the_bits_are_the_same(tmp_path: Path, name: str, where: str) -> None:
    plan = plan_of(name, budget_memory=1 if where == "disk" else 1000)
    begin(tmp_path / "base", plan=plan).close()
    whole = again(copy(tmp_path / "base", tmp_path / "whole"))
    release: Any = whole._release
    assert isinstance(release.store, OnDisk if where == "disk" else InMemory)
    whole.fit(checkpoint_every=100)
    for step in (1, 4, 5, 9, 11):
        folder = copy(tmp_path / "base", tmp_path / f"killed-{step}")
        run = again(folder)
        run.checkpoint_every = 3
        for batch in run:
            run.step(batch)
            if batch.step == step:
                break
        killed(run)
        resumed = again(folder)
        assert resumed.done == 3 * (step // 3)
        resumed.fit(checkpoint_every=2)
        assert torch.equal(weights(resumed.model), weights(whole.model))
        assert not (folder / "waiting").exists()


@pytest.mark.parametrize("name", METHODS)
def test_what_waits_on_disk_is_not_written_over_by_a_replay_that_differs(tmp_path: Path, name: str) -> None:
    """`fit` leaves vectors of steps that no checkpoint holds; the same noise on another value gives the difference."""

    def broken(folder: Path) -> list[Path]:
        run = again(folder)
        step_ = run._update.step_

        def stops(parameters: Any, released: Any) -> None:
            if run._saved + 2 == run.done + 1:  # in the second step after the checkpoint
                raise KeyboardInterrupt
            step_(parameters, released)

        run._update.step_ = stops  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            run.fit(checkpoint_every=100)
        run.close()
        return sorted((folder / "waiting").glob("*-000000001.safetensors"))

    begin(tmp_path / "base", plan=plan_of(name, budget_memory=1)).close()
    files = broken(copy(tmp_path / "base", tmp_path / "same"))
    assert files
    again(tmp_path / "same").fit()
    for path in broken(tmp_path / "base"):
        held = safetensors.torch.load_file(path)
        safetensors.torch.save_file({key: t * (1 + 1e-6) for key, t in held.items()}, path)
    before = [(tmp_path / "base" / "waiting" / path.name).read_bytes() for path in files]
    run = again(copy(tmp_path / "base", tmp_path / "differs"))
    with pytest.raises(CheckError, match="step 1 was computed before"):
        run.fit()
    run.close()
    assert [(tmp_path / "differs" / "waiting" / path.name).read_bytes() for path in files] == before
    forked = again(tmp_path / "differs", fork=True)
    forked.fit()
    assert forked.certificate()["attempts"] == 2
    for path in (tmp_path / "base" / "waiting").glob("*"):
        path.write_bytes(b"")  # as a power cut may leave it
    again(tmp_path / "base").fit()


@pytest.mark.parametrize("name", METHODS)
def test_what_waits_is_what_was_declared(tmp_path: Path, name: str) -> None:
    plan = plan_of(name)
    run = begin(tmp_path / "run", plan=plan)
    d = weights(run.model).numel()
    said = memory_floats(plan, d)
    assert said.where == "memory"
    run.fit()
    store: Any = run._release.store  # type: ignore[attr-defined]
    held = (*store._kept.values(), *store._free)
    assert sum(t.numel() for tensors in held for t in tensors) == said.waiting * d
    assert memory_floats(plan, 10**9).where == "disk"
    assert memory_floats(plan, 10**9).floats_on_disk == said.waiting * 10**9


def held(run: Any) -> int:
    """Numbers in all tensors that the release, its store and streams, and the update keep; chunk buffers apart."""
    release = run._release
    mine = [v for name, v in vars(release).items() if name not in ("query", "_parameters")]
    storages = {}
    for thing in (mine, run._update.state_dict()):
        for tensor in tensors_of(thing, but=release.query):
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
    model = {p.untyped_storage().data_ptr() for p in run.model.parameters()}
    return sum(size for place, size in storages.items() if place not in model and size > 100)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("dp-nsgd", {"strategy": "tree"}),
        ("dp-nsgd", {"strategy": "tree", "update": "adam"}),
        ("dp-nsgd", {"strategy": "bsr", "band": 3, "update": "nesterov"}),
        ("dp-ftrl", {"strategy": "blt"}),
        ("dp-sgd", {"strategy": "identity"}),
        ("dp-gd", {"batch_size": None}),
        ("rrsgd", {"strategy": "identity"}),
        ("epoch-lag", {"strategy": "tree"}),
        ("sr-nsgd", {}),
        ("sr-nsgd", {"update": "momentum"}),
        ("dp-srm", {}),
        ("dp-spider", {}),
    ],
)
def test_all_memory_is_what_the_plan_prints(tmp_path: Path, name: str, more: dict[str, Any]) -> None:
    """Every vector that lasts from one step to the next; the noise's own chunk buffers are emptied before the count."""
    model = nn.Sequential(nn.Linear(5, 40, bias=False), nn.Tanh(), nn.Linear(40, 3, bias=False))
    d = weights(model).numel()
    plan = plan_of(name, dimension=d, **more)
    run = begin(tmp_path / "run", plan=plan, model=model, keep_key=True)
    run.fit()
    release: Any = run._release
    stream = release.r_noise if name == "sr-nsgd" else release.noise
    said = plan.to_dict()["memory"]
    assert said["vectors"]["noise"] == len(stream._slots) == plan.to_dict()["noise_vectors"]
    slots = sum(slot.numel() for slot in stream._slots)
    for attribute in ("noise", "r_noise"):
        if hasattr(release, attribute):
            setattr(release, attribute, None)
    for tree in ("_G", "_D"):
        if hasattr(release, tree):
            getattr(release, tree).source = None
    if hasattr(release, "source"):
        release.source = None
    assert held(run) + slots == said["floats_in_memory"] == said["vectors_in_memory"] * d


def test_files_of_earlier_steps_do_not_pile_up(tmp_path: Path) -> None:
    plan = plan_of("epoch-lag", budget_memory=1, epochs=8)
    run = begin(tmp_path / "run", plan=plan)
    run.checkpoint_every = 1
    n = plan.steps_per_epoch
    for batch in run:
        run.step(batch)
        if batch.step == 20:
            break
        assert len(list((tmp_path / "run" / "waiting").iterdir())) <= 2 * n
    run.close()


@pytest.mark.parametrize("name", ["sr-nsgd", "epoch-lag"])
def test_another_order_than_the_fixed_one_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(MomentreeError, match="fixed"):
        begin(tmp_path / "run", plan=plan_of(name, order="reshuffled"))


@pytest.mark.parametrize("name", ["dp-srm", "dp-spider"])
def test_sampled_batches(tmp_path: Path, name: str) -> None:
    run = begin(tmp_path / "run", plan=plan_of(name, order="poisson", noise_multiplier=4.0), model=net(dropout=0.2))
    run.fit()
    assert torch.isfinite(weights(run.model)).all()
    assert len(rows()[0]) == run.plan.examples


@pytest.mark.parametrize("name", METHODS)
def test_no_private_sum_survives_a_step(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin(tmp_path / "run", plan=plan_of(name))
    run.checkpoint_every = 1
    query: Any = run._release.query  # type: ignore[attr-defined]
    asked = "add_anchored_" if name == "sr-nsgd" else "add_lagged_"
    original = getattr(query, asked)
    seen: list[list[Tensor]] = []

    def spy(*sums: Any, **more: Any) -> None:
        original(*sums, **more)
        count = 3 if name == "sr-nsgd" else 1
        seen.append([t.clone() for each in sums[:count] if each is not None for t in each])

    monkeypatch.setattr(query, asked, spy)
    for batch in run:
        run.step(batch)
        if batch.step > 6:
            break
        assert leaks(tensors_of(run, seen), seen[-1:], 8) == 0
        for path in (tmp_path / "run").rglob("*.safetensors"):
            assert leaks(list(safetensors.torch.load_file(path).values()), seen, 8) == 0
    assert len(seen) == 7
    run.planted = [t.clone() for t in seen[-1]]  # type: ignore[attr-defined]
    assert leaks(tensors_of(run, seen), seen[-1:], 8) > 0
