"""How a step is computed: in which precision, and so that it can be computed again with the same bits.

Mixed precision: the forward and backward pass in bfloat16, everything that is summed and kept in float32.

Autocast is on inside the model's own forward only. Losses, norms, clips, sums, noise, updates and the weights
themselves stay in float32, so the bound on a contribution is that of the query: what is added is what was measured.
"""

from __future__ import annotations

import os
import warnings
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


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """On a GPU, kernels that add up in the same order each time: a replay has to have the same bits.

    An operation without such a kernel runs all the same; if a replay then differs, the log of releases stops it. On a
    CPU sums already have a fixed order for a fixed number of threads.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    module: Any = torch.utils.deterministic
    fills = module.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=not (before[0] and not before[1]))
    module.fill_uninitialized_memory = False
    try:
        with (
            warnings.catch_warnings(),
            torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, benchmark=False, deterministic=True),
        ):
            warnings.filterwarnings("ignore", message=".*deterministic.*")
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        module.fill_uninitialized_memory = fills


def prepare(device: torch.device) -> None:
    """cuBLAS reads its workspace setting once, at its first use: without it, products may differ from run to run."""
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
