"""Updates against ten-line references in float64, and every one of them taken apart and put together at every step."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from momentree import update as updates
from momentree.errors import InputError
from momentree.update import Drawn, Exponential, Filtered, Keeping, NormalisedMomentum, Schedule, Uniform, Update

SHAPES = [(3, 2), (5,), (1, 2, 2)]
MAKERS: dict[str, Callable[[], Update]] = {
    "normalised": lambda: NormalisedMomentum(0.3, 0.9, schedule=Schedule("cosine", 12, warm_up=3), weight_decay=0.01),
    "momentum": lambda: updates.momentum(0.3, 0.9, weight_decay=0.02),
    "nesterov": lambda: updates.momentum(0.3, 0.9, nesterov=True, schedule=Schedule("linear", 12)),
    "adam": lambda: updates.adam(0.1),
    "adamw": lambda: updates.adam(0.1, weight_decay=0.1),
    "filtered": lambda: Filtered(0.1, 0.6),
    "drawn": lambda: Keeping(NormalisedMomentum(0.3), Drawn(seed=5)),
    "average": lambda: Keeping(updates.momentum(0.1, 0.5), Uniform()),
    "tail": lambda: Keeping(updates.momentum(0.1, 0.5), Uniform(tail=0.5, steps=9)),
    "exponential": lambda: Keeping(updates.adam(0.1), Exponential(0.8)),
}


def stream(seed: int = 0) -> tuple[list[Tensor], list[list[Tensor]]]:
    generator = torch.Generator().manual_seed(seed)

    def draw() -> list[Tensor]:
        return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]

    return draw(), [draw() for _ in range(9)]


def flat(tensors: list[Tensor]) -> np.ndarray:
    return torch.cat([t.detach().reshape(-1) for t in tensors]).numpy().copy()


def follow(update: Update) -> tuple[list[np.ndarray], np.ndarray, list[np.ndarray]]:
    weights, released = stream()
    path = [flat(weights)]
    for g in released:
        update.step_(weights, [x.clone() for x in g])
        path.append(flat(weights))
    return path, flat(update.hand_over(weights)), [flat(g) for g in released]


def test_normalised_momentum_is_the_papers() -> None:
    path, handed, g = follow(NormalisedMomentum(0.3, 0.9))
    w, m = path[0], np.zeros_like(path[0])
    for t in range(1, 10):
        m = 0.9 * m + 0.1 * g[t - 1]
        w = w - 0.3 * m / np.linalg.norm(m)
        np.testing.assert_allclose(path[t], w, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(handed, path[-1])


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_starts_from_zero_and_is_dampened(nesterov: bool) -> None:
    path, _, g = follow(updates.momentum(0.3, 0.9, nesterov=nesterov, weight_decay=0.02))
    w, m = path[0], np.zeros_like(path[0])
    for t in range(1, 10):
        m = 0.9 * m + 0.1 * g[t - 1]
        w = (1 - 0.3 * 0.02) * w - 0.3 * (0.9 * m + 0.1 * g[t - 1] if nesterov else m)
        np.testing.assert_allclose(path[t], w, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_is_the_textbook_one(decay: float) -> None:
    schedule = Schedule("linear", 20, warm_up=2)
    path, _, g = follow(updates.adam(0.1, weight_decay=decay, schedule=schedule))
    w, m, v = path[0], 0.0, 0.0
    for t in range(1, 10):
        m, v = 0.9 * m + 0.1 * g[t - 1], 0.999 * v + 0.001 * g[t - 1] ** 2
        eta = 0.1 * schedule(t)
        w = (1 - eta * decay) * w - eta * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(path[t], w, rtol=1e-9, atol=1e-12)


def test_filtered_asks_ahead_and_hands_over_the_iterate() -> None:
    kappa, eta = 0.6, 0.1
    path, handed, g = follow(Filtered(eta, kappa))
    x, smooth = path[0], g[0]
    for t in range(1, 10):
        smooth = smooth if t == 1 else (1 - kappa) * smooth + kappa * g[t - 1]
        move = -eta * smooth
        x = x + move
        np.testing.assert_allclose(path[t], x + (1 - kappa) / kappa * move, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(handed, x, rtol=1e-12)


def test_averages() -> None:
    path, handed, _ = follow(MAKERS["average"]())
    np.testing.assert_allclose(handed, np.mean(path[1:], axis=0), rtol=1e-12)
    path, handed, _ = follow(MAKERS["tail"]())
    np.testing.assert_allclose(handed, np.mean(path[5:], axis=0), rtol=1e-12)
    path, handed, _ = follow(MAKERS["exponential"]())
    expected = path[1]
    for w in path[2:]:
        expected = 0.8 * expected + 0.2 * w
    np.testing.assert_allclose(handed, expected, rtol=1e-12)


def test_the_drawn_iterate_is_uniform() -> None:
    path, handed, _ = follow(MAKERS["drawn"]())
    last = max(t for t in range(1, 10) if Drawn(5).takes(t))
    np.testing.assert_array_equal(handed, path[last - 1])  # w_1 … w_T, not w_{T+1}
    counts = np.zeros(10)
    for seed in range(5000):
        drawn = Drawn(seed)
        counts[max(t for t in range(1, 10) if drawn.takes(t))] += 1
    chi_square = float(np.sum((counts[1:] - 5000 / 9) ** 2 / (5000 / 9)))
    assert chi_square < 26.1  # the 0.999 quantile of chi-square with 8 degrees of freedom
    assert counts[1:].min() > 0


def test_a_zero_release_makes_no_step_and_no_nan() -> None:
    weights = [torch.ones(3)]
    NormalisedMomentum(0.5).step_(weights, [torch.zeros(3)])
    assert torch.equal(weights[0], torch.ones(3))


@pytest.mark.parametrize("name", MAKERS)
def test_taken_apart_at_every_step_the_bits_stay(name: str) -> None:
    whole, handed, _ = follow(MAKERS[name]())
    for cut in range(10):
        weights, released = stream()
        update = MAKERS[name]()
        for t, g in enumerate(released):
            if t == cut:
                state = {k: v.clone() if isinstance(v, Tensor) else v for k, v in update.state_dict().items()}
                update = MAKERS[name]()
                update.load_state_dict(state)
            update.step_(weights, g)
        np.testing.assert_array_equal(flat(weights), whole[-1])
        np.testing.assert_array_equal(flat(update.hand_over(weights)), handed)


@pytest.mark.parametrize("name", MAKERS)
def test_nothing_is_left_in_grad_and_the_release_is_not_kept(name: str) -> None:
    weights, released = stream()
    weights = [torch.nn.Parameter(w) for w in weights]
    update = MAKERS[name]()
    buffers = [torch.zeros_like(g) for g in released[0]]
    for g in released:
        torch._foreach_copy_(buffers, g)
        update.step_(weights, buffers)
        torch._foreach_zero_(buffers)
        assert all(w.grad is None for w in weights)
    np.testing.assert_array_equal(flat(weights), follow(MAKERS[name]())[0][-1])
    assert isinstance(update, Update)
    assert isinstance(update.describe(), dict)


def test_schedules() -> None:
    assert [Schedule()(t) for t in (1, 7)] == [1.0, 1.0]
    cosine = Schedule("cosine", steps=10, warm_up=2, end=0.1)
    assert cosine(1) == 0.5
    assert cosine(2) == 1.0
    assert math.isclose(cosine(6), 0.55)
    assert math.isclose(cosine(10), 0.1)
    assert math.isclose(cosine(99), 0.1)
    assert [Schedule("linear", 4)(t) for t in range(1, 5)] == [0.75, 0.5, 0.25, 0.0]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: NormalisedMomentum(0.0),
        lambda: NormalisedMomentum(0.1, 1.0),
        lambda: NormalisedMomentum(float("nan")),
        lambda: updates.momentum(-1),
        lambda: updates.momentum(0.1, 0.0, nesterov=True),
        lambda: updates.adam(0.1, betas=(0.9, 1.0)),
        lambda: Schedule("sine"),  # type: ignore[arg-type]
        lambda: Schedule("cosine"),
        lambda: Schedule("linear", 3, warm_up=3),
        lambda: Uniform(tail=0),
        lambda: Uniform(tail=0.5),
        lambda: Exponential(1.0),
        lambda: Filtered(0.1, 0.0),
        lambda: Drawn(-1),
    ],
)
def test_bad_settings_are_one_line(wrong: Callable[[], object]) -> None:
    with pytest.raises(InputError) as caught:
        wrong()
    assert "\n" not in str(caught.value)
