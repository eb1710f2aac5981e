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
