"""What a forward pass must not write, found without waiting for a device in the steps that nobody is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from momentree.errors import InputError
from momentree.training.state import Untouched, differs, same
from training.making import begin, net, weights


class Keeps(nn.Module):
    """Passes rows on; `write` is done on the way."""

    def __init__(self, write: Any = None) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.register_buffer("seen", torch.tensor([0.0, float("nan")]))
        self.write = write

    def forward(self, x: Tensor) -> Tensor:
        if self.write is not None:
            self.write(self)
        return self.layer(x)


def test_no_step_that_is_not_shown_waits_for_the_device() -> None:
    """The meta device has no values: whoever asks for one fails."""
    model = Keeps().to("meta")
    untouched = Untouched(model, cross_entropy)
    for _ in range(3):
        untouched.look()
        untouched.check(asked=False)
    with pytest.raises((NotImplementedError, RuntimeError)):
        untouched.settle()


@pytest.mark.parametrize("name", ["layer.weight", "seen"])
def test_what_was_not_asked_for_is_found_at_the_checkpoint(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Keeps()
    untouched = Untouched(model, cross_entropy)
    monkeypatch.setattr("momentree.training.state.at_hand", lambda tensor: False)
    untouched.look()
    untouched.check(asked=False)
    untouched.settle()
    untouched.look()
    tensor = dict(model.named_parameters()).get(name, model.seen)
    tensor.data.fill_(7.0)
    untouched.check(asked=False)
    with pytest.raises(InputError, match="seen" if name == "seen" else "what the model holds"):
        untouched.settle()
    assert model.seen[0] == 0
    untouched.settle()  # it was said once


@pytest.mark.parametrize("how", ["new parameter", "new buffer", "other layer", "loss"])
def test_nothing_is_added_to_the_model(tmp_path: Path, how: str) -> None:
    def write(model: nn.Module) -> None:
        if len(calls) < 40:
            calls.append(1)
        elif how == "new parameter":
            model.kept = nn.Parameter(torch.ones(2))
        elif how == "new buffer":
            model.register_buffer("kept", torch.ones(2))
        elif how == "other layer":
            model.layer = nn.Linear(5, 3)

    def loss(output: Tensor, target: Tensor) -> Tensor:
        if len(calls) >= 40 and how == "loss":
            model.layer.weight.data[0] = 3.0
        return cross_entropy(output, target)

    calls: list[int] = []
    model = Keeps(write)
    from momentree.training.run import start
    from training.making import KEY, rows, small_plan

    run = start(small_plan(epochs=20), model, loss, rows(), out=tmp_path / "run", key=KEY)
    with pytest.raises(InputError, match="writes to"):
        run.fit(checkpoint_every=100)
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_torchs_own_layers_are_not_measured(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    run._untouched.look()
    assert not run._untouched._sizes
    run.model[0].register_forward_hook(lambda *_: None)  # type: ignore[index, operator]
    run._untouched.look()
    assert len(run._untouched._sizes) == 4
    assert weights(net()).numel() > 4


def test_differs_is_not_same() -> None:
    nan, a, b = float("nan"), torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0])
    for left in (a, b, torch.tensor([nan, 1.0])):
        for right in (a, b):
            assert bool(differs(left, right)) == (not same(left, right))
    assert bool(differs(torch.tensor([1]), torch.tensor([2])))
