"""The report: a pure function of the record, self-contained, and whole in a real browser at two widths."""

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from momentree.errors import CheckError, InputError
from momentree.report.chart import bar_chart, line_chart, ticks
from momentree.report.page import page, write_report
from momentree.report.record import read_record, write_record

RECORD = {
    "plan": {"examples": 1000},
    "run": {"steps_done": 40, "finished": True},
    "figures": {
        "algorithm": "dp-nsgd",
        "examples": 1000,
        "strategy": "bsr",
        "strategy_reason": "as asked",
        "iterate_rmse": 3.5,
        "alternatives": [{"strategy": "identity", "iterate_rmse": 12.25}, {"strategy": "dense", "iterate_rmse": None}],
        "a_very_long_setting_name_that_would_overflow": "x" * 300,
    },
    "certificate": {
        "epsilon": 1.25,
        "delta": 1e-5,
        "adjacency": "zero-out",
        "unit": "example",
        "in_plain_english": "The promise <b>&</b> its words.",
        "caveats": ["one", "two"],
        "taken_as_public": ["N"],
    },
    "model": {"kind": "linear", "parameters": 650},
    "data": {"rows": 1000},
    "steps": {"step": list(range(1, 41)), "released_norm": [1 + 0.1 * k for k in range(40)], "noise_norm": [0.5] * 40},
    "epsilon": [[1, 0.2], [20, 0.9], [40, 1.25]],
    "held_out": [{"step": 20, "loss": 1.0, "accuracy": 0.5}, {"step": 40, "loss": 0.7, "accuracy": 0.8}],
    "result": {"test accuracy": 0.8},
    "environment": {"momentree": "0", "torch": "0"},
}
BROWSER = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)


class Outline(HTMLParser):
    """Every tag that is opened is closed, and nothing points outside."""

    void = frozenset({"meta", "link", "br", "hr", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.addresses += [v or "" for k, v in attributes if k in ("src", "href", "xlink:href", "action")]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_self_contained_and_pure() -> None:
    text = page(RECORD)
    outline = Outline()
    outline.feed(text)
    assert outline.open == []
    assert outline.addresses == ["data:,"]
    assert "<script" not in text
    assert "url(" not in text
    assert text == page(json.loads(json.dumps(RECORD)))
    assert "The promise &lt;b&gt;&amp;&lt;/b&gt; its words." in text


def test_a_run_without_steps_or_certificate_still_has_a_page() -> None:
    text = page({"plan": {}, "run": {"steps_done": 0, "finished": False}})
    assert "no certificate yet" in text
    assert "not finished" in text


def test_the_record_is_checked_when_it_is_read(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    assert read_record(tmp_path)["result"] == RECORD["result"]
    assert write_report(tmp_path).read_text().startswith("<!doctype html>")
    path = tmp_path / "record.json"
    good = json.loads(path.read_text())
    path.write_text(json.dumps(good | {"result": {"test accuracy": 0.9}}))
    with pytest.raises(CheckError, match="checksum"):
        read_record(tmp_path)
    for bad, word in (({"version": 9}, "version"), ({"plan": 3}, "plan"), ({"surprise": 1}, "does not know")):
        path.write_text(json.dumps(good | bad))
        with pytest.raises(InputError, match=word):
            read_record(tmp_path)
    for text in ("", "{", "[1]", "\x00", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(InputError):
            read_record(tmp_path)


def test_ticks_cover_the_range_with_round_numbers() -> None:
    for low, high in ((0, 1), (0.2, 0.21), (-3, 7), (0, 12345), (5, 5), (0, 0)):
        found = ticks(low, high)
        assert found[0] <= low + 1e-9
        assert found[-1] >= high - 1e-9
        assert 2 <= len(found) <= 9


def test_charts_say_when_there_is_nothing_to_draw() -> None:
    assert "nothing was recorded" in line_chart([("a", [], [])], x_label="x", y_label="y", title="t")
    assert "nothing to compare" in bar_chart([], title="t")
    one = line_chart([("a", [1], [2.0])], x_label="x", y_label="y", title="t")
    assert "<circle" in one


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: the page was not opened in a browser")
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_whole_in_a_browser(tmp_path: Path, width: int) -> None:
    """No console error, no request to anywhere, nothing wider than the window: the browser's own word for each.

    A probe appended to the page writes what it finds into the DOM, which the browser then prints.
    """
    probe = (
        "<script>addEventListener('load', () => { const e = document.documentElement;"
        "document.body.dataset.overflow = [...document.querySelectorAll('*')].filter(x =>"
        "!x.closest('.scroll') && x.getBoundingClientRect().right > innerWidth + 1).length"
        " + (e.scrollWidth > innerWidth);"
        "document.body.dataset.requests = performance.getEntriesByType('resource').length;"
        "document.body.dataset.charts = document.querySelectorAll('svg').length; })</script>"
    )
    file = tmp_path / "page.html"
    file.write_text(page(RECORD).replace("</body>", probe + "</body>"), encoding="utf-8")
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
        "--virtual-time-budget=3000", f"--window-size={width},900", f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | {"HOME": str(tmp_path)}
    )
    assert 'data-overflow="0"' in done.stdout, re.findall(r'data-overflow="\d+"', done.stdout)
    assert 'data-requests="0"' in done.stdout
    assert 'data-charts="4"' in done.stdout
    assert "CONSOLE" not in done.stderr


@pytest.mark.parametrize("middle", [100.0, 120.0, 125.0, 130.0, 140.0])
def test_labels_that_meet_in_the_middle_find_a_place(middle: float) -> None:
    for shift in range(-20, 21):
        top = 240.0
        values = [middle, middle + shift, middle - shift / 2, top]
        series = [(str(k), [0, 1], [0.0, value]) for k, value in enumerate(values)]
        assert line_chart(series, x_label="x", y_label="y", title="t").count("<polyline") == 4


def test_a_difference_method_has_no_expected_noise_to_draw() -> None:
    steps = {"step": [1, 2, 3], "released_norm": [1.0, None, 2.0], "noise_norm": []}
    assert "released" in page(RECORD | {"steps": steps})
