"""Checkpoints: released numbers only, written aside, flushed, then renamed; the newest one is kept.

Guarantee: a checkpoint holds the weights, the state of the update, the vectors of earlier steps that have been
released, and the number of the step. It holds no sum without its noise and no noise either: the noise is drawn again
from the key and the step's number.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from momentree.errors import InputError
from momentree.files import read_json, write_json
from momentree.training.folder import durable

VERSION = 1
TENSORS, FACTS = "tensors.safetensors", "state.json"
Numbers = dict[str, int | float]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, header: dict[str, str] | None = None) -> None:
    """A safetensors file, complete or not there at all. Tied tensors are written once for each name.

    `header`: public words that stay with the file wherever it is copied.
    """
    aside = path.with_name(f".{path.name}.writing")
    try:
        safetensors.torch.save_file({k: _own(v) for k, v in tensors.items()}, aside, metadata=header)
        handle = os.open(aside, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(aside, path)
        durable(path.parent)
    except (OSError, safetensors.SafetensorError) as error:
        aside.unlink(missing_ok=True)
        raise InputError(f"cannot write {path} ({type(error).__name__}): is there room on the disk?") from None


def _own(tensor: Tensor) -> Tensor:
    """On the CPU, contiguous, and with storage of its own: safetensors refuses storage that is shared."""
    kept = tensor.detach().to("cpu").contiguous()
    shared = kept.untyped_storage().nbytes() != kept.numel() * kept.element_size() or kept is tensor
    return kept.clone() if shared or kept.data_ptr() == tensor.data_ptr() else kept


def digest_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save(folder: Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Path:
    """Write checkpoint `step`, durable when this returns; older ones are removed afterwards.

    The first checkpoint of a later attempt is at the step of the one it starts from: its name tells them apart, so that
    at every moment one of them is whole.
    """
    attempts = int(facts.get("attempts", 1))
    name = f"step-{step:09d}" + (f"-attempt-{attempts:05d}" if attempts > 1 else "")
    final, aside = folder / name, folder / f".{name}.writing"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(mode=0o700)
    write_tensors(aside / TENSORS, tensors)
    body = {"version": VERSION, "step": step, **facts, "tensors_sha256": digest_of(aside / TENSORS)}
    write_json(aside / FACTS, body)
    durable(aside)
    if final.exists():
        shutil.rmtree(final)
    os.replace(aside, final)
    durable(folder)
    for other in folder.iterdir():
        if other != final:
            shutil.rmtree(other, ignore_errors=True)
    return final


def newest(folder: Path) -> Path:
    """The newest complete checkpoint."""
    found = sorted(p for p in folder.glob("step-*") if (p / FACTS).exists()) if folder.is_dir() else []
    if not found:
        raise InputError(f"there is no checkpoint in {folder}: the run cannot be resumed, start another")
    return found[-1]


def facts_of(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    facts = read_json(path / FACTS, "checkpoint")
    if not isinstance(facts, dict) or facts.get("version") != VERSION:
        raise InputError(f"checkpoint {path} has another version than {VERSION}: use the release that wrote it")
    return facts


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a checkpoint, checked against its own digest."""
    facts = facts_of(path)
    try:
        right = digest_of(path / TENSORS) == facts.get("tensors_sha256")
        tensors = safetensors.torch.load_file(path / TENSORS) if right else {}
    except (OSError, safetensors.SafetensorError):
        right = False
    if not right:
        raise InputError(f"checkpoint {path} is damaged: restore the folder from a copy, or start another run")
    return tensors, facts


def apart(prefix: str, state: Mapping[str, Tensor | int | float]) -> tuple[dict[str, Tensor], Numbers]:
    """Tensors under a prefix for safetensors, numbers for JSON."""
    tensors = {f"{prefix}/{k}": v for k, v in state.items() if isinstance(v, Tensor)}
    return tensors, {k: v for k, v in state.items() if not isinstance(v, Tensor)}


def together(prefix: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> dict[str, Tensor | int | float]:
    """What `apart` took apart."""
    mine: dict[str, Tensor | int | float] = {
        k[len(prefix) + 1 :]: v for k, v in tensors.items() if k.startswith(prefix + "/")
    }
    return {**mine, **numbers}
