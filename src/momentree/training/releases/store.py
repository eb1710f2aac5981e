"""Where vectors of earlier steps wait: iterates, released sums, nodes. Everything in here has been released.

`epoch-lag` and `sr-nsgd` look one epoch back, so they keep a few vectors for every step of an epoch. `InMemory` keeps
them as tensors (buffers are used again, so no step pays for fresh pages); `OnDisk` keeps one file for each, and the
memory of the run then does not grow with the number of steps.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from momentree.errors import CheckError, InputError
from momentree.training.data import as_bytes


class Store(Protocol):
    """Vectors under a name and a step."""

    def put(self, name: str, step: int, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Keep a copy; returns what can be read (and must not be written)."""

    def get(self, name: str, step: int) -> list[Tensor]: ...

    def forget(self, name: str, step: int) -> None:
        """Nobody will ask for it again."""

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint has to hold so that `load` brings everything back; on disk, everything is made durable."""

    def load(self, state: dict[str, Tensor]) -> None: ...

    def settle(self) -> None:
        """A checkpoint is durable: what was forgotten before it can go."""


class InMemory:
    """Tensors in the memory of the device where they were made."""

    def __init__(self, like: Sequence[Tensor]) -> None:
        self._like = list(like)
        self._kept: dict[tuple[str, int], list[Tensor]] = {}
        self._free: list[list[Tensor]] = []

    def put(self, name: str, step: int, tensors: Sequence[Tensor]) -> list[Tensor]:
        mine = self._kept.get((name, step)) or (self._free.pop() if self._free else None)
        if mine is None:
            mine = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in self._like]
        torch._foreach_copy_(mine, [t.detach() for t in tensors])
        self._kept[name, step] = mine
        return mine

    def get(self, name: str, step: int) -> list[Tensor]:
        return self._kept[name, step]

    def forget(self, name: str, step: int) -> None:
        gone = self._kept.pop((name, step), None)
        if gone is not None:
            self._free.append(gone)

    def state(self) -> dict[str, Tensor]:
        return {
            f"{name}/{step}/{i}": tensor
            for (name, step), tensors in self._kept.items()
            for i, tensor in enumerate(tensors)
        }

    def load(self, state: dict[str, Tensor]) -> None:
        self._kept, self._free = {}, []
        for key, tensor in state.items():
            name, step, index = key.rsplit("/", 2)
            mine = self._kept.setdefault((name, int(step)), [torch.empty_like(t) for t in self._like])
            mine[int(index)].copy_(tensor)

    def settle(self) -> None:
        return None


class OnDisk:
    """One file for each vector, in the run's own folder, deleted once no checkpoint can ask for it.

    A file is never changed: a replay after a kill writes the same bytes again, or the run stops. Files may be newer
    than the last checkpoint, and whoever kept a copy of the folder has them; the same noise on another value would
    disclose the difference.
    """

    def __init__(self, like: Sequence[Tensor], folder: Path) -> None:
        self._like = list(like)
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._unsynced: list[Path] = []
        self._leaving: list[Path] = []

    def _path(self, name: str, step: int) -> Path:
        return self._folder / f"{name}-{step:09d}.safetensors"

    def put(self, name: str, step: int, tensors: Sequence[Tensor]) -> list[Tensor]:
        path = self._path(name, step)
        aside = path.with_suffix(".writing")
        kept = {str(i): t.detach().contiguous().cpu() for i, t in enumerate(tensors)}
        if path.exists() and _other(path, kept):
            raise CheckError(
                f"step {step} was computed before and its replay differs (another machine, library, number of threads, "
                "or another model or loss): go on where it started, or with fresh noise from the last checkpoint on, "
                "both attempts counted: momentree resume --fork, or load(fork=True)"
            )
        safetensors.torch.save_file(kept, aside)
        os.replace(aside, path)
        self._unsynced.append(path)
        return self.get(name, step)

    def get(self, name: str, step: int) -> list[Tensor]:
        try:
            read = safetensors.torch.load_file(self._path(name, step))
        except (OSError, ValueError):
            raise InputError(
                f"{self._path(name, step)} cannot be read: the run's folder was changed; restore it from a copy"
            ) from None
        return [read[str(i)].to(device=like.device) for i, like in enumerate(self._like)]

    def forget(self, name: str, step: int) -> None:
        self._leaving.append(self._path(name, step))

    def state(self) -> dict[str, Tensor]:
        for path in self._unsynced:
            if path.exists():
                handle = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
        self._unsynced = []
        return {}

    def load(self, state: dict[str, Tensor]) -> None:
        return None

    def settle(self) -> None:
        for path in self._leaving:
            path.unlink(missing_ok=True)
        self._leaving = []


def _other(path: Path, tensors: dict[str, Tensor]) -> bool:
    """Whether a file holds other bits; one that a power cut has spoilt holds nothing."""
    try:
        found = safetensors.torch.load_file(path)
    except (OSError, ValueError, safetensors.SafetensorError):
        return False
    return found.keys() != tensors.keys() or any(as_bytes(found[name]) != as_bytes(t) for name, t in tensors.items())


def forget_after(folder: Path, step: int) -> None:
    """A fork draws noise of its own: what was left of steps after its checkpoint is of another attempt."""
    for path in folder.glob("*.safetensors"):
        if int(path.stem.rpartition("-")[2]) > step:
            path.unlink(missing_ok=True)
