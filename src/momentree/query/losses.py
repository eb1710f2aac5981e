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


def per_example(loss: Loss) -> tuple[Loss, bool]:
    """A function of (outputs, targets) that gives one loss an example; and whether `loss` is one of torch's own."""
    known = _known(loss)
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


def _known(loss: Any) -> Loss | None:
    """The short way for torch's own losses, or None."""
    options: dict[str, Any] = {}
    function = loss
    if isinstance(loss, functools.partial) and not loss.args:
        function, options = loss.func, dict(loss.keywords)
    reduction = options.get("reduction", "mean")
    ignored = options.get("ignore_index", -100)
    if type(loss) in _MODULES:
        function, reduction, ignored = _MODULES[type(loss)], loss.reduction, getattr(loss, "ignore_index", -100)
        module = copy.copy(loss)
        module.reduction = "none"
        raw: Callable[[Any, Any], Tensor] = module
    elif isinstance(function, type(F.mse_loss)) and function in _LABELS | _ENTRIES:
        raw = functools.partial(function, **{**options, "reduction": "none"})
    else:
        return None
    if reduction not in ("mean", "sum") or {"size_average", "reduce"} & set(options):
        return None
    labels = function in _LABELS

    def each(output: Any, target: Any) -> Tensor:
        if not labels and output.shape != target.shape:
            raise InputError(
                f"the loss got outputs of shape {tuple(output.shape)} and targets of shape {tuple(target.shape)}: "
                "broadcasting them would couple examples; give both the same shape"
            )
        entries = raw(output, target)
        if entries.dim() == 1:
            return entries
        entries = entries.flatten(1)
        if reduction == "sum":
            return entries.sum(1)
        if labels and not target.is_floating_point():
            counted: Tensor = (target != ignored).flatten(1).sum(1).clamp(min=1)
            return entries.sum(1) / counted
        return entries.mean(1)

    return each


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
