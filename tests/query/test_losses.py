"""The loss of one example, from every kind of loss that a user may give."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from momentree.errors import InputError
from momentree.query.clipped import ClippedGradients
from momentree.query.losses import per_example, slopes
from query.reference import clipped_sum, gradients, relative, zeros

LOGITS, LABELS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3, 0, 1])
VALUES = torch.rand(6, 4, generator=torch.Generator().manual_seed(1))

KNOWN = {
    "cross_entropy": (F.cross_entropy, LOGITS, LABELS),
    "smoothed": (functools.partial(F.cross_entropy, label_smoothing=0.1), LOGITS, LABELS),
    "summed": (functools.partial(F.cross_entropy, reduction="sum"), LOGITS, LABELS),
    "module": (nn.CrossEntropyLoss(label_smoothing=0.2), LOGITS, LABELS),
    "probabilities": (F.cross_entropy, LOGITS, VALUES / VALUES.sum(1, keepdim=True)),
    "nll": (F.nll_loss, LOGITS.log_softmax(1), LABELS),
    "mse": (F.mse_loss, LOGITS, VALUES),
    "mse-sum": (nn.MSELoss(reduction="sum"), LOGITS, VALUES),
    "l1": (F.l1_loss, LOGITS, VALUES),
    "huber": (functools.partial(F.huber_loss, delta=0.3), LOGITS, VALUES),
    "smooth_l1": (nn.SmoothL1Loss(), LOGITS, VALUES),
    "bce": (F.binary_cross_entropy, LOGITS.sigmoid(), VALUES),
    "bce-logits": (F.binary_cross_entropy_with_logits, LOGITS, VALUES),
    "soft-margin": (F.soft_margin_loss, LOGITS, VALUES.round() * 2 - 1),
    "poisson": (nn.PoissonNLLLoss(), LOGITS, VALUES),
    "pixels": (F.cross_entropy, LOGITS.reshape(2, 3, 4), torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])),
}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_torch_losses_are_what_they_are_for_each_example_alone(name):
    loss, outputs, targets = KNOWN[name]
    each, known = per_example(loss)
    assert known
    want = torch.stack([loss(outputs[i : i + 1], targets[i : i + 1]) for i in range(len(outputs))])
    assert torch.allclose(each(outputs, targets), want, rtol=1e-6)


@pytest.mark.parametrize("name", sorted(set(KNOWN) - {"soft-margin"}))  # torch warns of a slow batching rule
def test_other_losses_are_what_they_are_for_each_example_alone(name):
    loss, outputs, targets = KNOWN[name]
    each, known = per_example(lambda o, t: loss(o, t))
    assert not known
    want = torch.stack([loss(outputs[i : i + 1], targets[i : i + 1]) for i in range(len(outputs))])
    assert torch.allclose(each(outputs, targets), want, rtol=1e-6)


def test_ignored_labels_are_left_out_of_an_examples_own_mean():
    outputs, targets = torch.randn(3, 5, 4), torch.tensor([[0, 1, -100, 2], [-100, -100, -100, 3], [-100] * 4])
    each, _ = per_example(F.cross_entropy)
    got = each(outputs, targets)
    want = [F.cross_entropy(outputs[i : i + 1], targets[i : i + 1]) for i in range(2)]
    assert torch.allclose(got[:2], torch.stack(want))
    assert float(got[2]) == 0.0


CLOSED = {
    **{name: KNOWN[name] for name in ("cross_entropy", "summed", "mse", "mse-sum", "bce-logits", "pixels")},
    "many classes": (nn.CrossEntropyLoss(), torch.randn(6, 40), torch.arange(6)),
    "ignored": (
        functools.partial(F.cross_entropy, ignore_index=1),
        torch.randn(3, 5, 4),
        torch.tensor([[0, 1, 4, 2], [1, 1, 1, 3], [1] * 4]),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", sorted(CLOSED))
def test_slopes_in_closed_form_are_the_derivatives_of_each_examples_loss(name, dtype):
    loss, outputs, targets = CLOSED[name]
    outputs = outputs.to(dtype).requires_grad_()
    targets = targets.to(dtype) if targets.is_floating_point() else targets
    each, _ = per_example(loss)
    (want,) = torch.autograd.grad(each(outputs, targets).sum(), outputs)
    got = slopes(loss)(outputs.detach(), targets)
    assert got.dtype == dtype
    assert relative([got], [want]) < (1e-6 if dtype == torch.float32 else 1e-14)


@pytest.mark.parametrize("name", ["smoothed", "module", "nll", "l1", "huber", "bce", "poisson"])
def test_losses_with_options_are_left_to_differentiation(name):
    loss, _, _ = KNOWN[name]
    assert slopes(loss) is None
    assert slopes(nn.CrossEntropyLoss(weight=torch.ones(4))) is None
    assert slopes(functools.partial(F.binary_cross_entropy_with_logits, pos_weight=torch.ones(4))) is None
    assert slopes(lambda output, target: F.mse_loss(output, target)) is None


def test_shapes_and_labels_that_a_closed_form_does_not_cover():
    of_labels, of_entries = slopes(F.cross_entropy), slopes(F.mse_loss)
    assert of_labels(LOGITS, VALUES) is None  # probabilities for labels
    assert of_labels(LOGITS, LABELS[:3]) is None
    assert of_entries(LOGITS, VALUES[:, :1]) is None


@pytest.mark.parametrize("label", [4, -1, -3, 2**40])
def test_a_label_out_of_range_takes_its_example_out_and_no_other(label):
    for name in ("cross_entropy", "summed", "pixels", "smoothed", "nll", "many classes", "ignored"):
        loss, outputs, targets = KNOWN[name] if name in KNOWN else CLOSED[name]
        label = 99 if label == 4 else label
        wrong = targets.clone()
        wrong[1].view(-1)[0] = label
        outputs = outputs.clone().requires_grad_()
        each, _ = per_example(loss, private=True)
        (got,) = torch.autograd.grad(each(outputs, wrong).sum(), outputs)
        (want,) = torch.autograd.grad(each(outputs, targets).sum(), outputs)
        assert float(got[1].abs().max()) == 0.0 < float(want[1].abs().max()) or name == "ignored"
        want[1] = 0
        assert torch.equal(got, want)
        if slopes(loss) is not None:
            assert torch.allclose(slopes(loss)(outputs.detach(), wrong), want, atol=1e-6)
            assert float(slopes(loss)(outputs.detach(), wrong)[1].abs().max()) == 0.0


def test_outputs_that_are_no_probabilities_take_their_example_out():
    outputs = LOGITS.sigmoid()
    outputs[2, 1], outputs[4, 0] = float("nan"), 1.5
    outputs.requires_grad_()
    each, _ = per_example(F.binary_cross_entropy, private=True)
    (got,) = torch.autograd.grad(each(outputs, VALUES).sum(), outputs)
    whole = LOGITS.sigmoid().requires_grad_()
    (want,) = torch.autograd.grad(each(whole, VALUES).sum(), whole)
    want[[2, 4]] = 0
    assert torch.equal(got, want)


def test_class_weights_count_and_are_not_divided_away():
    weight = torch.tensor([1.0, 2.0, 0.5, 3.0])
    each, known = per_example(nn.CrossEntropyLoss(weight=weight))
    assert known
    plain, _ = per_example(F.cross_entropy)
    assert torch.allclose(each(LOGITS, LABELS), plain(LOGITS, LABELS) * weight[LABELS])


def test_broadcasting_that_would_couple_examples_is_refused():
    query = ClippedGradients(nn.Linear(3, 1), F.mse_loss, clip=1.0)
    with pytest.raises(InputError, match="couple examples"):
        query.check(torch.zeros(4, 3), torch.zeros(4))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_loss_of_any_reduction_gives_the_same_clipped_sum(reduction):
    torch.manual_seed(0)
    model = nn.Linear(5, 3).double()
    x, y = torch.randn(6, 5).double(), torch.randint(0, 3, (6,))
    want = clipped_sum(gradients(model, F.cross_entropy, x, y), 0.5 / (1 + 1e-9))
    for loss in (
        functools.partial(F.cross_entropy, reduction=reduction),
        lambda o, t: F.cross_entropy(o, t, reduction=reduction),
    ):
        query = ClippedGradients(model, loss, clip=0.5)
        sums = zeros(query.parameters)
        query.add_(sums, x, y)
        assert relative(sums, want) < 1e-12


def test_loss_of_batch_goes_through_torch_func():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    x, y = torch.randn(6, 5).double(), torch.randint(0, 3, (6,))
    want = clipped_sum(gradients(model, F.cross_entropy, x, y), 0.5 / (1 + 1e-9))
    query = ClippedGradients(model, loss_of_batch=lambda m, batch: F.cross_entropy(m(batch[0]), batch[1]), clip=0.5)
    sums = zeros(query.parameters)
    query.add_(sums, x, y)
    assert relative(sums, want) < 1e-12
    query = ClippedGradients(model, loss_of_batch=lambda m, b: F.cross_entropy(m(b["x"]), b["y"]), clip=0.5)
    sums = zeros(query.parameters)
    query.add_(sums, {"x": x, "y": y})
    assert relative(sums, want) < 1e-12
    assert len(query.explain()["torch.func"]) == 4


def test_loss_of_batch_may_use_parts_of_the_model():
    torch.manual_seed(2)
    model = nn.ModuleDict({"body": nn.Linear(5, 4), "head": nn.Linear(4, 3)}).double()
    x, y = torch.randn(6, 5).double(), torch.randint(0, 3, (6,))
    twin = nn.Sequential(model["body"], nn.Tanh(), model["head"])
    want = clipped_sum(gradients(twin, F.cross_entropy, x, y), 0.5 / (1 + 1e-9))
    query = ClippedGradients(
        model,
        loss_of_batch=lambda m, b: F.cross_entropy(m["head"](torch.tanh(m["body"](b[0]))), b[1]),
        clip=0.5,
    )
    sums = zeros(query.parameters)
    query.add_(sums, x, y)
    assert relative(sums, want) < 1e-12


def test_losses_that_are_no_numbers_are_refused():
    for loss, match in ((lambda o, t: 0.5, "float"), (lambda o, t: o, "numbers for one example")):
        with pytest.raises(InputError, match=match):
            ClippedGradients(nn.Linear(3, 2), loss, clip=1.0).check(torch.zeros(4, 3), torch.zeros(4).long())
