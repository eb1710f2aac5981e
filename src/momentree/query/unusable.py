"""Rows on which a model or its loss fails: they keep their place and contribute zero, and nobody is told.

An error that a row causes would tell something of that row. So where a batch fails, its rows are tried one by one, and
those that fail give their place to a copy of one that works, with weight zero. The batch keeps its shape, and what is
computed for one row does not depend on what the others hold: on a CPU the sums have the bits that they have where the
same rows are given weight zero from the start.

Where every row of a batch fails, made-up rows are tried: if the model fails on them too it is broken, and that is an
error. Errors of a device (memory, a number beyond a table on a GPU) are not of rows alone; they stop the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from momentree.errors import InputError
from momentree.query.engine import Engine, keys_of

if TYPE_CHECKING:
    from momentree.query.engine import Keys, Pass

Points = Sequence[Sequence[Tensor] | None]
_PASSED_ON = (torch.cuda.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.cuda.OutOfMemoryError))


def passes(
    engine: Engine, inputs: Any, targets: Any, examples: int, keys: Keys, points: Points, real: Tensor | None
) -> tuple[list[Pass], Tensor | None]:
    """The passes at all points, and which rows count (None: all): those of `real` that work; no passes without any."""
    known, one_by_one = dict(engine.others), engine.one_by_one
    try:
        return _passes(engine, inputs, targets, examples, keys, points), real
    except _PASSED_ON:
        raise
    except Exception as error:
        failed: Exception = error
    usable = torch.ones(examples, dtype=torch.bool) if real is None else real.cpu().clone()
    for i in usable.nonzero().flatten().tolist():
        row = _row(inputs, targets, i)
        usable[i] = _error(engine, *row, 1, keys_of(keys, slice(i, i + 1)), points) is None
        engine.others, engine.one_by_one = dict(known), one_by_one
    if not usable.any():
        if engine.made_up is not None:
            made_up, made_up_keys = engine.made_up
            if _error(engine, *made_up, made_up_keys.shape[0], lambda: made_up_keys, points) is not None:
                raise _withheld(failed, "on private rows and on made-up ones")
        return [], usable
    place = torch.where(usable, torch.arange(examples), int(usable.int().argmax()))
    inputs, targets = tree_map(
        lambda x: x[place.to(x.device)] if isinstance(x, Tensor) and x.dim() else x, (inputs, targets)
    )
    try:
        return _passes(engine, inputs, targets, examples, keys, points), usable.to(engine.parameters[0].device)
    except _PASSED_ON:
        raise
    except Exception as error:
        failed = error
    raise _withheld(failed, "on private rows together, and not on each alone")


def _passes(engine: Engine, inputs: Any, targets: Any, examples: int, keys: Keys, points: Points) -> list[Pass]:
    while True:
        known = len(engine.others)
        done = [engine.run(inputs, targets, examples, keys, point) for point in points]
        if len(engine.others) == known:
            return done


def _error(engine: Engine, inputs: Any, targets: Any, examples: int, keys: Keys, points: Points) -> Exception | None:
    try:
        _passes(engine, inputs, targets, examples, keys, points)
    except _PASSED_ON:
        raise
    except Exception as error:
        return error
    return None


def _row(inputs: Any, targets: Any, i: int) -> tuple[Any, Any]:
    return tree_map(lambda x: x[i : i + 1] if isinstance(x, Tensor) and x.dim() else x, (inputs, targets))  # type: ignore[no-any-return]


def _withheld(error: Exception, where: str) -> InputError:
    return InputError(
        f"the model or its loss failed with {type(error).__name__} {where}; its message is withheld: it may hold their "
        "values. Try model and loss on made-up rows of these shapes, and smaller physical batches if memory is short"
    )
