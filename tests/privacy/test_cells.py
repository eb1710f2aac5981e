"""The page of every cell is what the rules say today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

GUARANTEES = Path(__file__).parents[2] / "docs" / "guarantees"


def test_the_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("make_cells", GUARANTEES / "make_cells.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.markdown()
    assert made.count("✗") > 60
    assert made.count("✓") > 80
    page = (GUARANTEES / "cells.md").read_text(encoding="utf-8")
    assert page == made, "rules have changed: run `python docs/guarantees/make_cells.py` and read what has"
