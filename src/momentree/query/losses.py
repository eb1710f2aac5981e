"""Losses of single examples from a loss that a user wrote for one example or for a batch.

The loss of example i is `loss(output_i, target_i)`, given a batch of one. It is evaluated example by example inside
`torch.func.vmap`, so whatever the loss does to a batch (averaging over it, say) cannot couple examples. The common
functions of torch.nn.functional and their modules take a shorter way with the same value: without reduction, and then
averaged (or summed, where the user asked for a sum) over an example's own entries; class weights are kept, entries
equal to `ignore_index` are left out.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from momentree.errors import InputError

Loss = Callable[[Any, Any], Tensor]

_LABELS = {F.cross_entropy, F.nll_loss}
_ENTRIES = {
    F.mse_loss,
    F.l1_loss,
    F.smooth_l1_loss,
    F.huber_loss,
    F.binary_cross_entropy,
    F.binary_cross_entropy_with_logits,
    F.soft_margin_loss,
    F.poisson_nll_loss,
}
_MODULES: dict[type[nn.Module], Any] = {
    nn.CrossEntropyLoss: F.cross_entropy,
    nn.NLLLoss: F.nll_loss,
    nn.MSELoss: F.mse_loss,
    nn.L1Loss: F.l1_loss,
    nn.SmoothL1Loss: F.smooth_l1_loss,
    nn.HuberLoss: F.huber_loss,
    nn.BCELoss: F.binary_cross_entropy,
    nn.BCEWithLogitsLoss: F.binary_cross_entropy_with_logits,
    nn.SoftMarginLoss: F.soft_margin_loss,
    nn.PoissonNLLLoss: F.poisson_nll_loss,
}


def per_example(loss: Loss, *, private: bool = False) -> tuple[Loss, bool]:
    """A function of (outputs, targets) that gives one loss an example; and whether `loss` is one of torch's own.

    `private`: an example whose label one of torch's own losses would refuse has loss and gradient zero. Nobody may
    learn of it, and a GPU could not go on after the refusal.
    """
    known = _known(loss, private)
    if known is not None:
        return known, True

    def each(outputs: Any, targets: Any) -> Tensor:
        def one(output: Any, target: Any) -> Tensor:
            batch = tree_map(_batch_of_one, (output, target))
            return scalar(loss(*batch))

        result: Tensor = torch.func.vmap(one, randomness="error")(outputs, targets)
        return result

    return each, False


def _batch_of_one(x: Any) -> Any:
    return x.unsqueeze(0) if isinstance(x, Tensor) else x


def scalar(value: Any) -> Tensor:
    """One example's loss as a number without dimensions."""
    if not isinstance(value, Tensor):
        raise InputError(f"the loss returned a {type(value).__name__}: it has to return a tensor")
    if value.numel() != 1:
        raise InputError(f"the loss returned {value.numel()} numbers for one example: average or add them up in it")
    return value.reshape(())


@dataclass(frozen=True, slots=True)
class _Described:
    """One of torch's own losses, taken apart."""

    function: Any
    raw: Callable[[Any, Any], Tensor]
    """It without reduction."""
    reduction: str
    ignored: int
    bare: bool
    """Whether nothing but the reduction and the ignored label was asked for: no weights, no smoothing."""


def _described(loss: Any) -> _Described | None:
    options: dict[str, Any] = {}
    function = loss
    if isinstance(loss, functools.partial) and not loss.args:
        function, options = loss.func, dict(loss.keywords)
    if type(loss) in _MODULES:
        module = copy.copy(loss)
        module.reduction = "none"
        bare = (
            all(getattr(loss, name, None) is None for name in ("weight", "pos_weight"))
            and not getattr(loss, "label_smoothing", 0)
            and not loss._forward_hooks
            and not loss._forward_pre_hooks
        )
        ignored = getattr(loss, "ignore_index", -100)
        found = _Described(_MODULES[type(loss)], module, loss.reduction, ignored, bare)
    elif isinstance(function, type(F.mse_loss)) and function in _LABELS | _ENTRIES:
        raw = functools.partial(function, **{**options, "reduction": "none"})
        bare = not set(options) - {"reduction", "ignore_index"}
        found = _Described(function, raw, options.get("reduction", "mean"), options.get("ignore_index", -100), bare)
    else:
        return None
    if found.reduction not in ("mean", "sum") or {"size_average", "reduce"} & set(options):
        return None
    return found


def _known(loss: Any, private: bool) -> Loss | None:
    """The short way for torch's own losses, or None."""
    facts = _described(loss)
    if facts is None:
        return None
    labels = facts.function in _LABELS

    def each(output: Any, target: Any) -> Tensor:
        if not labels and output.shape != target.shape:
            raise InputError(
                f"the loss got outputs of shape {tuple(output.shape)} and targets of shape {tuple(target.shape)}: "
                "broadcasting them would couple examples; give both the same shape"
            )
        if private:
            output, target = _spared(facts, output, target)
        entries = facts.raw(output, target)
        if entries.dim() == 1:
            return entries
        entries = entries.flatten(1)
        if facts.reduction == "sum":
            return entries.sum(1)
        if labels and not target.is_floating_point():
            counted: Tensor = (target != facts.ignored).flatten(1).sum(1).clamp(min=1)
            return entries.sum(1) / counted
        return entries.mean(1)

    return each


def _spared(facts: _Described, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Ignored labels for an example that has a wrong one; for outputs that are no probabilities ones that are."""
    if facts.function in _LABELS and target.dtype == torch.int64 and output.dim() > 1:
        target = torch.where(usable_labels(target, output.shape[1], facts.ignored), target, facts.ignored)
    if facts.function is F.binary_cross_entropy:
        fine = ((output >= 0) & (output <= 1)).flatten(1).all(1) if output.dim() > 1 else (output >= 0) & (output <= 1)
        output = torch.where(fine.view(-1, *[1] * (output.dim() - 1)), output, 0.5)
    return output, target


Slopes = Callable[[Any, Any], Tensor | None]


def slopes(loss: Any) -> Slopes | None:
    """The gradients of the examples' losses with respect to the outputs, where they have a closed form.

    For those losses it takes a third of the time of a forward and a backward pass through the loss, which for small
    models is most of a step. The function gives None for outputs and targets that it leaves to differentiation.
    """
    facts = _described(loss)
    if facts is None or not facts.bare:
        return None
    mean = facts.reduction == "mean"

    def of_labels(output: Any, target: Any) -> Tensor | None:
        if not isinstance(output, Tensor) or output.dim() < 2 or target.dtype != torch.int64:
            return None
        if output.shape[:1] + output.shape[2:] != target.shape:
            return None
        return _label_slopes(output, target, facts.ignored, mean)

    def of_entries(output: Any, target: Any) -> Tensor | None:
        if not isinstance(output, Tensor) or output.shape != target.shape or output.dtype != target.dtype:
            return None
        entries = output[0].numel() if mean and output.shape[0] else 1
        if facts.function is F.mse_loss:
            return torch.sub(output, target).mul_(2 / entries)
        return torch.sigmoid(output).sub_(target).div_(entries)

    if facts.function is F.cross_entropy:
        return of_labels
    return of_entries if facts.function in (F.mse_loss, F.binary_cross_entropy_with_logits) else None


_LANES = 16
"""Below as many classes a CPU's softmax along the last dimension goes entry by entry, and along the first does not."""


def _label_slopes(output: Tensor, target: Tensor, ignored: int, mean: bool) -> Tensor:
    """softmax - one-hot, zero for ignored labels, divided by how many labels of an example count.

    An example with a label that is neither in range nor ignored has slope zero: it contributes nothing.
    """
    kind = output.dtype if output.dtype in (torch.float32, torch.float64) else torch.float32
    if output.dim() == 2 and output.shape[1] < _LANES and output.device.type == "cpu":
        slope = torch.softmax(output.t().contiguous(), 0, dtype=kind).t().contiguous()
    else:
        slope = torch.softmax(output, 1, dtype=kind)
    classes = output.shape[1]
    if target.dim() > 1:
        kept = usable_labels(target, classes, ignored) & (target != ignored)
    else:
        kept = (target >= 0).logical_and_(target < classes)
        if 0 <= ignored < classes:
            kept &= target != ignored
    share = kept.to(kind)
    if mean and target.dim() > 1:
        share /= share.flatten(1).sum(1).clamp_(min=1).view(-1, *[1] * (target.dim() - 1))
    share = share.unsqueeze(1)
    slope.mul_(share)
    return slope.scatter_add_(1, torch.where(kept, target, 0).unsqueeze(1), share.neg_()).to(output.dtype)


def usable_labels(target: Tensor, classes: int, ignored: int) -> Tensor:
    """Like `target`: false for all labels of an example where one of them is neither a class nor ignored."""
    fine = ((target >= 0) & (target < classes)) | (target == ignored)
    return fine if target.dim() < 2 else fine & fine.flatten(1).all(1).view(-1, *[1] * (target.dim() - 1))


def coupled(value: Any, alone: Tensor, tolerance: float) -> bool:
    """Whether the loss of a batch is neither the mean nor the sum nor the list of the losses of its examples alone."""
    if not isinstance(value, Tensor):
        return True
    value, alone = value.detach().double().cpu(), alone.detach().double().cpu()
    near = 0.1 * tolerance * float(alone.abs().max()) + 1e-12

    def differs(given: Tensor, wanted: Tensor) -> bool:
        return not torch.allclose(given, wanted, rtol=tolerance, atol=near)

    if value.numel() == alone.numel() > 1:
        return differs(value.reshape(-1), alone)
    return value.numel() != 1 or all(differs(value.reshape(()), wanted) for wanted in (alone.mean(), alone.sum()))


def leading(inputs: Any, targets: Any = None) -> tuple[int, torch.device]:
    """How many examples a batch has, by the first dimension of every tensor in it, and where it is."""
    if isinstance(inputs, Tensor) and isinstance(targets, Tensor) and inputs.shape[:1] == targets.shape[:1] != ():
        return inputs.shape[0], inputs.device
    inputs = (inputs, targets)
    tensors = [x for x in tree_leaves(inputs) if isinstance(x, Tensor)]
    if not tensors or any(x.dim() == 0 for x in tensors):
        raise InputError("a batch has no tensor with examples in its first dimension: give tensors of shape (B, ...)")
    sizes = {x.shape[0] for x in tensors}
    if len(sizes) != 1:
        raise InputError(f"the tensors of a batch have {sorted(sizes)} rows: give every one the same number")
    return sizes.pop(), tensors[0].device
