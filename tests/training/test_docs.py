"""The examples of docs/your-own-loop.md run as they are written, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "your-own-loop.md"


def test_the_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {"mine", "watched", "adam", "stopped"}
    for run in (tmp_path / "runs").iterdir():
        assert (run / "certificate.json").exists()
        assert not (run / "noise.key").exists()
