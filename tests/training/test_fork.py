"""A run that cannot go on as it was goes on with fresh noise, and every attempt is in its certificate."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from momentree.certificate import RunFacts, verify
from momentree.cli import main
from momentree.errors import CheckError, InputError, NoProofError
from momentree.files import read_json
from momentree.privacy.gaussian import GaussianAccount
from momentree.report.record import read_record
from momentree.training.run import Run
from momentree.training.warm import ancestors_of
from training.making import again, begin, copy, killed, small_plan, weights


def stopped(out: Path, *, at: int = 7, every: int = 5, plan: Any = None) -> Path:
    """What is left of a run that was killed after step `at`."""
    run = begin(out, plan=plan)
    run.checkpoint_every = every
    for batch in run:
        run.step(batch)
        if batch.step == at:
            break
    killed(run)
    return out


def differing(folder: Path, step: int) -> Path:
    log = folder / "releases.log"
    lines = [f"{step} " + "0" * 64 if line.startswith(f"{step} ") else line for line in log.read_text().splitlines()]
    log.write_text("\n".join(lines) + "\n")
    return folder


def subkeys(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The subkeys of noise that are used from now on."""
    from momentree.training import assemble

    seen: list[bytes] = []
    made = assemble.KeyedNormals
    monkeypatch.setattr(assemble, "KeyedNormals", lambda key: (seen.append(key), made(key))[1])
    return seen


def both(plan: Any, times: int = 2) -> float:
    return GaussianAccount(float(plan.mu) * times**0.5).epsilon(plan.delta).upper


def test_after_a_replay_that_differs(tmp_path: Path) -> None:
    folder = differing(stopped(tmp_path / "run"), 7)
    run = again(folder)
    with pytest.raises(CheckError, match="resume --fork"):
        run.fit(checkpoint_every=100)
    run.close()
    run = again(folder, fork=True)
    assert run.done == 5
    run.fit()
    assert run.facts().epsilon == run.epsilon_so_far(stop_fixed_in_advance=True) == pytest.approx(both(run.plan))
    certificate, record = read_json(folder / "certificate.json", "certificate"), read_record(folder)
    assert (certificate["attempts"], record["run"]["attempts"], record["epsilon"]) == (2, 2, [])
    assert certificate["epsilon"] == pytest.approx(both(run.plan), rel=1e-9)
    assert certificate["epsilon"] >= both(run.plan)
    assert "fresh noise, which is counted" in certificate["in_plain_english"]
    assert any("counts 2 whole runs" in line for line in certificate["caveats"])
    assert verify(record, certificate) == []
    assert verify(record, certificate | {"epsilon": run.plan.epsilon}) != []
    assert {p.name for p in folder.iterdir()} == {"record.json", "model.safetensors", "certificate.json", "plan.toml"}


def test_its_price_goes_on_into_compositions_and_warm_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again(stopped(tmp_path / "forked"), fork=True).fit()
    begin(tmp_path / "plain").fit()
    assert main(["compose", str(tmp_path / "forked"), str(tmp_path / "plain"), "--json"]) == 0
    plan = small_plan()
    assert json.loads(capsys.readouterr().out)["epsilon_upper"] == pytest.approx(both(plan, 3), rel=1e-9)
    assert main(["certificate", str(tmp_path / "forked"), "--verify"]) == 0
    assert [each["attempts"] for each in ancestors_of(tmp_path / "forked")] == [2]
    warm = begin(tmp_path / "warm", warm_start=tmp_path / "forked")
    assert warm.certificate()["with_earlier_runs"]["epsilon"] == pytest.approx(both(plan, 3), rel=1e-9)


def test_nothing_of_an_attempt_is_drawn_before_it_is_durable_nor_ever_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stopped(tmp_path / "run")
    twin = copy(first, tmp_path / "twin")
    seen = subkeys(monkeypatch)
    begun = again(copy(first, tmp_path / "other"))
    begun.close()

    def fails(run: Run) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:  # a fork whose checkpoint was not written has not happened
        patched.setattr(Run, "checkpoint", fails)
        with pytest.raises(OSError):
            again(first, fork=True)
    unforked = again(first)
    assert unforked.ledger.attempts == 1
    unforked.close()
    for folder in (first, twin):
        run = again(folder, fork=True)
        checkpoint = next((folder / "checkpoints").iterdir())
        assert json.loads((checkpoint / "state.json").read_text())["attempts"] == 2
        killed(run)
    assert len({*seen}) == len(seen) - 1 == 4  # the first attempt twice, three forks of their own


def test_an_attempt_is_resumed_to_the_same_bits_and_held_to_its_own_log(tmp_path: Path) -> None:
    run = again(stopped(tmp_path / "run"), fork=True)
    run.close()
    whole = again(copy(tmp_path / "run", tmp_path / "whole"))
    whole.fit()
    run = again(tmp_path / "run")
    run.checkpoint_every = 4
    for batch in run:
        run.step(batch)
        if batch.step == 10:
            break
    killed(run)
    broken = copy(tmp_path / "run", tmp_path / "broken")
    resumed = again(tmp_path / "run")
    assert (resumed.done, resumed.ledger.attempts, resumed._log.last) == (8, 2, 10)
    resumed.fit()
    assert torch.equal(weights(resumed.model), weights(whole.model))
    log = broken / "releases-2.log"
    log.write_text(log.read_text().replace("\n10 ", "\n10 0000")[:-5] + "\n")
    other = again(broken)
    with pytest.raises(CheckError, match="step 10 was shown before"):
        other.fit()
    other.close()
    third = again(broken, fork=True)
    third.fit()
    assert third.certificate()["attempts"] == 3


def test_the_way_on_for_another_version_thread_count_or_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stopped(tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr("momentree.training.run.code_version", lambda: "0" * 64)
        with pytest.raises(InputError, match="resume --fork"):
            again(copy(folder, tmp_path / "1"))
        again(tmp_path / "1", fork=True).close()
        again(tmp_path / "1").close()  # the attempt belongs to the version that began it
    with pytest.raises(InputError, match="version"):
        again(tmp_path / "1")
    cut = copy(folder, tmp_path / "2")
    lines = (cut / "releases.log").read_text().splitlines()
    (cut / "releases.log").write_text(f"{lines[0].rsplit(' ', 1)[0]} another-start-of-the-machine\n{lines[1]}\n")
    with pytest.raises(CheckError, match="machine stopped"):
        again(cut)
    again(cut, fork=True).fit()
    threads = torch.get_num_threads()
    unseen = copy(folder, tmp_path / "3")
    os.remove(unseen / "releases.log")  # as `fit` leaves it: nothing after the checkpoint was shown
    try:
        torch.set_num_threads(threads + 1)
        with pytest.raises(InputError, match="steps 6 to 7 were shown"):
            again(folder)
        again(folder, fork=True).close()
        assert again(unseen).ledger.attempts == 1
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("order", ["poisson", "balls-in-bins", "reshuffled"])
def test_places_are_drawn_anew(tmp_path: Path, order: str) -> None:
    plan = small_plan(order=order, strategy="identity", noise_multiplier=4.0, delta=1e-3)
    run = again(stopped(tmp_path / "run", plan=plan))
    before = [run._batch_of(t).tolist() for t in range(6, 13)]
    run.close()
    run = again(tmp_path / "run", fork=True)
    assert [run._batch_of(t).tolist() for t in range(6, 13)] != before
    run.fit()
    assert run.certificate()["epsilon"] > plan.epsilon
    assert verify(read_record(tmp_path / "run"), read_json(tmp_path / "run" / "certificate.json", "certificate")) == []


def test_refused_where_two_attempts_have_no_price(tmp_path: Path) -> None:
    plan = small_plan(order="poisson", strategy="identity", adjacency="replace-one", noise_multiplier=4.0, delta=1e-3)
    folder = stopped(tmp_path / "run", plan=plan)
    with pytest.raises(NoProofError, match="two attempts"):
        again(folder, fork=True)
    again(folder).fit()
    assert RunFacts.of(read_record(folder)["run"]).attempts == 1


def test_after_the_last_step_nothing_is_drawn_and_nothing_paid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin(tmp_path / "run")
    monkeypatch.setattr(run, "finish", lambda: None)
    run.fit()
    expected = weights(run.model)
    killed(run)
    monkeypatch.setattr("momentree.training.run.code_version", lambda: "0" * 64)
    with pytest.raises(InputError, match="version"):
        again(tmp_path / "run")
    resumed = again(tmp_path / "run", fork=True)
    resumed.fit()
    assert resumed.certificate()["attempts"] == 1
    assert torch.equal(weights(resumed.model), expected)
