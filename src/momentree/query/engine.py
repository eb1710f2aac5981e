"""Per-example gradients of a model, parameter by parameter: book-kept where a layer allows it, else by torch.func."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

from momentree.errors import InputError
from momentree.query.capture import Capture
from momentree.query.functional import by_function
from momentree.query.layers.base import Piece, Use, Vector
from momentree.query.layers.gradient import Gradient
from momentree.query.layers.views import View, through
from momentree.query.losses import Loss, Slopes, per_example, slopes
from momentree.query.norms import factors, finite
from momentree.query.randomness import Draws

LossOfBatch = Callable[[nn.Module, Any], Tensor]
Keys = Callable[[], Tensor]
_HELD = 256 << 20
"""How many bytes of per-example gradients by torch.func may be held at once; a batch is cut up to stay below."""
_CAPTURED = 128 << 20
"""The same for layer inputs and output gradients on a CPU."""


@dataclass(slots=True)
class Pass:
    """What a forward and a backward pass at one iterate left behind."""

    uses: list[Use]
    grads: Sequence[Tensor | None]
    multiplied_out: dict[int, Tensor]
    views: list[View]


class Engine:
    """The model, its loss, and which of its parameters are book-kept. It holds no gradients between calls."""

    def __init__(self, model: nn.Module, loss: Loss | None, loss_of_batch: LossOfBatch | None) -> None:
        if (loss is None) == (loss_of_batch is None):
            raise InputError("give exactly one of loss (of an output and a target) and loss_of_batch (of a model)")
        model = getattr(model, "_orig_mod", model)  # what torch.compile was given: compiled code cannot be watched
        self.model, self.loss, self.loss_of_batch = model, loss, loss_of_batch
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not named:
            raise InputError("the model has no trainable parameter: set requires_grad on what is to be trained")
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self.losses: Loss | None = None
        self.slopes: Slopes | None = None
        self.known_loss = False
        if loss is not None:
            self.losses, self.known_loss = per_example(loss, private=True)
            self.slopes = slopes(loss)
        self.others: dict[int, str] = {}
        """Parameters that torch.func does, and why."""
        if loss_of_batch is not None:
            self.others = dict.fromkeys(range(len(named)), "loss_of_batch")
        self.one_by_one = False
        self.made_up: tuple[tuple[Any, Any], Tensor] | None = None
        """What the model was probed on: (inputs, targets), and the examples' keys."""
        self.captured_bytes = 0
        """About how much one example's layer inputs and output gradients take; known once the model was probed."""

    def parts(self, examples: int, passes: int = 1) -> list[slice]:
        """Cuts a batch so that what torch.func multiplies out, and on a CPU what is captured, stays bounded.

        On a CPU tensors of hundreds of megabytes cost more in page faults than the arithmetic in them. A function of
        public shapes alone: the same batch is cut in the same way when a step is computed again.
        """
        if not examples:
            return []
        if not self.others and self.captured_bytes * passes * examples <= _CAPTURED:
            return [slice(0, examples)]
        step = examples
        if self.others:
            held = sum(self.parameters[i].numel() * self.parameters[i].element_size() for i in self.others)
            step = min(step, _HELD // (held * passes))
        if self.captured_bytes and self.parameters[0].device.type == "cpu":
            step = min(step, _CAPTURED // (self.captured_bytes * passes))
        step = max(1, step)
        if step < examples:  # parts of about one size
            step = -(-examples // -(-examples // step))
        return [slice(start, min(start + step, examples)) for start in range(0, examples, step)]

    def run(self, inputs: Any, targets: Any, examples: int, keys: Keys, values: Sequence[Tensor] | None = None) -> Pass:
        """One forward and one backward pass at the parameters, or at `values` in their place."""
        while True:
            known = len(self.others)
            done = self._captured(inputs, targets, examples, keys, values)
            if len(self.others) == known:
                break
        if self.others:
            done.multiplied_out = by_function(self, inputs, targets, keys(), values, sorted(self.others))
        return done

    def _captured(self, inputs: Any, targets: Any, examples: int, keys: Keys, values: Sequence[Tensor] | None) -> Pass:
        if self.losses is None or len(self.others) == len(self.parameters):
            return Pass([], [], {}, [])
        point: Sequence[Tensor] = self.parameters
        if values is not None:
            point = [value.detach().requires_grad_() for value in values]
        watch = Capture(point, examples, Draws(keys))
        with torch.enable_grad(), watch:
            outputs = self.outputs(inputs, None if values is None else dict(zip(self.names, point, strict=True)))
        uses = watch.uses
        if watch.refused or self.others:
            indices = [{watch.parameter(i) for i in use.indices()} for use in uses]
            self.leave(watch.refused, indices)
            uses = [use for use, used in zip(uses, indices, strict=True) if not self.others.keys() & used]
        grads = self._backward(outputs, targets, [use.edge for use in uses])
        for use in uses:
            use.edge = None
        return Pass(uses if grads else [], grads, {}, watch.views)

    def _backward(self, outputs: Any, targets: Any, edges: list[Any]) -> Sequence[Tensor | None]:
        """What arrives at the edges when every example's loss is differentiated; nothing where nothing can."""
        assert self.losses is not None
        value, slope = outputs, None
        if self.slopes is not None:
            with torch.no_grad():
                slope = self.slopes(outputs, targets)
        if slope is None:
            with torch.enable_grad():
                value = self.losses(outputs, targets)
            slope = torch.ones_like(value)
        if not edges or not value.requires_grad:
            return []
        return torch.autograd.grad(value, edges, slope, allow_unused=True)

    def losses_at(self, inputs: Any, targets: Any, keys: Tensor) -> Tensor:
        """The examples' losses, the model given all of them together."""
        assert self.losses is not None
        with Capture([], keys.shape[0], Draws(lambda: keys)):
            outputs = self.outputs(inputs, None)
        return self.losses(outputs, targets)

    def leave(self, refused: dict[int, str], together: Sequence[set[int]] = ()) -> None:
        """Leaves parameters to torch.func, and with them those that share a use."""
        for index, reason in refused.items():
            self.others.setdefault(index, reason)
        grown = True
        while grown:
            shared = {i for used in together if self.others.keys() & used for i in used}
            grown = not shared <= self.others.keys()
            for index in shared:
                self.others.setdefault(index, "it shares a layer with a parameter that torch.func does")

    def outputs(self, inputs: Any, values: dict[str, Tensor] | None) -> Any:
        """The model's outputs: a tensor is its one argument, a list its arguments, a dict its keywords."""
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        if isinstance(inputs, dict):
            kwargs = inputs
        else:
            args = tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
        if values is None:
            return self.model(*args, **kwargs)
        return functional_call(self.model, values, args, kwargs)

    def gradients(self, done: Pass) -> list[Gradient]:
        """The per-example gradients of a pass, one entry a parameter."""
        found = [Gradient() for _ in self.parameters]
        for use, grad in zip(done.uses, done.grads, strict=True):
            if grad is not None:
                _note(found, done.views, use.pieces(grad))
        for index, values in done.multiplied_out.items():
            found[index].pieces.append(Vector(values))
        return found

    def differences(self, done: Pass, other: Pass) -> list[Gradient]:
        """Per-example gradients of `done` minus those of `other`, formed without cancellation where book-kept."""
        found = [Gradient() for _ in self.parameters]
        alike = (
            len(done.uses) == len(other.uses)
            and done.views == other.views
            and all(
                type(one) is type(two) and list(one.indices()) == list(two.indices())
                for one, two in zip(done.uses, other.uses, strict=True)
            )
        )
        if not alike:
            raise InputError(
                "the model used its parameters differently at the two iterates of a difference: its forward pass "
                "must take the same way for every value of the parameters"
            )
        for use, twin, grad, twin_grad in zip(done.uses, other.uses, done.grads, other.grads, strict=True):
            if grad is None and twin_grad is None:
                continue
            grad = torch.zeros_like(twin_grad) if grad is None else grad  # type: ignore[arg-type]
            twin_grad = torch.zeros_like(grad) if twin_grad is None else twin_grad
            _note(found, done.views, use.difference(twin, grad, twin_grad))
        for index, values in done.multiplied_out.items():
            found[index].pieces.append(Vector(values - other.multiplied_out[index]))
        return found


def _note(found: list[Gradient], views: list[View], pieces: list[tuple[int, Piece]]) -> None:
    """Puts pieces where they belong; those of a view go to its parameter."""
    for index, piece in pieces:
        if index < len(found):
            found[index].pieces.append(piece)
        else:
            view = views[index - len(found)]
            found[view.place].pieces.append(through(piece, view))


@dataclass(slots=True)
class Clip:
    """How contributions are bounded. `groups`: the parameters whose norms are taken together, each with its level."""

    groups: list[list[int]]
    levels: list[float]
    automatic: bool = False


def scales(
    norms: list[Tensor | None], clip: Clip, real: Tensor | None, examples: int, device: torch.device
) -> tuple[list[Tensor], Tensor | None]:
    """From squared norms: for every group the factor of each example, and which are finite where not all have to be.

    `real` is false for rows that only fill the batch up. On a CPU it is cheap to look whether all norms are finite; on
    other devices looking would wait for the device, so there the mask is always returned.
    """
    totals = []
    for group in clip.groups:
        used = [norm for norm in (norms[i] for i in group) if norm is not None]
        if not used:
            used = [torch.zeros(examples, dtype=torch.float64, device=device)]
        total = used[0]
        for norm in used[1:]:
            total = total + norm
        totals.append(total)
    everything = totals[0] if len(totals) == 1 else torch.stack(totals).sum(0)
    good = None
    if device.type != "cpu" or not finite(everything):
        good = torch.isfinite(everything)
    counts = good if real is None else real if good is None else good & real
    return [factors(t, level, clip.automatic, counts) for t, level in zip(totals, clip.levels, strict=True)], good


def add_scaled_(
    sums: Sequence[Tensor], gradients: list[Gradient], clip: Clip, factor: list[Tensor], good: Tensor | None
) -> None:
    """`sums[k] += Σ_i factor_i g_{i,k}`, in the type of the sums."""
    kind = sums[0].dtype
    for group, scale in zip(clip.groups, factor, strict=True):
        narrow = scale.to(kind)
        for index in group:
            if gradients[index].pieces:
                gradients[index].add_(sums[index], narrow, good)


def real_rows(weights: Tensor | None, device: torch.device) -> Tensor | None:
    """Which rows are examples and which only fill the batch up; None where all are, if that is cheap to know."""
    if weights is None:
        return None
    real = weights > 0
    return None if real.device.type == "cpu" and bool(real.all()) else real.to(device)


def blanked(batch: Any, real: Tensor | None) -> Any:
    """The batch with zeros in the rows that only fill it up: whatever they hold, they can do no harm."""
    if real is None:
        return batch

    def clean(x: Any) -> Any:
        if not isinstance(x, Tensor) or x.dim() == 0:
            return x
        return torch.where(real.view(-1, *[1] * (x.dim() - 1)), x, torch.zeros((), dtype=x.dtype, device=x.device))

    return tree_map(clean, batch)


def keys_of(keys: Keys, part: slice) -> Keys:
    """The keys of some of the rows."""
    return lambda: keys()[part]


def taken(batch: Any, part: slice, examples: int) -> Any:
    """Some rows of every tensor of a batch; the batch itself where that is all of them."""
    if part.start == 0 and part.stop >= examples:
        return batch
    return tree_map(lambda x: x[part] if isinstance(x, Tensor) and x.dim() else x, batch)
