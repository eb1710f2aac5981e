"""The arguments of every command, and the flags that `plan`, `account` and `train` share."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn

from momentree._version import __version__
from momentree.errors import InputError, one_of


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are our one-line errors, with the nearest flag or command suggested."""

    def __init__(self, **options: Any) -> None:
        # shortened flags would mean something else as soon as there is another of their kind
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        raise InputError(
            f"{message} (momentree {self.prog.removeprefix('momentree').strip()} --help lists what is allowed)"
        )

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            word = unknown[0].split("=")[0]
            flags = [flag for action in _actions(self, args or ()) for flag in action.option_strings]
            begun = [flag for flag in flags if flag.startswith(word)]
            close = (begun or difflib.get_close_matches(word, flags, n=1)) if word.startswith("-") else []
            hint = f"; did you mean {close[0]}?" if close else "; --help lists what is allowed"
            raise InputError(f"argument {word!r} is unknown{hint}")
        return parsed

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None:
            one_of(action.dest, value, action.choices)


def _actions(parser: argparse.ArgumentParser, args: Sequence[str]) -> list[argparse.Action]:
    """The actions of the sub-command that was called."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word in args:
                if word in action.choices:
                    return _actions(action.choices[word], [w for w in args if w != word])
    return parser._actions


PLAN_FLAGS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "what is promised": (
        ("epsilon", "X", "ε asked for"),
        ("delta", "X", "δ; default: the largest power of ten that is at most 1/(10 N)"),
        ("noise-multiplier", "X", "σ, in place of --epsilon"),
        ("adjacency", "NAME", "zero-out (default), replace-one or add-remove"),
        ("rows-per-person", "N", "with a group column: at most this many rows of one person"),
    ),
    "the run": (
        ("examples", "N", "the public number of rows"),
        ("batch-size", "B", "the public size of a batch"),
        ("epochs", "E", "passes over the rows"),
        ("algorithm", "NAME", "what to run: `momentree list algorithms`"),
        ("order", "NAME", "who takes part when: `momentree list orders`"),
        ("strategy", "NAME", "how the noise is correlated: `momentree list strategies`"),
        ("seed", "N", "initialisation and the fixed permutation; nothing that privacy rests on"),
    ),
    "the steps": (
        ("clip", "X", "the norm that one example's gradient is clipped to"),
        ("momentum", "X", "β; α = 1-β"),
        ("learning-rate", "X", "η"),
        ("update", "NAME", "normalised, momentum, nesterov, adam or sgd; default: the algorithm's"),
        ("schedule", "NAME", "of the step size: constant (default), linear or cosine, down to zero"),
    ),
    "where they apply": (
        ("band", "N", "bsr, bisr: number of coefficients"),
        ("buffers", "N", "blt: number of buffers"),
        ("restart-every", "N", "restart the strategy every so many epochs"),
        ("parts", "N", "cyclic-poisson: number of parts"),
        ("leak", "X", "γ of epoch-lag, sr-nsgd and dp-srm"),
        ("difference-clip", "X", "ρ of these and dp-spider: the clip of a difference, relative to --clip"),
        ("measure", "NAME", "what a strategy is made for: iterates (default) or momentum"),
    ),
    "memory": (
        ("dimension", "N", "d, the number of trainable parameters"),
        ("budget-memory", "SIZE", "what the noise may keep: model-sized vectors (16) or bytes (512MB)"),
        ("physical-batch-size", "N", "rows that are held in memory at once"),
    ),
    "the paper's own constants, printed beside": (
        ("lipschitz", "G", "default: the clip"),
        ("smoothness", "L", "with R: the bound of the paper's theorem"),
        ("initial-gap", "R", "how far the loss is above its minimum at the start"),
    ),
}


def plan_facts(parsed: argparse.Namespace) -> dict[str, Any]:
    """The settings of a plan that were given on the command line."""
    names = [name.replace("-", "_") for group in PLAN_FLAGS.values() for name, _, _ in group]
    return {name: getattr(parsed, name) for name in names if getattr(parsed, name, None) is not None}


def add_plan_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that `plan`, `account` and `train` share. Values stay text here; the library checks them."""
    for title, flags in PLAN_FLAGS.items():
        group = parser.add_argument_group(title)
        for name, metavar, text in flags:
            group.add_argument(f"--{name}", help=text, metavar=metavar)
    add_json_flag(parser)


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


EPILOG = """\
the path of a table:
  momentree schema draft DATA --target COL --out schema.toml   columns, declared
  momentree schema confirm                                     each line, from a public source
  momentree train DATA --schema schema.toml --epsilon 1 --holdout 0.2 --out run
  momentree evaluate run DATA                                  and predict, report, certificate

exit codes: 0 done, 1 a check said no, 2 bad input, 3 an unexpected error, 130 interrupted
"""


def make_parser() -> Parser:
    """The whole command line. Modules are imported by the command that runs, so that --help is quick."""
    parser = Parser(
        prog="momentree",
        description="Train on private data with a proved (ε, δ), by correlated noise in the momentum.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"momentree {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", required=True, parser_class=Parser
    )
    from momentree.cli import demo, listing, planning, runs, schema, table

    for module in (demo, planning, schema, table, runs, listing):
        module.add_arguments(commands)
    commands.choices["schema"].set_defaults(run=schema.run)
    for command in _leaves(commands):
        command.add_argument("--debug", action="store_true", help="show tracebacks, which may hold data")
    for choice in commands._choices_actions:
        commands.choices[choice.dest].description = commands.choices[choice.dest].description or _sentence(choice.help)
    return parser


def _leaves(commands: Any) -> list[argparse.ArgumentParser]:
    """Every parser that runs something: an action of `schema`, not `schema` itself."""
    found: list[argparse.ArgumentParser] = []
    for parser in commands.choices.values():
        deeper = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        found += [leaf for each in deeper for leaf in _leaves(each)] if deeper else [parser]
    return found


def _sentence(text: str | None) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""
