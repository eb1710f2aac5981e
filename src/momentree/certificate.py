"""The certificate: what a run promises, in figures and in a paragraph that a data-protection officer can read.

A certificate is a pure function of a plan and the facts of its run. `verify` makes the plan again from the facts that
the record holds, recomputes everything, and compares. That finds accidents (a changed figure, another library version
with another answer); whoever forges record and certificate together is out of its reach, and `docs/guarantees.md`
says so.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from momentree._version import __version__
from momentree.errors import InputError
from momentree.plan import Plan
from momentree.privacy.account import epsilon_within, rounded_up
from momentree.privacy.compose import compose, same_terms

VERSION = 1
UNITS = {
    "zero-out": "whether one {unit} takes part or contributes nothing",
    "replace-one": "replacing one {unit} by any other",
    "add-remove": "one {unit} more or fewer",
}


@dataclass(frozen=True)
class RunFacts:
    """What a certificate needs to know of a run beyond its plan. Public facts only."""

    steps_done: int
    finished: bool
    noise_source: str = "chacha20"
    attempts: int = 1
    rounding: str = "none"
    initial_weights: str = "drawn from the public seed"
    holdout: str = "none"
    unit_column: str | None = None
    public_facts: tuple[str, ...] = ()
    caveats: tuple[str, ...] = field(default=())
    ancestors: tuple[dict[str, Any], ...] = ()
    """Earlier private runs that the first weights come from: each `plan` (facts), `attempts`, `unit_column`."""

    @staticmethod
    def of(facts: Any) -> RunFacts:
        """From a record's JSON; unknown or missing entries are refused."""
        try:
            given = dict(facts)
            for name in ("public_facts", "caveats", "ancestors"):
                given[name] = tuple(given.get(name, ()))
            return RunFacts(**given)
        except (TypeError, ValueError):
            raise InputError(
                "the record's run facts are not those of this release: use the release that wrote it"
            ) from None


def certificate(plan: Plan, run: RunFacts) -> dict[str, Any]:
    """The certificate as it is written to `certificate.json`.

    The ε is the planned one also where a run ended early: the account of a prefix is a claim only if the stop was fixed
    without looking at the run. A run whose noise was drawn in several attempts pays for each of them.
    """
    claim = epsilon_of_attempts(plan, run.attempts) if run.noise_source == "chacha20" else None
    unit = "person" if run.unit_column else "example"
    figures = plan.to_dict(alternatives=False)
    facts = {
        "version": VERSION,
        "library_version": __version__,
        "epsilon": claim,
        "delta": plan.delta,
        "adjacency": plan.adjacency,
        "unit": unit if not run.unit_column else f"person (column {run.unit_column})",
        "plan": {k: v for k, v in figures.items() if k not in ("paper", "warnings")},
        "released": "the noisy gradient stream of every step, and what is computed from it: every iterate, the model",
        "taken_as_public": [
            f"N = {plan.examples}, the number of {unit}s' rows",
            "every setting of the plan",
            "the model's shape" if run.ancestors else "the model's shape and its initial weights",
            *run.public_facts,
        ],
        "noise_source": run.noise_source,
        "method": plan.account.method,
        "failure_probability": plan.account.failure_probability,
        "steps_done": run.steps_done,
        "finished": run.finished,
        "attempts": run.attempts,
        "initial_weights": run.initial_weights,
        "holdout": run.holdout,
        "rounding": run.rounding,
        "caveats": _caveats(plan, run),
        "plan_digest": plan.digest(),
    }
    if run.ancestors and claim is not None:
        facts["with_earlier_runs"] = {"epsilon": together(plan, run), "delta": plan.delta, "runs": len(run.ancestors)}
    facts["in_plain_english"] = paragraph(plan, facts, unit)
    return facts


def epsilon_of_attempts(plan: Plan, attempts: int) -> float:
    """ε at the plan's δ of a run whose noise was drawn so many times: each time is priced as a whole run."""
    return plan.bracket.upper if attempts == 1 else epsilon_within(compose([plan.account] * attempts), plan.delta).upper


def together(plan: Plan, run: RunFacts) -> float:
    """ε at this plan's δ of the run and all that its first weights come from, for someone who took part in all."""
    earlier = [(Plan(**each["plan"]), each) for each in run.ancestors]
    terms = [(p.adjacency, p.request.rows_per_person, each.get("unit_column")) for p, each in earlier]
    same_terms([*terms, (plan.adjacency, plan.request.rows_per_person, run.unit_column)])
    accounts = [account for p, each in earlier for account in [p.account] * int(each["attempts"])]
    return epsilon_within(compose([*accounts, *[plan.account] * run.attempts]), plan.delta).upper


def _caveats(plan: Plan, run: RunFacts) -> list[str]:
    caveats = [*plan.warnings]
    if run.rounding == "none":
        caveats.append("over real arithmetic: the release is made of floating-point numbers, not rounded to a grid")
    if plan.order.secret:
        caveats.append("who took part in which step, and how many did, must stay secret for ever")
    if run.noise_source != "chacha20":
        caveats.append("the noise came from a generator that is not secret: an experiment, no guarantee")
    if not run.finished:
        caveats.append("the run has not finished; the figure is that of the whole plan")
    if run.attempts > 1:
        caveats.append(
            f"noise was drawn afresh {run.attempts - 1} time(s) in the middle of the run; the figure counts "
            f"{run.attempts} whole runs, and holds where that was not decided by looking at what they released"
        )
    if plan.account.failure_probability:
        caveats.append("certified on a random sample; its chance of being wrong is part of delta")
    return [*caveats, *run.caveats]


def paragraph(plan: Plan, facts: dict[str, Any], unit: str) -> str:
    """The promise for a reader who knows no formula."""
    if facts["epsilon"] is None:
        return (
            "This run used a noise source for experiments, so nothing is promised about anyone's privacy. "
            "Train again with the default noise source before anything is published."
        )
    change = UNITS[plan.adjacency].format(unit=unit)
    article = "an" if unit == "example" else "a"
    before = facts.get("with_earlier_runs")
    earlier = (
        f"The first weights come from {before['runs']} earlier private run(s); for those who were in all of them, "
        f"everything together is ({rounded_up(before['epsilon'])}, {before['delta']:g})-DP. "
        if before
        else ""
    )
    attempts = int(facts["attempts"])
    again = f"The run was taken up {attempts - 1} time(s) with fresh noise, which is counted. " if attempts > 1 else ""
    factor = math.exp(min(float(facts["epsilon"]), 700.0))
    chosen = "the settings" if plan.request.examples_counted else "N or the settings"
    return (
        f"The model was trained on {plan.examples} rows in {plan.steps} steps. Whoever sees the model, and every step "
        f"of its training, learns little about {change}: the probability of anything that could be concluded from it "
        f"changes by a factor of at most {rounded_up(factor)} (epsilon = {rounded_up(facts['epsilon'])}), except with "
        f"a probability of at most {plan.delta:g} (delta). {earlier}{again}"
        f"The batches followed the {plan.order.name} order; the noise was correlated by the {plan.strategy.name} "
        f"strategy and drawn from a secret key that is destroyed when the run is sealed. The promise covers the rows "
        f"that were trained on, not rows that were held out, and not what was taken as public. It is void if the key "
        f"or raw gradients were disclosed, if {chosen} were chosen by looking at these rows, or if "
        f"{article} {unit} contributed more rows than declared; other releases from the same rows add up with it."
    )


def verify(record: dict[str, Any], given: dict[str, Any]) -> list[str]:
    """What differs between a certificate and the one recomputed from the record's facts; empty if nothing does.

    Floats are compared to their printed precision (9 digits), everything else exactly.
    """
    try:
        plan = Plan(**record["plan"])
        expected = certificate(plan, RunFacts.of(record["run"]))
        # another release may check what this one wrote: its figures have to agree, not its number
        expected["library_version"] = given.get("library_version")
    except (KeyError, TypeError):
        raise InputError("the record lacks the facts of a plan or a run: use the release that wrote it") from None
    return _differences(expected, given, "")


def _differences(expected: Any, given: Any, where: str) -> list[str]:
    if isinstance(expected, dict) and isinstance(given, dict):
        names = [*expected, *(name for name in given if name not in expected)]
        return [
            line
            for name in names
            for line in _differences(expected.get(name), given.get(name), f"{where}.{name}".lstrip("."))
        ]
    if isinstance(expected, list | tuple) and isinstance(given, list | tuple) and len(expected) == len(given):
        return [
            line
            for i, pair in enumerate(zip(expected, given, strict=True))
            for line in _differences(*pair, f"{where}[{i}]")
        ]
    numbers = (int, float)
    if isinstance(expected, numbers) and isinstance(given, numbers) and not isinstance(expected, bool):
        same = math.isclose(expected, given, rel_tol=1e-9, abs_tol=1e-300)
    else:
        same = expected == given
    return [] if same else [f"{where}: the certificate says {given!r}, recomputed {expected!r}"]


def run_facts_dict(run: RunFacts) -> dict[str, Any]:
    """For the record."""
    return asdict(run)
