"""Bands, budgets, the comparison and what `auto` says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from momentree.errors import InputError, NoProofError
from momentree.strategy import DEFAULT_BUDGET, STRATEGIES, Setting, auto, compare, make, rebuild, rms_error
from momentree.strategy.base import Strategy
from momentree.strategy.bisr import Bisr
from momentree.strategy.bsr import Bsr
from momentree.strategy.participation import fixed_sensitivity
from momentree.strategy.toeplitz import Toeplitz


def under_fixed(n: int):  # type: ignore[no-untyped-def]
    return lambda strategy: fixed_sensitivity(strategy, n)


BANDS = [(16, 5, 0.9), (16, 20, 0.0), (5, 50, 0.9), (1, 60, 0.9), (37, 5, 0.5)]


@pytest.mark.parametrize(
    ("n", "epochs", "beta"),
    [
        *BANDS,
        *(pytest.param(*case, marks=pytest.mark.verify) for case in [(128, 4, 0.9), (100, 10, 0.99), (2, 300, 0.9)]),
    ],
)
@pytest.mark.parametrize("measure", ["iterates", "momentum"])
def test_the_band_is_within_2_per_cent_of_the_best(n: int, epochs: int, beta: float, measure: str) -> None:
    setting = Setting(n, epochs, beta, measure)  # type: ignore[arg-type]
    workload = setting.target
    for name, kind, series in (("bsr", Bsr, workload.square_root), ("bisr", Bisr, workload.inverse_square_root)):
        full = series(setting.steps)

        def loss(strategy: Strategy) -> float:
            return fixed_sensitivity(strategy, n) * rms_error(strategy, workload)

        exhaustive = [loss(kind(setting.steps, full[:band])) for band in range(1, setting.steps + 1)]
        assert loss(make(name, setting, under_fixed(n))) <= 1.02 * min(exhaustive)
        within = make(name, setting, under_fixed(n), budget_vectors=6)
        assert within.noise_vectors <= 6
        assert loss(within) <= 1.02 * min(exhaustive[:7])


def test_figures_of_a_comparison() -> None:
    n, epochs, beta = 16, 4, 0.9
    setting = Setting(n, epochs, beta)
    found = compare(setting, under_fixed(n), budget_vectors=None)
    assert {c.name for c in found} == set(STRATEGIES)
    assert [c.loss for c in found] == sorted(c.loss for c in found)
    lower = np.where(
        np.tri(64, dtype=bool), (1 - beta) * beta ** np.maximum(np.subtract.outer(range(64), range(64)), 0), 0
    )
    for c in found:
        decoder = c.strategy.decoder()
        assert c.scale == pytest.approx(fixed_sensitivity(c.strategy, n))
        assert c.noise_vectors == c.strategy.noise_vectors
        assert c.momentum_error == pytest.approx(c.scale * np.linalg.norm(lower @ decoder) / 8)
        assert c.iterate_error == pytest.approx(c.scale * np.linalg.norm(np.cumsum(lower, 0) @ decoder) / 8)
        assert c.loss == c.iterate_error


@pytest.mark.parametrize("budget", [0, 1, 3, DEFAULT_BUDGET, 40, None])
@pytest.mark.parametrize("measure", ["iterates", "momentum"])
def test_auto_is_the_best_within_its_budget(budget: int | None, measure: str) -> None:
    n = 16
    setting = Setting(n, 3, 0.9, measure)  # type: ignore[arg-type]
    best, why = auto(setting, under_fixed(n), budget_vectors=budget)
    assert budget is None or best.noise_vectors <= budget
    for name in STRATEGIES:
        if name == "blt" and budget == 0:
            continue
        rival = make(name, setting, under_fixed(n), budget_vectors=budget)
        if budget is None or rival.noise_vectors <= budget:
            loss = rms_error(rival, setting.target) * fixed_sensitivity(rival, n)
            assert best.loss <= 1.001 * loss
    assert why.startswith(f"least noise on the {measure}")
    assert "\n" not in why
    assert (f"budget of {budget} model-sized vectors" in why) == (budget is not None)


def test_dense_is_chosen_only_where_it_is_cheap() -> None:
    n = 128
    names = [c.name for c in compare(Setting(n, 4, 0.9), under_fixed(n))]
    assert "dense" not in names
    best, _ = auto(Setting(3, 2, 0.9), under_fixed(3))
    assert best.name == "dense"
    assert best.noise_vectors == 5


def test_momentum_zero_needs_no_correlation() -> None:
    """Noise on the gradients themselves: nothing beats independent noise, and the tie goes to it."""
    best, _ = auto(Setting(16, 5, 0.0, "momentum"), under_fixed(16))
    assert best.name == "identity"
    assert best.loss == pytest.approx(math.sqrt(5))


def test_strategies_without_proof_are_left_out() -> None:
    def banded_only(strategy: Strategy) -> float:
        if not isinstance(strategy, Toeplitz) or len(strategy.coefficients) > 4:
            raise NoProofError("the band is at most 4")
        return fixed_sensitivity(strategy, 16)

    setting = Setting(16, 3, 0.9)
    found = compare(setting, banded_only)
    assert {c.name for c in found} == {"identity", "bsr"}
    assert all(len(c.strategy.coefficients) <= 4 for c in found)  # type: ignore[attr-defined]
    with pytest.raises(NoProofError, match="at most 4"):
        compare(setting, banded_only, ["tree"])
    with pytest.raises(NoProofError, match="at most 4"):
        make("blt", setting, banded_only)


def test_schedule_and_measure_change_what_is_ranked() -> None:
    n, epochs = 8, 3
    schedule = np.linspace(1.0, 0.1, n * epochs)
    setting = Setting(n, epochs, 0.9, schedule=schedule, weight_decay=0.1)
    for c in compare(setting, under_fixed(n), budget_vectors=None):
        a = setting.target.matrix()
        expected = np.linalg.norm(a @ c.strategy.decoder()) / math.sqrt(n * epochs) * c.scale
        assert c.loss == pytest.approx(expected, rel=1e-9)
        assert c.loss < c.iterate_error


@pytest.mark.parametrize("every", [1, 2, 3])
def test_restarts_of_everything(every: int) -> None:
    n, epochs = 8, 5
    for c in compare(Setting(n, epochs, 0.9, restart_every=every), under_fixed(n), list(STRATEGIES), None):
        matrix = c.strategy.matrix()
        assert c.strategy.steps == n * epochs
        edges = [0]
        for first in range(0, n * epochs, n * every):
            last = min(first + n * every, n * epochs)
            rows = c.strategy.rows_by(last)
            assert not np.any(matrix[edges[-1] : rows, :first])
            assert not np.any(matrix[edges[-1] : rows, last:])
            edges.append(rows)
        assert rebuild(c.strategy.describe()).describe() == c.strategy.describe()


@pytest.mark.verify
def test_a_million_steps_are_ranked() -> None:
    n, epochs = 10_000, 100
    best, _ = auto(Setting(n, epochs, 0.9), under_fixed(n))
    assert best.name == "blt"
    assert best.noise_vectors <= DEFAULT_BUDGET


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: make("tre", Setting(3, 1, 0.9), under_fixed(3)), "did you mean tree"),
        (lambda: Setting(0, 1, 0.9), "steps_per_epoch 0"),
        (lambda: Setting(3, 0, 0.9), "epochs 0"),
        (lambda: Setting(3, 1, 1.0), "momentum 1"),
        (lambda: Setting(3, 1, float("nan")), "momentum nan is not finite"),
        (lambda: Setting(3, 1, 0.9, "noise"), "measure 'noise' is unknown"),  # type: ignore[arg-type]
        (lambda: Setting(3, 2, 0.9, band=0), "band 0 is out of range"),
        (lambda: Setting(3, 2, 0.9, band=7), "band 7 is out of range: give at least 1 and at most 6"),
        (lambda: Setting(3, 2, 0.9, buffers=9), "buffers 9 is out of range: give at least 1 and at most 8"),
        (lambda: Setting(3, 2, 0.9, buffers=0), "buffers 0"),
        (lambda: Setting(3, 2, 0.9, restart_every=3), "restart_every 3"),
        (lambda: Setting(3, 2, 0.9, schedule=[1.0, 0.5]), "schedule has 2 step sizes: give 6"),  # type: ignore[arg-type]
        (lambda: Setting(1, 2, 0.9, schedule=[1.0, math.nan]), "not finite"),  # type: ignore[arg-type]
        (lambda: Setting(1, 2, 0.9, schedule=[1.0, -0.5]), "goes down to -0.5"),  # type: ignore[arg-type]
        (lambda: Setting(1, 2, 0.9, schedule=[0.0, 0.0]), "not all of them 0"),  # type: ignore[arg-type]
        (lambda: Setting(1, 2, 0.9, decay=1.5), "decay 1.5"),
        (lambda: Setting(1, 2, 0.9, weight_decay=-1.0), "weight_decay -1"),
        (lambda: make("dense", Setting(501, 4, 0.9), under_fixed(501)), "dense over 2004 steps is too large"),
        (lambda: make("blt", Setting(3, 1, 0.9), under_fixed(3), budget_vectors=0), "budget of 0 vectors"),
        (lambda: auto(Setting(64, 1, 0.9), under_fixed(64), ["tree"], 2), "allow at least 6"),
        (lambda: compare(Setting(3, 1, 0.9), under_fixed(3), ["forest"]), "strategy 'forest' is unknown"),
        (lambda: compare(Setting(3, 1, 0.9), under_fixed(3), budget_vectors=-1), "budget_vectors -1"),
        (lambda: rebuild({"name": "tree", "steps": 3}), "lack 'decay'"),
        (lambda: rebuild({"name": "dense", "steps": 3, "entries": "??"}), "cannot be read"),
        (lambda: Bsr(3, [0.5, 1.0]), "starts with 1"),
        (lambda: Bsr(3, [1.0, math.inf]), "finite"),
    ],
)
def test_bad_input_is_one_line(call: object, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        call()  # type: ignore[operator]
    assert "\n" not in str(caught.value)
