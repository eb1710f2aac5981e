"""`plan.toml`: the facts a plan was made from, and what came out, so that the file can be read and checked by a person.

Only the facts are read back; the plan is worked out again from them. A file is data: unknown keys are refused.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit

from momentree.errors import InputError
from momentree.files import write_text

if TYPE_CHECKING:
    from momentree.plan import Plan

VERSION = 1


def plan_text(plan: Plan) -> str:
    """The TOML of a plan: `[plan]` holds what was asked, `[result]` what follows from it."""
    document = tomlkit.document()
    document.add("version", VERSION)
    asked = tomlkit.table()
    for name, value in plan.request.facts().items():
        asked.add(name, value)
    document.add("plan", asked)
    result = tomlkit.table()
    result.comment("for the reader; worked out again from [plan] whenever the file is used")
    for name in ("order", "strategy", "noise_multiplier", "epsilon", "delta"):
        result.add(name, _result(plan, name))
    document.add("result", result)
    return tomlkit.dumps(document)


def _result(plan: Plan, name: str) -> Any:
    value = getattr(plan, name)
    return value.name if name in ("order", "strategy") else value


def write_plan(plan: Plan, path: Path) -> None:
    write_text(path, plan_text(plan))


def read_plan_facts(path: Path) -> dict[str, Any]:
    """The facts of a plan file, ready for `Plan(**facts)`; anything else in it is refused by name."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"plan file {path} does not exist: give the file that `momentree plan --out` wrote") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise InputError(f"plan file {path} is not readable TOML: write it with `momentree plan --out`") from None
    if document.get("version") != VERSION:
        raise InputError(f"plan file {path} has version {document.get('version')!r}: this release reads {VERSION}")
    unknown = set(document) - {"version", "plan", "result"}
    if unknown or not isinstance(document.get("plan"), dict):
        what = f"has an unknown part {sorted(unknown)[0]!r}" if unknown else "has no [plan] part"
        raise InputError(f"plan file {path} {what}: write it with `momentree plan --out`")
    return dict(document["plan"])
