"""Mixed precision: the forward and backward pass in bfloat16, everything that is summed and kept in float32.

Autocast is on inside the model's own forward only. Losses, norms, clips, sums, noise, updates and the weights
themselves stay in float32, so the bound on a contribution is that of the query: what is added is what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from momentree.errors import InputError, one_of

PRECISIONS = ("float32", "bfloat16")


def check_weights(model: nn.Module) -> None:
    """The weights are the master copy: half types would lose small steps, and the noise with them."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype not in (torch.float32, torch.float64):
            raise InputError(
                f"parameter {name} is {str(parameter.dtype).removeprefix('torch.')}: keep float32 weights and ask for "
                "precision='bfloat16'"
            )


@contextmanager
def lowered(model: nn.Module, precision: str) -> Iterator[None]:
    """The model's forward under autocast for a while; its hooks are gone afterwards."""
    one_of("precision", precision, PRECISIONS)
    if precision == "float32":
        yield
        return
    kind = next(model.parameters()).device.type
    entered: list[ExitStack] = []

    def before(module: nn.Module, inputs: Any) -> None:
        region = ExitStack()
        region.enter_context(torch.autocast(kind, dtype=torch.bfloat16))
        entered.append(region)

    def after(module: nn.Module, inputs: Any, outputs: Any) -> Any:
        if entered:
            entered.pop().close()
        widen = lambda x: x.float() if isinstance(x, Tensor) and x.dtype == torch.bfloat16 else x  # noqa: E731
        return tree_map(widen, outputs)

    hooks = [
        model.register_forward_pre_hook(before, prepend=True),
        model.register_forward_hook(after, always_call=True),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        while entered:
            entered.pop().close()
