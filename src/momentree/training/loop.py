"""A run: a plan carried out on a model and its data, step by step, resumable bit for bit.

Guarantee. What leaves a run, at any time and however it is stopped and resumed, is the released stream of its plan and
what is computed from it. In the user's own loop a digest of every release is written before `step` returns; in `fit`
nothing of a step leaves before its checkpoint is durable. Losses on the private rows are never computed for showing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from momentree.errors import InputError, whole
from momentree.order import forget
from momentree.order.base import Indices
from momentree.training import checkpoint as checkpoints
from momentree.training.data import Batch, Rows
from momentree.training.digests import release_digest
from momentree.training.folder import Folder
from momentree.training.heldout import HeldOut
from momentree.training.interrupts import deferred_interrupts
from momentree.training.ledger import Ledger
from momentree.training.pieces import Piece
from momentree.training.precision import lowered, repeatable
from momentree.training.releaselog import ReleaseLog
from momentree.training.releases.base import Release
from momentree.training.state import Untouched, unquoted
from momentree.training.stopping import epsilon_so_far
from momentree.training.warm import header_of
from momentree.update import Update


@dataclass(frozen=True)
class StepFacts:
    """What may be shown of a step at any time: public numbers. `epsilon`: of the whole plan, all attempts counted."""

    step: int
    steps: int
    epoch: int
    epsilon: float
    delta: float


Progress = Callable[[StepFacts], None]


class Run:
    """Made by `Plan.start` or `Run.load`. Iterate it and call `step`, or call `fit`."""

    def __init__(
        self,
        *,
        plan: Any,
        model: nn.Module,
        loss: Any,
        loss_of_batch: Any,
        rows: Rows,
        release: Release,
        parameters: Sequence[Tensor],
        update: Update,
        folder: Folder,
        ledger: Ledger,
        batch_of: Callable[[int], Indices],
        physical_batch_size: int,
        keep_key: bool,
        precision: str,
        progress: Progress | None,
    ) -> None:
        self.plan = plan
        self.model = model
        self.loss = loss
        self.loss_of_batch = loss_of_batch
        self.folder = folder
        self.ledger = ledger
        self.done = 0
        self.finished = False
        self.checkpoint_every = default_interval(plan.shape)
        self._rows = rows
        self._release = release
        self._parameters = list(parameters)
        self._update = update
        self._batch_of = batch_of
        self._size = physical_batch_size
        self._keep_key = keep_key
        self._precision = precision
        self._progress = progress
        self._log = ReleaseLog(folder.log(ledger.attempts))
        self._log.check_complete()
        self._modes = modes(model)
        self._untouched = Untouched(model, loss, loss_of_batch)
        self._pending: Batch | None = None
        self._ahead: Iterator[Piece] | None = None
        self._saved = -1
        self._stopped = ""

    @property
    def steps(self) -> int:
        """T, the planned number of steps."""
        return int(self.plan.shape.steps)

    @property
    def device(self) -> torch.device:
        """Where the model and its batches are."""
        return self._rows.device

    def update_facts(self) -> dict[str, object]:
        """What the update says of itself."""
        return self._update.describe()

    @staticmethod
    def load(path: Any, *arguments: Any, **options: Any) -> Run:
        """Go on where a run stopped: `Run.load(path, model, loss, dataset)`; see `momentree.training.run.load`."""
        from momentree.training.run import load

        return load(path, *arguments, **options)

    # The user's own loop.

    def __iter__(self) -> Iterator[Batch]:
        while self.done < self.steps:
            yield self._next()
        self.finish()  # killed after the last step and before the end was written

    def step(self, batch: Batch) -> StepFacts:
        """Ask the batch, add the noise, write the digest, move the model. Takes the batch that the run handed out."""
        if not isinstance(batch, Batch) or batch is not self._pending:
            what = f"the batch of step {batch.step}" if isinstance(batch, Batch) else f"a {type(batch).__name__}"
            raise InputError(
                f"{what} is not the batch that comes next: the account holds for the run's own order only; "
                "write `for batch in run: run.step(batch)`"
            )
        self._advance(shown=True)
        if self.done % self.checkpoint_every == 0 or self.done == self.steps:
            self.checkpoint()
        if self.done == self.steps:
            self.finish()
        return self.facts()

    # Our loop.

    def fit(self, *, held_out: Any = None, held_out_is: str | None = None, checkpoint_every: int | None = None) -> Run:
        """All steps that are left, with checkpoints; the model is moved in place, and handed over at the end.

        Nothing of a step leaves before its checkpoint is durable: `progress` is called then, and not in between.

        `held_out`: rows outside the private ones, whose loss is recorded at checkpoints; `held_out_is` declares them
        `public` or `unprotected`, and the certificate says which.
        """
        if checkpoint_every is not None:
            self.checkpoint_every = whole("checkpoint_every", checkpoint_every, do="count it in steps")
        if held_out is not None:
            self.ledger.hold_out(HeldOut(held_out, held_out_is, device=self._rows.device, paired=self._rows.paired))
        with deferred_interrupts() as interrupted:
            try:
                while self.done < self.steps:
                    self._next()
                    self._advance(shown=self._log.last > self.done)
                    stop = bool(interrupted)
                    if self.done % self.checkpoint_every == 0 or self.done == self.steps or stop:
                        self.checkpoint()
                        self.ledger.measure(self)
                        if self._progress is not None:
                            self._progress(self.facts())
                    if stop and self.done < self.steps:
                        raise KeyboardInterrupt
            except BaseException:
                self._take_back()
                raise
        self.finish()
        return self

    # Both.

    def facts(self) -> StepFacts:
        return StepFacts(
            step=self.done,
            steps=self.steps,
            epoch=-(-self.done // int(self.plan.shape.steps_per_epoch)),
            epsilon=self.ledger.epsilon,
            delta=float(self.plan.delta),
        )

    def _next(self) -> Batch:
        if self._stopped:
            raise InputError(f"{self._stopped}; go on with Run.load({str(self.folder.path)!r}, …)")
        if self.done >= self.steps:
            raise InputError(f"the run has done its {self.steps} steps: there is no further batch")
        if self._pending is not None:
            raise InputError(
                f"the batch of step {self._pending.step} was not given to run.step: no step can be left out"
            )
        step = self.done + 1
        self._pending = Batch(step, self._pieces(step))
        return self._pending

    def _pieces(self, step: int) -> Iterator[Piece]:
        indices = self._batch_of(step)
        if self._rows.workers == 0:
            yield from self._rows.pieces(step, indices, self._size)
            return
        if self._ahead is None:
            asks = (
                ask for t in range(step, self.steps + 1) for ask in self._rows.asks(t, self._batch_of(t), self._size)
            )
            self._ahead = self._rows.ahead(asks)
        for _ in range(max(1, -(-len(indices) // self._size))):
            yield next(self._ahead)

    def _advance(self, *, shown: bool) -> None:
        batch, self._pending = self._pending, None
        assert batch is not None
        step = batch.step
        try:
            if self._modes != modes(self.model):
                raise InputError(
                    "a layer was switched between train() and eval() since the run began, which changes what was "
                    "checked: switch it back before the next step"
                )
            self._untouched.look()
            with unquoted(step), lowered(self.model, self._precision), repeatable(self.device):
                released = self._release.ask_(step, batch.pieces)
            self._untouched.check(asked=shown or self.device.type == "cpu")
            if shown:
                self._log.before_showing(step, release_digest(step, self._release.shown()))
            self.ledger.note(step, released)
            self._update.step_(self._parameters, released)
        except BaseException:
            # the next step has to be the one after a whole one: only a checkpoint is sure to be that
            self._stopped = f"step {step} of the run was broken off"
            self._release.clear()
            raise
        self.done = step

    def checkpoint(self) -> None:
        """Make everything up to this step durable; afterwards it may be shown."""
        if self._saved == self.done:
            return
        self._untouched.settle()
        model = {f"model/{name}": t for name, t in self.model.state_dict().items() if isinstance(t, Tensor)}
        update, update_numbers = checkpoints.apart("update", self._update.state_dict())
        release, release_numbers = checkpoints.apart("release", self._release.state())
        facts = {
            "update": update_numbers,
            "release": release_numbers,
            "record": self.ledger.growing(),
            **self.ledger.identity,
        }
        checkpoints.save(self.folder.checkpoints, self.done, {**model, **update, **release}, facts)
        self._release.settle()
        self._saved = self.done
        self.ledger.write(self, finished=False)

    def restore(self, *, fork: bool = False) -> int:
        """Go back to the newest checkpoint: weights, update, release, step. A fork is durable before it goes on."""
        tensors, facts = checkpoints.load(checkpoints.newest(self.folder.checkpoints))
        self.ledger.same_run(facts, shown=self._log.last, fork=fork)
        self._load_weights(tensors)
        self._untouched = Untouched(self.model, self.loss, self.loss_of_batch)
        self._update.load_state_dict(checkpoints.together("update", tensors, facts["update"]))
        self.done = self._saved = int(facts["step"])
        self._release.load_state(checkpoints.together("release", tensors, facts["release"]), self.done)
        self.ledger.grow(facts["record"])
        if fork:
            self._saved = -1
            self.checkpoint()
        return self.done

    def _load_weights(self, tensors: dict[str, Tensor], *, strict: bool = True) -> None:
        kept = {k[len("model/") :]: v for k, v in tensors.items() if k.startswith("model/")}
        try:
            self.model.load_state_dict(kept, strict=strict)
        except RuntimeError:
            raise InputError(
                "the model does not have the layers or shapes that the checkpoint has: build the one that was trained"
            ) from None

    def _take_back(self) -> None:
        """Our loop was left by an error: what no checkpoint holds must not be seen, so the model goes back to one."""
        if self._stopped or self.done != self._saved:
            self._stopped = self._stopped or f"the run was broken off after step {self.done}"
            tensors, _ = checkpoints.load(checkpoints.newest(self.folder.checkpoints))
            self._load_weights(tensors, strict=False)  # a step may have added something, which is zero by now

    def finish(self) -> None:
        """Hand over the weights, write model, record and certificate, destroy the key unless it is to be kept."""
        if self.finished:
            return
        if self.done < self.steps:
            raise InputError(f"the run has done {self.done} of {self.steps} steps: fit the rest, or stop() it here")
        self._end()

    def stop(self) -> None:
        """End the run here, for good. The planned ε stands: a prefix's account is no claim once you looked."""
        if self._stopped:
            self._next()
        self.checkpoint()
        self._end()

    def _end(self) -> None:
        with torch.no_grad():
            for w, kept in zip(self._parameters, self._update.hand_over(self._parameters), strict=True):
                w.copy_(kept)
        self.finished = True
        checkpoints.write_tensors(
            self.folder.path / "model.safetensors",
            {name: t for name, t in self.model.state_dict().items() if isinstance(t, Tensor)},
            header=header_of(self.ledger),
        )
        self.ledger.write(self, finished=self.done == self.steps)
        if not self._keep_key:
            self.folder.seal()
        self.close()

    def close(self) -> None:
        """Let go of the folder. A run that is not finished can be loaded again from it."""
        forget()
        self._ahead = None
        self._log.close()
        self.folder.close()
        self._stopped = self._stopped or "the run is closed"

    def epsilon_so_far(self, *, stop_fixed_in_advance: bool = False) -> float:
        """ε at the plan's δ if the run ended here: the planned one, unless the stop was fixed without looking."""
        if self.ledger.attempts > 1:
            return self.ledger.epsilon
        return epsilon_so_far(self.plan, self.done, stop_fixed_in_advance=stop_fixed_in_advance)

    def evaluate(self, held_out: Any, held_out_is: str | None = None) -> dict[str, float]:
        """Mean loss (and accuracy) on declared rows outside the private ones; recorded, and named as what they are."""
        rows = HeldOut(held_out, held_out_is, device=self._rows.device, paired=self._rows.paired)
        self.ledger.hold_out(rows)
        return self.ledger.measure(self)

    def certificate(self) -> dict[str, Any]:
        """The guarantee, as in `certificate.json`."""
        return self.ledger.certificate(self)


def modes(model: nn.Module) -> list[bool]:
    """Which layers are in training mode."""
    return [module.training for module in model.modules()]


def default_interval(shape: Any) -> int:
    """Steps between checkpoints: an epoch, but at least twenty in a run."""
    return int(max(1, min(shape.steps_per_epoch, shape.steps // 20)))
