"""`momentree schema draft | confirm | check`: the public facts about the columns."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from momentree.cli.parser import add_json_flag
from momentree.errors import InputError

if TYPE_CHECKING:  # Arrow is imported by the command that runs, so that --help is quick
    from momentree.data.readers import Source
    from momentree.data.schema import Schema


def add_arguments(subparsers: Any) -> None:
    """The command and its three actions."""
    top = subparsers.add_parser("schema", help="draft, confirm or check the public facts about the columns")
    actions = top.add_subparsers(dest="action", required=True, metavar="draft|confirm|check")
    one = actions.add_parser(
        "draft", help="write a first schema.toml: from the data (it leaks, and says so) or from names"
    )
    one.add_argument("data", metavar="DATA", help="CSV, Parquet, NPZ/NPY, IDX, or a folder of images")
    one.add_argument("--target", required=True, metavar="COL", help="what to predict; several labels: A,B,C")
    one.add_argument("--out", required=True, metavar="FILE", help="where to write it")
    one.add_argument("--names-only", action="store_true", help="read no values: a form to fill in")
    one.add_argument("--group", metavar="COL", help="the column that names the person whose rows these are")
    one.add_argument("--drop", action="append", default=[], metavar="COL", help="a column to leave out (repeatable)")
    one.add_argument("--delimiter", default=",", help="of a CSV; tab for a tab")
    one.add_argument("--encoding", default="utf-8", help="of a CSV: utf-8 or utf-8-sig")
    one.add_argument("--column-names", default="", metavar="A,B,C", help="of a CSV without a first line of names")
    one.add_argument("--missing", action="append", default=[], metavar="WORD", help="a word for no value (repeatable)")
    add_json_flag(one)
    two = actions.add_parser("confirm", help="say, line by line, that a public source gives the drafted values")
    two.add_argument("schema", nargs="?", default="schema.toml", metavar="SCHEMA")
    two.add_argument("--all", action="store_true", help="confirm every line without being asked")
    two.add_argument("--line", action="append", default=[], metavar="COL.KEY", help="confirm this line (repeatable)")
    two.add_argument("--source", default="", help="the public source, kept in the schema")
    add_json_flag(two)
    three = actions.add_parser("check", help="compare a schema with a file, without printing values")
    three.add_argument("data", metavar="DATA")
    three.add_argument("--schema", default="schema.toml", metavar="SCHEMA")
    add_json_flag(three)


def run(args: argparse.Namespace) -> int:
    """The action that was asked for; 1 where a check says no."""
    if args.action == "draft":
        return run_draft(args)
    return run_confirm(args) if args.action == "confirm" else run_check(args)


def run_draft(args: argparse.Namespace) -> int:
    from momentree.data import confirm, draft
    from momentree.data.readers import open_source
    from momentree.data.schema import FileFormat

    out = Path(args.out)
    if out.exists():
        raise InputError(f"{out} exists: give a new name, or remove it first")
    delimiter = "\t" if args.delimiter in ("tab", "\\t") else args.delimiter
    names = tuple(name.strip() for name in args.column_names.split(",")) if args.column_names else ()
    file = FileFormat(delimiter, args.encoding, ("", *dict.fromkeys(args.missing)), names)
    source = open_source(args.data, file)
    target = targets(source, args.target)
    if args.names_only:
        text = draft.names_only(source, target, group=args.group, drop=args.drop, file=file)
        waiting, left = 0, "no value was read; fill in the empty lines from a public source"
    else:
        found = draft.draft(source, target, group=args.group, drop=args.drop, file=file)
        text = found.to_toml()
        waiting = len(found.schema.unconfirmed())
        left = f"{waiting} lines were read from the data and leak: momentree schema confirm {out}, or replace each"
    confirm.write_whole(out, text)
    print(json.dumps({"schema": str(out), "unconfirmed": waiting}) if args.json else f"wrote {out}: {left}")
    return 0


def targets(source: Source, given: str) -> list[str]:
    """One name, or several with commas between where no column has the whole as its name."""
    return [given] if given in source.columns or "," not in given else [name.strip() for name in given.split(",")]


def run_confirm(args: argparse.Namespace) -> int:
    from momentree.data import confirm
    from momentree.data.schema import Schema

    schema = Schema.read(args.schema)
    waiting = schema.unconfirmed()
    lines = list(waiting) if args.all else list(dict.fromkeys(args.line)) or asked(schema)
    left = waiting
    if lines or args.source:
        left = confirm.confirm(args.schema, lines, args.source).unconfirmed()
    line = f"{args.schema}: {len(lines)} lines confirmed, {len(left)} still wait"
    print(json.dumps({"schema": args.schema, "confirmed": lines, "unconfirmed": list(left)}) if args.json else line)
    return 0


def asked(schema: Schema) -> list[str]:
    """The lines that the person at the keyboard says yes to; the end of the input is a no to the rest."""
    from momentree.data.confirm import value_of

    lines = []
    for line in schema.unconfirmed():
        # the question goes where a person looks, the answer to what was asked goes to stdout
        question = f"{line} = {value_of(schema, line)}\n  does a public source say so? [y/N/q] "
        print(question, end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        print(file=sys.stderr)
        if not answer or answer.strip().lower().startswith("q"):
            break
        if answer.strip().lower() in ("y", "yes"):
            lines.append(line)
    return lines


def run_check(args: argparse.Namespace) -> int:
    from momentree.data import check
    from momentree.data.readers import open_source
    from momentree.data.schema import Schema

    schema = Schema.read(args.schema)
    source = open_source(args.data, schema.file)
    findings = check.check(schema, source)
    declared = {column.name for column in schema.columns} | set(schema.drop) | {schema.group}
    ignored = sum(name not in declared for name in source.columns)
    waiting = schema.unconfirmed()
    bad = any(finding.share == check.MANY for finding in findings)
    if args.json:
        facts = {
            "note": check.NOTE,
            "findings": [vars(finding) for finding in findings],
            "undeclared_columns": ignored,
            "unconfirmed": list(waiting),
            "fits": not bad,
        }
        print(json.dumps(facts))
        return int(bad)
    print(f"({check.NOTE})")
    for finding in findings:
        print(finding)
    print(f"{len(schema.columns)} columns compared, {ignored} of the file are not declared and are ignored")
    if waiting:
        print(f"{len(waiting)} lines wait to be confirmed: momentree schema confirm {args.schema}")
    print("the schema fits badly: look at what is said of over a tenth of the cells" if bad else "the schema fits")
    return int(bad)
