"""The clipped sum: bounds that rounding cannot break, rows that count as zero, modes, sensitivities."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from momentree.errors import InputError
from momentree.query.base import ADJACENCIES
from momentree.query.capture import Capture
from momentree.query.clipped import MODES, ClippedGradients
from momentree.query.differences import ClippedDifferences
from momentree.query.layers.gradient import Gradient
from momentree.query.norms import BLOCK, full_precision, squares
from query.reference import clipped_sum, gradients, norms, relative, zeros
from query.zoo import ZOO, Tied, sequence_loss


def total_norm(sums):
    return float(torch.stack([s.double().square().sum() for s in sums]).sum().sqrt())


def small():
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def test_squares_of_equal_entries_are_right_where_a_sequential_sum_is_not():
    """5·10⁷ equal entries, of which a float32 running sum loses a good part."""
    x = torch.full((1, 50_000_000), 0.1)
    exact = 5e7 * float(x[0, 0]) ** 2
    assert float(squares(x)[0]) == pytest.approx(exact, rel=2e-5)
    naive = float(torch.linalg.vector_norm(x)) ** 2
    assert abs(naive / exact - 1) > 1e-3  # what the blocks are for


@pytest.mark.parametrize("size", [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_squares_of_every_size_and_type(size, dtype):
    torch.manual_seed(0)
    x = torch.randn(3, size).to(dtype)
    want = x.double().square().sum(1)
    assert torch.allclose(squares(x), want, rtol=1e-12 if dtype == torch.float64 else 1e-5)


def test_entries_that_underflow_are_never_free():
    """Squares below the smallest float32 vanish; a norm that forgot them would let the other factor be anything."""
    x = torch.full((2, 1000), 1e-24)
    assert torch.equal(torch.linalg.vector_norm(x, dim=1), torch.zeros(2))
    assert bool((squares(x) >= 1000 * 1e-48).all())
    y = torch.full((2, 1000), 3e-20)
    assert bool((squares(y) >= y.double().square().sum(1)).all())


def test_no_contribution_exceeds_the_clip_for_equal_entries_of_a_large_model():
    """5·10⁷ equal gradient entries: one example's contribution, measured in float64."""
    model = nn.Linear(50_000_000, 1, bias=False)
    nn.init.zeros_(model.weight)
    query = ClippedGradients(model, F.mse_loss, clip=1.0)
    query._checked = True  # the probe would want three examples of 200 MB
    sums = zeros(query.parameters)
    query.add_(sums, torch.full((1, 50_000_000), 0.1), torch.full((1, 1), 0.3))
    parts = sums[0].view(-1, 1_000_000)
    norm = math.sqrt(sum(float(part.double().square().sum()) for part in parts))
    assert query.level * (1 - 1e-4) < norm <= 1.0


@pytest.mark.parametrize("layer", ["linear", "conv"])
def test_a_gradient_summed_over_very_many_equal_places_keeps_its_norm(layer):
    """A float32 product over 10⁶ equal places is 1% wrong on common hardware: enough to break the clip."""
    places = 300_000
    model = nn.Linear(2, 3, bias=False) if layer == "linear" else nn.Conv1d(2, 3, 1, bias=False)
    nn.init.constant_(model.weight, 0.1)
    x = torch.full((1, places, 2) if layer == "linear" else (1, 2, places), 1 / 3)
    with Capture(list(model.parameters()), 1, None) as watch:
        out = model(x)
    ((_, piece),) = watch.uses[0].pieces(torch.full_like(out, 0.1))
    norm = Gradient([piece]).squares({}, 1, x.device).sqrt()
    each = float(x.flatten()[0]) * float(torch.tensor(0.1))
    assert float(norm) == pytest.approx(places * each * 6**0.5, rel=2e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("fill", ["equal", "normal", "spread"])
@pytest.mark.parametrize("places", [1, 3, 64])
def test_no_contribution_exceeds_the_clip(dtype, fill, places):
    """Single examples of adversarial sorts, in every type; the sums are in float32 or wider."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(96, 80), nn.Tanh(), nn.Linear(80, 2)).to(dtype)
    x = {
        "equal": torch.full((1, places, 96), 0.1),
        "normal": torch.randn(1, places, 96),
        "spread": torch.randn(1, places, 96) * torch.logspace(-6, 6, 96),
    }[fill].to(dtype)
    y = torch.full((1, places, 2), 30.0, dtype=dtype)
    query = ClippedGradients(model, lambda output, target: (output - target).square().mean(), clip=1e-2)
    sums = [torch.zeros_like(p, dtype=torch.promote_types(dtype, torch.float32)) for p in query.parameters]
    query.add_(sums, x, y)
    assert 0.99 * query.clip < total_norm(sums) <= query.clip


def test_the_sum_of_a_bf16_model_is_that_of_its_layer_inputs_in_float32():
    """A sum that was rounded to bf16 would be off by more than the clip at 256 equal contributions."""
    torch.manual_seed(2)
    model = nn.Linear(64, 4).to(torch.bfloat16)
    query = ClippedGradients(model, F.cross_entropy, clip=1e-3)
    x, y = torch.randn(1, 64).to(torch.bfloat16).expand(256, 64), torch.zeros(256, dtype=torch.int64)
    sums = [torch.zeros_like(p, dtype=torch.float32) for p in query.parameters]
    query.add_(sums, x, y)
    assert total_norm(sums) == pytest.approx(256 * query.level, rel=1e-4)


def test_autocast_keeps_the_bound_and_leaves_float32_sums():
    torch.manual_seed(3)
    model = small()
    query = ClippedGradients(model, F.cross_entropy, clip=0.05)
    x, y = torch.randn(9, 6), torch.randint(0, 3, (9,))
    want = clipped_sum(gradients(model, F.cross_entropy, x, y), query.level)
    sums = zeros(query.parameters)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        query.add_(sums, x, y)
    assert relative(sums, want) < 0.05
    for i in range(9):
        alone = zeros(query.parameters)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            query.add_(alone, x[i : i + 1], y[i : i + 1])
        assert total_norm(alone) <= query.clip


@pytest.mark.parametrize("value", [0.3137, 0.51, 0.7717, 0.9])
def test_autocast_does_not_reach_the_norms(value):
    """All entries of this gradient are equal, so rounding it to bf16 would move its norm by up to 0.4%."""
    model = nn.Linear(64, 64, bias=False)
    x, y = torch.full((1, 37, 64), value), torch.zeros(1, 37, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        query = ClippedGradients(model, lambda output, target: (output - target).mean(), clip=1e-3)
        sums = zeros(query.parameters)
        query.add_(sums, x, y)
    assert total_norm(sums) == pytest.approx(query.level, rel=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30])
@pytest.mark.parametrize("name", ["mlp", "mnist-cnn", "resnet", "lora", "reused", "time-first", "parametrised"])
def test_examples_without_a_finite_gradient_add_exactly_nothing(name, bad):
    torch.manual_seed(4)
    entry = ZOO[name]
    model = entry.model()
    x, y = entry.inputs(6), entry.targets(6)
    query = ClippedGradients(model, entry.loss, clip=0.5)
    want = zeros(query.parameters)
    query.add_(want, x[1:], y[1:], rows=torch.arange(1, 6))
    x[0] = bad
    found = gradients(model, entry.loss, x[:1], y[:1])
    if not math.isfinite(float(norms(found)[0])):
        got = zeros(query.parameters)
        query.add_(got, x, y)
        assert relative(got, want) < 1e-6
        alone = zeros(query.parameters)
        query.add_(alone, x[:1], y[:1])
        assert total_norm(alone) == 0.0
    else:
        assert abs(bad) == 1e30 or name in ("reused", "resnet", "lora")  # saturated or normalised away


@pytest.mark.parametrize("name", ["logistic", "mlp", "mnist-cnn", "transformer-tied", "lstm", "conv-options"])
def test_padded_rows_add_exactly_nothing_whatever_they_hold(name):
    torch.manual_seed(5)
    entry = ZOO[name]
    model = entry.model()
    x, y = entry.inputs(7), entry.targets(7)
    query = ClippedGradients(model, entry.loss, clip=0.5)
    want = zeros(query.parameters)
    query.add_(want, x[:4], y[:4])
    weights = torch.tensor([1.0, 1, 1, 1, 0, 0, 0])
    x[4:] = float("nan") if x.is_floating_point() else 10**6
    y[4:] = float("nan") if y.is_floating_point() else -3
    got = zeros(query.parameters)
    query.add_(got, x, y, weights)
    assert relative(got, want) < 1e-6
    nothing = zeros(query.parameters)
    query.add_(nothing, x, y, torch.zeros(7))
    assert total_norm(nothing) == 0.0


def test_an_empty_batch_adds_nothing():
    query = ClippedGradients(small(), F.cross_entropy, clip=1.0)
    for weights in (None, torch.ones(0)):
        sums = zeros(query.parameters)
        query.add_(sums, torch.zeros(0, 6), torch.zeros(0).long(), weights)
        assert total_norm(sums) == 0.0


def test_sums_are_added_to_and_parts_of_a_batch_give_the_whole():
    torch.manual_seed(6)
    model = small().double()
    x, y = torch.randn(10, 6).double(), torch.randint(0, 3, (10,))
    query = ClippedGradients(model, F.cross_entropy, clip=0.3)
    whole, parts = zeros(query.parameters), zeros(query.parameters)
    query.add_(whole, x, y)
    for start in range(0, 10, 3):
        query.add_(parts, x[start : start + 3], y[start : start + 3])
    assert relative(parts, whole) < 1e-12


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_bounds_a_contribution_by_the_clip(mode):
    torch.manual_seed(7)
    model = small()
    query = ClippedGradients(model, F.cross_entropy, clip=0.4, mode=mode)
    for adjacency in ADJACENCIES:
        assert query.sensitivity(adjacency) == (0.8 if adjacency == "replace-one" else 0.4)
    largest = 0.0
    for scale in (0.01, 1.0, 50.0):
        x, y = scale * torch.randn(30, 6), torch.randint(0, 3, (30,))
        for i in range(30):
            sums = zeros(query.parameters)
            query.add_(sums, x[i : i + 1], y[i : i + 1])
            largest = max(largest, total_norm(sums))
    assert 0.9 * query.clip < largest <= query.clip


def test_per_layer_clipping_equals_each_layer_clipped_alone():
    torch.manual_seed(8)
    model = small().double()
    x, y = torch.randn(12, 6).double(), torch.randint(0, 3, (12,))
    query = ClippedGradients(model, F.cross_entropy, clip=0.3, mode="per-layer")
    sums = zeros(query.parameters)
    query.add_(sums, x, y)
    found = gradients(model, F.cross_entropy, x, y)
    level = query.level / math.sqrt(2)
    want = [*clipped_sum(found[:2], level), *clipped_sum(found[2:], level)]
    assert relative(sums, want) < 1e-12


def test_automatic_clipping_equals_its_formula():
    torch.manual_seed(9)
    model = small().double()
    x, y = torch.randn(12, 6).double(), torch.randint(0, 3, (12,))
    query = ClippedGradients(model, F.cross_entropy, clip=0.3, mode="automatic")
    sums = zeros(query.parameters)
    query.add_(sums, x, y)
    found = gradients(model, F.cross_entropy, x, y)
    scale = query.level / (norms(found) + 0.01)
    assert relative(sums, [torch.einsum("b,b...->...", scale, g) for g in found]) < 1e-12


def test_parameters_are_the_trainable_ones_and_nothing_is_left_behind():
    model = small()
    model[0].bias.requires_grad_(False)
    query = ClippedGradients(model, F.cross_entropy, clip=1.0)
    assert [id(p) for p in query.parameters] == [id(model[0].weight), id(model[2].weight), id(model[2].bias)]
    state = {k: v.clone() for k, v in model.state_dict().items()}
    random = torch.get_rng_state()
    query.add_(zeros(query.parameters), torch.randn(4, 6, generator=torch.Generator()), torch.zeros(4).long())
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert all(p.requires_grad is (p is not model[0].bias) for p in model.parameters())


def test_gradients_that_are_there_already_are_left_alone():
    model = small()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    query = ClippedGradients(model, F.cross_entropy, clip=1.0)
    query.add_(zeros(query.parameters), torch.randn(4, 6), torch.zeros(4).long())
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in model.parameters())


def test_under_no_grad_it_works_just_the_same():
    model = small()
    query = ClippedGradients(model, F.cross_entropy, clip=1.0)
    x, y = torch.randn(4, 6), torch.zeros(4).long()
    one, two = zeros(query.parameters), zeros(query.parameters)
    query.add_(one, x, y)
    with torch.no_grad():
        query.add_(two, x, y)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_inputs_as_lists_and_dicts():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 2), nn.Linear(4, 2)

        def forward(self, x, z):
            return self.one(x) + self.two(z)

    torch.manual_seed(10)
    model = Two().double()
    x, z, y = torch.randn(5, 3).double(), torch.randn(5, 4).double(), torch.randint(0, 2, (5,))
    query = ClippedGradients(model, F.cross_entropy, clip=0.2)
    tuples, dicts = zeros(query.parameters), zeros(query.parameters)
    query.add_(tuples, (x, z), y)
    query.add_(dicts, {"z": z, "x": x}, y)
    assert relative(tuples, dicts) < 1e-14


def test_explain_names_how_each_parameter_is_done():
    entry = ZOO["parametrised"]
    query = ClippedGradients(entry.model(), entry.loss, clip=1.0)
    assert query.explain()["checked"] is False
    query.check(entry.inputs(2), entry.targets(2))
    facts = query.explain()
    assert facts["checked"] is True
    assert facts["book-kept"] == ["line.bias", "out.weight", "out.bias"]
    assert facts["torch.func"] == {
        "line.parametrizations.weight.original0": "it is given to _weight_norm",
        "line.parametrizations.weight.original1": "it is given to _weight_norm",
        "up.weight": "it is given to conv_transpose1d",
        "up.bias": "it is given to conv_transpose1d",
    }


def test_a_tied_table_is_never_multiplied_out():
    """A table of 2·10⁵ rows: per-example gradients would be 41 MB each."""
    torch.manual_seed(11)
    model = Tied(vocabulary=200_000, width=8, places=4, layers=1)
    query = ClippedGradients(model, sequence_loss, clip=1.0)
    x, y = torch.randint(0, 200_000, (8, 4)), torch.randint(0, 200_000, (8, 4))
    query.check(x[:1], y[:1])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        query.add_(zeros(query.parameters), x, y)
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest <= 8 * 4 * 200_000 * 8  # the logits in float64, all examples' at once


def test_products_are_in_full_float32_whatever_the_caller_allows():
    x = torch.randn(32, 512, generator=torch.Generator().manual_seed(12)) + 1
    exact = (x.double() @ x.double().t()).float()
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with full_precision(torch.device("cpu")):
            assert torch.allclose(x @ x.t(), exact, rtol=1e-6)
            assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("name", sorted(ZOO))
def test_nothing_waits_for_the_device(name):
    """On a device without values, whatever looks at one raises: `.item()`, a branch on a tensor, `nonzero`."""
    with pytest.raises((RuntimeError, NotImplementedError)):
        bool(torch.ones(1, device="meta"))
    entry = ZOO[name]
    with torch.device("meta"):
        model, x, y, weights = entry.model(), entry.inputs(4), entry.targets(4), torch.ones(4)
    query = ClippedGradients(model, entry.loss, clip=1.0)
    query._checked = True  # the probe compares values, once, before the first step
    sums = zeros(query.parameters)
    query.add_(sums, x, y, weights)
    twin = ClippedDifferences(model, entry.loss, clip=1.0, difference_clip=0.1)
    twin._checked = True
    twin.add_lagged_(sums, x, y, weights, lagged=[p.detach().clone() for p in twin.parameters], leak=0.3)
    assert all(s.device.type == "meta" for s in sums)


@pytest.mark.parametrize("clip", [0, -1.0, float("nan"), float("inf"), "one", True])
def test_clips_that_are_none(clip):
    with pytest.raises(InputError, match="clip") as caught:
        ClippedGradients(small(), F.cross_entropy, clip=clip)
    assert "\n" not in str(caught.value)


def test_bad_arguments():
    with pytest.raises(InputError, match="no trainable parameter"):
        ClippedGradients(small().requires_grad_(False), F.cross_entropy, clip=1.0)
    with pytest.raises(InputError, match="did you mean flat"):
        ClippedGradients(small(), F.cross_entropy, clip=1.0, mode="flatt")
    with pytest.raises(InputError, match="exactly one of loss"):
        ClippedGradients(small(), clip=1.0)
    query = ClippedGradients(small(), F.cross_entropy, clip=1.0)
    with pytest.raises(InputError, match="do not fit the parameters"):
        query.add_([torch.zeros(2)], torch.randn(2, 6), torch.zeros(2).long())
    with pytest.raises(InputError, match="adjacency"):
        query.sensitivity("zero")
    with pytest.raises(InputError, match="same number"):
        query.add_(zeros(query.parameters), (torch.randn(2, 6), torch.randn(3, 6)), torch.zeros(2).long())
    with pytest.raises(InputError, match="same number"):
        query.add_(zeros(query.parameters), torch.randn(2, 6), torch.zeros(1).long())
