"""docs/paper.md links a test for each of its lines, and every link leads somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
LINK = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_link_exists() -> None:
    links = LINK.findall(TEXT)
    assert len(links) > 40
    missing = [f"{path}::{name}" for path, name in links if name not in functions(path)]
    assert missing == []
    assert TEXT.count("::") == len(links)  # nothing that looks like a link escapes the pattern


def test_every_erratum_has_a_test() -> None:
    rows = {match[1]: line for line in TEXT.splitlines() if (match := re.match(r"\| ([ER]\d+[a-z]?) \|", line))}
    wanted = {f"E{k}" for k in range(1, 14)} | {f"E14{c}" for c in "abcdefghi"} | {f"R{k}" for k in range(1, 9)}
    assert set(rows) == wanted
    assert [name for name, line in rows.items() if not LINK.search(line)] == []


def test_the_functions_named_exist() -> None:
    named = re.findall(r"`paper\.(\w+)\.(\w+)`", TEXT)
    assert len(named) >= 6
    for module, name in named:
        assert name in functions(f"src/momentree/paper/{module}.py")
