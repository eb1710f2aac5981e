"""Commands that read a run's folder: `report`, `certificate`, `compose`, `seal`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from momentree.cli.parser import add_json_flag
from momentree.errors import InputError


def add_arguments(commands: Any) -> None:
    report = commands.add_parser("report", help="(re)write report.html from the record")
    report.add_argument("folder", metavar="RUN")
    add_json_flag(report)
    report.set_defaults(run=run_report)

    certificate = commands.add_parser("certificate", help="print the guarantee; --verify recomputes it")
    certificate.add_argument("folder", metavar="RUN")
    certificate.add_argument(
        "--verify", action="store_true", help="recompute it from the record's facts; exit 1 if off"
    )
    add_json_flag(certificate)
    certificate.set_defaults(run=run_certificate)

    compose = commands.add_parser("compose", help="the (ε, δ) of several runs together")
    compose.add_argument("folders", metavar="RUN", nargs="+")
    compose.add_argument("--delta", metavar="X", help="δ of all together; default: the largest of the runs'")
    add_json_flag(compose)
    compose.set_defaults(run=run_compose)

    seal = commands.add_parser("seal", help="destroy the noise key of a finished run")
    seal.add_argument("folder", metavar="RUN")
    seal.add_argument("--unfinished", action="store_true", help="give up a run that could still go on")
    add_json_flag(seal)
    seal.set_defaults(run=run_seal)


def run_report(parsed: argparse.Namespace) -> int:
    from momentree.report.page import write_report
    from momentree.report.record import read_record

    ended(parsed.folder, read_record(Path(parsed.folder)))
    path = str(write_report(Path(parsed.folder)))
    print(json.dumps({"report": path}) if parsed.json else path)
    return 0


def ended(folder: str, record: dict[str, Any]) -> None:
    """Refuses a run that has not come to its end: there is no promise to show yet."""
    if record.get("finished") is None:
        raise InputError(f"run {folder} has not finished: go on with momentree resume, then ask again")


def run_certificate(parsed: argparse.Namespace) -> int:
    from momentree.certificate import verify
    from momentree.files import read_json
    from momentree.report.record import NAME, read_record

    folder = Path(parsed.folder)
    if not (folder / "certificate.json").exists() and (folder / NAME).exists():
        ended(parsed.folder, read_record(folder))
    given = read_json(folder / "certificate.json", "certificate")
    if not isinstance(given, dict):
        raise InputError(f"certificate of {folder} is not a JSON object: it was changed since it was written")
    if parsed.verify:
        found = verify(read_record(folder), given)
        for line in found:
            print(line, file=sys.stderr)
        if parsed.json:
            print(json.dumps({"verified": not found, "differences": found}, indent=2))
        elif not found:
            print("verified: every figure of the certificate follows from the record's facts")
        return 1 if found else 0
    if parsed.json:
        print(json.dumps(given, indent=2, ensure_ascii=False))
        return 0
    print(given.get("in_plain_english", ""))
    for line in given.get("caveats") or ():
        print(f"- {line}")
    return 0


def run_compose(parsed: argparse.Namespace) -> int:
    from momentree.certificate import RunFacts
    from momentree.errors import number
    from momentree.plan import Plan
    from momentree.privacy.account import epsilon_within, rounded_up
    from momentree.privacy.compose import compose, same_terms
    from momentree.report.record import read_record

    places = [Path(folder).resolve() for folder in parsed.folders]
    for k, folder in enumerate(parsed.folders):
        if places[k] in places[:k]:
            print(f"momentree: warning: run {folder} is given twice, and counted twice", file=sys.stderr)
    records = [read_record(Path(folder)) for folder in parsed.folders]
    plans, terms, accounts = [], [], []
    for folder, record in zip(parsed.folders, records, strict=True):
        plan, run = Plan(**record["plan"]), RunFacts.of(record["run"])
        if run.noise_source != "chacha20":
            raise InputError(f"run {folder} used the noise source {run.noise_source}: it has no guarantee to compose")
        plans.append(plan)
        terms.append((plan.adjacency, plan.request.rows_per_person, run.unit_column))
        accounts += [plan.account] * run.attempts
    earlier = earlier_runs(records)
    for each in earlier:  # a model that was warm-started gives away what its ancestors do
        plan = Plan(**each["plan"])
        terms.append((plan.adjacency, plan.request.rows_per_person, each.get("unit_column")))
        accounts += [plan.account] * int(each["attempts"])
    same_terms(terms)
    delta = max(p.delta for p in plans) if parsed.delta is None else number("delta", parsed.delta, above=0, below=1)
    bracket = epsilon_within(compose(accounts), delta)
    facts = {
        "runs": list(parsed.folders),
        "earlier_runs": len(earlier),
        "adjacency": terms[0][0],
        "delta": delta,
        "epsilon_lower": bracket.lower,
        "epsilon_upper": bracket.upper,
    }
    line = (
        f"({rounded_up(bracket.upper)}, {delta:g})-DP, adjacency {facts['adjacency']}, for those who took part in "
        + ("that run" if len(parsed.folders) == 1 else f"all {len(parsed.folders)} runs")
        + (f" and in the {len(earlier)} that their first weights come from" if earlier else "")
    )
    print(json.dumps(facts, indent=2) if parsed.json else line)
    return 0


def earlier_runs(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs that first weights come from and that are not among these themselves; one of a known name only once.

    Forks of one run share its name, so a run of several attempts is always counted.
    """
    from momentree.certificate import RunFacts

    runs = [RunFacts.of(record["run"]) for record in records]
    names = [(record.get("environment") or {}).get("run_id") for record in records]
    known = {name for name, run in zip(names, runs, strict=True) if run.attempts == 1}
    found = []
    for each in (each for run in runs for each in run.ancestors):
        name = each.get("run_id") if int(each["attempts"]) == 1 else None
        if name is None or name not in known:
            found.append(each)
            known.add(name)
    return found


def run_seal(parsed: argparse.Namespace) -> int:
    from momentree.training.folder import seal

    seal(Path(parsed.folder), unfinished=parsed.unfinished)
    line = f"sealed: the noise key of {parsed.folder} is destroyed"
    print(json.dumps({"run": parsed.folder, "sealed": True}) if parsed.json else line)
    return 0
