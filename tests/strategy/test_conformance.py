"""Every strategy on offer, against matrices that are written out: one suite, whatever is added to `STRATEGIES`."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from momentree.strategy import STRATEGIES, Setting, iterate_rmse, make, materialise, momentum_rmse, rebuild
from momentree.strategy.base import Array, Strategy
from momentree.strategy.participation import fixed_sensitivity
from momentree.strategy.restarted import Restarted

STEPS = (1, 2, 3, 5, 16, 37)
MOMENTA = (0.0, 0.5, 0.9, 0.99)
EPOCHS = (1, 2, 5)
SLICE = {(n, beta, epochs) for n in (1, 3, 16) for beta in (0.0, 0.9) for epochs in (1, 5)} | {(37, 0.99, 2)}
VARIANTS: list[tuple[str, dict[str, int]]] = [
    *((name, {}) for name in STRATEGIES),
    ("bsr", {"band": 4}),
    ("bisr", {"band": 4}),
    ("blt", {"buffers": 4}),
    *((name, {"restart_every": 2}) for name in STRATEGIES),
]


def cases() -> list[object]:
    found = []
    for n, beta, epochs in itertools.product(STEPS, MOMENTA, EPOCHS):
        for name, options in VARIANTS:
            if options.get("restart_every", 0) >= epochs and options.get("restart_every"):
                continue
            if options.get("band", 0) > n * epochs:
                continue
            quick = (n, beta, epochs) in SLICE and not (name == "dense" and n * epochs > 50)
            marks = () if quick else (pytest.mark.verify,)
            label = f"{name}{''.join(f'-{k}{v}' for k, v in options.items())}-n{n}-b{beta}-E{epochs}"
            found.append(pytest.param(name, options, n, beta, epochs, id=label, marks=marks))
    return found


def brute_sensitivity(matrix: Array, steps_per_epoch: int) -> float:
    """Largest ‖Σ_e ±C[:, j + en]‖ over places and signs: what a single coordinate can do."""
    worst = 0.0
    for j in range(min(steps_per_epoch, matrix.shape[1])):
        columns = matrix[:, j::steps_per_epoch]
        for signs in itertools.product((1.0, -1.0), repeat=columns.shape[1]):
            worst = max(worst, float(np.linalg.norm(columns @ np.array(signs))))
    return worst


def momentum_matrix(steps: int, beta: float) -> Array:
    lags = np.subtract.outer(np.arange(steps), np.arange(steps))
    return np.where(lags >= 0, (1 - beta) * beta ** np.maximum(lags, 0.0), 0.0)


def slots_touched(strategy: Strategy) -> tuple[set[int], set[int]]:
    """Slots that the program writes, and those that it reads."""
    written: set[int] = set()
    read: set[int] = set()
    for t in range(1, strategy.steps + 1):
        instruction = strategy.instruction(t)
        terms = [*instruction.output, *(term for _, expression in instruction.store for term in expression)]
        read |= {index for source, index, _ in terms if source == "slot"}
        written |= {slot for slot, _ in instruction.store}
    return written, read


@pytest.mark.parametrize(("name", "options", "n", "beta", "epochs"), cases())
def test_conformance(name: str, options: dict[str, int], n: int, beta: float, epochs: int) -> None:
    setting = Setting(n, epochs, beta, **options)
    strategy = make(name, setting, lambda candidate: fixed_sensitivity(candidate, n))
    steps = n * epochs
    matrix, decoder = strategy.matrix(), strategy.decoder()
    assert strategy.name == name
    assert strategy.steps == steps
    assert matrix.shape == (strategy.rows, steps)
    assert decoder.shape == (steps, strategy.rows)

    # causal: nothing drawn by step t knows of a later step, and a step's own entry is 1
    for t in range(1, steps + 1):
        assert not np.any(matrix[: strategy.rows_by(t), t:])
    own = matrix[[max(strategy.instruction(t).fresh) for t in range(1, steps + 1)], range(steps)]
    assert np.array_equal(own, np.ones(steps))

    columns = np.stack([strategy.column(t) for t in range(1, steps + 1)], axis=1)
    np.testing.assert_allclose(columns, matrix, rtol=1e-14, atol=0)

    # the program is the decoder, and the decoder inverts C
    fresh = [row for t in range(1, steps + 1) for row in strategy.instruction(t).fresh]
    assert len(fresh) == len(set(fresh))
    unused = sorted(set(range(strategy.rows)) - set(fresh))
    assert not np.any(decoder[:, unused])
    np.testing.assert_allclose(materialise(strategy), decoder[:, sorted(fresh)], rtol=0, atol=1e-10)
    np.testing.assert_allclose(decoder @ matrix, np.eye(steps), rtol=0, atol=1e-10)

    # memory: exactly the slots that the program touches
    written, read = slots_touched(strategy)
    assert read == set(range(strategy.noise_vectors))
    assert written == read

    # figures without T × T against the written-out ones
    workload = momentum_matrix(steps, beta)
    on_momentum = math.sqrt(np.mean(np.sum((workload @ decoder) ** 2, axis=1)))
    on_iterates = math.sqrt(np.mean(np.sum((np.cumsum(workload, axis=0) @ decoder) ** 2, axis=1)))
    assert momentum_rmse(strategy, beta) == pytest.approx(on_momentum, rel=1e-8)
    assert iterate_rmse(strategy, beta) == pytest.approx(on_iterates, rel=1e-8)

    # signs and sensitivity
    assert strategy.non_negative == bool(np.all(matrix >= 0.0))
    claimed, brute = fixed_sensitivity(strategy, n), brute_sensitivity(matrix, n)
    assert claimed >= brute * (1 - 1e-12)
    if strategy.non_negative:
        assert claimed == pytest.approx(brute, rel=1e-10)

    # a record holds enough to build the same numbers again
    again = rebuild(json.loads(json.dumps(strategy.describe())))
    assert np.array_equal(again.matrix(), matrix)
    assert [again.instruction(t) for t in range(1, steps + 1)] == [strategy.instruction(t) for t in range(1, steps + 1)]


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "dense"])
@pytest.mark.parametrize(("n", "epochs", "every"), [(5, 5, 2), (3, 4, 3), (16, 3, 1)])
def test_restarted_blocks_are_the_inner_strategy(name: str, n: int, epochs: int, every: int) -> None:
    strategy = make(name, Setting(n, epochs, 0.9, restart_every=every), lambda c: fixed_sensitivity(c, n))
    assert isinstance(strategy, Restarted)
    matrix, inner = strategy.matrix(), strategy.inner.matrix()
    rows, columns = inner.shape
    rebuilt = np.zeros_like(matrix)
    for k in range(strategy.times):
        target = rebuilt[k * rows : (k + 1) * rows, k * columns : (k + 1) * columns]
        target[...] = inner[: target.shape[0], : target.shape[1]]
    assert np.array_equal(matrix, rebuilt)
    assert strategy.inner.steps == n * every
