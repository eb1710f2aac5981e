"""Ways in which a secret could leave a run beside its released stream, each tried."""

from __future__ import annotations

import itertools
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import momentree as mt
from momentree.certificate import RunFacts, certificate, verify
from momentree.errors import InputError
from momentree.files import read_json
from momentree.order.draws import public_key
from momentree.report.record import read_record
from momentree.training.run import load

CANARY = 1234.56789
KEY = bytes(range(100, 132))
FACTS: dict[str, Any] = {"examples": 20, "batch_size": 5, "epochs": 2, "noise_multiplier": 1.0, "delta": 1e-3}


def rows() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 3, generator=generator), torch.randint(0, 2, (20,), generator=generator)
    x[3] = CANARY
    return x, y


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def begin(out: Path, plan: mt.Plan | None = None, model: nn.Module | None = None, **more: Any) -> mt.Run:
    plan = plan or mt.Plan(**FACTS, strategy="tree")
    return plan.start(model or net(), cross_entropy, more.pop("data", None) or rows(), out=out, key=KEY, **more)


class Keeps(nn.Module):
    """A layer that keeps something of its rows, from a certain call on."""

    def __init__(self, how: str, after: int) -> None:
        super().__init__()
        self.layer, self.how, self.after, self.calls = net(), how, after, 0
        self.register_buffer("seen", torch.zeros(3))
        self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > self.after:
            mean = x.detach().mean(0)
            if self.how == "assigned":
                self.seen = 0.9 * self.seen + 0.1 * mean
            elif self.how == "data":
                self.seen.data.copy_(mean)
            elif self.how == "written":
                self.seen.copy_(mean)
            elif self.how == "frozen data":
                self.frozen.data.lerp_(mean, 0.1)
            elif self.how == "trained data":
                self.layer.weight.data[0] = mean
            else:
                self.frozen.copy_(mean)
        return self.layer(x)


@pytest.mark.parametrize("how", ["assigned", "data", "written", "frozen"])
@pytest.mark.parametrize("after", [0, 40])
def test_no_layer_carries_rows_out_in_a_buffer(how: str, after: int, tmp_path: Path) -> None:
    model, plan = Keeps(how, after), mt.Plan(**FACTS | {"epochs": 20}, strategy="tree")
    with pytest.raises(InputError, match="writes to"):
        begin(tmp_path / "run", plan, model).fit(checkpoint_every=1)
    assert not (tmp_path / "run" / "model.safetensors").exists()
    for path in (tmp_path / "run").rglob("*.safetensors"):
        assert no_trace(path.read_bytes())
    assert float(model.seen.abs().max()) == 0.0


@pytest.mark.parametrize("how", ["frozen data", "trained data"])
def test_no_layer_carries_rows_out_in_a_parameter_that_it_writes_to_unseen_by_torch(how: str, tmp_path: Path) -> None:
    """As layers do that keep a codebook, or start dead codes again at rows of the batch."""
    model, plan = Keeps(how, 40), mt.Plan(**FACTS | {"epochs": 20}, strategy="tree")
    with pytest.raises(InputError, match="writes to"):
        begin(tmp_path / "run", plan, model).fit(checkpoint_every=1)
    mean = np.float32(CANARY)
    assert not any(np.any(np.isclose(p.detach().numpy(), mean, rtol=1e-3)) for p in model.parameters())
    for path in (tmp_path / "run").rglob("*.safetensors"):
        assert no_trace(path.read_bytes())
    loop = Keeps(how, 40)
    run = begin(tmp_path / "loop", plan, loop)

    def steps() -> None:
        for batch in run:
            run.step(batch)

    with pytest.raises(InputError, match="writes to"):
        steps()
    assert float((loop.frozen if how == "frozen data" else loop.layer.weight).detach().abs().max()) == 0.0


def test_caches_that_are_no_private_state_are_let_be(tmp_path: Path) -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = net()
            self.register_buffer("mask", torch.tensor([1.0, float("nan"), -float("inf")]))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)

    assert begin(tmp_path / "run", model=Table()).fit().finished


def no_trace(content: bytes) -> bool:
    forms = [
        str(CANARY).encode(),
        repr(float(np.float32(CANARY))).encode(),
        struct.pack("<f", CANARY),
        struct.pack("<d", CANARY),
        struct.pack("<d", float(np.float32(CANARY))),
        KEY,
        KEY.hex().encode(),
    ]
    return not any(form in content for form in forms)


@pytest.mark.parametrize("algorithm", ["dp-nsgd", "sr-nsgd", "epoch-lag"])
def test_files_hold_neither_rows_nor_keys(algorithm: str, tmp_path: Path) -> None:
    run = begin(tmp_path / "run", mt.Plan(**FACTS, algorithm=algorithm, budget_memory=0))
    for batch in run:
        run.step(batch)
        for path in run.folder.path.rglob("*"):
            if path.is_file():
                secret = path.name == "noise.key"
                assert secret or no_trace(path.read_bytes())
                inside = path.relative_to(run.folder.path).parts[0]
                if secret or inside == "releases.log":
                    assert path.stat().st_mode & 0o077 == 0
                if inside in ("checkpoints", "waiting"):
                    assert (run.folder.path / inside).stat().st_mode & 0o077 == 0
        assert no_trace(repr((run, batch, batch.pieces, run.plan)).encode())
    left = {path.name for path in run.folder.path.iterdir()}
    assert left == {"record.json", "certificate.json", "model.safetensors", "plan.toml"}


def asked(run: mt.Run) -> list[Tensor]:
    """The sums of every step, the run carried out without its noise (two runs draw different noise)."""
    seen: list[Tensor] = []

    def no_noise(blocks: Any, scale: float) -> None:
        seen.append(torch.cat([b.reshape(-1) for b in blocks]))

    run._release.noise.add_ = no_noise  # type: ignore[attr-defined]
    run.fit()
    return seen


class Refusing(torch.utils.data.Dataset[Any]):
    """Rows of which some are read as they are not, or not at all."""

    def __init__(self, bad: dict[int, Any]) -> None:
        self.x, self.y = rows()
        self.bad = bad

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> Any:
        if row in self.bad:
            if isinstance(self.bad[row], Exception):
                raise self.bad[row]
            return self.bad[row]
        return self.x[row], self.y[row]


@pytest.mark.parametrize("own", [False, True])
def test_rows_that_fail_are_zero_where_they_stand_and_nobody_is_told(own: bool, tmp_path: Path, capfd: Any) -> None:
    """If a row could stop the run, or be heard of, that would be one bit of it without noise."""
    nothing = torch.full((3,), float("nan")), torch.tensor(0)  # a gradient that is not finite is zero
    odd: list[Any] = [
        ValueError(str(CANARY)),
        (torch.zeros(3), torch.tensor(7654)),
        (torch.zeros(3), torch.tensor(-7)),
        (torch.zeros(4), torch.tensor(0)),
        (torch.zeros(3, dtype=torch.float64), torch.tensor(0)),
        (torch.zeros(3), torch.tensor(1.0)),
        (torch.zeros(3), torch.tensor([1])),
        torch.zeros(3),
        "a text",
    ]
    loss = (lambda output, target: cross_entropy(output, target)) if own else cross_entropy

    def run_on(bad: dict[int, Any], name: str) -> mt.Run:
        plan = mt.Plan(**FACTS, strategy="tree")
        return plan.start(net(), loss, Refusing(bad), out=tmp_path / name, key=KEY)

    want = asked(run_on({4: nothing}, "want"))
    assert not torch.equal(torch.stack(want), torch.stack(asked(run_on({}, "whole"))))
    for i, row in enumerate(odd):
        assert all(map(torch.equal, asked(run_on({4: row}, str(i))), want))
        kept = json.dumps(read_record(tmp_path / str(i))) + (tmp_path / str(i) / "certificate.json").read_text()
        assert "7654" not in kept
        assert str(CANARY) not in kept
    assert capfd.readouterr() == ("", "")


def test_the_record_shows_norms_of_what_was_released_and_nothing_else(tmp_path: Path) -> None:
    seen: list[float] = []

    run = begin(tmp_path / "run")
    step_ = run._update.step_

    def watched(parameters: Any, released: Any) -> None:
        seen.append(float(torch.cat([r.reshape(-1) for r in released]).norm()))
        step_(parameters, released)

    run._update.step_ = watched  # type: ignore[method-assign]
    run.fit()
    steps = read_record(tmp_path / "run")["steps"]
    assert steps["released_norm"] == pytest.approx(seen, rel=1e-6)


def test_seeds_have_no_part_in_noise_or_secret_places(tmp_path: Path) -> None:
    plan = mt.Plan(**FACTS, algorithm="dp-sgd", order="poisson", seed=5, account_seed=5)
    runs = [
        plan.start(net(), cross_entropy, rows(), out=tmp_path / str(i), key=key)
        for i, key in enumerate((None, None, KEY, KEY))
    ]
    subkeys = [run._release.noise.source._subkey for run in runs]  # type: ignore[attr-defined]
    assert len(set(subkeys)) == 4  # the same key twice is still another run
    batches = [[tuple(run._batch_of(t)) for t in range(1, 9)] for run in runs]
    assert all(a != b for a, b in itertools.combinations(batches, 2))
    guessed = [tuple(plan.order.batch(t, public_key(5))) for t in range(1, 9)]  # type: ignore[call-arg]
    assert all(guessed != found for found in batches)
    for run in runs:
        run.close()


def test_a_persons_rows_beyond_the_declared_number_add_nothing(tmp_path: Path) -> None:
    units = np.repeat(np.arange(4), 5)
    units[:2] = -1
    for order, k in itertools.product(("fixed", "reshuffled", "poisson", "balls-in-bins"), (1, 2)):
        plan = mt.Plan(**FACTS, algorithm="dp-sgd", order=order, rows_per_person=k)
        run = begin(tmp_path / f"{order}{k}", plan, units=units)
        for t in range(1, plan.steps + 1):
            taken = units[run._batch_of(t)]
            assert -1 not in taken
        taken = np.concatenate([run._batch_of(t) for t in range(1, plan.steps_per_epoch + 1)])
        for person in range(4):
            rows_of = {int(row) for row in taken if units[row] == person}
            assert len(rows_of) <= k
            assert order == "poisson" or len(rows_of) == k
        run.close()
    with pytest.raises(InputError, match="units"):
        begin(tmp_path / "bad", units=np.zeros(3, np.int64))


def test_other_persons_are_other_data(tmp_path: Path) -> None:
    units = np.repeat(np.arange(10), 2)
    begin(tmp_path / "run", units=units).close()
    with pytest.raises(InputError, match="data differs"):
        load(tmp_path / "run", net(), cross_entropy, rows(), units=units[::-1].copy())


def test_draws_for_rows_are_secret_where_rows_may_come_and_go(tmp_path: Path) -> None:
    """Under add-remove the later rows move up by one: draws by row number from a public seed would move with them."""
    seeds = set()
    for i, adjacency in enumerate(("zero-out", "zero-out", "add-remove", "add-remove")):
        plan = mt.Plan(**FACTS, algorithm="dp-sgd", order="poisson", adjacency=adjacency)
        run = begin(tmp_path / str(i), plan)
        seeds.add(run._rows.seed)
        run.close()
    assert len(seeds) == 3


def test_earlier_runs_are_priced_and_checked_by_the_certificate(tmp_path: Path) -> None:
    begin(tmp_path / "1").fit()
    plan = mt.Plan(**FACTS | {"noise_multiplier": 2.0}, strategy="tree")
    run = begin(tmp_path / "2", plan, warm_start=tmp_path / "1").fit()
    found = run.certificate()
    mu = np.hypot(plan.mu, mt.Plan(**FACTS, strategy="tree").mu)
    both = mt.Plan(**FACTS | {"noise_multiplier": 1.0, "epochs": 1}, strategy="identity").account
    exact = type(both)(float(mu)).epsilon(1e-3).upper  # type: ignore[call-arg]
    assert found["with_earlier_runs"]["epsilon"] == pytest.approx(exact, rel=1e-9)
    assert found["with_earlier_runs"]["epsilon"] > found["epsilon"]
    assert not any("initial weights" in line for line in found["taken_as_public"])
    assert "earlier private run" in found["in_plain_english"]
    record, given = read_record(tmp_path / "2"), read_json(tmp_path / "2" / "certificate.json", "certificate")
    assert verify(record, given) == []
    given["with_earlier_runs"]["epsilon"] *= 0.9
    assert verify(record, given)
    with pytest.raises(InputError, match="unit"):
        begin(tmp_path / "3", mt.Plan(**FACTS, strategy="tree", rows_per_person=2), warm_start=tmp_path / "2")
    assert json.loads(json.dumps(found)) == found


def test_attempts_are_paid_for(tmp_path: Path) -> None:
    plan = mt.Plan(**FACTS, strategy="tree")
    once, thrice = (certificate(plan, RunFacts(8, True, attempts=k))["epsilon"] for k in (1, 3))
    assert thrice == pytest.approx(type(plan.account)(plan.mu * 3**0.5).epsilon(1e-3).upper, rel=1e-9)  # type: ignore[call-arg]
    assert once == plan.bracket.upper
