"""Before anything private is seen: does the model treat every example by itself? Asked on made-up values.

The bound on one example's contribution rests on every example's gradient depending on that example alone. So a batch of
made-up examples, of the shapes of the real ones, goes through the model in several ways: together, with all but the
first replaced, and each alone. Nothing here reads a value of the data.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from momentree.errors import InputError
from momentree.query.capture import Capture
from momentree.query.functional import loss_alone
from momentree.query.losses import coupled
from momentree.query.norms import full_precision, squares
from momentree.query.randomness import Draws, row_keys

if TYPE_CHECKING:
    from momentree.query.engine import Engine

_EXAMPLES = 3


def probe(engine: Engine, inputs: Any, targets: Any, made_up: tuple[Any, Any] | None = None) -> None:
    """Refuses what mixes examples; moves parameters to torch.func where the books turn out wrong.

    `made_up`: three (other) examples as a pair (inputs, targets), where values cannot be made up from shapes alone.
    """
    _refuse_layers(engine.model)
    buffers = {name: buffer.detach().clone() for name, buffer in engine.model.named_buffers()}
    device = engine.parameters[0].device
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            _compare(engine, inputs, targets, made_up)
    except InputError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise InputError(
            f"the model could not be tried on made-up values of the shapes of a batch ({type(error).__name__}: "
            f"{reason}): give made_up=(inputs, targets) with {_EXAMPLES} examples that are not private"
        ) from None
    finally:
        with torch.no_grad():
            for name, buffer in engine.model.named_buffers():
                if name in buffers:
                    buffer.copy_(buffers[name])


def _refuse_layers(model: nn.Module) -> None:
    for name, layer in model.named_modules():
        kind = type(layer).__name__
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and (layer.training or not layer.track_running_stats):
            raise InputError(
                f"layer {name or 'model'} is {kind}, which mixes the examples of a batch: use GroupNorm in its place "
                "(momentree.query.probe.replace_batchnorm(model) does that)"
            )
        if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats and layer.training:
            raise InputError(
                f"layer {name or 'model'} is {kind} with running statistics, which would carry private data out of "
                "the run unprotected: set track_running_stats=False or use GroupNorm"
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
            raise InputError(
                f"layer {name or 'model'} is {kind} with max_norm, which changes its weights by looking at private "
                "tokens: leave max_norm out"
            )


def replace_batchnorm(model: nn.Module, groups: int = 32) -> nn.Module:
    """Puts GroupNorm where the model has BatchNorm, in place; the model, or what replaces it if it is one itself.

    As many groups as divide the channels, at most `groups`. Scales and shifts are kept, running statistics dropped.
    """
    if isinstance(model, nn.modules.batchnorm._BatchNorm):
        channels = model.num_features
        new = nn.GroupNorm(math.gcd(channels, groups), channels, eps=model.eps, affine=model.affine)
        if model.affine:
            new = new.to(model.weight.device, model.weight.dtype)
            with torch.no_grad():
                new.weight.copy_(model.weight)
                new.bias.copy_(model.bias)
            new.weight.requires_grad_(model.weight.requires_grad)
            new.bias.requires_grad_(model.bias.requires_grad)
        return new.train(model.training)
    for name, child in model.named_children():
        setattr(model, name, replace_batchnorm(child, groups))
    return model


def _compare(engine: Engine, inputs: Any, targets: Any, made_up: tuple[Any, Any] | None) -> None:
    device = engine.parameters[0].device
    generator = torch.Generator().manual_seed(20220)
    keys = row_keys(0, torch.arange(_EXAMPLES, device=device))
    pairs: list[tuple[Any, Any]] = []
    if made_up is not None:
        first = tree_map(lambda x: x[:_EXAMPLES] if isinstance(x, Tensor) else x, made_up)
        others = [tree_map(lambda x: torch.cat([x[:1], x[1:].flip(0)]) if isinstance(x, Tensor) else x, first)]
    else:
        first = _made_up(engine, inputs, targets, generator, 1.0)
        others = [_made_up(engine, inputs, targets, generator, size) for size in (3.0, 0.03, 100.0)]
        others = [tree_map(_first_row_of, first, batch) for batch in others]
        small = _made_up(engine, inputs, targets, generator, 0.01)
        pairs.append((small, tree_map(_first_row_of, small, others[-1])))
    engine.made_up = (first, keys)
    random = _random_state(device)
    together = _losses(engine, first, keys)
    pairs += [(first, batch) for batch in others]
    moved = any(_moved(engine, one, two, keys) for one, two in pairs)
    alone = [_losses(engine, _row(first, i), keys[i : i + 1])[0] for i in range(_EXAMPLES)]
    if not torch.equal(random, _random_state(device)):
        raise InputError(
            "the model draws random numbers from torch's global generator, which cannot be drawn again for one "
            "example: use nn.Dropout or torch.nn.functional.dropout, which are drawn for each row"
        )
    _same_losses(engine, first, keys, moved, together, torch.stack(alone))
    wrong = _wrong_parameters(engine, (first, others[0]), keys)
    if wrong:
        engine.leave(wrong)
        left = _wrong_parameters(engine, (first, others[0]), keys)
        if left:
            names = ", ".join(engine.names[i] for i in left)
            raise InputError(
                f"per-example gradients of {names} cannot be had: {_EXAMPLES} examples together do not give what each "
                "gives alone; the model mixes the examples of a batch, or has an operation that torch.func cannot do"
            )


def _tolerance(engine: Engine) -> tuple[float, float]:
    """How far two ways to one number may be apart: relative, and in units of the whole gradient."""
    kind = engine.parameters[0].device.type
    narrow = any(p.dtype not in (torch.float32, torch.float64) for p in engine.parameters)
    return (0.1, 0.02) if narrow or torch.is_autocast_enabled(kind) else (1e-3, 1e-6)


def _size(x: Tensor) -> float:
    return math.sqrt(float(squares(x.flatten().unsqueeze(0))))


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _moved(engine: Engine, one: Any, two: Any, keys: Tensor) -> bool:
    """Whether the first example's loss changes with the others. On a CPU it must not change in a single bit."""
    before, after = _losses(engine, one, keys)[0], _losses(engine, two, keys)[0]
    tolerance = 0.0 if before.device.type == "cpu" else 1e-5
    return not torch.allclose(before, after, rtol=tolerance, atol=0.0, equal_nan=True)


def _same_losses(engine: Engine, batch: Any, keys: Tensor, moved: bool, together: Tensor, alone: Tensor) -> None:
    mixes = "the model mixes the examples of a batch: "
    if moved:
        raise InputError(mixes + "one example's loss changes with the others; use layers that treat each by itself")
    tolerance, _ = _tolerance(engine)
    if not torch.allclose(together, alone, rtol=tolerance, atol=tolerance * float(alone.abs().max())):
        raise InputError(mixes + "an example's loss is another when it is alone; make it independent of the batch size")
    if engine.known_loss:
        return
    with torch.no_grad(), Capture([], _EXAMPLES, Draws(lambda: keys)):
        if engine.loss_of_batch is not None:
            value: Any = engine.loss_of_batch(engine.model, batch if batch[1] is not None else batch[0])
        else:
            assert engine.loss is not None
            value = engine.loss(engine.outputs(batch[0], None), batch[1])
    if coupled(value, alone, tolerance):
        raise InputError(
            "the loss couples the examples of a batch: for several together it is neither the mean nor the sum of "
            "what it is for each alone; give a loss that is"
        )


def _state(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_buffers(), *model.named_parameters()]


def _losses(engine: Engine, batch: Any, keys: Tensor) -> Tensor:
    """The examples' losses, given to the model together (or one at a time, where only `loss_of_batch` is known)."""
    before = {name: tensor._version for name, tensor in _state(engine.model)}
    with torch.no_grad():
        if engine.losses is None:
            values = dict(zip(engine.names, (p.detach() for p in engine.parameters), strict=True))
            rows = [tree_map(lambda x, i=i: x[i] if isinstance(x, Tensor) else x, batch) for i in range(keys.shape[0])]
            found = torch.stack([loss_alone(engine, {}, values, x, y, keys[i]) for i, (x, y) in enumerate(rows)])
        else:
            found = engine.losses_at(batch[0], batch[1], keys)
    if found.dim() != 1 or found.shape[0] != keys.shape[0]:
        raise InputError(
            f"{keys.shape[0]} examples gave losses of shape {tuple(found.shape)}: outputs and targets need the "
            "examples in their first dimension"
        )
    for name, tensor in _state(engine.model):
        if before.get(name, tensor._version) != tensor._version:
            raise InputError(
                f"the forward pass writes to {name}, which would carry private data out of the run unprotected: "
                "freeze it (eval mode of that layer) or use a layer without running statistics"
            )
    return found


def _wrong_parameters(engine: Engine, batches: tuple[Any, Any], keys: Tensor) -> dict[int, str]:
    """Parameters whose per-example gradients are not those of each example alone."""
    tolerance, noise = _tolerance(engine)
    wrong: dict[int, str] = {}
    with full_precision(engine.parameters[0].device):
        for batch in batches:
            done = engine.run(batch[0], batch[1], _EXAMPLES, lambda: keys, None)
            outputs = sum(grad.numel() * grad.element_size() for grad in done.grads if grad is not None)
            engine.captured_bytes = 2 * outputs // _EXAMPLES  # inputs are about as large as outputs
            gradients = engine.gradients(done)
            truth = [_alone(engine, _row(batch, i), keys[i]) for i in range(_EXAMPLES)]
            whole = max(math.sqrt(sum(_size(g) ** 2 for g in row)) for row in truth)
            for k, parameter in enumerate(engine.parameters):
                allowed = tolerance * max(_size(row[k]) for row in truth) + noise * whole
                with torch.no_grad():
                    norms = gradients[k].squares({}, _EXAMPLES, parameter.device)
                    for i in range(_EXAMPLES):
                        total = torch.zeros_like(truth[i][k])
                        only = torch.zeros(_EXAMPLES, dtype=total.dtype, device=parameter.device)
                        only[i] = 1.0
                        gradients[k].add_(total, only, None)
                        norm = 0.0 if norms is None else float(norms[i].sqrt())
                        off, found = _size(total - truth[i][k]), _size(total)
                        if not (off <= allowed and abs(norm - found) <= allowed):
                            wrong[k] = "book-keeping does not reproduce its gradient for each example alone"
    return wrong


def _alone(engine: Engine, row: Any, key: Tensor) -> list[Tensor]:
    """The gradient of one example given to the model alone, by plain differentiation, widened."""
    leaves = [p.detach().requires_grad_() for p in engine.parameters]
    inputs, targets = tree_map(lambda x: x[0] if isinstance(x, Tensor) else x, row)
    with torch.enable_grad():
        loss = loss_alone(engine, {}, dict(zip(engine.names, leaves, strict=True)), inputs, targets, key)
        grads = torch.autograd.grad(loss, leaves, allow_unused=True) if loss.requires_grad else [None] * len(leaves)
    kind = torch.float64 if engine.parameters[0].dtype == torch.float64 else torch.float32
    return [torch.zeros_like(p, dtype=kind) if g is None else g.to(kind) for g, p in zip(grads, leaves, strict=True)]


def _row(batch: Any, i: int) -> Any:
    return tree_map(lambda x: x[i : i + 1] if isinstance(x, Tensor) else x, batch)


def _first_row_of(x: Any, y: Any) -> Any:
    return torch.cat([x[:1], y[1:]]) if isinstance(x, Tensor) else x


def _made_up(engine: Engine, inputs: Any, targets: Any, generator: torch.Generator, size: float) -> Any:
    """Three examples of the given shapes and types: normals, token numbers that every table has, labels in range."""
    vocabulary = min((m.num_embeddings for m in engine.model.modules() if isinstance(m, nn.Embedding)), default=2)
    made = tree_map(lambda x: _values(x, vocabulary, generator, size, False), inputs)
    if targets is None:
        return made, None
    classes = 2
    if engine.losses is not None:
        keys = row_keys(0, torch.arange(_EXAMPLES, device=engine.parameters[0].device))
        with torch.no_grad(), Capture([], _EXAMPLES, Draws(lambda: keys)):
            outputs = [x for x in tree_leaves(engine.outputs(made, None)) if isinstance(x, Tensor) and x.dim() > 1]
        if outputs:
            classes = min(outputs[0].shape[1], outputs[0].shape[-1])
    return made, tree_map(lambda x: _values(x, classes, generator, 1.0, True), targets)


def _values(x: Any, below: int, generator: torch.Generator, size: float, target: bool) -> Any:
    if not isinstance(x, Tensor):
        return x
    shape = (_EXAMPLES, *x.shape[1:])
    if x.dtype == torch.bool:
        return torch.ones(shape, dtype=torch.bool, device=x.device)
    if x.is_floating_point():
        drawn = torch.rand(shape, generator=generator) if target else torch.randn(shape, generator=generator)
        return (size * drawn).to(x.device, x.dtype)
    apart = torch.arange(_EXAMPLES).view(-1, *[1] * (len(shape) - 1))  # labels that differ between examples
    return ((torch.randint(0, max(1, below), shape, generator=generator) + apart) % max(1, below)).to(x.device, x.dtype)
