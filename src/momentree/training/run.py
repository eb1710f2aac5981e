"""Starting a run and taking it up again: the checks that come before a key is ever used."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from momentree.errors import InputError, one_of, whole
from momentree.noise.keys import data_hmac, derive_subkey, new_key
from momentree.order import SAMPLED
from momentree.order.base import Indices
from momentree.order.sampled import counted, numbered
from momentree.plan_file import read_plan_facts, write_plan
from momentree.training.assemble import release_of
from momentree.training.data import Rows
from momentree.training.defaults import default_update
from momentree.training.digests import code_version, weights_digest
from momentree.training.folder import Folder
from momentree.training.fork import FIRST, Attempt, attempt_of
from momentree.training.ledger import Ledger, Notes
from momentree.training.loop import Progress, Run, StepFacts
from momentree.training.precision import PRECISIONS, check_weights, prepare
from momentree.training.releases.store import forget_after
from momentree.training.warm import ancestors_of, describe, load_model
from momentree.update import Update

__all__ = ["Progress", "Run", "StepFacts", "load", "start"]


def start(
    plan: Any,
    model: nn.Module,
    loss: Callable[..., Any] | None,
    dataset: Any,
    *,
    out: str | os.PathLike[str],
    key: bytes | None = None,
    device: str | torch.device | None = None,
    loss_of_batch: Callable[..., Any] | None = None,
    update: Update | None = None,
    workers: int = 0,
    precision: str = "float32",
    physical_batch_size: int | None = None,
    keep_key: bool = False,
    init_note: str | None = None,
    warm_start: str | os.PathLike[str] | None = None,
    notes: Notes | None = None,
    units: Indices | None = None,
    progress: Progress | None = None,
) -> Run:
    """A run of `plan` on the user's own model, trained in place, never wrapped. Everything is checked before it exists.

    `loss(model_output, target)`, or `loss_of_batch(model, batch)` for everything else. `key`: 32 secret bytes, drawn
    where none is given. `init_note`: where the first weights come from, if not from the seed; they are taken as public.
    `units`: a person's number for every row, -1 for a row of nobody; rows beyond the plan's `rows_per_person` add zero.
    `warm_start`: the folder of an earlier private run to go on from; the certificate gives the price of both together.
    """
    given = new_key() if key is None else key
    rows = _rows(plan, model, loss, dataset, device=device, loss_of_batch=loss_of_batch, workers=workers)
    if warm_start is not None:
        init_note, notes = _warm(plan, model, warm_start, notes)
    run_id = uuid.uuid4().hex
    first = weights_digest(model)
    data = data_hmac(given, _content(rows, units))
    folder = Folder.create(out)
    try:
        run = _assemble(
            plan, model, loss, rows, folder,
            key=given, data=data, run_id=run_id, first_weights=first, loss_of_batch=loss_of_batch, update=update,
            precision=precision, physical_batch_size=physical_batch_size, keep_key=keep_key, units=units,
            progress=progress, initial_weights=init_note or "as the model came, taken as public", notes=notes,
        )  # fmt: skip
        folder.write_secrets(
            {"key": given.hex(), "data_hmac": data, "run_id": run_id, "first_weights": first,
             "keep": "yes" if keep_key else "no"}
        )  # fmt: skip
        write_plan(plan, folder.path / "plan.toml")
        run.checkpoint()
    except BaseException:
        folder.abandon()
        raise
    return run


def load(
    path: str | os.PathLike[str],
    model: nn.Module | None = None,
    loss: Callable[..., Any] | None = None,
    dataset: Any = None,
    *,
    device: str | torch.device | None = None,
    loss_of_batch: Callable[..., Any] | None = None,
    update: Update | None = None,
    workers: int = 0,
    precision: str = "float32",
    physical_batch_size: int | None = None,
    units: Indices | None = None,
    moved: bool = False,
    fork: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Go on where a run stopped: the same key, plan, data and code, or one line that says which of them differs.

    A copy of a folder is refused, because the original may go on too, and two runs that part would use the same noise
    on different values. `moved=True` says that no other copy is or will be used.

    `fork=True` goes on where none of that is possible: from the last checkpoint with noise drawn afresh, by another
    version or on another machine too. The certificate then counts one attempt more (`training/fork.py`).
    """
    from momentree.plan import Plan

    folder = Folder.open(path)
    if model is None or dataset is None:
        folder.close()
        raise InputError(
            "the run's folder holds neither code nor data: give load(path, model, loss, dataset) as at the start; a "
            "finished model is in its model.safetensors"
        )
    try:
        kept = folder.read_secrets(moved=moved or fork)
        key = _key_of(kept)
        plan = Plan(**read_plan_facts(Path(path) / "plan.toml"))
        rows = _rows(plan, model, loss, dataset, device=device, loss_of_batch=loss_of_batch, workers=workers)
        data = data_hmac(key, _content(rows, units))
        if data != kept.get("data_hmac"):
            raise InputError(
                "the data differs from what the run was started on: the same noise is never used for two different "
                "values; give the same rows in the same order, or start another run"
            )
        run = _assemble(
            plan, model, loss, rows, folder,
            key=key, data=data, run_id=str(kept.get("run_id")), first_weights=str(kept.get("first_weights")),
            loss_of_batch=loss_of_batch, update=update, precision=precision, physical_batch_size=physical_batch_size,
            keep_key=kept.get("keep") == "yes", units=units, progress=progress, initial_weights="",
            attempt=attempt_of(folder.checkpoints, plan, fork=fork),
        )  # fmt: skip
        run.restore(fork=fork)
        if fork:
            forget_after(folder.waiting, run.done)
    except BaseException:
        folder.close()
        raise
    return run


def _warm(plan: Any, model: nn.Module, folder: str | os.PathLike[str], notes: Notes | None) -> tuple[str, Notes]:
    """The earlier run's weights in the model, and the note and the record of where they come from."""
    ancestors = ancestors_of(folder)
    notes = notes or Notes()
    note = describe(plan, ancestors, notes.unit_column)
    load_model(model, folder)
    return note, replace(notes, model={**notes.model, "warm_start": ancestors})


def _key_of(kept: dict[str, Any]) -> bytes:
    try:
        return bytes.fromhex(kept["key"])
    except (KeyError, ValueError):
        raise InputError("the noise key was changed since it was written: restore the folder from a copy") from None


def _rows(
    plan: Any, model: nn.Module, loss: Any, dataset: Any, *, device: Any, loss_of_batch: Any, workers: int
) -> Rows:
    """The data on its way to the model's device, and the model on it."""
    if not isinstance(model, nn.Module):
        raise InputError(f"a {type(model).__name__} is no model: give a torch.nn.Module")
    if (loss is None) == (loss_of_batch is None):
        what = "neither" if loss is None else "both"
        raise InputError(f"{what} of loss and loss_of_batch given: give exactly one")
    check_weights(model)
    if device is not None:
        prepare(torch.device("cuda") if str(device).startswith("cuda") else torch.device("cpu"))
        try:
            model.to(_real(torch.device(device)))
        except (RuntimeError, AssertionError, NotImplementedError):
            raise InputError(f"device {device!r} cannot be used here: give cpu, or one that this machine has") from None
    where = next((p.device for p in model.parameters()), torch.device("cpu"))
    workers = whole("workers", workers, at_least=0)
    rows = Rows(dataset, seed=plan.seed, workers=workers, device=where, paired=loss_of_batch is None)
    declared = bool(getattr(plan.order, "declared", False))
    if len(rows) != plan.shape.examples and not declared:
        raise InputError(
            f"the data set has {len(rows)} rows and the plan is for {plan.shape.examples}: make the plan for this data"
        )
    return rows


def _real(device: torch.device) -> torch.device:
    """A device that holds numbers: on `meta` a model would lose its weights."""
    if device.type == "meta":
        raise NotImplementedError
    return device


def _content(rows: Rows, units: Indices | None) -> Iterator[bytes]:
    """All that decides what the rows add: their bytes, and whose they are."""
    yield from rows.content()
    if units is not None:
        yield b"units" + np.asarray(units).astype(np.int64).tobytes()


def _assemble(
    plan: Any,
    model: nn.Module,
    loss: Any,
    rows: Rows,
    folder: Folder,
    *,
    key: bytes,
    data: str,
    run_id: str,
    first_weights: str,
    loss_of_batch: Any,
    update: Update | None,
    precision: str,
    physical_batch_size: int | None,
    keep_key: bool,
    units: Indices | None,
    progress: Progress | None,
    initial_weights: str,
    notes: Notes | None = None,
    attempt: Attempt = FIRST,
) -> Run:
    digest, code = plan.digest(), code_version()

    def subkey(purpose: str) -> bytes:
        return derive_subkey(
            key, run_id=run_id, plan_digest=digest, code_version=code, data_digest=data,
            weights_digest=first_weights, purpose=attempt.purpose(purpose),
        )  # fmt: skip

    if plan.adjacency == "add-remove":
        # One row fewer moves the later ones up, and what is drawn for a row (dropout, augmentation) goes by its number:
        # from a secret seed all numbers are alike, from a public one everybody's draws would change.
        rows.reseed(int.from_bytes(subkey("randomness")[:8], "little"))
    release, parameters = release_of(
        plan,
        model,
        loss,
        loss_of_batch=loss_of_batch,
        subkey=subkey("noise"),
        waiting=folder.waiting,
        made_up=rows.made_up(),
    )
    size = plan.physical_batch_size if physical_batch_size is None else physical_batch_size
    chosen = update or default_update(plan, momentum_included=release.momentum_included)
    identity = {
        "update_facts": json.dumps(chosen.describe(), sort_keys=True, default=str),
        "precision": precision,
        "plan_digest": digest,
        "code": code,
        "run_id": run_id,
        "first_weights": first_weights,
        "threads": torch.get_num_threads(),
        **attempt.identity(),
    }
    return Run(
        plan=plan,
        model=model,
        loss=loss,
        loss_of_batch=loss_of_batch,
        rows=rows,
        release=release,
        parameters=parameters,
        update=chosen,
        folder=folder,
        ledger=Ledger(plan, identity=identity, initial_weights=initial_weights, noise_source="chacha20", notes=notes),
        batch_of=_places(plan, subkey("order"), len(rows), units),
        physical_batch_size=default_physical(plan) if size is None else whole("physical_batch_size", size),
        keep_key=keep_key,
        precision=one_of("precision", precision, PRECISIONS),
        progress=progress,
    )


def default_physical(plan: Any) -> int:
    """The logical batch where it is of one size; a sampled one gets room for most of its variation."""
    batch = int(plan.shape.batch_size)
    return batch if not plan.order.secret else int(batch + 3 * batch**0.5) + 1


def _places(plan: Any, order_key: bytes, rows: int, units: Indices | None) -> Callable[[int], Indices]:
    """Who takes part in step t. A sampled order is told how many rows there really are, and who is who.

    Where `units` says whose rows they are, a person's rows beyond the plan's `rows_per_person`, and rows of nobody,
    take no part: they add zero where they stand.
    """
    order: Any = plan.order
    sampled = isinstance(order, SAMPLED)
    if units is None:
        return lambda step: order.batch(step, order_key, **({"rows": rows} if sampled else {}))
    units = np.asarray(units)
    if units.shape != (rows,) or units.dtype.kind not in "iu" or (rows and int(units.min()) < -1):
        raise InputError("units has to be one whole number a row: 0, 1, … a person, -1 for a row without one")
    counts = counted(units.astype(np.int64), plan.request.rows_per_person)
    facts: dict[str, Any] = {"rows": rows} if sampled else {}
    if sampled and order.together:
        facts["units"] = numbered(units.astype(np.int64))

    def batch(step: int) -> Indices:
        drawn: Indices = order.batch(step, order_key, **facts)
        return drawn[counts[drawn]]

    return batch
