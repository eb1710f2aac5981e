"""What several fits cost together, in this process and in the processes that a search starts.

Two fits are counted together where they come from one estimator or its clones (a search, a cross-validation and an
ensemble all work on clones, whatever their pipelines have done to the columns), or where they were given the same X.
The first is a public fact. The second compares keyed hashes under a key that lives and dies with this process.
Fits that share neither (other estimators on parts of the rows) cannot be seen from here: add them up yourself.

Guarantee: for someone whose row was in all of the fits counted, the (ε, δ) stated covers all of them. Gaussian accounts
compose exactly; others by adding up ε and δ, which is an upper bound. Not covered, by any figure: scores on private
rows, and choices made by them.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from momentree.plan import Plan
from momentree.privacy.account import rounded_up
from momentree.privacy.compose import compose
from momentree.privacy.gaussian import GaussianAccount


class SpendingWarning(UserWarning):
    """Several fits have been counted together, and together they cost more than each."""


@dataclass(frozen=True)
class Spent:
    """One fit's price: public figures. `mu` is None where the account is not Gaussian."""

    name: str
    adjacency: str
    mu: float | None
    epsilon: float
    delta: float

    @staticmethod
    def by(plan: Plan) -> Spent:
        return Spent(secrets.token_hex(8), plan.adjacency, plan.mu, plan.bracket.upper, plan.delta)


_key = secrets.token_bytes(32)
_by_data: dict[bytes, list[Spent]] = {}
_by_line: dict[str, list[Spent]] = {}
_guard = threading.Lock()
_folders: dict[int, str] = {}


def identity(table: NDArray[np.float64]) -> bytes:
    """What recognises the same X again within this process, and says nothing outside of it."""
    seen = hashlib.blake2b(str(table.shape).encode(), key=_key, digest_size=32)
    for start in range(0, len(table), 65_536):
        seen.update(np.ascontiguousarray(table[start : start + 65_536]).tobytes())
    return seen.digest()


def fitted_on(data: bytes) -> bool:
    """Whether an estimator was fitted on this X in this process."""
    return data in _by_data


def new_line() -> str:
    """A name that an estimator and its clones share: a file of a private folder, so that other processes find it."""
    with _guard:
        if os.getpid() not in _folders:
            _folders[os.getpid()] = tempfile.mkdtemp(prefix="momentree-fits-")
            atexit.register(_forget, os.getpid())
    return str(Path(_folders[os.getpid()]) / secrets.token_hex(16))


def _forget(process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(_folders.pop(process), ignore_errors=True)


def enter(spent: Spent, line: str, data: bytes) -> list[Spent]:
    """Count a fit, and return all that are counted together with it, itself included."""
    with _guard:
        same_data = _by_data.setdefault(data, [])
        same_data.append(spent)
        together = {each.name: each for each in (*_lines_of(line, spent), *same_data)}
    return list(together.values())


def _lines_of(line: str, spent: Spent) -> list[Spent]:
    """The fits of an estimator and its clones: from the shared file, or this process's own where it is gone."""
    own = _by_line.setdefault(line, [])
    own.append(spent)
    try:
        handle = os.open(line, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return own
    with os.fdopen(handle, "r+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(asdict(spent)) + "\n")
        file.flush()
        file.seek(0)
        return [*own, *(Spent(**json.loads(text)) for text in file)]


def total(fits: Iterable[Spent], delta: float) -> tuple[float, float]:
    """(ε, δ) of these fits together: with Gaussian accounts at this δ, and with every other's δ added to it."""
    fits = list(fits)
    gaussian = [GaussianAccount(each.mu) for each in fits if each.mu is not None]
    others = [each for each in fits if each.mu is None]
    epsilon = compose(gaussian).epsilon(delta).upper if gaussian else 0.0
    given = delta if gaussian else 0.0
    return epsilon + sum(each.epsilon for each in others), given + sum(each.delta for each in others)


def sentence(fits: list[Spent], this: Spent) -> str:
    """The warning's text. Where adjacencies differ it speaks of zero-out, which each of the others covers."""
    epsilon, delta = total(fits, this.delta)
    adjacencies = {each.adjacency for each in fits}
    adjacency = adjacencies.pop() if len(adjacencies) == 1 else "zero-out"
    return (
        f"{len(fits)} private fits count together (one estimator and its clones, or the same X): for a row that was in "
        f"all of them, epsilon is {rounded_up(epsilon)} at delta {delta:.3g} together ({adjacency}), "
        f"not {rounded_up(this.epsilon)}; scores on private rows, and a choice made by them, are covered by no epsilon"
    )
