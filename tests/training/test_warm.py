"""A run that goes on from an earlier private one: its weights, and the price of both."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import safetensors.torch
import torch

from momentree.certificate import RunFacts, together, verify
from momentree.cli import main
from momentree.errors import InputError, MomentreeError
from momentree.files import read_json
from momentree.privacy.account import rounded_up
from momentree.privacy.gaussian import GaussianAccount
from momentree.report.page import page
from momentree.report.record import read_record
from momentree.training.warm import ancestors_of, private_run_of, taken_as_public
from training.making import begin, net, small_plan, weights


def test_the_budgets_of_all_runs_are_composed(tmp_path: Path) -> None:
    plans = [small_plan(noise_multiplier=s) for s in (3.0, 4.0, 5.0)]
    begin(tmp_path / "0", plan=plans[0]).fit()
    begin(tmp_path / "1", plan=plans[1], warm_start=tmp_path / "0").fit()
    run = begin(tmp_path / "2", plan=plans[2], warm_start=tmp_path / "1", model=net(seed=8))
    earlier = begin(tmp_path / "plain", plan=plans[1], warm_start=tmp_path / "1", model=net(seed=9))
    assert torch.equal(weights(run.model), weights(earlier.model))
    mu = math.sqrt(sum(p.mu**2 for p in plans))
    expected = GaussianAccount(mu).epsilon(plans[2].delta).upper
    found = together(plans[2], RunFacts(0, False, ancestors=tuple(ancestors_of(tmp_path / "1"))))
    assert found == pytest.approx(expected, rel=1e-9)
    assert found >= expected * (1 - 1e-12)
    run.fit()
    certificate = read_json(tmp_path / "2" / "certificate.json", "certificate")
    assert f"({rounded_up(expected)}, 1e-05)-DP" in certificate["initial_weights"]
    assert "2 earlier private runs" in certificate["initial_weights"]
    with safetensors.safe_open(tmp_path / "2" / "model.safetensors", "pt") as file:
        assert f"({rounded_up(expected)}, 1e-05)-DP" in file.metadata()["momentree.promise"]
    assert f"<b>{rounded_up(expected)}</b><span>ε together with 2 earlier run(s)" in page(read_record(tmp_path / "2"))
    assert verify(read_record(tmp_path / "2"), certificate) == []


def test_compositions_count_what_the_first_weights_come_from_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = [small_plan(noise_multiplier=s) for s in (3.0, 4.0, 5.0)]
    begin(tmp_path / "0", plan=plans[0]).fit()
    begin(tmp_path / "1", plan=plans[1], warm_start=tmp_path / "0").fit()
    begin(tmp_path / "2", plan=plans[2], warm_start=tmp_path / "0").fit()

    def composed(*names: str) -> float:
        assert main(["compose", *(str(tmp_path / name) for name in names), "--json"]) == 0
        return float(json.loads(capsys.readouterr().out)["epsilon_upper"])

    def expected(*which: int) -> float:
        return GaussianAccount(math.sqrt(sum(plans[k].mu ** 2 for k in which))).epsilon(plans[0].delta).upper

    assert composed("1") == pytest.approx(expected(0, 1), rel=1e-9)
    for names in (("1", "2"), ("0", "1", "2")):
        assert composed(*names) == pytest.approx(expected(0, 1, 2), rel=1e-9)


def test_refused(tmp_path: Path) -> None:
    begin(tmp_path / "0").fit()
    with pytest.raises(InputError, match="does not exist"):
        begin(tmp_path / "1", warm_start=tmp_path / "nothing")
    with pytest.raises(InputError, match="fit the model"):
        begin(tmp_path / "1", warm_start=tmp_path / "0", model=torch.nn.Linear(5, 3))
    with pytest.raises(MomentreeError, match="one adjacency"):
        begin(tmp_path / "1", warm_start=tmp_path / "0", plan=small_plan(adjacency="replace-one"))
    assert not (tmp_path / "1").exists()


def test_a_model_file_says_that_it_was_trained_on_private_rows(tmp_path: Path) -> None:
    run = begin(tmp_path / "0")
    secrets = read_json(tmp_path / "0" / "noise.key", "noise key")
    run.fit()
    copied = tmp_path / "weights.safetensors"
    copied.write_bytes((tmp_path / "0" / "model.safetensors").read_bytes())
    assert private_run_of(copied) == read_record(tmp_path / "0")["environment"]["run_id"]
    with safetensors.safe_open(copied, "pt") as file:
        assert len(file.metadata()) == 1  # several would be written in any order, and equal models differ as files
    with pytest.raises(InputError, match="trained on private rows") as caught:
        taken_as_public(copied)
    assert "\n" not in str(caught.value)
    assert not any(secret.encode() in copied.read_bytes() for secret in (secrets["key"], secrets["data_hmac"]))
    with safetensors.safe_open(copied, "pt") as file:
        assert "1e-05" in file.metadata()["momentree.promise"]
    safetensors.torch.save_file(safetensors.torch.load_file(copied), tmp_path / "public.safetensors")
    taken_as_public(tmp_path / "public.safetensors")
    taken_as_public(tmp_path / "0" / "record.json")


def test_a_record_tells_the_day_and_no_time(tmp_path: Path) -> None:
    begin(tmp_path / "0").fit()
    record = read_record(tmp_path / "0")
    assert {len(record[name]) for name in ("started", "finished")} == {len("2026-01-01")}
