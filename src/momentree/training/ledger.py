"""What a run writes about itself: `record.json` and `certificate.json`, from public facts and released numbers only."""

from __future__ import annotations

import datetime
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import momentree
from momentree.certificate import RunFacts, certificate, epsilon_of_attempts, run_facts_dict
from momentree.errors import InputError
from momentree.figures import noise_profile
from momentree.files import write_json
from momentree.report.record import write_record
from momentree.training.heldout import HeldOut
from momentree.training.stopping import prefix_points

if TYPE_CHECKING:
    from momentree.training.loop import Run


@dataclass(frozen=True)
class Notes:
    """Public facts that only the caller knows: what the model is called, where the rows come from, what is declared."""

    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    public_facts: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    unit_column: str | None = None


POINTS = 1000
"""A record shows at most about so many steps: a run of a million steps has a record of the same size."""


class Ledger:
    """The facts of one run. `identity` is what a checkpoint has to agree with before it is used."""

    def __init__(
        self,
        plan: Any,
        *,
        identity: dict[str, Any],
        initial_weights: str,
        noise_source: str,
        notes: Notes | None = None,
    ) -> None:
        self.plan = plan
        self.identity = identity
        self.initial_weights = initial_weights
        self.noise_source = noise_source
        self.notes = notes or Notes()
        self.started = now()
        self.held_out_rows: HeldOut | None = None
        self._held_out_was = "none"
        self._held_out: list[dict[str, Any]] = []
        self._steps: list[int] = []
        self._norms: list[float | Tensor] = []
        self._every = -(-int(plan.shape.steps) // POINTS)

    def note(self, step: int, released: Sequence[Tensor]) -> None:
        """The norm of what was released, for some of the steps. It stays on the device until it is written."""
        if step % self._every == 0 or step == 1:
            self._steps.append(step)
            self._norms.append(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(released)))))

    def hold_out(self, rows: HeldOut) -> None:
        self.held_out_rows = rows
        self._held_out_was = rows.describe()

    def measure(self, run: Run) -> dict[str, float]:
        """The loss on the held-out rows, at a step that may be shown."""
        if self.held_out_rows is None:
            return {}
        figures = self.held_out_rows.measure(run.model, run.loss, run.loss_of_batch)
        shown = {name: value if math.isfinite(value) else None for name, value in figures.items()}
        self._held_out.append({"step": run.done, **shown})
        return figures

    @property
    def last_held_out(self) -> dict[str, Any] | None:
        """The newest figures on the held-out rows."""
        return self._held_out[-1] if self._held_out else None

    def growing(self) -> dict[str, Any]:
        """What a checkpoint keeps of the record."""
        self._norms = [float(norm) for norm in self._norms]
        return {
            "started": self.started,
            "steps": self._steps,
            "released_norm": [norm if math.isfinite(norm) else None for norm in self._norms],
            "held_out": self._held_out,
            "held_out_was": self._held_out_was,
            "initial_weights": self.initial_weights,
            "notes": asdict(self.notes),
        }

    def grow(self, kept: dict[str, Any]) -> None:
        """Go on with what a checkpoint has kept."""
        self.started = str(kept["started"])
        self._steps = [int(t) for t in kept["steps"]]
        self._norms = [math.nan if norm is None else float(norm) for norm in kept["released_norm"]]
        self._held_out = list(kept["held_out"])
        self._held_out_was = str(kept["held_out_was"])
        self.initial_weights = str(kept["initial_weights"])
        notes = dict(kept["notes"])
        self.notes = Notes(**notes | {name: tuple(notes[name]) for name in ("public_facts", "caveats")})

    @property
    def attempts(self) -> int:
        """How often noise was drawn for this run: 1, and one more for every fork."""
        return int(self.identity.get("attempts", 1))

    @cached_property
    def epsilon(self) -> float:
        """ε of all attempts at the plan's δ."""
        return float(self.plan.epsilon) if self.attempts == 1 else epsilon_of_attempts(self.plan, self.attempts)

    def same_run(self, facts: dict[str, Any], *, shown: int, fork: bool = False) -> None:
        """Refuse a checkpoint of another plan or other code; where steps after it were shown, of other threads too.

        What nobody has seen may be computed again with other roundings, and a fork draws noise that nobody has seen.
        """
        version = (
            "another version of momentree or torch: install the one that started it, or go on with fresh noise, both "
            "attempts counted: momentree resume --fork, or load(fork=True)"
        )
        for name, what in (
            ("plan_digest", "another plan: give the one in its plan.toml"),
            *(() if fork else (("code", version),)),
            ("run_id", "another run"),
            ("precision", "another precision: give the precision= of the start"),
            ("first_weights", "other first weights"),
            ("update_facts", "another update: give the update= of the start"),
        ):
            if facts.get(name) != self.identity[name]:
                raise InputError(
                    f"the same noise is never used for two different values, and the checkpoint is of {what}"
                )
        if facts.get("threads") != self.identity["threads"] and shown > int(facts["step"]) and not fork:
            raise InputError(
                f"the run used {facts.get('threads')} threads and this process has {self.identity['threads']}: steps "
                f"{int(facts['step']) + 1} to {shown} were shown and would round differently; call "
                f"torch.set_num_threads({facts.get('threads')}) first, or go on with fresh noise by load(fork=True)"
            )

    def run_facts(self, run: Run, *, finished: bool) -> RunFacts:
        return RunFacts(
            steps_done=run.done,
            finished=finished,
            noise_source=self.noise_source,
            attempts=self.attempts,
            initial_weights=self.initial_weights,
            holdout=self._held_out_was,
            unit_column=self.notes.unit_column,
            public_facts=self.notes.public_facts,
            caveats=self.notes.caveats,
            ancestors=tuple(self.notes.model.get("warm_start") or ()),
        )

    def certificate(self, run: Run) -> dict[str, Any]:
        return certificate(self.plan, self.run_facts(run, finished=run.done == run.steps))

    def write(self, run: Run, *, finished: bool) -> None:
        """`record.json`, and at the end `certificate.json`, each aside and then renamed."""
        kept = self.growing()
        facts = self.run_facts(run, finished=finished)
        parameters = sum(p.numel() for p in run.model.parameters() if p.requires_grad)
        record = {
            "plan": self.plan.request.facts(),
            "run": run_facts_dict(facts),
            "model": {
                "kind": type(run.model).__name__,
                "parameters": parameters,
                "update": run.update_facts(),
                **self.notes.model,
            },
            "data": {"rows": int(self.plan.shape.examples), **self.notes.data},
            "steps": {
                "step": kept["steps"],
                "released_norm": kept["released_norm"],
                "noise_norm": expected_noise(self.plan, kept["steps"], parameters),
            },
            "epsilon": prefix_points(self.plan, run.done) if run.finished and self.attempts == 1 else [],
            "held_out": kept["held_out"],
            "result": {"steps_done": run.done, **(self.last_held_out or {})},
            "environment": {
                "momentree": momentree.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
                "system": platform.system(),
                "device": str(run.device),
                "threads": self.identity["threads"],
                "precision": self.identity["precision"],
                "run_id": self.identity["run_id"],
                "code": self.identity["code"],
                "first_weights": self.identity["first_weights"],
            },
            "started": self.started,
            "finished": now() if run.finished else None,
        }
        if run.finished:
            promise = certificate(self.plan, facts)
            record |= {"figures": self.plan.to_dict(), "certificate": promise}
            write_json(run.folder.path / "certificate.json", promise)
        write_record(run.folder.path, record)


def expected_noise(plan: Any, steps: Sequence[int], parameters: int) -> list[float]:
    """The norm expected of the noise that was added at these steps; empty where no formula is at hand."""
    profile = noise_profile(plan.strategy)
    if profile is None or plan.preset.query != "gradient":
        return []
    scale = float(plan.noise_multiplier * plan.clip / plan.shape.batch_size * math.sqrt(parameters))
    return [scale * float(profile[step - 1]) for step in steps]


def now() -> str:
    """The day, in UTC. How long a run took depends on the sizes of its batches, and those may be secret."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()
