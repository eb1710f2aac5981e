"""From a file and its declared schema to a run: what `momentree train` and `resume` call.

Guarantee. The private rows are read once, through the declared schema and nothing else; a row keeps its place, and one
that cannot be used contributes zero. What is not declared is refused, or named in the certificate as read from the
data. Held-out rows are outside the promise, and the certificate says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from momentree.data.confirm import read_from_data
from momentree.data.holdout import Holdout
from momentree.data.readers import open_source
from momentree.data.schema import Schema
from momentree.data.table import Table, Tables, read_table
from momentree.errors import InputError, one_of, whole
from momentree.files import read_json, write_json, write_text
from momentree.models import make_model
from momentree.plan import Plan
from momentree.tasks import defaults
from momentree.tasks.people import People
from momentree.tasks.task import Task
from momentree.training.defaults import default_update
from momentree.training.heldout import DECLARATIONS
from momentree.training.ledger import Notes
from momentree.training.loop import Run
from momentree.training.run import load, start
from momentree.training.warm import taken_as_public
from momentree.update import Update

SCHEMA = "schema.toml"
WHERE = "data.json"
"""Where the file was, beside the checkpoints and gone with them: a path may name a person, so it is in no record."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Choices:
    """What is chosen beside the plan; kept in the record, so that resume and predict build the same model."""

    model: str = "linear"
    hidden: tuple[int, ...] = (128,)
    class_weights: tuple[float, ...] = ()
    holdout: str | None = None
    held_out_is: str = "unprotected"

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.model,
            "hidden": list(self.hidden),
            "class_weights": list(self.class_weights),
            "holdout": self.holdout,
            "held_out_is": self.held_out_is,
        }

    @staticmethod
    def of(facts: dict[str, Any]) -> Choices:
        """From the record of a run."""
        try:
            return Choices(
                str(facts["name"]),
                tuple(int(v) for v in facts["hidden"]),
                tuple(float(v) for v in facts["class_weights"]),
                facts["holdout"],
                str(facts["held_out_is"]),
            )
        except (KeyError, TypeError, ValueError):
            raise InputError(
                "the record does not say which model it holds: it is not of a table; use Run.load"
            ) from None


def build(schema: Schema, task: Task, choices: Choices, seed: int) -> nn.Module:
    """The model of a run, before its first step."""
    shape = schema.feature_shape
    model = make_model(choices.model, shape, task.outputs, seed=seed, hidden=choices.hidden)
    return model if len(shape) == 1 else nn.Sequential(nn.Unflatten(1, shape), model)


def update_of(plan: Plan, task: Task, schema: Schema) -> Update:
    """The plan's update; where no step size was given for plain momentum, the one of the documented rule."""
    by_rule = plan.learning_rate is None and defaults.plain(plan)
    rate = defaults.learning_rate(plan, task.kind, row_norm=schema.row_norm or 1.0) if by_rule else None
    return default_update(plan, momentum_included=plan.preset.query == "sensitivity-reduced", rate=rate)


def train(
    data: str | Path,
    schema_path: str | Path,
    facts: dict[str, Any],
    out: str | Path,
    *,
    target: str | None = None,
    choices: Choices | None = None,
    accept_derived: bool = False,
    init: str | Path | None = None,
    init_is_public: bool = False,
    keep_key: bool = False,
    device: str | None = None,
    scratch: str | None = None,
    say: Say = lambda line: None,
    progress: Callable[[Any], None] | None = None,
) -> Run:
    """Train on a file and return the finished run. Everything that can be refused is refused before a step is made."""
    choices = choices or Choices()
    if Path(out).exists() and (not Path(out).is_dir() or any(Path(out).iterdir())):
        raise InputError(f"output folder {out} exists and is not empty: give a new one, or resume the run in it")
    one_of("held-out-is", choices.held_out_is, DECLARATIONS)
    if scratch is not None and not Path(scratch).is_dir():
        raise InputError(f"scratch {scratch} is no folder: give one that exists, on a disk with room for a copy")
    schema = Schema.read(schema_path)
    if target is not None and tuple(name.strip() for name in target.split(",")) != schema.target:
        raise InputError(
            f"target {target!r} is not the schema's, {', '.join(schema.target)}: give that, or edit the schema"
        )
    waiting = schema.unconfirmed()
    if waiting and not accept_derived:
        raise InputError(
            f"schema {schema_path} was drafted from the data and {len(waiting)} of its lines are not confirmed: run "
            "momentree schema confirm, or --accept-derived-schema (the certificate will say so)"
        )
    task = Task.of(schema, choices.class_weights)
    seed = whole("seed", facts.get("seed") or 0, at_least=0)
    if schema.group is None and whole("rows_per_person", facts.get("rows_per_person") or 1) > 1:
        raise InputError(
            "rows_per_person without a group column in the schema: name whose rows these are, or leave it out"
        )
    tables = read(data, schema, choices, seed, scratch)
    try:
        private = tables.private
        model = build(schema, task, choices, seed)
        known = {
            "examples": len(private),
            "examples_counted": "examples" not in facts,
            "dimension": sum(p.numel() for p in model.parameters() if p.requires_grad),
        } | ({} if schema.group is None else {"rows_per_person": 1})
        chosen, why = defaults.fill(known | facts, row_norm=schema.row_norm or 1.0, kind=task.kind)
        plan = Plan(**chosen)
        by_chance = choices.holdout is not None and "=" not in choices.holdout and schema.group is None
        if plan.adjacency == "add-remove" and by_chance:
            raise InputError(
                f"holdout {choices.holdout} with add-remove: which rows a fraction takes depends on how many there "
                "are, so one row more would move others in or out; hold out by COLUMN=VALUE, or take zero-out"
            )
        parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
        if plan.dimension != parameters:
            raise InputError(f"dimension {plan.dimension} is not the model's, {parameters}: leave it out")
        note, earlier = None, None if init is None or init_is_public else earlier_run(init)
        if init is not None and earlier is None:
            if not init_is_public:
                taken_as_public(init)
            note = f"public weights from {Path(init).name}"
            load_weights(model, init)
        leaks = tuple(
            f"{line} was read from the data" for line in read_from_data(schema, open_source(data, schema.file))
        )
        run = start(
            plan,
            model,
            task.loss(),
            rows_of(private, schema, plan),
            out=out,
            update=update_of(plan, task, schema),
            device=device,
            keep_key=keep_key,
            warm_start=earlier,
            init_note=note or ("zeros" if choices.model == "linear" else f"drawn from the public seed {seed}"),
            notes=notes(schema, task, choices, tables, data, leaks),
            units=private.groups if plan.order.secret and schema.group is not None else None,
            progress=progress,
        )
        for line in (*why, f"strategy {plan.strategy.name}: {plan.strategy_reason}"):
            say(line)
        for line in plan.warnings:
            say(f"warning: {line}")
        write_text(Path(out) / SCHEMA, schema.to_toml())
        write_json(run.folder.checkpoints / WHERE, {"data": str(Path(data).resolve())}, mode=0o600)
        return finish(run, tables, choices)
    finally:
        tables.private.close()


def resume(
    folder: str | Path,
    data: str | Path | None = None,
    *,
    device: str | None = None,
    scratch: str | None = None,
    moved: bool = False,
    fork: bool = False,
    progress: Callable[[Any], None] | None = None,
) -> Run:
    """Go on with a run of `train` where it stopped; the same file, or one line that says that it differs."""
    from momentree.plan_file import read_plan_facts
    from momentree.report.record import read_record

    folder = Path(folder)
    record = read_record(folder)
    data = where_it_was(folder) if data is None else data
    choices = Choices.of(record.get("model") or {})
    schema = Schema.read(folder / SCHEMA)
    task = Task.of(schema, choices.class_weights)
    plan = Plan(**read_plan_facts(folder / "plan.toml"))
    tables = read(data, schema, choices, plan.seed, scratch)
    try:
        model = build(schema, task, choices, plan.seed)
        run = load(
            folder,
            model,
            task.loss(),
            rows_of(tables.private, schema, plan),
            update=update_of(plan, task, schema),
            device=device,
            units=tables.private.groups if plan.order.secret and schema.group is not None else None,
            moved=moved,
            fork=fork,
            progress=progress,
        )
        return finish(run, tables, choices)
    finally:
        tables.private.close()


def where_it_was(folder: Path) -> Path:
    """The file that an unfinished run was started on, if it is still there."""
    place = folder / "checkpoints" / WHERE
    if not place.exists():
        raise InputError(f"run {folder} does not say where its file was: it has finished, or give DATA")
    data = Path(str(read_json(place, "place of the data").get("data", "")))
    if not data.exists():
        raise InputError(
            f"the file of run {folder} is no longer where it was: give DATA, the same file in its new place"
        )
    return data


def finish(run: Run, tables: Tables, choices: Choices) -> Run:
    """All steps, with the loss on held-out rows where there are any; then the report."""
    from momentree.report.page import write_report

    held_out = tables.held_out
    try:
        run.fit(held_out=held_out, held_out_is=None if held_out is None else choices.held_out_is)
    except BaseException:
        run.close()  # whoever resumes in the same process finds the folder free
        raise
    write_report(run.folder.path)
    return run


def read(data: str | Path, schema: Schema, choices: Choices, seed: int, scratch: str | None) -> Tables:
    """The private rows, and those that the holdout names."""
    holdout = None if choices.holdout is None else Holdout.parse(choices.holdout)
    return read_table(data, schema, holdout=holdout, seed=seed, scratch=scratch)


def rows_of(private: Table, schema: Schema, plan: Plan) -> Any:
    """The rows as the engine sees them: with a group column, at most so many a person."""
    return private if schema.group is None else People(private, plan.request.rows_per_person)


def earlier_run(init: str | Path) -> Path | None:
    """The folder of the private run whose model this is: it is paid for, where a file from elsewhere is public."""
    folder = Path(init) if Path(init).is_dir() else Path(init).parent
    mine = Path(init).is_dir() or Path(init).name == "model.safetensors"
    return folder if mine and (folder / "record.json").is_file() else None


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Public weights to start from; safetensors only, every name and shape as the model has them."""
    try:
        weights = load_file(str(path))
    except Exception:
        raise InputError(
            f"weights {path} are not a readable safetensors file: give one with the model's weights"
        ) from None
    own = model.state_dict()
    if set(weights) != set(own) or any(weights[name].shape != own[name].shape for name in own):
        raise InputError(f"weights {path} do not fit the model: it has {len(own)} tensors of other names or shapes")
    with torch.no_grad():
        model.load_state_dict(weights)


def notes(
    schema: Schema, task: Task, choices: Choices, tables: Tables, data: str | Path, leaks: tuple[str, ...]
) -> Notes:
    """What only the caller knows, for record and certificate. Names and counts of columns, never a value of a row."""
    caveats = [*leaks]
    waiting = schema.unconfirmed()
    if waiting:
        caveats.append(
            f"the schema was drafted from the data and {len(waiting)} of its lines were accepted unconfirmed"
        )
    if schema.group is not None and choices.holdout is not None and "=" in choices.holdout:
        caveats.append("rows were held out one by one: a person with rows on both sides is not protected by the others")
    public = [f"the schema: {len(schema.columns)} columns, their kinds, bounds and categories"]
    if schema.source:
        public.append(f"the schema's source: {schema.source}")
    if choices.class_weights:
        public.append("the class weights")
    return Notes(
        model=choices.facts() | {"outputs": task.outputs, "inputs": schema.dimension},
        data={
            "file": Path(data).name,
            "columns": len(schema.columns),
            "target": ", ".join(schema.target),
            "held_out_rows": 0 if tables.held_out is None else len(tables.held_out),
        },
        public_facts=tuple(public),
        caveats=tuple(caveats),
        unit_column=schema.group,
    )
