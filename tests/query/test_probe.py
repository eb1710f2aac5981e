"""What mixes examples is refused before anything private is seen, in one line that says what to do."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from momentree.errors import InputError
from momentree.query.clipped import ClippedGradients
from momentree.query.differences import ClippedDifferences
from momentree.query.probe import replace_batchnorm
from query.reference import clipped_sum, gradients, relative, zeros


def refused(model, loss, x, y, match, **more):
    state = {k: v.clone() for k, v in model.state_dict().items()}
    random = torch.get_rng_state()
    for query in (
        ClippedGradients(model, loss, clip=1.0, **more),
        ClippedDifferences(model, loss, clip=1.0, difference_clip=0.1, **more),
    ):
        with pytest.raises(InputError, match=match) as caught:
            query.check(x, y)
        assert "\n" not in str(caught.value)
        sums = zeros(query.parameters)
        with pytest.raises(InputError, match=match):
            (query.add_ if isinstance(query, ClippedGradients) else query.add_gradients_)(sums, x, y)
        assert all(not s.any() for s in sums)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())


class Custom(nn.Module):
    """A linear map, and whatever a test wants done to its outputs."""

    def __init__(self, then):
        super().__init__()
        self.line, self.then = nn.Linear(6, 3), then

    def forward(self, x):
        return self.then(self.line(x))


X, Y = torch.zeros(5, 6), torch.zeros(5).long()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.BatchNorm1d(6), (6,)), (nn.BatchNorm2d(3), (3, 4, 4)), (nn.SyncBatchNorm(3), (3, 4, 4))],
)
def test_batchnorm_is_refused_with_its_replacement(layer, shape):
    model = nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(2))
    with torch.no_grad():
        model[2](torch.zeros(2, torch.Size(shape).numel()))
    refused(model, F.cross_entropy, torch.zeros(4, *shape), torch.zeros(4).long(), "use GroupNorm")


def test_batchnorm_that_is_frozen_is_a_scale_like_any_other():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).double()
    model(torch.randn(8, 2, 4, 4).double())
    model.eval()
    x, y = torch.randn(5, 2, 4, 4).double(), torch.randint(0, 3, (5,))
    query = ClippedGradients(model, F.cross_entropy, clip=0.5)
    sums = zeros(query.parameters)
    query.add_(sums, x, y)
    assert relative(sums, clipped_sum(gradients(model, F.cross_entropy, x, y), query.level)) < 1e-12
    assert set(query.explain()["torch.func"]) == {"1.weight", "1.bias"}


def test_replacing_batchnorm():
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Sequential(nn.BatchNorm2d(6, affine=False)))
    model[1].weight.data.fill_(1.5)
    new = replace_batchnorm(model, groups=4)
    assert new is model
    assert isinstance(model[1], nn.GroupNorm)
    assert model[1].num_groups == 2  # the largest number that divides both 6 channels and 4 groups
    assert torch.equal(model[1].weight, torch.full((6,), 1.5))
    assert isinstance(model[2][0], nn.GroupNorm)
    assert model[2][0].weight is None
    assert isinstance(replace_batchnorm(nn.BatchNorm1d(8)), nn.GroupNorm)
    x, y = torch.randn(3, 3, 8, 8), torch.randint(0, 2, (3,))
    head = nn.Sequential(model, nn.Flatten(), nn.Linear(216, 2))
    ClippedGradients(head, F.cross_entropy, clip=1.0).check(x, y)


@pytest.mark.parametrize(
    "then",
    [
        lambda h: h - h.mean(0),
        lambda h: h + 1e-6 * h.sum(0),
        lambda h: h / h.shape[0],
        lambda h: h.softmax(0),
        lambda h: h.flip(0),
        lambda h: h * (h.detach().max() > 1),
        lambda h: h + h.cumsum(0).detach(),
    ],
    ids=["mean", "tiny", "size", "softmax", "order", "maximum", "cumulative"],
)
def test_models_that_mix_examples_are_refused(then):
    refused(Custom(then), F.cross_entropy, X, Y, "mixes the examples")


class Running(nn.Module):
    """Keeps a statistic of what it has seen, and does not even use it."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x):
        with torch.no_grad():
            self.seen.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.line(x)


def test_layers_that_write_to_their_weights_are_refused():
    refused(nn.Sequential(nn.Embedding(5, 3, max_norm=1.0), nn.Flatten(), nn.Linear(6, 3)), F.cross_entropy,
            torch.zeros(5, 2).long(), Y, "leave max_norm out")  # fmt: skip

    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(6, 3)

        def forward(self, x):
            with torch.no_grad():
                self.line.weight.mul_(1.0)
            return self.line(x)

    refused(Writes(), F.cross_entropy, X, Y, "writes to line.weight")


def test_a_scripted_model_is_refused_in_one_line():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = torch.jit.script(nn.Linear(6, 3))
    refused(model, F.cross_entropy, X, Y, "could not be tried")


def test_a_compiled_model_is_taken_for_what_was_compiled():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    x, y = torch.randn(5, 6), torch.randint(0, 3, (5,))
    sums = []
    for given in (model, torch.compile(model, backend="eager")):
        query = ClippedGradients(given, F.cross_entropy, clip=0.5)
        sums.append(zeros(query.parameters))
        query.add_(sums[-1], x, y)
    assert all(torch.equal(a, b) for a, b in zip(*sums, strict=True))


def test_a_buffer_that_remembers_private_data_is_refused():
    refused(Running(), F.cross_entropy, X, Y, "writes to seen")
    model = nn.Sequential(nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten(), nn.Linear(6, 3))
    refused(model, F.cross_entropy, torch.zeros(5, 2, 3), Y, "track_running_stats=False")


def test_random_numbers_that_no_row_owns_are_refused():
    refused(Custom(lambda h: h + torch.randn_like(h)), F.cross_entropy, X, Y, "use nn.Dropout")
    refused(Custom(lambda h: F.alpha_dropout(h, 0.5, True)), F.cross_entropy, X, Y, "use nn.Dropout")


@pytest.mark.parametrize(
    "loss",
    [
        lambda o, t: F.cross_entropy(o - o.mean(0), t),
        lambda o, t: F.cross_entropy(o, t) ** 2,
        lambda o, t: torch.logsumexp(F.cross_entropy(o, t, reduction="none"), 0),
        lambda o, t: F.cross_entropy(o, t, weight=torch.tensor([1.0, 10.0, 0.1])),
    ],
    ids=["centred", "squared", "smooth-maximum", "weighted-mean"],
)
def test_losses_that_couple_examples_are_refused(loss):
    refused(nn.Linear(6, 3), loss, X, Y, "couples the examples")


def test_a_coupled_loss_of_batch_is_refused():
    model = nn.Linear(6, 3)
    refused(
        model,
        None,
        X,
        Y,
        "couples the examples",
        loss_of_batch=lambda m, batch: F.cross_entropy(m(batch[0]), batch[1]).exp(),
    )


def test_a_model_that_cannot_be_tried_says_how_to_make_up_examples():
    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(3, 2)

        def forward(self, x):
            if (x < 0).any():
                raise ValueError("only positive")
            return self.line(x)

    x, y = torch.rand(4, 3), torch.zeros(4).long()
    with pytest.raises(InputError, match="made_up="):
        ClippedGradients(Picky(), F.cross_entropy, clip=1.0).check(x, y)
    made_up = (torch.rand(3, 3), torch.zeros(3).long())
    ClippedGradients(Picky(), F.cross_entropy, clip=1.0, made_up=made_up).check(x, y)


def test_the_probe_reads_no_value_of_the_batch():
    """Values that no arithmetic survives: only shapes and types are looked at."""
    model = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(6, 3))
    query = ClippedGradients(model, F.cross_entropy, clip=1.0)
    query.check(torch.full((4, 2), 10**9), torch.full((4,), -7))
    query = ClippedGradients(nn.Linear(6, 3), F.cross_entropy, clip=1.0)
    query.check(torch.full((4, 6), float("nan")), torch.full((4,), -7))


def test_outputs_without_examples_in_front_are_refused():
    refused(Custom(lambda h: h.t()), F.cross_entropy, torch.zeros(5, 6), Y, "made_up|mixes|first dimension")


def test_a_wrong_custom_gradient_is_not_believed():
    """A layer whose backward pass is its own: the books agree with it, or torch.func does it, or it is refused."""

    class Mixing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad - grad.mean(0)

    refused(Custom(Mixing.apply), F.cross_entropy, X, Y, "cannot be had")
