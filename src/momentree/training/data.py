"""Rows in the run's own order: a map-style data set, read row by row, and the batches that a run hands out.

Guarantee: a row keeps its place. One that cannot be read, or has another shape than the first, contributes zero where
it stands, for leaving it out would move everyone else. Whatever a data set draws at random (augmentation) is a function
of (seed, step, row), so it is drawn again on replay and does not depend on who else is in the batch.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from momentree.errors import InputError
from momentree.order import physical
from momentree.order.base import Indices
from momentree.training.pieces import Piece, Pieces


class Ask(NamedTuple):
    """Rows of one physical batch, and which of them count."""

    step: int
    rows: Indices
    mask: np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, eq=False)
class Batch:
    """One step's rows, handed out by a run and taken back by its `step`. Its content is private."""

    step: int
    pieces: Pieces = field(repr=False)


def map_style(dataset: Any) -> Any:
    """The data set, or one line that says why it cannot be used. Arrays and tensors (x, y) are taken as they are."""
    if isinstance(dataset, IterableDataset):
        raise InputError(
            "an IterableDataset was given: nobody can say which row comes when, so no order can be kept or accounted; "
            "give a map-style Dataset (with __len__ and __getitem__)"
        )
    if isinstance(dataset, DataLoader):
        raise InputError(
            "a DataLoader was given: the batches have to follow the run's own order; give the Dataset inside it"
        )
    if isinstance(dataset, tuple) and all(isinstance(part, Tensor | np.ndarray) for part in dataset):
        if len({len(part) for part in dataset}) != 1:
            raise InputError("the arrays have different lengths: give one row of each for every example")
        return TensorDataset(*(torch.as_tensor(part) for part in dataset))
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise InputError(
            f"a {type(dataset).__name__} is no data set: give a map-style Dataset (with __len__ and __getitem__) or a "
            "tuple of arrays"
        )
    return dataset


def word(*facts: object) -> int:
    """64 bits that are a function of public facts."""
    return int.from_bytes(hashlib.sha256("/".join(["momentree", *map(str, facts)]).encode()).digest()[:8], "little")


@contextmanager
def drawn_for(seed: int, step: int, row: int) -> Iterator[None]:
    """Python's, numpy's and torch's generators as a function of (seed, step, row), and as they were afterwards."""
    number = word("row", seed, step, row)
    ours, theirs = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        random.seed(number)
        np.random.seed(number % 2**32)  # noqa: NPY002
        torch.default_generator.manual_seed(number)
        try:
            yield
        finally:
            random.setstate(ours)
            np.random.set_state(theirs)  # noqa: NPY002


class _Reader(torch.utils.data.Dataset[Any]):
    """Reads one `Ask` at a time; runs in the workers."""

    def __init__(self, dataset: Any, seed: int, template: Any) -> None:
        self.dataset = dataset
        self.seed = seed
        self.template = template

    def __getitem__(self, ask: Ask) -> tuple[Any, np.ndarray[Any, np.dtype[np.float32]]]:
        mask = ask.mask.copy()
        samples = []
        for i, row in enumerate(ask.rows):
            sample = self._read(ask.step, int(row)) if mask[i] else None
            if sample is None:
                mask[i] = 0.0
                sample = self.template
            samples.append(sample)
        return default_collate(samples), mask

    def _read(self, step: int, row: int) -> Any:
        try:
            with drawn_for(self.seed, step, row):
                sample = as_tensors(self.dataset[row])
        except Exception:  # which rows fail, and how, is private: the row counts as zero
            return None
        return sample if same_form(sample, self.template) else None


def as_tensors(sample: Any) -> Any:
    """Arrays and numbers as tensors, through tuples, lists and dicts; nothing else can be put into a batch."""
    if isinstance(sample, Tensor):
        return sample.detach()
    if isinstance(sample, np.ndarray | np.generic | bool | int | float):
        return torch.as_tensor(sample)
    if isinstance(sample, tuple | list):
        return tuple(as_tensors(part) for part in sample)
    if isinstance(sample, dict):
        return {name: as_tensors(part) for name, part in sample.items()}
    raise TypeError


def same_form(sample: Any, template: Any) -> bool:
    """Whether two samples have the same structure, shapes, types and places, so that they fit into one batch."""
    if isinstance(template, Tensor):
        return isinstance(sample, Tensor) and all(
            getattr(sample, fact) == getattr(template, fact) for fact in ("shape", "dtype", "layout", "device")
        )
    if isinstance(template, tuple):
        return (
            isinstance(sample, tuple)
            and len(sample) == len(template)
            and all(same_form(a, b) for a, b in zip(sample, template, strict=True))
        )
    return (
        isinstance(sample, dict)
        and sample.keys() == template.keys()
        and all(same_form(sample[name], template[name]) for name in template)
    )


def mapped(value: Any, change: Any) -> Any:
    """`change` on every tensor of a structure."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple | list):
        return tuple(mapped(part, change) for part in value)
    return {name: mapped(part, change) for name, part in value.items()}


class Rows:
    """The private rows, by number. `paired`: a row is (input, target); otherwise all of it goes to `loss_of_batch`."""

    def __init__(self, dataset: Any, *, seed: int, workers: int, device: torch.device, paired: bool) -> None:
        self.dataset = map_style(dataset)
        self.seed = seed
        self.workers = workers
        self.device = device
        self.paired = paired
        if len(self.dataset) == 0:
            raise InputError("the data set is empty: give at least one row")
        self._tensors = self.dataset.tensors if type(self.dataset) is TensorDataset else None
        self._whole = self.dataset.batch if hasattr(self.dataset, "digest_chunks") else None
        if self._whole is not None:
            self.workers = 0
        self.template = self._template()
        self._reader = _Reader(self.dataset, seed, self.template)

    def __len__(self) -> int:
        return len(self.dataset)

    def reseed(self, seed: int) -> None:
        """From now on what is drawn for rows comes from this seed."""
        self.seed = self._reader.seed = seed

    def _template(self) -> Any:
        """A row of zeros in the form of the first row that can be read. Only the form is used, and taken as public."""
        if self._tensors is not None:
            sample: Any = tuple(t[0] for t in self._tensors)
        else:
            for row in range(min(100, len(self.dataset))):
                try:
                    with drawn_for(self.seed, 0, row):
                        sample = as_tensors(self.dataset[row])
                    break
                except Exception:
                    continue
            else:
                raise InputError(
                    "none of the first rows of the data set can be read as tensors, arrays or numbers: try dataset[0]"
                )
        if self.paired and not (isinstance(sample, tuple) and len(sample) == 2):
            raise InputError(
                "a row of the data set is not a pair (input, target): give pairs, or a loss(model, batch) through "
                "loss_of_batch="
            )
        return mapped(sample, torch.zeros_like)

    def asks(self, step: int, indices: Indices, size: int) -> Iterator[Ask]:
        for rows, mask in physical(indices, size):
            yield Ask(step, rows, mask)

    def pieces(self, step: int, indices: Indices, size: int) -> Iterator[Piece]:
        """Physical batches of one step, read in this process."""
        for ask in self.asks(step, indices, size):
            yield self.on_device(ask, *self._read(ask))

    def _read(self, ask: Ask) -> tuple[Any, np.ndarray[Any, np.dtype[np.float32]]]:
        if self._whole is not None:
            # a data set that hands out whole batches says itself which of the rows count: (inputs, targets, usable)
            inputs, targets, usable = self._whole(ask.rows)
            return as_tensors((inputs, targets)), ask.mask * np.asarray(usable, np.float32)
        if self._tensors is None:
            return self._reader[ask]
        chosen = torch.from_numpy(ask.rows)
        return tuple(t.index_select(0, chosen.to(t.device)) for t in self._tensors), ask.mask

    def ahead(self, asks: Iterable[Ask]) -> Iterator[Piece]:
        """The same physical batches, read ahead by the workers, in the order of `asks`."""
        mine, theirs = _twice(asks)
        loader = DataLoader(
            self._reader, sampler=_Passing(theirs), batch_size=None, num_workers=self.workers, collate_fn=_as_it_is
        )
        for ask, (sample, mask) in zip(mine, loader, strict=True):
            yield self.on_device(ask, sample, mask)

    def on_device(self, ask: Ask, sample: Any, mask: np.ndarray[Any, np.dtype[np.float32]]) -> Piece:
        moved = mapped(sample, lambda t: t.to(self.device, non_blocking=True))
        weights = torch.from_numpy(np.ascontiguousarray(mask)).to(self.device, non_blocking=True)
        inputs, targets = moved if self.paired else (moved, None)
        rows = torch.from_numpy(np.ascontiguousarray(ask.rows)).to(self.device, non_blocking=True)
        return Piece(inputs, targets, weights, rows, word("step", self.seed, ask.step) >> 1)

    def made_up(self) -> tuple[Any, Any]:
        """Two rows of zeros in the form of a batch, for checks that read shapes only."""
        batch = mapped(self.template, lambda t: torch.stack([t, t]).to(self.device))
        return batch if self.paired else (batch, None)

    def content(self) -> Iterator[bytes]:
        """Every row's bytes, in order, for a keyed digest of the data; unreadable rows have a mark of their own."""
        if self._whole is not None:
            yield from self.dataset.digest_chunks()
            return
        if self._tensors is not None:
            for t in self._tensors:
                yield f"{t.dtype}{tuple(t.shape)}".encode()
                for start in range(0, len(t), 4096):
                    yield as_bytes(t[start : start + 4096])
            return
        for row in range(len(self.dataset)):
            sample = self._reader._read(0, row)
            if sample is None:
                yield b"unreadable row"
                continue
            parts: list[Tensor] = []
            mapped(sample, parts.append)
            yield from (as_bytes(part) for part in parts)


def as_bytes(tensor: Tensor) -> bytes:
    """The tensor's own bytes, whatever its type."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def _as_it_is(value: Any) -> Any:
    return value


class _Passing:
    """A sampler that passes on what it is given."""

    def __init__(self, asks: Iterable[Ask]) -> None:
        self._asks = asks

    def __iter__(self) -> Iterator[Ask]:
        return iter(self._asks)


def _twice(asks: Iterable[Ask]) -> Sequence[Iterator[Ask]]:
    """Two readers of one iterator, the second running ahead of the first."""
    import itertools

    return itertools.tee(asks)
