"""Commands on a table: `train`, `resume`, `predict`, `evaluate`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from momentree.cli.parser import add_json_flag, add_plan_flags, plan_facts
from momentree.errors import InputError, number, whole

WIDEST = 1_000_000
"""Columns of a hidden layer that nobody means to ask for more of."""


def add_arguments(commands: Any) -> None:
    train = commands.add_parser("train", help="train on a file with a declared schema")
    train.add_argument("data", metavar="DATA")
    train.add_argument("--target", metavar="COL", help="what to predict, as the schema has it")
    train.add_argument("--schema", metavar="FILE", required=True, help="the declared schema")
    train.add_argument("--out", metavar="RUN", required=True, help="a new folder for the run")
    train.add_argument("--plan", metavar="FILE", help="a plan.toml in place of the flags of a plan")
    train.add_argument("--model", metavar="NAME", default="linear", help="linear (default), mlp, cnn or module:factory")
    train.add_argument("--hidden", metavar="N,N", default="128", help="mlp: widths of the hidden layers")
    train.add_argument("--class-weights", metavar="X,X", help="public weights, one a declared class")
    train.add_argument("--holdout", metavar="FRACTION|COL=VALUE", help="rows outside the private N")
    train.add_argument("--held-out-is", metavar="WORD", help="public, or unprotected (default)")
    train.add_argument(
        "--init",
        metavar="FILE",
        help="public weights to start from (safetensors), or an earlier run, then paid for too",
    )
    train.add_argument("--init-is-public", action="store_true", help="none of these rows were in the weights of --init")
    train.add_argument("--keep-key", action="store_true", help="keep the noise key for an audit; seal the run later")
    train.add_argument("--accept-derived-schema", action="store_true", help="train on unconfirmed lines; is certified")
    add_machine_flags(train)
    add_plan_flags(train)
    train.set_defaults(run=run_train)

    resume = commands.add_parser("resume", help="go on where a run stopped")
    resume.add_argument("folder", metavar="RUN")
    resume.add_argument("data", metavar="DATA", nargs="?", help="where the file has moved")
    resume.add_argument("--moved", action="store_true", help="this folder is a copy, and the only one that is used")
    resume.add_argument(
        "--fork", action="store_true", help="with fresh noise, where nothing else can go on; each attempt is paid for"
    )
    add_machine_flags(resume)
    add_json_flag(resume)
    resume.set_defaults(run=run_resume)

    predict = commands.add_parser("predict", help="write the model's predictions for a file")
    predict.add_argument("folder", metavar="RUN")
    predict.add_argument("data", metavar="DATA")
    predict.add_argument("--out", metavar="FILE", required=True, help="a name that ends in .csv or .parquet")
    add_json_flag(predict)
    predict.set_defaults(run=run_predict)

    evaluate = commands.add_parser("evaluate", help="how good the model is on a file")
    evaluate.add_argument("folder", metavar="RUN")
    evaluate.add_argument("data", metavar="DATA")
    evaluate.add_argument("--all-rows", action="store_true", help="not only those that the run held out")
    add_json_flag(evaluate)
    evaluate.set_defaults(run=run_evaluate)


def add_machine_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", metavar="NAME", help="cpu (default) or one that this machine has, such as cuda")
    parser.add_argument("--scratch", metavar="DIR", help="where a private copy of a large file is kept while training")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def choices_of(parsed: argparse.Namespace) -> Any:
    from momentree.tasks.train import Choices

    hidden = tuple(whole("hidden", width, at_most=WIDEST) for width in parsed.hidden.split(","))
    if parsed.held_out_is is not None and parsed.holdout is None:
        raise InputError("held-out-is without --holdout: say which rows are held out, or leave it out")
    weights: tuple[float, ...] = ()
    if parsed.class_weights is not None:
        weights = tuple(number("class-weights", w, above=0) for w in parsed.class_weights.split(","))
    return Choices(parsed.model, hidden, weights, parsed.holdout, parsed.held_out_is or "unprotected")


def run_train(parsed: argparse.Namespace) -> int:
    from momentree.plan_file import read_plan_facts
    from momentree.tasks.train import train

    facts = plan_facts(parsed)
    if parsed.plan is not None:
        if facts:
            raise InputError(
                f"{'--' + next(iter(facts)).replace('_', '-')} with --plan: the plan has it; give one of both"
            )
        facts = read_plan_facts(Path(parsed.plan))
    elif "epsilon" not in facts and "noise_multiplier" not in facts:
        raise InputError("epsilon is missing: give --epsilon (1 to 8 is common), --noise-multiplier or --plan")
    run = train(
        parsed.data,
        parsed.schema,
        facts,
        parsed.out,
        target=parsed.target,
        choices=choices_of(parsed),
        accept_derived=parsed.accept_derived_schema,
        init=parsed.init,
        init_is_public=parsed.init_is_public,
        keep_key=parsed.keep_key,
        device=parsed.device,
        scratch=parsed.scratch,
        say=lambda line: print(f"  {line}", file=sys.stderr),
        progress=None if parsed.quiet else Bar(),
    )
    report(run, parsed.json)
    return 0


def run_resume(parsed: argparse.Namespace) -> int:
    from momentree.tasks.train import resume

    run = resume(
        parsed.folder,
        parsed.data,
        device=parsed.device,
        scratch=parsed.scratch,
        moved=parsed.moved,
        fork=parsed.fork,
        progress=None if parsed.quiet else Bar(),
    )
    report(run, parsed.json)
    return 0


def report(run: Any, as_json: bool) -> None:
    """What was promised and where it is written; figures on held-out rows only."""
    from momentree.privacy.account import rounded_up

    certificate = run.certificate()
    shown = run.ledger.last_held_out or {}
    if as_json:
        facts = {name: certificate[name] for name in ("epsilon", "delta", "adjacency", "unit", "steps_done")}
        if "with_earlier_runs" in certificate:
            facts = {"with_earlier_runs": certificate["with_earlier_runs"], **facts}
        print(json.dumps(facts | {"run": str(run.folder.path), "held_out": shown}, indent=2))
        return
    claim = "({}, {:g})-DP"
    own = claim.format(rounded_up(certificate["epsilon"]), certificate["delta"])
    before = certificate.get("with_earlier_runs")
    if before is not None:
        both = claim.format(rounded_up(before["epsilon"]), before["delta"])
        print(f"{both} together with {before['runs']} earlier run(s), adjacency {certificate['adjacency']}")
        print(f"{own} by itself, for those whose rows are in no earlier run")
    else:
        print(f"{own}, adjacency {certificate['adjacency']}")
    if shown:
        print(", ".join(f"held-out {name} {value:.4g}" for name, value in shown.items() if name != "step"))
    print(f"report: {run.folder.path / 'report.html'}")


def run_predict(parsed: argparse.Namespace) -> int:
    from momentree.tasks.use import predict

    rows = predict(parsed.folder, parsed.data, parsed.out)
    print(json.dumps({"out": parsed.out, "rows": rows}) if parsed.json else f"wrote {parsed.out}: {rows} rows")
    return 0


def run_evaluate(parsed: argparse.Namespace) -> int:
    from momentree.report.record import read_record
    from momentree.tasks.use import evaluate

    found = evaluate(parsed.folder, parsed.data, rows="all" if parsed.all_rows else "held-out")
    record = read_record(Path(parsed.folder))
    if found["rows_are"] != "held out":
        why = ""
        if (record.get("data") or {}).get("file") == Path(parsed.data).name:
            why = "this looks like the file that was trained on"
        elif (record.get("model") or {}).get("holdout") is not None and not parsed.all_rows:
            why = "this is not the file that the run held rows out of, so all of it is used"
        if why:
            print(
                f"momentree: warning: {why}; figures on rows that were trained on are not covered by the run's promise",
                file=sys.stderr,
            )
    if parsed.json:
        print(json.dumps(found, indent=2))
        return 0
    for name, value in found.items():
        if not isinstance(value, list):
            print(f"{name.replace('_', ' '):<24} {_shown(value, 4)}")
            continue
        for row in value:
            print("  " + "  ".join(f"{k} {_shown(v, 3)}" for k, v in row.items()))
    return 0


def _shown(value: Any, digits: int) -> str:
    """A figure of `evaluate`; None where the rows do not define it, such as an AUC with one class only."""
    return "undefined" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value)


class Bar:
    """A line on stderr, a few times a second at most: step, epoch and the planned ε. No figure of a private row."""

    def __init__(self) -> None:
        self._shown = 0.0

    def __call__(self, facts: Any) -> None:
        from momentree.privacy.account import rounded_up

        now = time.monotonic()
        last = facts.step == facts.steps
        if not sys.stderr.isatty() or (now - self._shown < 0.2 and not last):
            return
        self._shown = now
        done = round(24 * facts.step / facts.steps)
        bar = "█" * done + "·" * (24 - done)
        text = f"\r{bar} step {facts.step}/{facts.steps}, epoch {facts.epoch}, planned ε {rounded_up(facts.epsilon, 3)}"
        print(text, end="\n" if last else "", file=sys.stderr, flush=True)
