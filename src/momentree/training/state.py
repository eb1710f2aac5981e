"""Two ways out of a step that carry no noise: what a model keeps of its rows, and what an error says of them.

Guarantee: a forward pass that keeps something of its rows in the model (running statistics, caches) is found before
anything of that step leaves; what it wrote is undone. Weights that are trained are moved by the update only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from momentree.errors import InputError, MomentreeError


class Untouched:
    """The state of a model besides its trained weights, as it was when the run took it over.

    Buffers are compared by value, as small as they are; frozen parameters by whether they are the same ones, unwritten.
    Writing through `.data` is not counted by torch, so where code runs that is not torch's own the norms of all
    parameters are compared too, before a step's forward pass (`look`) and after it.

    On a device, values of a step that nobody is shown are compared there, and asked for when a checkpoint is made.
    """

    def __init__(self, model: nn.Module, *losses: Any) -> None:
        self._model = model
        self._losses = [loss for loss in losses if loss is not None]
        self._parameters = {name: (id(p), self._written(p)) for name, p in self._named()}
        self._buffers = {name: tensor.detach().clone() for name, tensor in self._others().items()}
        self._plain = self._plain_now()
        self._sizes: list[Tensor] = []
        self._doubts: list[Tensor] = []

    def look(self) -> None:
        """The forward passes of a step begin here: until `check` nobody writes to a parameter."""
        self._sizes = self._sizes_now() if self._foreign() else []

    def _foreign(self) -> bool:
        """Whether a forward pass runs code that is not torch's own: it may write wherever it likes."""
        if not all(str(getattr(loss, "__module__", "")).startswith("torch.nn.") for loss in self._losses):
            return True
        return not all(
            type(module).__module__.startswith("torch.nn.")
            and not (module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)
            for module in self._model.modules()
        )

    def _measured(self) -> list[tuple[str, Tensor]]:
        found = ((name, p.detach()) for name, p in self._model.named_parameters())
        return [(name, p) for name, p in found if p.is_floating_point() and p.numel()]

    def _sizes_now(self) -> list[Tensor]:
        kept = [p for _, p in self._measured()]
        narrow = any(p.dtype not in (torch.float32, torch.float64) for p in kept)
        return list(torch._foreach_norm(kept, 2, torch.float32 if narrow else None)) if kept else []

    def _resized(self, asked: bool) -> list[str]:
        """Parameters of another norm than when `look` was called."""
        if not self._sizes:
            return []
        now, before, self._sizes = self._sizes_now(), self._sizes, []
        if len(now) != len(before):
            return [name for name, _ in self._named()]
        if not asked:
            self._doubts += [differs(a, b) for a, b in zip(now, before, strict=True)]
            return []
        if same(_together(now), _together(before)):
            return []
        return [name for (name, _), a, b in zip(self._measured(), now, before, strict=True) if not same(a, b)]

    def _named(self) -> Iterator[tuple[str, nn.Parameter]]:
        return self._model.named_parameters(remove_duplicate=False)

    @staticmethod
    def _written(p: nn.Parameter) -> int:
        """How often a frozen parameter was written; a trained one is, by the update."""
        return -1 if p.requires_grad else p._version

    def _plain_now(self) -> list[Any] | None:
        """Names and identities where the model holds trained parameters and nothing else; otherwise None."""
        form: list[Any] = []
        for module in self._model.modules():
            kind = type(module)
            usual = kind.state_dict is nn.Module.state_dict and kind.get_extra_state is nn.Module.get_extra_state
            usual = usual and kind._save_to_state_dict is nn.Module._save_to_state_dict
            if not usual or module._buffers or module._state_dict_hooks or module._state_dict_pre_hooks:
                return None
            for name, p in module._parameters.items():
                if p is not None and not p.requires_grad:
                    return None
                form += (name, id(p))
        return form

    def _others(self) -> dict[str, Tensor]:
        own = {name for name, _ in self._model.named_parameters(remove_duplicate=False)}
        found: dict[str, Tensor] = dict(self._model.named_buffers(remove_duplicate=False))
        return found | {k: v for k, v in self._model.state_dict().items() if isinstance(v, Tensor) and k not in own}

    def check(self, *, asked: bool = True) -> None:
        """Refuses what was written since, and puts buffers back. Not `asked`: values on a device wait for `settle`."""
        resized = self._resized(asked)
        if not resized and self._plain is not None and self._plain_now() == self._plain:
            return
        now = self._others()
        changed = [name for name in self._buffers if name not in now]
        for name, tensor in now.items():
            before = self._buffers.get(name)
            if before is None or before.shape != tensor.shape or before.dtype != tensor.dtype:
                changed.append(name)
            elif not asked and tensor.device == before.device and not at_hand(tensor):
                self._doubts.append(differs(tensor, before))
            elif not same(tensor, before):
                changed.append(name)
        parameters = {name: (id(p), self._written(p)) for name, p in self._named()}
        other = [name for name, p in parameters.items() if self._parameters.get(name) != p or name in resized]
        if changed or other:
            self._refuse(changed, other, resized)

    def settle(self) -> None:
        """The device is asked once for all steps since it was asked last; before a checkpoint is written."""
        doubts, self._doubts = self._doubts, []
        if doubts and bool(_together(doubts).any()):
            now = self._others()
            changed = [name for name in now if name in self._buffers and not same(now[name], self._buffers[name])]
            self._refuse(changed, ["what the model holds"], [])

    def _refuse(self, changed: list[str], other: list[str], resized: list[str]) -> None:
        now = self._others()
        with torch.no_grad():
            for name in changed:
                if name in now:
                    kept = self._buffers.get(name)
                    fits = kept is not None and kept.shape == now[name].shape
                    now[name].copy_(kept) if fits else now[name].zero_()  # type: ignore[arg-type]
            for name, p in self._named():
                if name in resized or (name in other and name not in self._parameters):
                    p.zero_()  # a checkpoint has what it was
        raise InputError(
            f"the forward pass writes to {(changed + other)[0]}, which would carry private data out of the run "
            "unprotected: take the layer that keeps it out, or freeze what it keeps"
        )


def _together(sizes: list[Tensor]) -> Tensor:
    """One vector, so that a device is asked once; parameters may lie on several and be of several types."""
    try:
        return torch.stack(sizes)
    except RuntimeError:
        return torch.stack([size.to("cpu", torch.float64) for size in sizes])


def at_hand(tensor: Tensor) -> bool:
    """Whether the host can read it without waiting."""
    return tensor.device.type == "cpu"


def differs(now: Tensor, before: Tensor) -> Tensor:
    """`not same`, of equal shapes, as one number where the tensors are: nobody waits for it."""
    equal = now == before
    return ~(equal | (now.isnan() & before.isnan()) if now.is_floating_point() else equal).all()


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
