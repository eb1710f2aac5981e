"""bfloat16 in the forward pass: the release stays close, and nobody adds more than the clip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from momentree.errors import InputError
from momentree.query.clipped import ClippedGradients
from momentree.training.precision import lowered
from training.making import again, begin, net, rows, weights


def sums(model: nn.Module, x: Tensor, y: Tensor, precision: str, clip: float) -> Tensor:
    query = ClippedGradients(model, cross_entropy, clip=clip)
    query.check(x, y)
    found = [torch.zeros_like(p) for p in query.parameters]
    with lowered(model, precision):
        query.add_(found, x, y)
    return torch.cat([t.reshape(-1) for t in found])


def test_close_to_float32_and_within_the_clip() -> None:
    model = net(inputs=40)
    x, y = rows(16, inputs=40)
    exact, low = (sums(model, x, y, precision, 0.3) for precision in ("float32", "bfloat16"))
    assert not torch.equal(exact, low)
    torch.testing.assert_close(low, exact, rtol=0.1, atol=0.05)
    for i in range(len(x)):
        assert float(sums(model, 30 * x[i : i + 1], y[i : i + 1], "bfloat16", 0.3).double().norm()) <= 0.3


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    model = net()
    run = begin(tmp_path / "run", model=model, precision="bfloat16")
    run.fit()
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert not torch.is_autocast_enabled("cpu")
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert model(rows()[0]).dtype == torch.float32

    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("no")

    broken: Any = nn.Sequential(nn.Linear(5, 3), Fails())
    with pytest.raises(RuntimeError, match="no"), lowered(broken, "bfloat16"):
        broken(rows()[0])
    assert not torch.is_autocast_enabled("cpu")


def test_resumed_in_the_same_precision_or_not_at_all(tmp_path: Path) -> None:
    begin(tmp_path / "run", precision="bfloat16").close()
    with pytest.raises(InputError, match="precision"):
        again(tmp_path / "run")
    run = again(tmp_path / "run", precision="bfloat16")
    run.fit()
    assert torch.isfinite(weights(run.model)).all()


def test_half_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="float32 weights"):
        begin(tmp_path / "run", model=net().bfloat16())
    with pytest.raises(InputError, match="precision"):
        begin(tmp_path / "run", precision="float8")
