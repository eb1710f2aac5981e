"""One forward pass, watched: which parameters are used how, on what inputs, and where their gradients will appear.

Nothing is registered on the model and nothing is wrapped: for the time of one call a torch function mode sees every
operation that is given a parameter. Operations it knows are recorded; a parameter that is given to any other one is
refused here, and its gradients come from `torch.func`.

The sum that is released is put together from exactly the pieces whose norm is bounded, so a use that went unseen could
make a gradient wrong (the probe looks for that) but never make a contribution larger than its clip.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.overrides import TorchFunctionMode

from momentree.query.layers import RECORDERS
from momentree.query.layers.base import Use
from momentree.query.layers.recurrent import CELLS, recurrent
from momentree.query.layers.views import View, view_of
from momentree.query.randomness import REPLACED, Draws


def _opened(function: Any) -> types.FunctionType:
    """A composite function of torch that does not hand itself to the mode, so that what it calls can be watched."""
    names = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    space = {**function.__globals__, **{name: lambda *_: False for name in names}}
    twin = types.FunctionType(function.__code__, space, function.__name__, function.__defaults__, function.__closure__)
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


_ATTENTION = F.multi_head_attention_forward
_OPENED_ATTENTION = _opened(_ATTENTION)
_SPECIAL = {_ATTENTION, *REPLACED, *CELLS}


class Capture(TorchFunctionMode):
    """Watches a forward pass of `examples` rows. `parameters` are the tensors that stand for the trainable ones."""

    def __init__(self, parameters: Sequence[Tensor], examples: int, draws: Draws | None) -> None:
        super().__init__()
        self.parameters = parameters
        self.places = {id(parameter): i for i, parameter in enumerate(parameters)}
        self.views: list[View] = []
        self._held: list[Tensor] = []
        self.examples = examples
        self.draws = draws
        self.uses: list[Use] = []
        self.refused: dict[int, str] = {}
        self.second = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _SPECIAL:
            out = self._special(func, args, kwargs)
            if out is not None:
                return out
        out = func(*args, **kwargs)
        given = self._given(args, kwargs)
        if not given:
            return out
        results = out if isinstance(out, tuple | list) else (out,)
        if not any(isinstance(x, Tensor) and x.requires_grad for x in results):
            return out
        recorder = RECORDERS.get(func)
        if recorder is not None:
            recorder(self, out, *args, **kwargs)
        elif not all(id(x) in self.places or (len(given) == 1 and self._view(given[0], x)) for x in results):
            self.refuse(given, f"it is given to {getattr(func, '__name__', func)}")
        return out

    def _special(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Dropout drawn for each row, and composite functions opened up; None for what is to go on as usual."""
        if func in REPLACED:
            return None if self.draws is None else REPLACED[func](self.draws, *args, **kwargs)
        if func is _ATTENTION:
            return self._attention(args, kwargs)
        with self:
            return None if kwargs else recurrent(func, args)

    def _given(self, args: Any, kwargs: dict[str, Any]) -> list[int]:
        """Which parameters are among the arguments, lists looked into."""
        places = self.places
        found = []
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, Tensor):
                if id(value) in places:
                    found.append(places[id(value)])
            elif isinstance(value, list | tuple):
                found += [places[id(x)] for x in value if id(x) in places]
        return found

    def _view(self, place: int, out: Any) -> bool:
        """Notes a view of a parameter, which then stands for that part of it, under a number of its own."""
        place = self.parameter(place)
        view = view_of(self.parameters[place], place, out) if isinstance(out, Tensor) else None
        if view is None:
            return False
        self.places[id(out)] = len(self.parameters) + len(self.views)
        self.views.append(view)
        self._held.append(out)
        return True

    def parameter(self, place: int) -> int:
        """The parameter that a number stands for, be it that of a view."""
        count = len(self.parameters)
        return place if place < count else self.views[place - count].place

    def _attention(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """Multi-head attention, which works with the examples in the second dimension, opened up."""
        before, self.second = self.second, True
        try:
            with self:
                return _OPENED_ATTENTION(*args, **kwargs)
        finally:
            self.second = before

    def index(self, parameter: Any) -> int | None:
        """Which trainable parameter this is, if it is one."""
        return self.places.get(id(parameter)) if parameter is not None else None

    def refuse(self, places: Iterable[int | None], reason: str) -> None:
        """Leaves parameters to `torch.func`."""
        for place in places:
            if place is not None:
                self.refused.setdefault(self.parameter(place), reason)

    def record(self, use: Any, out: Tensor, *facts: Any) -> None:
        """Notes a use, and where in the graph its output's gradient will appear (in-place changes move the tensor)."""
        assert out.grad_fn is not None
        self.uses.append(use(GradientEdge(out.grad_fn, out.output_nr), *facts))

    def batched(self, x: Tensor) -> bool:
        """Whether `rows` can make sense of an activation."""
        if x.dim() < 2:
            return False
        return (x[..., 0].numel() if self.second else x.shape[0]) % self.examples == 0

    @property
    def rows(self) -> Any:
        """What turns an activation `(…, features)` into `(B, features)` or `(B, T, features)`."""
        return _Rows(self.examples, self.second)


class _Rows:
    def __init__(self, examples: int, second: bool) -> None:
        self.examples, self.second = examples, second

    def __call__(self, x: Tensor) -> Tensor:
        examples = self.examples
        if self.second:
            return x.reshape(-1, examples, x.shape[-1]).transpose(0, 1)
        if x.shape[0] == examples:
            return x if x.dim() == 2 else x.flatten(1, -2)
        return x.reshape(examples, -1, x.shape[-1])
