"""What would only make these tests slow: comparing strategies for a certificate, and waiting for the disk."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("momentree.figures.other_strategies", lambda plan: [])
    monkeypatch.setattr(os, "fsync", lambda handle: None)
