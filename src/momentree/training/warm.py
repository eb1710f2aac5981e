"""A private warm start: the first weights are the model of an earlier run, and both are paid for.

Guarantee: the earlier run's release is differentially private by its own account, this run's by its own for any first
weights, so whoever took part in both is protected by their composition, exact where both are Gaussian. The figure is in
the certificate beside this run's own; whoever took part in one of them only has that one's. When it pays: Lowy, Ullman
and Wright, arXiv 2402.11173.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import nn

from momentree.certificate import RunFacts, together
from momentree.errors import InputError, NoProofError
from momentree.privacy.account import rounded_up
from momentree.report.record import read_record

Ancestor = dict[str, Any]
"""`plan`: the facts of an earlier run's plan; `attempts`: how often its noise was drawn; `unit_column`: whose rows;
`run_id`: its name in its own record."""


def ancestors_of(folder: str | os.PathLike[str]) -> list[Ancestor]:
    """The runs that a model comes from, oldest first, from the record of the last of them."""
    record = read_record(Path(folder))
    facts = RunFacts.of(record["run"])
    if facts.noise_source != "chacha20":
        raise NoProofError(f"run {folder} used the noise source {facts.noise_source}: it has no guarantee to build on")
    before = list((record.get("model") or {}).get("warm_start") or [])
    own = {"plan": record["plan"], "attempts": facts.attempts, "unit_column": facts.unit_column}
    return [*before, {**own, "run_id": (record.get("environment") or {}).get("run_id")}]


def load_model(model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """The weights that the earlier run handed over; every name and shape has to fit."""
    path = Path(folder) / "model.safetensors"
    try:
        model.load_state_dict(safetensors.torch.load_file(path))
    except (OSError, safetensors.SafetensorError):
        raise InputError(f"{path} cannot be read: give the folder of a run that has ended") from None
    except RuntimeError:
        raise InputError(f"{path} does not fit the model: build the one that was trained there") from None


def describe(plan: Any, ancestors: list[Ancestor], unit_column: str | None = None) -> str:
    """For the certificate: where the first weights come from and what it costs."""
    asked = RunFacts(0, False, ancestors=tuple(ancestors), unit_column=unit_column)
    runs = "an earlier private run" if len(ancestors) == 1 else f"{len(ancestors)} earlier private runs"
    return (
        f"the model of {runs}; for those whose rows were in all of them, everything together is "
        f"({rounded_up(together(plan, asked))}, {plan.delta:g})-DP"
    )


PROMISE = "momentree.promise"
"""One entry only: safetensors writes several in no fixed order, and equal models should be equal files."""


def header_of(ledger: Any) -> dict[str, str]:
    """What a run's model file says of itself, also where it is copied: whose rows are in it, and at what price."""
    plan, earlier, epsilon = ledger.plan, tuple(ledger.notes.model.get("warm_start") or ()), ledger.epsilon
    if earlier:  # the weights are made from their rows too
        asked = RunFacts(0, False, attempts=ledger.attempts, ancestors=earlier, unit_column=ledger.notes.unit_column)
        epsilon = together(plan, asked)
    return {
        PROMISE: f"trained on private rows, ({rounded_up(epsilon)}, {plan.delta:g})-DP, adjacency "
        f"{plan.adjacency}; the price of using it on the same rows again is in certificate.json of run "
        f"{ledger.identity['run_id']}"
    }


def private_run_of(path: str | os.PathLike[str]) -> str | None:
    """The id of the private run that a model file comes from, as its header has it; None for any other file."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            header = file.metadata() or {}
    except (OSError, safetensors.SafetensorError):
        return None
    return str(header[PROMISE]).rpartition(" ")[2] if PROMISE in header else None


def taken_as_public(path: str | os.PathLike[str]) -> None:
    """Refuses the model of a private run as public weights; a file from elsewhere says nothing of where it was made."""
    run = private_run_of(path)
    if run is not None:
        raise InputError(
            f"weights {path} were trained on private rows, by run {run[:8]}: give that run's folder, so that both are "
            "paid for, or say --init-is-public if none of these rows were in it"
        )
