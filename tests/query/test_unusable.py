"""Rows on which a model or its loss fails: what they add, what the others add, and what is said of it."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from momentree.errors import InputError
from momentree.query.clipped import ClippedGradients
from momentree.query.differences import ClippedDifferences
from query.reference import zeros
from query.test_clipped import total_norm
from query.zoo import ZOO

BAD = 48_151


def classes(output, target):
    return F.cross_entropy(output, target)


def labelled(bad):
    torch.manual_seed(0)
    x, y = torch.randn(7, 6), torch.randint(0, 3, (7,))
    y[bad] = BAD
    return x, y


def worded(bad):
    torch.manual_seed(0)
    x, y = torch.randint(0, 9, (7, 5)), torch.randint(0, 3, (7,))
    x[bad, 0] = BAD
    return x, y


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def reader():
    torch.manual_seed(1)
    return nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Dropout(0.3), nn.Linear(20, 3))


WEIGHTED = functools.partial(F.cross_entropy, weight=torch.tensor([1.0, 2.0, 0.5]))
CASES = {
    "closed form": (net, {"loss": F.cross_entropy}, labelled),
    "class weights": (net, {"loss": WEIGHTED}, labelled),
    "a loss of one's own": (net, {"loss": classes}, labelled),
    "a loss of a batch": (net, {"loss_of_batch": lambda m, b: F.cross_entropy(m(b[0]), b[1])}, labelled),
    "a token": (reader, {"loss": F.cross_entropy}, worded),
    "a token, loss of a batch": (reader, {"loss_of_batch": lambda m, b: F.cross_entropy(m(b[0]), b[1])}, worded),
}


def sums_of(case, bad, weights, how):
    model, loss, data = CASES[case]
    model = model()
    x, y = data(bad)
    if how == "gradients":
        query = ClippedGradients(model, **loss, clip=0.3)
        sums = zeros(query.parameters)
        query.add_(sums, x, y, weights, seed=3)
        return sums, query
    query = ClippedDifferences(model, **loss, clip=0.3, difference_clip=0.5)
    other = [p.detach() + 0.1 for p in query.parameters]
    sums = zeros(query.parameters)
    if how == "lagged":
        query.add_lagged_(sums, x, y, weights, lagged=other, leak=0.4, seed=3)
        return sums, query
    changes, residuals = zeros(query.parameters), zeros(query.parameters)
    query.add_anchored_(
        sums, changes, residuals, x, y, weights, anchor=other, previous=[p + 0.1 for p in other], seed=3
    )
    return [*sums, *changes, *residuals], query


@pytest.mark.parametrize("how", ["gradients", "lagged", "anchored"])
@pytest.mark.parametrize("case", sorted(CASES))
def test_a_row_that_fails_is_a_row_of_weight_zero_in_every_bit(case, how, capsys, recwarn):
    ones = torch.ones(7)
    for bad in ([2], [0], [6, 1]):
        without = ones.clone()
        without[bad] = 0
        want, quiet = sums_of(case, [], without, how)
        assert total_norm(want) > 0
        for weights in (None, ones, without):
            got, query = sums_of(case, bad, weights, how)
            assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
            assert query.explain() == quiet.explain()
    one = ones.clone()
    one[6] = 0
    assert all(map(torch.equal, sums_of(case, [1, 6], None, how)[0], sums_of(case, [1], one, how)[0]))
    assert capsys.readouterr() == ("", "")
    assert not recwarn.list


@pytest.mark.parametrize("how", ["gradients", "lagged", "anchored"])
@pytest.mark.parametrize("case", sorted(CASES))
def test_where_no_row_works_nothing_is_added(case, how):
    assert total_norm(sums_of(case, list(range(7)), None, how)[0]) == 0.0


def test_a_loss_that_raises_and_one_that_does_not_see_a_target():
    torch.manual_seed(0)
    x, y = torch.randn(5, 6), torch.randn(5, 3)
    y[3] = float("nan")
    weights = torch.tensor([1.0, 1, 1, 0, 1])
    for loss in (F.mse_loss, F.l1_loss, nn.BCEWithLogitsLoss(), lambda o, t: F.mse_loss(o, t)):
        query, got, want = ClippedGradients(net(), loss, clip=0.3), None, None
        got, want = zeros(query.parameters), zeros(query.parameters)
        query.add_(got, x, y)
        query.add_(want, x, y, weights)
        assert all(map(torch.equal, got, want))
        assert total_norm(got) > 0


def test_a_model_that_refuses_a_row():
    class Strict(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = net()

        def forward(self, x):
            if bool((x > 1000).any()):
                raise ValueError(f"found {float(x.max())}")
            return self.layer(x)

    x, y = labelled([])
    x[2, 0] = BAD
    query = ClippedGradients(Strict(), F.cross_entropy, clip=0.3)
    got, want = zeros(query.parameters), zeros(query.parameters)
    query.add_(got, x, y)
    weights = torch.ones(7)
    weights[2] = 0
    query.add_(want, x, y, weights)
    assert all(map(torch.equal, got, want))


def test_a_model_or_a_loss_that_is_broken_is_seen_and_its_message_is_not():
    x, y = labelled([])

    def broken(output, target):
        raise KeyError(BAD)

    with pytest.raises(InputError, match="made-up"):
        ClippedGradients(net(), broken, clip=0.3).check(x, y)
    works = [True]

    def breaks(output, target):
        if not works[0]:
            raise KeyError(BAD)
        return F.cross_entropy(output, target)

    query = ClippedGradients(net(), breaks, clip=0.3)
    query.check(x, y)
    works[0] = False
    with pytest.raises(InputError, match="failed with KeyError on private rows and on made-up ones") as caught:
        query.add_(zeros(query.parameters), x, y)
    assert str(BAD) not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("name", ["logistic", "transformer-tied", "parametrised"])
def test_labels_out_of_range_in_other_models(name):
    entry = ZOO[name]
    query = ClippedGradients(entry.model(), entry.loss, clip=1.0)
    x, y = entry.inputs(4), entry.targets(4)
    want, got = zeros(query.parameters), zeros(query.parameters)
    query.add_(want, x, y, torch.tensor([0.0, 1, 1, 1]))
    y.view(-1)[0] = BAD
    query.add_(got, x, y)
    assert all(map(torch.equal, got, want))
    assert total_norm(got) > 0


def test_a_loss_that_gives_no_number_for_a_row():
    def some(model, batch):
        each = (model(batch[0]) - batch[1]).square().sum(1)
        return each[batch[1][:, 0] < 100]

    torch.manual_seed(0)
    x, y = torch.randn(5, 6), torch.rand(5, 3)
    query = ClippedGradients(net(), loss_of_batch=some, clip=0.3)
    want, got = zeros(query.parameters), zeros(query.parameters)
    query.add_(want, x, y, torch.tensor([1.0, 1, 0, 1, 1]))
    y[2, 0] = BAD
    query.add_(got, x, y)
    assert query.explain()["one by one"]
    assert all(map(torch.equal, got, want))
    assert total_norm(got) > 0
