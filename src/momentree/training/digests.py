"""Digests that tie a run together: of the code that draws and adds, of the first weights, of each release."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

import momentree
from momentree.training.data import as_bytes

_DRAWING = ("noise", "order", "query", "strategy", "training", "update")


@cache
def code_version() -> str:
    """SHA-256 over the sources that a release depends on and torch's version: another code never shares a noise key."""
    digest = hashlib.sha256(f"{momentree.__version__}/{torch.__version__}".encode())
    root = Path(momentree.__file__).parent
    for part in _DRAWING:
        for path in sorted((root / part).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def weights_digest(model: torch.nn.Module) -> str:
    """SHA-256 of every parameter and buffer, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, Tensor):
            digest.update(f"{name}/{tensor.dtype}/{tuple(tensor.shape)}".encode())
            digest.update(as_bytes(tensor))
    return digest.hexdigest()


def release_digest(step: int, shown: Sequence[Tensor]) -> str:
    """SHA-256 of what a step has released. It is a digest of public numbers, so it needs no key."""
    digest = hashlib.sha256(str(step).encode())
    for tensor in shown:
        digest.update(tensor.detach().cpu().reshape(-1).numpy().data)
    return digest.hexdigest()
