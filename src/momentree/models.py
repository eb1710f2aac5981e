"""The models that are built in, and a user's own by `module:factory`. Sizes come from public facts alone."""

from __future__ import annotations

import importlib
import itertools
import math
import os
import sys
from collections.abc import Callable

import torch
from torch import nn

from momentree.errors import InputError, one_of

MODELS = ("linear", "mlp", "cnn")


def make_model(
    name: str, inputs: tuple[int, ...], outputs: int, *, seed: int = 0, hidden: tuple[int, ...] = (128,)
) -> nn.Module:
    """A model for one row of shape `inputs`, drawn from the public seed. `name`: linear, mlp, cnn or module:factory.

    A factory is called with (inputs, outputs) and returns an `nn.Module`. Linear models start at zero: no draw at all.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if ":" in name:
            return _from_factory(name, inputs, outputs)
        one_of("model", name, MODELS)
        if name == "cnn":
            return _cnn(inputs, outputs)
        features = 1
        for size in inputs:
            features *= size
        flatten: list[nn.Module] = [nn.Flatten()] if len(inputs) > 1 else []
        if name == "linear":
            layer = nn.Linear(features, outputs)
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
            return nn.Sequential(*flatten, layer)
        sizes = [features, *hidden]
        body = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())]
        return nn.Sequential(*flatten, *body, nn.Linear(sizes[-1], outputs))


def _cnn(inputs: tuple[int, ...], outputs: int) -> nn.Module:
    """Two strided convolutions and a linear layer, tanh in between (bounded activations suit clipped gradients)."""
    if len(inputs) != 3 or min(inputs[1:]) < 8:
        raise InputError(f"model cnn needs images of at least 8 × 8, got rows of shape {inputs}: use linear or mlp")
    channels, height, width = inputs
    body = nn.Sequential(
        nn.Conv2d(channels, 16, 5, stride=2, padding=2), nn.Tanh(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.Tanh()
    )
    size = 32 * math.ceil(height / 4) * math.ceil(width / 4)
    return nn.Sequential(body, nn.Flatten(), nn.Linear(size, outputs))


def _from_factory(name: str, inputs: tuple[int, ...], outputs: int) -> nn.Module:
    module_name, _, attribute = name.partition(":")
    advice = "give module:factory, a function of (inputs, outputs) that returns an nn.Module"
    sys.path.insert(0, os.getcwd())
    try:
        factory: Callable[[tuple[int, ...], int], object] = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise InputError(f"model factory {name!r} does not import ({type(error).__name__}): {advice}") from None
    finally:
        sys.path.remove(os.getcwd())
    if not callable(factory):
        raise InputError(f"model factory {name!r} is not callable: {advice}")
    try:
        model = factory(inputs, outputs)
    except Exception as error:  # it has seen public shapes only, but its words are not ours
        raise InputError(
            f"model factory {name!r} called with ({inputs}, {outputs}) failed ({type(error).__name__}): {advice}"
        ) from None
    if not isinstance(model, nn.Module):
        raise InputError(f"model factory {name!r} returned a {type(model).__name__}: {advice}")
    return model
