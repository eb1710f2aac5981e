"""`report.html`: the record of a run as one self-contained page. A pure function of the record; no script."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from momentree.files import write_text
from momentree.privacy.account import rounded_up
from momentree.report.chart import bar_chart, line_chart
from momentree.report.record import read_record

NAME = "report.html"


def page(record: dict[str, Any]) -> str:
    """The page of a record: what was promised first, in plain English, then how it came about."""
    certificate = record.get("certificate") or {}
    figures = record.get("figures") or {}
    css = (resources.files("momentree.report") / "page.css").read_text(encoding="utf-8")
    title = f"{figures.get('algorithm', 'run')} on {figures.get('examples', '?')} rows"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
        f"<title>momentree: {escape(title)}</title><style>{css}</style></head><body><main>",
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{_subtitle(record)}</p>',
        _promise(certificate, figures),
        _results(record),
        _section("How ε builds up", _epsilon(record)),
        _section("Noise against signal", _signal(record)),
        _section("Figures on held-out rows", _held_out(record)),
        _section("The strategy beside its alternatives", _strategies(figures)),
        _section("Beside the paper's constants", _paper(figures)),
        _section("Every setting", _table(_settings(figures, record))),
        _section("What is taken as public", _list(certificate.get("taken_as_public", ()))),
        _section("Caveats", _list(certificate.get("caveats", ()))),
        _section("Versions", _table((record.get("environment") or {}).items())),
        "</main></body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def write_report(folder: Path) -> Path:
    """(Re)write `report.html` of a run from its record alone."""
    path = Path(folder) / NAME
    write_text(path, page(read_record(Path(folder))))
    return path


def _subtitle(record: dict[str, Any]) -> str:
    run = record.get("run") or {}
    state = "finished" if run.get("finished") else "not finished: the figures are those of the whole plan"
    return escape(f"{run.get('steps_done', 0)} steps done, {state}")


def _promise(certificate: dict[str, Any], figures: dict[str, Any]) -> str:
    epsilon = certificate.get("epsilon")
    shown = "none" if epsilon is None else rounded_up(epsilon)
    items = [("ε", shown), ("δ", f"{certificate.get('delta', 0):g}"), ("adjacency", certificate.get("adjacency", "?"))]
    before = certificate.get("with_earlier_runs")
    if before:
        items[0] = ("ε of this run by itself", shown)
        items.insert(0, (f"ε together with {before['runs']} earlier run(s)", rounded_up(before["epsilon"])))
    items.append(("unit of privacy", certificate.get("unit", "?")))
    cells = "".join(f"<li><b>{escape(str(value))}</b><span>{escape(name)}</span></li>" for name, value in items)
    text = escape(str(certificate.get("in_plain_english", "This run has no certificate yet.")))
    return f'<section class="promise"><ul class="figures">{cells}</ul><p>{text}</p></section>'


def _results(record: dict[str, Any]) -> str:
    found = record.get("result") or {}
    rows = [(f"{name} on held-out rows", value) for name, value in found.items() if name not in ("steps_done", "step")]
    return _section("What it reached", _table(rows)) if rows else ""


def _epsilon(record: dict[str, Any]) -> str:
    pairs = record.get("epsilon") or []
    chart = line_chart(
        [("ε", [p[0] for p in pairs], [p[1] for p in pairs])], x_label="step", y_label="ε", title="ε over the steps"
    )
    note = (
        "The price of releasing the first steps only, had the stop been fixed without looking at the run. "
        "A stop that looked pays for the whole plan."
    )
    return f"{chart}<p>{note}</p>"


def _signal(record: dict[str, Any]) -> str:
    steps = record.get("steps") or {}
    series = []
    for name in ("released", "noise"):  # no formula gives the noise of a difference method; a norm may not be finite
        values = zip(steps.get("step", []), steps.get(f"{name}_norm", []), strict=False)
        points = [(x, y) for x, y in values if y is not None]
        series.append((name, [x for x, _ in points], [y for _, y in points]))
    chart = line_chart(
        series,
        x_label="step",
        y_label="norm",
        title="norm of what was released, and the norm expected of its noise alone",
    )
    note = (
        "The length of what a step released, and the length that its noise alone would have. Where they meet, one step "
        "says next to nothing about the rows; the model learns from many. Both lines are computed from released "
        "quantities and public settings."
    )
    return f"{chart}<p>{note}</p>"


def _held_out(record: dict[str, Any]) -> str:
    rows = record.get("held_out") or []
    names = sorted({name for row in rows for name in row if name != "step"})
    series = [(n, [r["step"] for r in rows if n in r], [r[n] for r in rows if n in r]) for n in names]
    return line_chart(series, x_label="step", y_label="", title="figures on held-out rows")


def _strategies(figures: dict[str, Any]) -> str:
    measure = "iterate_rmse"
    rows = [figures, *(figures.get("alternatives") or [])]
    bars = [(str(r.get("strategy")), float(r[measure]), r is figures) for r in rows if r.get(measure) is not None]
    label = "Noise on the running sum of the momentum at the same (ε, δ), in units of clip / batch size."
    reason = escape(str(figures.get("strategy_reason", ""))).rstrip(".")
    chart = bar_chart(bars, title="noise of each strategy")
    return f'{chart}<p class="caption">{label}</p>' + (f"<p>Why this one: {reason}.</p>" if reason else "")


def _paper(figures: dict[str, Any]) -> str:
    """Of the two algorithms that are the paper's: its printed noise beside the exact one, for a tree of its kind."""
    paper = figures.get("paper") or {}
    names = {
        "sigma": "σ as printed for this ε and δ",
        "sigma_exact": "σ that is enough",
        "epsilon_of_sigma": "ε that the printed σ really has",
        "V": "nodes that hold one example, as printed",
        "bound": "the theorem's bound on the gradient, as printed",
    }
    rows = [(text, paper[name]) for name, text in names.items() if paper.get(name) is not None]
    note = "Tran & Cutkosky (2022), for these N, d, ε, δ and batches of one example; this run does not use them."
    return f'{_table(rows)}<p class="caption">{note}</p>' if rows else ""


def _settings(figures: dict[str, Any], record: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    hidden = ("alternatives", "paper", "warnings", "strategy_facts", "strategy_reason", "entitlement")
    yield from ((name, value) for name, value in figures.items() if name not in hidden and value is not None)
    for part in ("model", "data"):
        facts = record.get(part) or {}
        yield from ((name, value) for name, value in facts.items() if value not in (None, "", []))


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _table(rows: Iterable[tuple[str, Any]]) -> str:
    lines = "".join(
        f"<tr><th>{escape(str(name).replace('_', ' '))}</th><td>{escape(_shown(value))}</td></tr>"
        for name, value in rows
    )
    return f'<div class="scroll"><table>{lines}</table></div>' if lines else ""


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_shown(item)}" for name, item in value.items())
    return str(value)


def _list(items: Iterable[str]) -> str:
    lines = "".join(f"<li>{escape(str(item))}</li>" for item in items)
    return f"<ul>{lines}</ul>" if lines else ""
