"""The arguments of every command, and the flags that `plan`, `account` and `train` share."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn

from momentree._version import __version__
from momentree.errors import InputError


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are our one-line errors, with the nearest flag or command suggested."""

    def error(self, message: str) -> NoReturn:
        raise InputError(
            f"{message} (momentree {self.prog.removeprefix('momentree').strip()} --help lists what is allowed)"
        )

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flags = [flag for action in _actions(self, args or ()) for flag in action.option_strings]
            close = difflib.get_close_matches(unknown[0].split("=")[0], flags, n=1)
            hint = f"; did you mean {close[0]}?" if close else "; --help lists what is allowed"
            raise InputError(f"argument {unknown[0].split('=')[0]!r} is unknown{hint}")
        return parsed


def _actions(parser: argparse.ArgumentParser, args: Sequence[str]) -> list[argparse.Action]:
    """The actions of the sub-command that was called."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word in args:
                if word in action.choices:
                    return _actions(action.choices[word], [w for w in args if w != word])
    return parser._actions


PLAN_FLAGS: tuple[tuple[str, str], ...] = (
    ("algorithm", "what to run: `momentree list algorithms`"),
    ("order", "who takes part when: `momentree list orders`"),
    ("strategy", "how the noise is correlated: `momentree list strategies`"),
    ("examples", "N, the public number of rows"),
    ("dimension", "d, the number of trainable parameters"),
    ("batch-size", "B, the public size of a batch"),
    ("epochs", "E"),
    ("momentum", "β; α = 1-β"),
    ("clip", "the norm that one example's gradient is clipped to"),
    ("epsilon", "ε asked for"),
    ("delta", "δ; default: the largest power of ten that is at most 1/(10 N)"),
    ("noise-multiplier", "σ, in place of --epsilon"),
    ("adjacency", "zero-out (default), replace-one or add-remove"),
    ("learning-rate", "η"),
    ("update", "what is done with the stream: normalised, momentum, nesterov, adam, sgd; default: the algorithm's"),
    ("schedule", "of the step size: constant (default), linear or cosine, down to zero"),
    ("seed", "initialisation and the fixed permutation; nothing that privacy rests on"),
    ("band", "bsr, bisr: number of coefficients"),
    ("buffers", "blt: number of buffers"),
    ("restart-every", "restart the strategy every so many epochs"),
    ("parts", "cyclic-poisson: number of parts"),
    ("leak", "γ of the sensitivity-reduced methods"),
    ("difference-clip", "ρ of the sensitivity-reduced methods"),
    ("lipschitz", "the paper's G, for its own constants"),
    ("smoothness", "the paper's L"),
    ("initial-gap", "the paper's R"),
    ("physical-batch-size", "rows that are held in memory at once"),
    ("budget-memory", "what the noise may keep: model-sized vectors (16) or bytes (512MB)"),
    ("measure", "what a strategy is made for: iterates (default) or momentum"),
    ("rows-per-person", "with a group column: at most this many rows of one person"),
)
_WHOLE = {
    "examples", "dimension", "batch-size", "epochs", "seed", "band", "buffers", "restart-every", "parts",
    "physical-batch-size", "rows-per-person",
}  # fmt: skip
_NAMES = {"algorithm", "update", "schedule", "order", "strategy", "adjacency", "measure", "budget-memory"}


def plan_facts(parsed: argparse.Namespace) -> dict[str, Any]:
    """The settings of a plan that were given on the command line."""
    names = [name.replace("-", "_") for name, _ in PLAN_FLAGS]
    return {name: getattr(parsed, name) for name in names if getattr(parsed, name, None) is not None}


def add_plan_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that `plan`, `account` and `train` share. Values stay text here; the library checks them."""
    for name, text in PLAN_FLAGS:
        metavar = "N" if name in _WHOLE else "NAME" if name in _NAMES else "X"
        parser.add_argument(f"--{name}", help=text, metavar=metavar)
    add_json_flag(parser)


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def make_parser() -> Parser:
    """The whole command line. Modules are imported by the command that runs, so that --help is quick."""
    parser = Parser(prog="momentree", description="Private training with correlated noise in the momentum.")
    parser.add_argument("--version", action="version", version=f"momentree {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    from momentree.cli import demo, listing, planning, runs, schema, table

    for module in (demo, planning, schema, table, runs, listing):
        module.add_arguments(commands)
    commands.choices["schema"].set_defaults(run=schema.run)
    for command in commands.choices.values():
        command.add_argument("--debug", action="store_true", help="show tracebacks, which may hold data")
    return parser
