"""Noise on a workload: formulas against written-out matrices, the paper's comparisons, long runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from momentree.errors import InputError
from momentree.strategy import error as error_module
from momentree.strategy.base import Strategy
from momentree.strategy.bisr import Bisr
from momentree.strategy.blt import Blt
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense
from momentree.strategy.error import iterate_rmse, momentum_rmse, rms_error
from momentree.strategy.identity import Identity
from momentree.strategy.participation import fixed_sensitivity
from momentree.strategy.restarted import Restartable, Restarted
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from momentree.strategy.tree_ls import TreeLS
from momentree.strategy.workload import Workload, iterate_workload, momentum_workload, path_workload, prefix_workload


def written_out(strategy: Strategy, workload: Workload) -> float:
    return math.sqrt(float(np.sum((workload.matrix() @ strategy.decoder()) ** 2)) / workload.steps)


def some_of_each(steps: int, beta: float) -> list[Restartable]:
    rng = np.random.default_rng(steps)
    root = iterate_workload(steps, beta)
    lower = np.tril(0.1 * rng.standard_normal((steps, steps)), -1) + np.diag(rng.uniform(0.5, 1.0, steps))
    return [
        Identity(steps),
        Bsr(steps, root.square_root(min(steps, 5))),
        Bisr(steps, root.inverse_square_root(min(steps, 5))),
        Blt(steps, np.array([0.3, 0.2]), np.array([0.9, beta])),
        Tree(steps, beta),
        TreeFull(steps, 1.0),
        TreeLS(steps, beta),
        TreeLS(steps, 0.3),
        Dense(lower),
    ]


def workloads(steps: int, beta: float) -> list[Workload]:
    sizes = np.random.default_rng(steps + 1).uniform(0.0, 1.0, steps)
    return [
        momentum_workload(steps, beta),
        iterate_workload(steps, beta),
        prefix_workload(steps),
        path_workload(steps, beta, 0.3, weight_decay=0.1, nesterov=True),
        path_workload(steps, beta, sizes),
        path_workload(steps, beta, sizes, weight_decay=0.5, nesterov=True),
        Workload(steps, beta, nesterov=True, dampened=False),
    ]


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 37, 100])
@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_every_workload_for_every_strategy(steps: int, beta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_module, "CHUNK_LEVEL", 3)  # so that long schedules are joined from chunks here already
    for inner in some_of_each(steps, beta):
        for strategy in (inner, Restarted(inner, 3, max(1, steps // 2))):
            for workload in workloads(strategy.steps, beta):
                assert rms_error(strategy, workload) == pytest.approx(written_out(strategy, workload), rel=1e-10)


@pytest.mark.parametrize("band", [2, 40, 700])
@pytest.mark.parametrize("beta", [0.0, 0.9, 0.999])
def test_series_cut_where_they_die_out(band: int, beta: float) -> None:
    """C⁻¹ is followed only until it has died out; the rest of the run is the workload moving by itself."""
    steps = 60_000
    for workload in (iterate_workload(steps, beta), momentum_workload(steps, beta)):
        strategy = Bsr(steps, workload.square_root(band))
        whole = np.zeros(steps)
        whole[:] = strategy.inverse_coefficients()
        response = workload.apply(whole)
        expected = math.sqrt(float(np.dot(response**2, np.arange(steps, 0, -1))) / steps)
        assert rms_error(strategy, workload) == pytest.approx(expected, rel=1e-9)


def test_sampled_rows_are_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above `EXACT_STEPS` a scheduled Toeplitz error is sampled: within 1e-3 for a warm-up and a cosine."""
    steps = 6_000
    t = np.arange(steps)
    sizes = np.minimum(1.0, (t + 1) / 300) * 0.5 * (1 + np.cos(np.pi * t / steps))
    workload = path_workload(steps, 0.9, sizes, weight_decay=1e-3)
    for strategy in (Identity(steps), Blt(steps, np.array([0.2, 0.5]), np.array([0.999, 0.95]))):
        exact = rms_error(strategy, workload)
        with monkeypatch.context() as patch:
            patch.setattr(error_module, "EXACT_STEPS", 1_000)
            assert rms_error(strategy, workload) == pytest.approx(exact, rel=1e-3)
    assert rms_error(Identity(steps), workload) == pytest.approx(rms_error(Tree(steps, 0.0), workload), rel=1e-9)


@pytest.mark.parametrize(
    ("n", "epochs", "alpha", "measure", "row"),
    [
        (64, 10, 1 / 64, "momentum", (0.75, 0.76, 1.08, 0.39, 1.58)),
        (100, 10, 1 / 100, "momentum", (0.80, 0.76, 1.39, 0.43, 2.05)),
        (100, 10, 0.1, "momentum", (0.72, 0.79, 0.76, 0.48, 1.34)),
        (64, 10, 1 / 64, "iterates", (0.75, None, 2.63, 0.57, 0.35)),
        (100, 10, 1 / 100, "iterates", (0.80, None, 3.57, 0.64, 0.38)),
        (100, 10, 0.1, "iterates", (0.72, None, 1.44, 0.55, 0.18)),
    ],
)
def test_noise_relative_to_every_node(
    n: int, epochs: int, alpha: float, measure: str, row: tuple[float | None, ...]
) -> None:
    """Same μ, fixed order; square tree, tree-ls, independent, root for the momentum, root for its sum."""
    steps, beta = n * epochs, 1 - alpha
    figure = momentum_rmse if measure == "momentum" else iterate_rmse

    def noise(strategy: Strategy) -> float:
        return figure(strategy, beta) * fixed_sensitivity(strategy, n)

    every = noise(TreeFull(steps, beta))
    found = (
        Tree(steps, beta),
        TreeLS(steps, beta),
        Identity(steps),
        Bsr(steps, momentum_workload(steps, beta).square_root(n)),
        Bsr(steps, iterate_workload(steps, beta).square_root(n)),
    )
    for strategy, expected in zip(found, row, strict=True):
        if expected is not None:
            assert noise(strategy) / every == pytest.approx(expected, abs=0.0101)


def test_causal_decoding_beats_the_square_decoder_step_by_step() -> None:
    """tree-ls is the best unbiased prefix from the nodes completed so far: no step is noisier than the direct sum."""
    steps, beta = 37, 0.9
    strategy = TreeLS(steps, beta)
    matrix, decoder = strategy.matrix(), strategy.decoder()
    prefix = Workload(steps, beta, dampened=False).matrix()
    for t in range(1, steps + 1):
        known = matrix[: strategy.rows_by(t), :t]
        best = prefix[t - 1, :t] @ np.linalg.pinv(known)
        np.testing.assert_allclose((prefix @ decoder)[t - 1, : strategy.rows_by(t)], best, atol=1e-10)


def test_steps_must_agree() -> None:
    with pytest.raises(InputError, match="strategy of 3 steps cannot serve a workload of 4"):
        rms_error(Identity(3), momentum_workload(4, 0.5))


def test_a_million_steps() -> None:
    """Against sums that can be done by hand: independent noise on prefix sums, and one undecayed tree level."""
    steps = 10**6
    assert rms_error(Identity(steps), prefix_workload(steps)) == pytest.approx(math.sqrt((steps + 1) / 2), rel=1e-12)
    ones = sum(t.bit_count() for t in range(1, steps + 1))  # nodes in a prefix of t: the ones of t
    assert rms_error(Tree(steps, 1.0), prefix_workload(steps)) == pytest.approx(math.sqrt(ones / steps), rel=1e-12)
