"""Attempts: how a run goes on from its last checkpoint with noise that was never drawn before, and what that costs.

A step that was shown can only be shown again with the same bits. Where it cannot be computed again (another version,
another machine, a log that a power cut has shortened), a fork draws noise and secret places anew from there on.

Guarantee. A later attempt is a run of the same plan of its own, whose queries up to the checkpoint are zero: every
account is for contributions up to a norm, zero among them, that may depend on all that was released before. Its noise,
and its places where they are secret, are independent of every other attempt's. So k attempts cost at most k runs
composed, which is what the certificate says, and what they show is a function of these runs. The subkeys of an attempt
hold a number that is drawn for it, so two copies of a folder that both fork share nothing either.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from momentree.certificate import epsilon_of_attempts
from momentree.errors import NoProofError
from momentree.training import checkpoint as checkpoints


@dataclass(frozen=True)
class Attempt:
    """`number` counts from 1; `drawn` tells this attempt from any other of the same number, and is not secret."""

    number: int = 1
    drawn: str = ""

    def purpose(self, name: str) -> str:
        """What a subkey of this attempt is for."""
        return name if self.number == 1 else f"{name}, attempt {self.number}, {self.drawn}"

    def identity(self) -> dict[str, Any]:
        """For checkpoints: durable before any of the attempt's noise is used."""
        return {"attempts": self.number, "attempt_drawn": self.drawn}


FIRST = Attempt()


def attempt_of(folder: Path, plan: Any, *, fork: bool) -> Attempt:
    """The attempt that the newest checkpoint belongs to, or the one after it; refused where its price has no proof.

    After the last step there is nothing to draw, and so nothing to pay for.
    """
    facts = checkpoints.facts_of(checkpoints.newest(folder))
    kept = Attempt(int(facts.get("attempts", 1)), str(facts.get("attempt_drawn", "")))
    if not fork or int(facts["step"]) >= plan.shape.steps:
        return kept
    forked = Attempt(kept.number + 1, uuid.uuid4().hex)
    try:
        epsilon_of_attempts(plan, forked.number)
    except NoProofError:
        raise NoProofError(
            f"fork of {plan.algorithm} with order {plan.order.name} and adjacency {plan.adjacency}: no proof is at "
            "hand for the price of two attempts together; start another run"
        ) from None
    return forked
