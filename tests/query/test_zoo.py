"""Clipped sums equal per-example gradients clipped one by one, for every model of the zoo."""

from __future__ import annotations

import pytest
import torch

from momentree.query.clipped import ClippedGradients
from query.reference import clipped_sum, gradients, norms, relative, zeros
from query.zoo import ZOO

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")  # said by torch's own layer, the reference

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
RANDOM = {"dropout", "encoder-dropout"}


def batch(entry, examples, dtype):
    x, y = entry.inputs(examples), entry.targets(examples)
    return tuple(v.to(dtype) if v.is_floating_point() else v for v in (x, y))


def compare(name, examples, dtype):
    torch.manual_seed(1)
    entry = ZOO[name]
    model = entry.model().to(dtype)
    x, y = batch(entry, examples, dtype)
    found = gradients(model, entry.loss, x, y)
    clip = float(norms(found).median())  # about half of them are clipped
    query = ClippedGradients(model, entry.loss, clip=clip)
    sums = zeros(query.parameters)
    query.add_(sums, x, y)
    assert relative(sums, clipped_sum(found, query.level)) < TOLERANCE[dtype]
    assert bool(query.explain()["torch.func"]) is entry.functions
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("examples", [1, 7])
@pytest.mark.parametrize("name", sorted(set(ZOO) - RANDOM))
def test_sums_equal_gradients_clipped_one_by_one(name, examples, dtype):
    compare(name, examples, dtype)


@pytest.mark.parametrize("name", ["logistic", "mlp", "mnist-cnn", "transformer-tied"])
def test_sums_of_a_large_batch(name):
    compare(name, 256, torch.float32)


@pytest.mark.verify
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", sorted(set(ZOO) - RANDOM))
def test_sums_of_a_large_batch_for_the_whole_zoo(name, dtype):
    compare(name, 256, dtype)
