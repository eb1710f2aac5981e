"""One key for every run, where a test wants to know what beside the noise makes two fits differ."""

import types

import numpy as np
import pytest

from momentree.sklearn import spending
from momentree.training import run as runs


@pytest.fixture(autouse=True)
def nothing_spent(monkeypatch):
    """Tests fit the same rows; what one has spent is no other's concern."""
    monkeypatch.setattr(spending, "_by_data", {})


@pytest.fixture
def same_key(monkeypatch):
    """Every run draws from the same secret key and has the same name. Only a test may do this."""
    monkeypatch.setattr(runs, "new_key", lambda: bytes(range(32)))
    monkeypatch.setattr(runs.uuid, "uuid4", lambda: types.SimpleNamespace(hex="0" * 32))


@pytest.fixture
def blobs():
    """Two clouds of 90 rows with 3 columns within [-4, 4]."""
    draw = np.random.default_rng(3)
    y = np.arange(90) % 2
    return np.clip(draw.normal(size=(90, 3)) + np.outer(2.0 * y - 1, [1.0, -1.0, 0.5]), -4, 4), y
