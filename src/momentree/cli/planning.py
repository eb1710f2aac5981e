"""`momentree plan` and `momentree account`: the same arithmetic in both directions."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from momentree.cli.parser import add_plan_flags, plan_facts
from momentree.errors import InputError, whole
from momentree.memory import memory_floats


def add_arguments(commands: Any) -> None:
    for name, text in (
        ("plan", "work out a plan and print what it costs, each strategy beside the others"),
        ("account", "the other way round: the noise multiplier is given, ε is asked"),
    ):
        parser = commands.add_parser(name, help=text, description=text)
        add_plan_flags(parser)
        if name == "plan":
            parser.add_argument("--out", metavar="FILE", help="save the plan as TOML")
        else:
            parser.add_argument(
                "--batch-sizes",
                metavar="N,N,…",
                help="the batches come from a loader of your own: their sizes in order, as far as you know them",
            )
        parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    from momentree.plan import Plan

    facts = plan_facts(parsed)
    if parsed.command == "account" and "noise_multiplier" not in facts:
        raise InputError("noise-multiplier is missing: account needs it (plan finds it from --epsilon)")
    if parsed.command == "account" and "epsilon" in facts:
        raise InputError("epsilon is what account answers: leave --epsilon out, or use plan")
    if getattr(parsed, "batch_sizes", None) is not None:
        _check_own_loader(facts, parsed.batch_sizes)
    plan = Plan(**facts)
    for warning in plan.warnings:
        print(f"momentree: warning: {warning}", file=sys.stderr)
    if getattr(parsed, "out", None):
        from momentree.plan_file import write_plan

        write_plan(plan, Path(parsed.out))
    print(json.dumps(plan.to_dict(), indent=2) if parsed.json else describe(plan))
    return 0


def _check_own_loader(facts: dict[str, Any], text: str) -> None:
    """Refuses batches made elsewhere that the order's account does not cover."""
    from momentree.order import Shape
    from momentree.presets import ALGORITHMS
    from momentree.privacy.entitlement import check_loader
    from momentree.request import Request

    request = Request.of(facts)
    sizes = [whole("batch-sizes", one.strip(), at_least=0, do="give them as 50,50,50") for one in text.split(",")]
    shape = Shape(request.examples, request.batch_size or request.examples, request.epochs)
    check_loader(request.order or ALGORITHMS[request.algorithm].orders[0], sizes, shape)


def describe(plan: Any) -> str:
    """The plan for a person: what it promises first, then what it costs, then what else there is."""
    from momentree.privacy.account import rounded_up

    facts = plan.to_dict()
    bracket = plan.bracket
    lines = [
        f"{plan.algorithm}, {plan.order.name} order, {plan.strategy.name} strategy ({plan.strategy_reason})",
        f"  promise      ({rounded_up(bracket.upper)}, {plan.delta:g})-DP, adjacency {plan.adjacency}"
        + (f", μ = {plan.mu:.4g}" if plan.mu is not None else ""),
        *_account_lines(plan),
        f"  run          {plan.examples} examples, batches of {plan.batch_size}, {plan.epochs} epochs of "
        f"{plan.steps_per_epoch} steps",
        f"  noise        σ = {_several(facts['noise_multiplier'])} in units of clip/batch_size",
        f"               {_sensitivity_line(facts)}",
        f"  error        {_figure(facts['momentum_rmse'])} on the momentum, "
        f"{_figure(facts['iterate_rmse'])} on its running sum",
        f"  memory       {_memory(plan)}",
        f"  gradients    {facts['gradients_per_step']} an example a step",
    ]
    rows = [r for r in facts["alternatives"] if r.get("iterate_rmse") is not None]
    if rows:
        lines.append("\n  strategy       σ         on momentum  on its sum  vectors")
        chosen = {name: facts[name] for name in rows[0] if name in facts}
        for row in sorted([chosen, *rows], key=lambda r: float(r["iterate_rmse"])):
            mark = "*" if row is chosen else " "
            lines.append(
                f"{mark} {row['strategy']:<14} {row['noise_multiplier']:<9.4g} {row['momentum_rmse']:<12.4g} "
                f"{row['iterate_rmse']:<11.4g} {row['noise_vectors']}"
            )
        if plan.amplified:
            lines.append("  (σ of the others is an estimate: plan with --strategy to have it certified)")
    return "\n".join(lines)


def _account_lines(plan: Any) -> list[str]:
    """How an amplified ε was found, where there is a choice."""
    from momentree.privacy.account import rounded_up

    if plan.computed is None:
        return []
    if plan.computed is plan.account:
        return ["  account      computed without sampling"]
    certain = rounded_up(plan.computed.upper_epsilon(plan.delta))
    return [f"  account      certified on a random sample; computed without one, epsilon is at most {certain}"]


def _sensitivity_line(facts: dict[str, Any]) -> str:
    if facts["sensitivity"] is None or facts["sensitivity_is"] is None:
        return "amplified: no single sensitivity"
    found = facts.get("sensitivity_found")
    reached = f", a search has reached {found:.5g}" if found is not None else ""
    return f"sensitivity {_several(facts['sensitivity'])} ({facts['sensitivity_is']}{reached})"


def _memory(plan: Any) -> str:
    """Model-sized vectors besides the model, and what they come to."""
    kept = memory_floats(plan, plan.dimension or 1)
    parts = f"{kept.noise} for noise, {kept.sums} for sums, {kept.update} for the update"
    if kept.waiting:
        where = "" if plan.dimension is None else f" ({'on disk' if kept.where == 'disk' else 'in memory'})"
        parts += f", {kept.waiting} of earlier steps{where}"
    total = kept.noise + kept.sums + kept.update + kept.waiting
    size = "" if plan.dimension is None else f" of {4 * plan.dimension / 1e6:.3g} MB"
    return f"{total} model-sized vectors{size}: {parts}"


def _several(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{v:.5g} ({name})" for name, v in value.items())
    return f"{value:.5g}"


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
