"""Dropout is a function of (seed, row): the same on replay, apart for each example, fair."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from momentree.errors import InputError
from momentree.query.clipped import ClippedGradients
from momentree.query.differences import ClippedDifferences
from momentree.query.randomness import Draws, attention, row_keys
from query.reference import relative, zeros
from query.zoo import ZOO, TorchEncoder


def mask(seed, rows, entries=1000, drop=0.5):
    return Draws(lambda: row_keys(seed, torch.tensor(rows))).keep(torch.Size((len(rows), entries)), drop, torch.float32)


def test_masks_are_functions_of_seed_and_row_alone():
    one = mask(3, [5, 9, 2])
    assert torch.equal(one, mask(3, [5, 9, 2]))
    assert torch.equal(one[[1]], mask(3, [9]))
    assert torch.equal(one.flip(0), mask(3, [2, 9, 5]))
    for other in (mask(4, [5, 9, 2]), mask(3, [6, 10, 3])):
        assert 0.45 < float((one != other).float().mean()) < 0.55


def test_each_dropout_of_a_pass_has_masks_of_its_own():
    draws = Draws(lambda: row_keys(0, torch.arange(2)))
    one, two = (draws.keep(torch.Size((2, 5000)), 0.5, torch.float32) for _ in range(2))
    assert 0.45 < float((one != two).float().mean()) < 0.55


@pytest.mark.parametrize("drop", [0.1, 0.5, 0.9])
def test_masks_are_fair_and_entries_and_rows_independent(drop):
    kept = (mask(1, list(range(200)), 5000, drop) > 0).double()
    spread = math.sqrt(drop * (1 - drop))
    assert abs(float(kept.mean()) - (1 - drop)) < 5 * spread / 1000
    centred = (kept - (1 - drop)) / spread
    for shifted in (
        (centred[:, :-1] * centred[:, 1:]),
        (centred[:, :-32] * centred[:, 32:]),
        centred[:-1] * centred[1:],
    ):
        assert abs(float(shifted.mean())) < 5 / math.sqrt(shifted.numel())
    columns = centred.mean(0) * math.sqrt(200)
    assert abs(float(columns.square().mean()) - 1) < 0.1
    assert torch.allclose(mask(1, [0], 100, drop).unique(), torch.tensor([0.0, 1 / (1 - drop)]))


@pytest.mark.parametrize("name", ["dropout", "encoder-dropout"])
def test_an_example_adds_the_same_whoever_else_is_there(name):
    torch.manual_seed(0)
    entry = ZOO[name]
    model = entry.model().double()
    x, y = entry.inputs(6).double(), entry.targets(6)
    rows = torch.tensor([11, 4, 8, 100, 7, 2])
    query = ClippedGradients(model, entry.loss, clip=0.3)
    whole, parts, again = (zeros(query.parameters) for _ in range(3))
    query.add_(whole, x, y, seed=9, rows=rows)
    for i in (3, 1, 0, 5, 4, 2):
        query.add_(parts, x[i : i + 1], y[i : i + 1], seed=9, rows=rows[i : i + 1])
    assert relative(parts, whole) < 1e-12
    query.add_(again, x, y, seed=9, rows=rows)
    assert all(torch.equal(a, b) for a, b in zip(again, whole, strict=True))
    other = zeros(query.parameters)
    query.add_(other, x, y, seed=10, rows=rows)
    assert relative(other, whole) > 0.01
    assert not query.explain()["torch.func"]


def test_dropout_is_the_same_at_both_iterates_of_a_difference():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 40), nn.Dropout(0.5), nn.Linear(40, 3))
    x, y = torch.randn(5, 8), torch.randint(0, 3, (5,))
    query = ClippedDifferences(model, F.cross_entropy, clip=1.0, difference_clip=1.0)
    sums = zeros(query.parameters)
    query.add_differences_(sums, x, y, other=[p.detach().clone() for p in query.parameters], seed=3)
    assert all(not s.any() for s in sums)


def test_dropout_inside_what_torch_func_does_is_the_same_too():
    """The same model book-kept and by torch.func: one and the same sum, so one and the same masks."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(8, 20), nn.Dropout(0.4), nn.ReLU(), nn.Linear(20, 3)).double()
    x, y = torch.randn(5, 8).double(), torch.randint(0, 3, (5,))
    one = ClippedGradients(model, F.cross_entropy, clip=0.5)
    two = ClippedGradients(model, loss_of_batch=lambda m, b: F.cross_entropy(m(b[0]), b[1]), clip=0.5)
    sums, others = zeros(one.parameters), zeros(two.parameters)
    one.add_(sums, x, y, seed=4)
    two.add_(others, x, y, seed=4)
    assert relative(others, sums) < 1e-12


def test_attention_with_dropout_equals_torch_attention_where_nothing_is_dropped():
    torch.manual_seed(3)
    q, k, v = (torch.randn(3, 2, 5, 4).double() for _ in range(3))
    draws = Draws(lambda: row_keys(0, torch.arange(3)))
    float_mask = torch.randn(5, 5).double()
    for options in ({"is_causal": True}, {"attn_mask": float_mask}, {"attn_mask": float_mask > 0}, {"scale": 0.3}):
        if "attn_mask" in options and options["attn_mask"].dtype == torch.bool:
            options["attn_mask"] = options["attn_mask"] | torch.eye(5, dtype=torch.bool)
        want = F.scaled_dot_product_attention(q, k, v, **options)
        assert torch.allclose(attention(draws, q, k, v, dropout_p=0.0, **options), want)
        got = attention(draws, q, k, v, dropout_p=1e-12, **options)
        assert torch.allclose(got, want)


def test_dropout_without_examples_in_front_is_refused():
    model = nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (1, -1)), nn.Dropout(0.5), nn.Unflatten(1, (-1, 4)))
    model = nn.Sequential(nn.Linear(4, 4), model, nn.Flatten(0, 1))
    with pytest.raises(InputError, match="first dimension"):
        ClippedGradients(model, F.cross_entropy, clip=1.0).check(torch.zeros(5, 4), torch.zeros(5).long())


def test_evaluation_mode_drops_nothing():
    torch.manual_seed(4)
    model = TorchEncoder(0.5).eval()
    query = ClippedGradients(model, F.cross_entropy, clip=1.0)
    x, y = torch.randn(4, 5, 8), torch.randint(0, 3, (4,))
    one, two = zeros(query.parameters), zeros(query.parameters)
    query.add_(one, x, y, seed=1)
    query.add_(two, x, y, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
