"""Per-example gradients by `torch.func`, for the parameters that no layer here can keep the books of."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_map

from momentree.query.capture import Capture
from momentree.query.losses import scalar
from momentree.query.randomness import Draws

if TYPE_CHECKING:
    from momentree.query.engine import Engine


class _Bound(nn.Module):
    """A model with its loss, so that `functional_call` can exchange the parameters under `loss(model, batch)`."""

    def __init__(self, model: nn.Module, loss: Any) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Any) -> Any:
        return self.loss(self.model, batch)


def by_function(
    engine: Engine,
    inputs: Any,
    targets: Any,
    keys: Tensor,
    values: Sequence[Tensor] | None,
    wanted: list[int],
) -> dict[int, Tensor]:
    """`{parameter: (B, *shape)}`; each example is computed alone, so none can see another."""
    point = [x.detach() for x in (engine.parameters if values is None else values)]
    fixed = {engine.names[i]: x for i, x in enumerate(point) if i not in wanted}
    free = {engine.names[i]: point[i] for i in wanted}
    if not engine.one_by_one:
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop")
                each = vmap(grad(lambda *args: loss_alone(engine, fixed, *args)), in_dims=(None, 0, 0, 0))
                found = each(free, inputs, targets, keys) if targets is not None else _without(each, free, inputs, keys)
            return {i: found[engine.names[i]] for i in wanted}
        except RuntimeError:  # an operation without a batching rule: the slow way is always open
            engine.one_by_one = True
    rows = []
    with torch.enable_grad():
        leaves = {name: x.detach().requires_grad_() for name, x in free.items()}
        for i in range(keys.shape[0]):
            x, y = tree_map(lambda t, i=i: t[i] if isinstance(t, Tensor) else t, (inputs, targets))
            loss = loss_alone(engine, fixed, leaves, x, y, keys[i])
            got: Sequence[Tensor | None] = [None] * len(leaves)
            if loss.requires_grad:
                got = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
            rows.append([torch.zeros_like(p) if g is None else g for g, p in zip(got, leaves.values(), strict=True)])
    return {i: torch.stack([row[k] for row in rows]) for k, i in enumerate(wanted)}


def _without(each: Any, free: dict[str, Tensor], inputs: Any, keys: Tensor) -> Any:
    """The same where a batch is one object and not a pair."""
    nothing = torch.zeros(keys.shape[0], 0, device=keys.device)
    return each(free, inputs, nothing, keys)


def loss_alone(
    engine: Engine, fixed: dict[str, Tensor], free: dict[str, Tensor], x: Any, y: Any, key: Tensor
) -> Tensor:
    """The loss of one example, given as a batch of one, at the parameters `fixed` and `free`."""
    batch = tree_map(lambda t: t.unsqueeze(0) if isinstance(t, Tensor) else t, (x, y))
    if y is None or (isinstance(y, Tensor) and y.numel() == 0):
        batch = (batch[0], None)
    with Capture([], 1, Draws(lambda: key.unsqueeze(0))):
        if engine.loss_of_batch is not None:
            bound = _Bound(engine.model, engine.loss_of_batch)
            named = {f"model.{name}": value for name, value in {**fixed, **free}.items()}
            return scalar(functional_call(bound, named, (batch if batch[1] is not None else batch[0],)))
        outputs = engine.outputs(batch[0], {**fixed, **free})
    if engine.known_loss:
        assert engine.losses is not None
        return scalar(engine.losses(outputs, batch[1]))
    assert engine.loss is not None
    return scalar(engine.loss(outputs, batch[1]))
