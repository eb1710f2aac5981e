"""The run as a user meets it: killed anywhere, resumed to the same bits, refused in one line, nothing private left."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from momentree import update as updates
from momentree.errors import CheckError, InputError, MomentreeError
from momentree.report.record import read_record
from momentree.training import digests
from momentree.training.folder import seal
from momentree.training.releases.single import Single
from momentree.training.run import Run, load, start
from momentree.update import Drawn, Keeping
from training.making import KEY, again, begin, copy, killed, leaks, net, rows, small_plan, tensors_of, weights

STEPS = 12


class TestResume:
    def test_killed_after_any_step_the_bits_are_the_same(self, tmp_path: Path) -> None:
        begin(tmp_path / "base").close()
        whole = again(copy(tmp_path / "base", tmp_path / "whole"))
        whole.fit()
        expected = weights(whole.model)
        for step in range(1, STEPS):
            folder = copy(tmp_path / "base", tmp_path / f"killed-{step}")
            run = again(folder)
            run.checkpoint_every = 5
            for batch in run:
                run.step(batch)
                if batch.step == step:
                    break
            killed(run)
            resumed = again(folder)
            assert resumed.done == 5 * (step // 5)
            resumed.fit()
            assert torch.equal(weights(resumed.model), expected)

    @pytest.mark.parametrize("update", ["adam", "drawn", "filtered"])
    def test_the_update_goes_on_where_it_was(self, tmp_path: Path, update: str) -> None:
        make = {
            "adam": lambda: updates.adam(0.05),
            "drawn": lambda: Keeping(updates.momentum(0.1), Drawn(3)),
            "filtered": lambda: updates.Filtered(0.1, 0.5),
        }[update]
        begin(tmp_path / "base", update=make()).close()
        whole = again(copy(tmp_path / "base", tmp_path / "whole"), update=make())
        whole.fit()
        run = again(tmp_path / "base", update=make())
        run.checkpoint_every = 4
        for batch in run:
            run.step(batch)
            if batch.step == 7:
                break
        killed(run)
        resumed = again(tmp_path / "base", update=make())
        resumed.fit()
        assert torch.equal(weights(resumed.model), weights(whole.model))

    def test_killed_for_real(self, tmp_path: Path) -> None:
        code = (
            "import os, signal, sys; sys.path.insert(0, sys.argv[2])\n"
            "from pathlib import Path\n"
            "from training.making import again\n"
            "import momentree.training.run as module\n"
            "module.code_version = lambda: sys.argv[3]\n"
            "run = again(Path(sys.argv[1])); run.checkpoint_every = 4\n"
            "for batch in run:\n"
            "    run.step(batch)\n"
            "    if batch.step == 7: os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        begin(tmp_path / "base").close()
        whole = again(copy(tmp_path / "base", tmp_path / "whole"))
        whole.fit()
        tests = str(Path(__file__).parents[1])
        env = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
        given = [str(tmp_path / "base"), tests, digests.code_version()]
        done = subprocess.run([sys.executable, "-c", code, *given], env=env, check=False)
        assert done.returncode == -signal.SIGKILL
        resumed = again(tmp_path / "base")
        assert (resumed.done, resumed._log.last) == (4, 7)
        resumed.fit()
        assert torch.equal(weights(resumed.model), weights(whole.model))

    def test_a_replay_that_differs_stops(self, tmp_path: Path) -> None:
        run = begin(tmp_path / "run")
        run.checkpoint_every = 5
        for batch in run:
            run.step(batch)
            if batch.step == 7:
                break
        killed(run)
        log = tmp_path / "run" / "releases.log"
        lines = log.read_text().splitlines()
        place = next(i for i, line in enumerate(lines) if line.startswith("7 "))
        lines[place] = "7 " + "0" * 64
        log.write_text("\n".join(lines) + "\n")
        resumed = again(tmp_path / "run")
        with pytest.raises(CheckError, match="step 7 was shown before"):
            resumed.fit()
        with pytest.raises(InputError, match="broken off"):
            resumed.step(next(iter(resumed)))

    def test_after_a_power_cut_with_a_short_log_it_is_not_resumed(self, tmp_path: Path) -> None:
        run = begin(tmp_path / "run")
        run.step(next(iter(run)))
        killed(run)
        log = tmp_path / "run" / "releases.log"
        head, boot = log.read_text().splitlines()[0].rsplit(" ", 1)
        assert boot
        log.write_text(f"{head} another-start-of-the-machine\n")
        with pytest.raises(CheckError, match="machine stopped"):
            again(tmp_path / "run")

    def test_a_line_cut_off_by_the_kill_was_not_shown(self, tmp_path: Path) -> None:
        run = begin(tmp_path / "run")
        for batch in run:
            run.step(batch)
            if batch.step == 2:
                break
        killed(run)
        log = tmp_path / "run" / "releases.log"
        log.write_text(log.read_text()[:-10])
        resumed = again(tmp_path / "run")
        assert resumed._log.last == 1
        resumed.fit()

    def test_other_data_plan_code_or_key_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        begin(tmp_path / "run").close()
        x, y = rows()
        x[3, 2] += 1e-6
        with pytest.raises(InputError, match="data differs"):
            again(tmp_path / "run", data=(x, y))
        swapped = [t.flip(0) for t in rows()]
        with pytest.raises(InputError, match="data differs"):
            again(tmp_path / "run", data=tuple(swapped))

        other = copy(tmp_path / "run", tmp_path / "other-plan")
        text = (other / "plan.toml").read_text()
        (other / "plan.toml").write_text(text.replace("noise_multiplier = 1.0", "noise_multiplier = 0.9", 1))
        with pytest.raises(InputError, match="plan"):
            again(other)

        with monkeypatch.context() as patched:
            patched.setattr("momentree.training.run.code_version", lambda: "0" * 64)
            with pytest.raises(InputError, match="version"):
                again(tmp_path / "run")
        other = copy(tmp_path / "run", tmp_path / "other-key")
        secrets = json.loads((other / "noise.key").read_text())
        secrets["key"] = "ab" * 32
        (other / "noise.key").write_text(json.dumps(secrets))
        with pytest.raises(InputError, match="differs"):
            again(other)
        again(tmp_path / "run").fit()

    def test_another_update_or_model_or_a_copy_is_refused(self, tmp_path: Path) -> None:
        begin(tmp_path / "run").close()
        with pytest.raises(InputError, match="update"):
            again(tmp_path / "run", update=updates.adam(0.1))
        with pytest.raises(InputError, match="layers or shapes"):
            again(tmp_path / "run", model=nn.Linear(5, 3))
        folder = copy(tmp_path / "run", tmp_path / "copy")
        with pytest.raises(InputError, match="copy"):
            again(folder, moved=False)
        (tmp_path / "run").rename(tmp_path / "elsewhere")
        again(tmp_path / "elsewhere", moved=False).close()

    def test_killed_between_the_last_step_and_the_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        begin(tmp_path / "base").close()
        whole = again(copy(tmp_path / "base", tmp_path / "whole"))
        whole.fit()
        run = again(tmp_path / "base")
        monkeypatch.setattr(run, "finish", sys.exit)
        with pytest.raises(SystemExit):
            run.fit()
        killed(run)
        resumed = again(tmp_path / "base")
        for batch in resumed:
            resumed.step(batch)
        assert resumed.finished
        assert torch.equal(weights(resumed.model), weights(whole.model))
        assert not (tmp_path / "base" / "noise.key").exists()

    def test_progress_is_told_of_durable_steps_only(self, tmp_path: Path) -> None:
        told = []

        def progress(facts: Any) -> None:
            saved = sorted((tmp_path / "run" / "checkpoints").iterdir())
            told.append((facts.step, saved[-1].name))

        begin(tmp_path / "run", progress=progress).fit(checkpoint_every=5)
        assert told == [(t, f"step-{t:09d}") for t in (5, 10, 12)]

    def test_a_damaged_checkpoint_is_refused(self, tmp_path: Path) -> None:
        begin(tmp_path / "run").close()
        tensors = next((tmp_path / "run" / "checkpoints").glob("*/tensors.safetensors"))
        content = bytearray(tensors.read_bytes())
        content[-1] ^= 1
        tensors.write_bytes(content)
        with pytest.raises(InputError, match="damaged"):
            again(tmp_path / "run")

    def test_one_process_at_a_time(self, tmp_path: Path) -> None:
        run = begin(tmp_path / "run")
        with pytest.raises(InputError, match="in use"):
            again(tmp_path / "run")
        run.close()
        again(tmp_path / "run").close()

    def test_an_interruption_waits_for_the_checkpoint(self, tmp_path: Path) -> None:
        begin(tmp_path / "base").close()
        whole = again(copy(tmp_path / "base", tmp_path / "whole"))
        whole.fit()
        run = again(tmp_path / "base", progress=lambda f: os.kill(os.getpid(), signal.SIGINT) if f.step == 5 else None)
        with pytest.raises(KeyboardInterrupt):
            run.fit(checkpoint_every=5)
        assert run.done == 6
        run.close()
        resumed = again(tmp_path / "base")
        assert resumed.done == 6
        resumed.fit()
        assert torch.equal(weights(resumed.model), weights(whole.model))

    def test_an_error_in_our_loop_shows_no_step_that_is_not_durable(self, tmp_path: Path) -> None:
        model = net()
        calls = []

        def loss(output: Tensor, target: Tensor) -> Tensor:
            if run_began and len(calls) > 6:
                raise RuntimeError("the user's own error")
            if run_began:
                calls.append(1)
            return cross_entropy(output, target)

        run_began = False
        run = start(small_plan(), model, loss, rows(), out=tmp_path / "run", key=KEY)
        run_began, first = True, weights(model)
        with pytest.raises(InputError, match="failed with RuntimeError on private rows"):
            run.fit(checkpoint_every=100)
        assert torch.equal(weights(model), first)
        with pytest.raises(InputError, match="broken off"):
            run.fit()


class TestNothingPrivateIsLeft:
    def private_sums(self, monkeypatch: pytest.MonkeyPatch) -> list[list[Tensor]]:
        """The sums as they are before their noise, noted behind the run's back."""
        seen: list[list[Tensor]] = []
        original = Single.ask_

        def ask(self: Single, step: int, pieces: Any) -> list[Tensor]:
            add = self.noise.add_

            def spy(blocks: Any, scale: float) -> None:
                seen.append([b.clone() for b in blocks])
                add(blocks, scale)

            monkeypatch.setattr(self.noise, "add_", spy)
            try:
                return original(self, step, pieces)
            finally:
                monkeypatch.setattr(self.noise, "add_", add)

        monkeypatch.setattr(Single, "ask_", ask)
        return seen

    def test_no_private_sum_survives_a_step(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = begin(tmp_path / "run")
        run.checkpoint_every = 1
        seen = self.private_sums(monkeypatch)
        for batch in run:
            run.step(batch)
            if batch.step > 4:
                break
            assert leaks(tensors_of(run, seen), seen[-1:], 8) == 0
            for path in (tmp_path / "run").rglob("*.safetensors"):
                assert leaks(list(safetensors.torch.load_file(path).values()), seen, 8) == 0
        run.planted = [t.clone() for t in seen[-1]]  # type: ignore[attr-defined]
        assert leaks(tensors_of(run, seen), seen[-1:], 8) > 0

    def test_a_step_broken_off_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = begin(tmp_path / "run")
        release: Any = run._release

        def fails(blocks: Any, scale: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(release.noise, "add_", fails)
        with pytest.raises(KeyboardInterrupt):
            run.step(next(iter(run)))
        assert all(not t.any() for t in release._sums)
        assert all(p.grad is None for p in run.model.parameters())

    def test_the_folder_of_a_finished_run_can_be_handed_over(self, tmp_path: Path) -> None:
        run = begin(tmp_path / "run")
        secrets = json.loads((tmp_path / "run" / "noise.key").read_text())
        assert stat.S_IMODE((tmp_path / "run" / "noise.key").stat().st_mode) == 0o600
        run.fit()
        names = {p.name for p in (tmp_path / "run").iterdir()}
        assert names == {"record.json", "model.safetensors", "certificate.json", "plan.toml"}
        for path in (tmp_path / "run").iterdir():
            content = path.read_bytes()
            for secret in (secrets["key"], secrets["data_hmac"]):
                assert secret.encode() not in content
                assert bytes.fromhex(secret) not in content
        with pytest.raises(InputError, match="sealed"):
            again(tmp_path / "run")

    def test_a_kept_key_stays_until_it_is_sealed(self, tmp_path: Path) -> None:
        run = begin(tmp_path / "run", keep_key=True)
        run.fit()
        assert (tmp_path / "run" / "noise.key").exists()
        seal(tmp_path / "run")
        assert not (tmp_path / "run" / "noise.key").exists()
        assert not (tmp_path / "run" / "checkpoints").exists()

    def test_a_run_that_can_go_on_is_not_sealed_by_accident(self, tmp_path: Path) -> None:
        run = begin(tmp_path / "run")
        run.close()
        with pytest.raises(InputError, match="not finished"):
            seal(tmp_path / "run")
        assert (tmp_path / "run" / "noise.key").exists()
        seal(tmp_path / "run", unfinished=True)
        assert not (tmp_path / "run" / "noise.key").exists()

    def test_only_a_run_is_sealed(self, tmp_path: Path) -> None:
        (tmp_path / "letters").mkdir()
        with pytest.raises(InputError, match="record"):
            seal(tmp_path / "letters")

    def test_record_certificate_and_model(self, tmp_path: Path) -> None:
        run = begin(tmp_path / "run", init_note="weights of a public model")
        run.fit(held_out=rows(seed=5), held_out_is="public", checkpoint_every=4)
        record = read_record(tmp_path / "run")
        assert record["run"]["steps_done"] == STEPS
        assert record["run"]["finished"] is True
        assert record["run"]["initial_weights"] == "weights of a public model"
        assert [row["step"] for row in record["held_out"]] == [4, 8, 12]
        assert len(record["steps"]["released_norm"]) == STEPS
        epsilons = [epsilon for _, epsilon in record["epsilon"]]
        assert epsilons == sorted(epsilons)
        assert epsilons[-1] == run.plan.epsilon
        certificate = json.loads((tmp_path / "run" / "certificate.json").read_text())
        assert "public" in certificate["holdout"]
        assert certificate["epsilon"] == pytest.approx(run.plan.bracket.upper)
        assert run.certificate() == certificate
        fresh = net(seed=7)
        fresh.load_state_dict(safetensors.torch.load_file(tmp_path / "run" / "model.safetensors"))
        assert torch.equal(weights(fresh), weights(run.model))


class Squares(Dataset[Any]):
    """A data set with augmentation and rows that cannot be read."""

    def __init__(self, broken: tuple[int, ...] = (), noisy: bool = True) -> None:
        self.x, self.y = rows()
        self.broken, self.noisy = broken, noisy

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        if row in self.broken:
            raise OSError("cannot be read")
        shift = torch.randn(5) + float(np.random.rand()) if self.noisy else torch.zeros(5)  # noqa: NPY002
        return self.x[row] + 0.1 * shift, self.y[row]


class TestBatches:
    def test_the_order_of_the_run_or_none(self, tmp_path: Path) -> None:
        run = begin(tmp_path / "run")
        before = weights(run.model)
        for wrong in (rows(), TensorDataset(*rows()), None, 3):
            with pytest.raises(InputError, match="not the batch that comes next"):
                run.step(wrong)  # type: ignore[arg-type]
        first = next(iter(run))
        with pytest.raises(InputError, match="no step can be left out"):
            next(iter(run))
        assert torch.equal(weights(run.model), before)
        run.step(first)
        with pytest.raises(InputError, match="not the batch that comes next"):
            run.step(first)
        other = begin(tmp_path / "other")
        with pytest.raises(InputError, match="not the batch that comes next"):
            run.step(next(iter(other)))
        assert "tensor" not in repr(first)

    def test_physical_batches_and_workers_do_not_change_the_run(self, tmp_path: Path) -> None:
        found = []
        for i, more in enumerate(
            ({}, {"physical_batch_size": 3}, {"workers": 2}, {"workers": 1, "physical_batch_size": 3})
        ):
            folder = tmp_path / f"run-{i}"
            if i == 0:
                begin(tmp_path / "base", data=Squares(), model=net(dropout=0.3)).close()
            run = again(copy(tmp_path / "base", folder), data=Squares(), model=net(dropout=0.3), **more)
            run.fit()
            found.append(weights(run.model))
        assert torch.equal(found[0], found[2])
        assert torch.equal(found[1], found[3])
        torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)

    def test_the_users_generators_are_left_alone(self, tmp_path: Path) -> None:
        torch.manual_seed(4)
        np.random.seed(4)  # noqa: NPY002
        expected = torch.randn(3), np.random.rand(3)  # noqa: NPY002
        data, model = Squares(), net(dropout=0.3)
        torch.manual_seed(4)
        np.random.seed(4)  # noqa: NPY002
        run = begin(tmp_path / "run", data=data, model=model)
        run.fit()
        assert torch.equal(torch.randn(3), expected[0])
        assert np.array_equal(np.random.rand(3), expected[1])  # noqa: NPY002

    def test_a_row_that_cannot_be_read_adds_zero_where_it_stands(self, tmp_path: Path) -> None:
        begin(tmp_path / "base", data=Squares(broken=(4, 9), noisy=False)).close()
        run = again(tmp_path / "base", data=Squares(broken=(4, 9), noisy=False))
        x, y = rows()
        sums = [torch.zeros_like(p) for p in run.model.parameters()]
        from momentree.query.clipped import ClippedGradients

        batch = [r for r in run._batch_of(1) if r not in (4, 9)]
        ClippedGradients(run.model, cross_entropy, clip=1.0).add_(sums, x[batch], y[batch])
        release: Any = run._release
        release.noise_scale = 0.0
        run._next()
        released = release.ask_(1, run._pieces(1))
        for a, b in zip(released, sums, strict=True):
            torch.testing.assert_close(a, b / 8)

    @pytest.mark.parametrize("order", ["poisson", "balls-in-bins", "reshuffled", "random-allocation"])
    def test_other_orders_train_too(self, tmp_path: Path, order: str) -> None:
        plan = small_plan(order=order, strategy="identity", noise_multiplier=4.0, delta=1e-3)
        run = begin(tmp_path / "run", plan=plan)
        run.fit()
        assert torch.isfinite(weights(run.model)).all()


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([])


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x - x.mean(0))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "iterable": ({"data": Endless()}, "no order can be kept"),
    "loader": ({"data": DataLoader(TensorDataset(*rows()))}, "Dataset inside it"),
    "no data set": ({"data": 3}, "no data set"),
    "too few rows": ({"data": rows(29)}, "29 rows"),
    "uneven arrays": ({"data": (rows()[0], rows()[1][:7])}, "different lengths"),
    "not pairs": ({"data": TensorDataset(rows()[0])}, "loss_of_batch"),
    "batch norm": ({"model": nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))}, "GroupNorm"),
    "a model that mixes": ({"model": Mixing()}, "mixes"),
    "nothing to train": ({"model": net().requires_grad_(False)}, "trainable"),
    "no model": ({"model": len}, "torch.nn.Module"),
    "device": ({"device": "nowhere"}, "device"),
    "workers": ({"workers": -1}, "workers"),
    "physical": ({"physical_batch_size": 0}, "physical"),
    "key": ({"key": b"short"}, "key"),
    "two losses": ({"loss_of_batch": lambda model, batch: 0}, "both of loss"),
}


class TestRefused:
    @pytest.mark.parametrize("name", REFUSED)
    def test_in_one_line_and_nothing_is_left(self, tmp_path: Path, name: str) -> None:
        more, message = REFUSED[name]
        given: dict[str, Any] = {"model": net(), "data": rows(), "key": KEY, **more}
        with pytest.raises(MomentreeError, match=message) as caught:
            start(small_plan(), given.pop("model"), cross_entropy, given.pop("data"), out=tmp_path / "run", **given)
        assert "\n" not in str(caught.value)
        assert not list((tmp_path / "run").glob("*"))

    def test_a_loss_that_couples_examples(self, tmp_path: Path) -> None:
        def coupled(output: Tensor, target: Tensor) -> Tensor:
            return (output.log_softmax(1).mean(0) ** 2).sum() + 0 * target.sum()

        with pytest.raises(InputError, match="examples"):
            start(small_plan(), net(), coupled, rows(), out=tmp_path / "run")

    def test_a_folder_with_something_in_it(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("precious")
        with pytest.raises(InputError, match="not empty"):
            begin(tmp_path)
        with pytest.raises(InputError, match="is a file"):
            begin(tmp_path / "file")
        assert (tmp_path / "file").read_text() == "precious"
        with pytest.raises(InputError, match="does not exist"):
            load(tmp_path / "nothing", net(), cross_entropy, rows())

    def test_evaluation_in_the_users_own_loop(self, tmp_path: Path) -> None:
        run = begin(tmp_path / "run")
        for batch in run:
            run.step(batch)
            if batch.step == 6:
                figures = run.evaluate(rows(seed=3), "unprotected")
                x, y = rows(seed=3)
                expected = float(cross_entropy(run.model(x), y).detach())
                assert figures["loss"] == pytest.approx(expected, rel=1e-5)
                assert 0 <= figures["accuracy"] <= 1
        assert [row["step"] for row in read_record(tmp_path / "run")["held_out"]] == [6]
        assert "not protected" in run.certificate()["holdout"]

    def test_a_path_alone_cannot_be_resumed(self, tmp_path: Path) -> None:
        begin(tmp_path / "run").close()
        with pytest.raises(InputError, match="as at the start"):
            Run.load(tmp_path / "run")
        again(tmp_path / "run", moved=False).close()

    def test_held_out_rows_have_to_be_declared(self, tmp_path: Path) -> None:
        run = begin(tmp_path / "run")
        with pytest.raises(InputError, match="public"):
            run.fit(held_out=rows(seed=3))
        with pytest.raises(InputError, match="held_out_is"):
            run.fit(held_out=rows(seed=3), held_out_is="nobody")

    def test_a_layer_switched_in_the_middle(self, tmp_path: Path) -> None:
        run = begin(tmp_path / "run")
        run.model.eval()
        with pytest.raises(InputError, match="train\\(\\) and eval\\(\\)"):
            run.fit()

    def test_finishing_early_has_to_be_said(self, tmp_path: Path) -> None:
        run = begin(tmp_path / "run")
        run.step(next(iter(run)))
        with pytest.raises(InputError, match="1 of 12"):
            run.finish()
        run.stop()
        record = read_record(tmp_path / "run")
        assert record["run"]["finished"] is False
        assert run.certificate()["epsilon"] == pytest.approx(run.plan.bracket.upper)
        assert not (tmp_path / "run" / "noise.key").exists()


def test_loss_of_batch(tmp_path: Path) -> None:
    x, y = rows()

    class Named(Dataset[Any]):
        def __len__(self) -> int:
            return len(x)

        def __getitem__(self, row: int) -> dict[str, Tensor]:
            return {"x": x[row], "y": y[row]}

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return cross_entropy(model(batch["x"]), batch["y"])

    plain = begin(tmp_path / "plain")
    release: Any = plain._release
    plain._next()
    expected = [t.clone() for t in _signal(release, plain)]
    run = start(small_plan(), net(), None, Named(), out=tmp_path / "run", key=KEY, loss_of_batch=loss)
    run._next()
    for a, b in zip(_signal(run._release, run), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def _signal(release: Any, run: Run) -> list[Tensor]:
    release.noise_scale = 0.0
    return list(release.ask_(1, run._pieces(1)))


def test_the_code_digest_covers_what_a_release_depends_on() -> None:
    names = {"noise", "order", "query", "strategy", "training", "update"}
    assert names <= set(digests._DRAWING)
    assert len(digests.code_version()) == 64
