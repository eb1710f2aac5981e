"""Clipped differences: the same numbers as two gradients subtracted in float64, down to the smallest changes."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from momentree.errors import InputError
from momentree.query.capture import Capture
from momentree.query.differences import ClippedDifferences
from momentree.query.layers.embedding import EmbeddingUse
from momentree.query.layers.gradient import Gradient, measured
from momentree.query.layers.linear import Outer
from momentree.query.layers.sides import Change
from momentree.query.layers.views import View, Viewed
from query.reference import clipped_sum, gradients, norms, relative, zeros
from query.zoo import ZOO

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")  # said by torch's own layer, the reference

DETERMINISTIC = sorted(set(ZOO) - {"dropout", "encoder-dropout"})


def moved(parameters, size):
    return [p.detach() + size * p.detach().norm() * torch.randn_like(p) / p.numel() ** 0.5 for p in parameters]


def setting(name, examples, dtype=torch.float64, size=0.1):
    torch.manual_seed(2)
    entry = ZOO[name]
    model = entry.model().to(dtype)
    x, y = (v.to(dtype) if v.is_floating_point() else v for v in (entry.inputs(examples), entry.targets(examples)))
    other = moved([p for p in model.parameters() if p.requires_grad], size)
    return model, entry.loss, x, y, other


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_differences_equal_gradients_subtracted_and_clipped_one_by_one(name):
    model, loss, x, y, other = setting(name, 5)
    here, there = gradients(model, loss, x, y), gradients(model, loss, x, y, other)
    change = [a - b for a, b in zip(here, there, strict=True)]
    clip = float(norms(here).median())
    share = float(norms(change).median()) / clip
    query = ClippedDifferences(model, loss, clip=clip, difference_clip=share)
    sums = zeros(query.parameters)
    query.add_differences_(sums, x, y, other=other)
    assert relative(sums, clipped_sum(change, share * query.level)) < 1e-11
    at = zeros(query.parameters)
    query.add_differences_(at, x, y, at=other, other=list(query.parameters))
    assert relative(at, [-s for s in sums]) < 1e-11


@pytest.mark.parametrize("leak", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("name", ["mlp", "mnist-cnn", "transformer-tied", "lstm", "reused", "table"])
def test_lagged_sums_mix_a_clipped_difference_and_a_clipped_gradient(name, leak):
    model, loss, x, y, other = setting(name, 5)
    here, there = gradients(model, loss, x, y), gradients(model, loss, x, y, other)
    change = [a - b for a, b in zip(here, there, strict=True)]
    clip = float(norms(here).median())
    share = float(norms(change).median()) / clip
    query = ClippedDifferences(model, loss, clip=clip, difference_clip=share)
    sums = zeros(query.parameters)
    query.add_lagged_(sums, x, y, lagged=other, leak=leak)
    one, two = clipped_sum(change, share * query.level), clipped_sum(here, query.level)
    assert relative(sums, [(1 - leak) * a + leak * b for a, b in zip(one, two, strict=True)]) < 1e-11
    first = zeros(query.parameters)
    query.add_lagged_(first, x, y, lagged=None, leak=leak)
    assert relative(first, two) < 1e-11


def test_anchored_sums_are_the_three_queries_of_algorithm_2():
    model, loss, x, y, anchor = setting("mlp", 6)
    previous = moved(anchor, 0.1)
    query = ClippedDifferences(model, loss, clip=1.0, difference_clip=0.3)
    sums = [zeros(query.parameters) for _ in range(3)]
    query.add_anchored_(*sums, x, y, anchor=anchor, previous=previous)
    alone = [zeros(query.parameters) for _ in range(3)]
    query.add_gradients_(alone[0], x, y, at=anchor)
    query.add_differences_(alone[1], x, y, at=anchor, other=previous)
    query.add_differences_(alone[2], x, y, other=anchor)
    for got, want in zip(sums, alone, strict=True):
        assert relative(got, want) < 1e-12
    first = [zeros(query.parameters) for _ in range(2)]
    query.add_anchored_(first[0], None, first[1], x, y, anchor=anchor)
    assert relative(first[0], sums[0]) < 1e-12
    assert relative(first[1], sums[2]) < 1e-12
    with pytest.raises(InputError, match="previous anchor"):
        query.add_anchored_(first[0], None, first[1], x, y, anchor=anchor, previous=previous)


class Layer(nn.Module):
    """One layer alone, between an input whose gradient is asked and a loss that has any output gradient."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


CLOSED = {
    "linear": (lambda: nn.Linear(40, 30), lambda: torch.randn(4, 40)),
    "linear-long": (lambda: nn.Linear(20, 30), lambda: torch.randn(4, 9, 20)),
    "linear-gram": (lambda: nn.Linear(200, 300), lambda: torch.randn(4, 3, 200)),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3, padding=1), lambda: torch.randn(4, 3, 12)),
    "conv2d": (lambda: nn.Conv2d(3, 8, 3, stride=2, padding=1), lambda: torch.randn(4, 3, 9, 9)),
    "conv-gram": (lambda: nn.Conv2d(32, 64, 3), lambda: torch.randn(4, 32, 4, 4)),
    "layer-norm": (lambda: nn.LayerNorm(25), lambda: torch.randn(4, 7, 25)),
    "rms-norm": (lambda: nn.RMSNorm(25), lambda: torch.randn(4, 7, 25)),
    "group-norm": (lambda: nn.GroupNorm(2, 6), lambda: torch.randn(4, 6, 5, 5)),
}


def squares_by_hand(layer, x, b, other_x, other_b):
    """‖difference of the layer's gradients‖² for each example, in float64 from the float32 inputs that were given."""
    twin = copy.deepcopy(layer).double()
    rows = []
    for i in range(len(x)):
        pair = []
        for inputs, output in ((x[i : i + 1], b[i : i + 1]), (other_x[i : i + 1], other_b[i : i + 1])):
            out = twin(inputs.double())
            pair.append(torch.autograd.grad(out, list(twin.parameters()), output.double()))
        rows.append(sum(float((one - two).square().sum()) for one, two in zip(*pair, strict=True)))
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("change", [1e-1, 1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("name", sorted(CLOSED))
def test_norms_of_small_differences_are_right(name, change):
    """Against float64 arithmetic on the same float32 layer inputs and output gradients."""
    torch.manual_seed(3)
    make, inputs = CLOSED[name]
    layer, x = make(), inputs()
    other_x = x * (1 + change * torch.randn_like(x))
    uses = []
    for value in (x, other_x):
        with Capture(list(layer.parameters()), len(x), None) as watch:
            out = layer(value)
        uses += watch.uses
    b = torch.randn_like(out)
    other_b = b * (1 + change * torch.randn_like(b))
    found = [Gradient() for _ in layer.parameters()]
    with torch.no_grad():
        for index, piece in uses[0].difference(uses[1], b, other_b):
            found[index].pieces.append(piece)
        got = sum(g.squares({}, len(x), x.device) for g in found)
    want = squares_by_hand(layer, x, b, other_x, other_b)
    assert torch.allclose(got.sqrt(), want.sqrt(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("angle", [0.0, 1e-2, 1e-4, 1e-6])
def test_two_outer_products_that_cancel_are_measured_in_float64(angle):
    """b₁a₁ᵀ and b₂a₂ᵀ nearly opposite: in float32 alone nothing right would be left of the norm of their sum."""
    torch.manual_seed(7)
    a, b = torch.randn(2, 5, 300)
    one, two = Outer(a, b), Outer(a * (1 + angle), -b + angle * torch.randn(5, 300))
    got = Gradient([one, two]).squares({}, 5, a.device)
    exact = torch.einsum("no,ni->noi", one.b.double(), one.a.double())
    exact += torch.einsum("no,ni->noi", two.b.double(), two.a.double())
    assert torch.allclose(got.sqrt(), exact.flatten(1).norm(dim=1), rtol=1e-5, atol=1e-6)


def test_pieces_multiplied_out_together_do_not_overwrite_each_other():
    """A weight used whole and through a slice, and a difference of it, measured in one go, in several chunks."""
    torch.manual_seed(8)
    a, b, c, d = torch.randn(4, 300, 30, 40).double()
    view = View(0, (20, 40), (40, 1), 800, torch.Size([40, 40]))

    def uses(one, two):
        return Gradient([Outer(one, two), Viewed(Outer(one, two[..., :20]), view)])

    def exact(one, two):
        found = torch.einsum("nto,nti->noi", two, one)
        found[:, 20:] += found[:, :20].clone()
        return found

    change = Gradient([*uses(a, Change(b, d)).pieces[:1], Outer(Change(a, c), d)])
    got = measured([change, uses(a, b), uses(c, d)], {}, 300, a.device)
    difference = torch.einsum("nto,nti->noi", b, a) - torch.einsum("nto,nti->noi", d, c)
    for norm, want in zip(got, (difference, exact(a, b), exact(c, d)), strict=True):
        assert torch.allclose(norm, want.flatten(1).square().sum(1), rtol=1e-12)


def test_an_embedding_whose_gradients_differ_by_little():
    torch.manual_seed(4)
    index = torch.randint(0, 5, (3, 8))
    b = torch.randn(3, 8, 6)
    other = b * (1 + 1e-7 * torch.randn_like(b))
    pieces = EmbeddingUse(None, index, 1, 5, 0).difference(EmbeddingUse(None, index, 1, 5, 0), b, other)
    got = Gradient([piece for _, piece in pieces]).squares({}, 3, index.device)
    table = torch.zeros(3, 5, 6, dtype=torch.float64)
    table.scatter_add_(1, index[..., None].expand_as(b), b.double() - other.double())
    table[:, 1] = 0
    assert torch.allclose(got.sqrt(), table.flatten(1).norm(dim=1), rtol=1e-5, atol=0)


def test_a_small_difference_of_a_whole_model_keeps_its_clip():
    """The parameters move by 1e-6 of themselves and every difference is clipped: each adds just its level."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(30, 20), nn.Tanh(), nn.Linear(20, 4))
    other = moved(list(model.parameters()), 1e-6)
    query = ClippedDifferences(model, F.cross_entropy, clip=1.0, difference_clip=1e-9)
    for _ in range(5):
        x, y = torch.randn(1, 30), torch.randint(0, 4, (1,))
        sums = zeros(query.parameters)
        query.add_differences_(sums, x, y, other=other)
        assert float(torch.cat([s.double().flatten() for s in sums]).norm()) == pytest.approx(
            1e-9 * query.level, rel=1e-5
        )


def test_sensitivities():
    query = ClippedDifferences(nn.Linear(2, 2), F.cross_entropy, clip=2.0, difference_clip=0.25)
    assert query.sensitivity("zero-out", "gradient") == 2.0
    assert query.sensitivity("replace-one", "gradient") == 4.0
    assert query.sensitivity("add-remove", "difference") == 0.5
    assert query.sensitivity("zero-out", "lagged", leak=0.2) == pytest.approx(0.8 * 0.5 + 0.2 * 2)
    assert query.sensitivity("replace-one", "lagged", leak=0.2) == pytest.approx(2 * (0.8 * 0.5 + 0.2 * 2))
    with pytest.raises(InputError, match="part"):
        query.sensitivity("zero-out", "gradients")
    with pytest.raises(InputError, match="difference_clip"):
        ClippedDifferences(nn.Linear(2, 2), F.cross_entropy, clip=2.0, difference_clip=0.0)


@pytest.mark.parametrize("leak", [0.1, 0.9])
def test_one_example_moves_a_lagged_sum_by_no_more_than_its_sensitivity(leak):
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    query = ClippedDifferences(model, F.cross_entropy, clip=0.7, difference_clip=0.4)
    largest = 0.0
    for size in (0.01, 1.0, 100.0):
        other = moved(query.parameters, size)
        x, y = 10 * torch.randn(40, 6), torch.randint(0, 3, (40,))
        for i in range(40):
            sums = zeros(query.parameters)
            query.add_lagged_(sums, x[i : i + 1], y[i : i + 1], lagged=other, leak=leak)
            largest = max(largest, float(torch.cat([s.double().flatten() for s in sums]).norm()))
    bound = query.sensitivity("zero-out", "lagged", leak=leak)
    assert 0.95 * bound < largest <= bound


def test_what_is_not_finite_at_either_iterate_counts_as_zero():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    x, y = torch.randn(4, 3), torch.randint(0, 2, (4,))
    other = moved(list(model.parameters()), 0.1)
    query = ClippedDifferences(model, F.cross_entropy, clip=1.0, difference_clip=0.5)
    want = zeros(query.parameters)
    query.add_lagged_(want, x[1:], y[1:], lagged=other, leak=0.3)
    x[0, 1] = float("nan")
    got = zeros(query.parameters)
    query.add_lagged_(got, x, y, lagged=other, leak=0.3)
    assert relative(got, want) < 1e-6


def test_iterates_of_other_shapes_are_refused():
    query = ClippedDifferences(nn.Linear(3, 2), F.cross_entropy, clip=1.0, difference_clip=0.5)
    x, y = torch.randn(4, 3), torch.randint(0, 2, (4,))
    with pytest.raises(InputError, match="do not fit the parameters"):
        query.add_differences_(zeros(query.parameters), x, y, other=[torch.zeros(2, 3)])
