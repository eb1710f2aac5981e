"""Two ways out of a step that carry no noise: what a model keeps of its rows, and what an error says of them.

Guarantee: a forward pass that keeps something of its rows in the model (running statistics, caches) is found before
anything of that step leaves; what it wrote is undone. Weights that are trained are moved by the update only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from momentree.errors import InputError, MomentreeError


class Untouched:
    """The state of a model besides its trained weights, as it was when the run took it over.

    Buffers are compared by value, as small as they are; frozen parameters by whether they are the same ones, unwritten.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        frozen = {name: p for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
        self._frozen = {name: (id(p), p._version) for name, p in frozen.items()}
        self._buffers = {name: tensor.detach().clone() for name, tensor in self._others().items()}

    def _others(self) -> dict[str, Tensor]:
        own = {name for name, _ in self._model.named_parameters(remove_duplicate=False)}
        found: dict[str, Tensor] = dict(self._model.named_buffers(remove_duplicate=False))
        return found | {k: v for k, v in self._model.state_dict().items() if isinstance(v, Tensor) and k not in own}

    def check(self) -> None:
        """Refuses what was written since, and puts buffers back."""
        now = self._others()
        changed = [name for name in now if name not in self._buffers or not same(now[name], self._buffers[name])]
        changed += [name for name in self._buffers if name not in now]
        for name, p in self._model.named_parameters(remove_duplicate=False):
            if name in self._frozen and self._frozen[name] != (id(p), p._version):
                changed.append(name)
        if not changed:
            return
        with torch.no_grad():
            for name in changed:
                if name in now:
                    kept = self._buffers.get(name)
                    fits = kept is not None and kept.shape == now[name].shape
                    now[name].copy_(kept) if fits else now[name].zero_()  # type: ignore[arg-type]
        raise InputError(
            f"the forward pass writes to {changed[0]}, which would carry private data out of the run unprotected: "
            "take the layer that keeps it out, or freeze what it keeps"
        )


def same(now: Tensor, before: Tensor) -> bool:
    """The same values, not-a-numbers included."""
    if now.shape != before.shape or now.dtype != before.dtype:
        return False
    before = before.to(now.device)
    if torch.equal(now, before) or not now.is_floating_point():
        return torch.equal(now, before)
    return torch.equal(now.isnan(), before.isnan()) and torch.equal(now.nan_to_num(), before.nan_to_num())


@contextmanager
def unquoted(step: int) -> Iterator[None]:
    """What a model or a loss says when it fails may hold values of rows: only the kind of the error is told."""
    try:
        yield
    except MomentreeError:
        raise
    except Exception as error:
        raise InputError(
            f"step {step} failed with {type(error).__name__} on private rows, whose values its message might hold: "
            "mend what cannot be computed (a target out of range, memory), and try model and loss on made-up rows"
        ) from None
