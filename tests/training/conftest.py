"""A certificate needs no comparison with other strategies: leaving it out keeps these tests quick."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("momentree.plan.alternatives", lambda plan: [])
