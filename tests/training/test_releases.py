"""Each release against the paper's slow algorithms or a ten-line reference, noise included, given the same draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from momentree.memory import waiting_vectors
from momentree.order import Fixed, Shape
from momentree.paper.algorithm1 import algorithm_1
from momentree.paper.algorithm2 import Clips, algorithm_2
from momentree.paper.common import clip_to
from momentree.strategy.identity import Identity
from momentree.strategy.tree import Tree, level_of
from momentree.strategy.tree_full import TreeFull, rows_before
from momentree.training.releases.lagged import Lagged
from momentree.training.releases.reduced import Reduced, Scales
from momentree.training.releases.single import Single
from momentree.training.releases.store import InMemory, OnDisk
from momentree.update import NormalisedMomentum
from training.standins import Executor, Slow, TableSource, flat, piece_of, small_data, small_model, squared

BETA = 0.8
ETA = 0.05


def numpy_gradient(x: Tensor, y: Tensor, shape: Shape, order: Fixed) -> Any:
    """∇f of every example of a place, as the paper's functions want it."""
    model = small_model()
    slow = Slow(model, squared, None)

    def gradient(w: np.ndarray, place: int) -> np.ndarray:
        start = 0
        with torch.no_grad():
            for p in slow.parameters:
                p.copy_(torch.from_numpy(w[start : start + p.numel()]).reshape(p.shape))
                start += p.numel()
        return np.array([flat(slow.gradient(x[i], y[i])) for i in order.batch(place + 1)])

    return gradient


def train(release: Any, update: Any, parameters: list[Tensor], x: Tensor, y: Tensor, order: Any) -> list[np.ndarray]:
    path = [flat(parameters)]
    for t in range(1, order.shape.steps + 1):
        released = release.ask_(t, [piece_of(x, y, order.batch(t, b""))])
        update.step_(parameters, released)
        path.append(flat(parameters))
    return path


@pytest.mark.parametrize(("examples", "batch", "epochs"), [(7, 1, 3), (10, 3, 4), (5, 5, 3)])
@pytest.mark.parametrize("strategy", [Tree, TreeFull])
def test_momentum_after_the_released_stream_is_algorithm_1(
    examples: int, batch: int, epochs: int, strategy: Any
) -> None:
    shape = Shape(examples, batch, epochs)
    order, (x, y), source = Fixed(shape), small_data(examples), TableSource()
    clip, sigma = 0.7, 1.3
    model = small_model()
    slow = Slow(model, squared, clip)
    chosen = strategy(shape.steps, BETA)
    d = sum(p.numel() for p in slow.parameters)
    release = Single(slow, Executor(chosen, source, d), noise_scale=sigma * clip, batch_size=batch)
    update = NormalisedMomentum(ETA, BETA)
    first = flat(slow.parameters)
    path, m_hat = [first], []
    for t in range(1, shape.steps + 1):
        update.step_(slow.parameters, release.ask_(t, [piece_of(x, y, order.batch(t))]))
        path.append(flat(slow.parameters))
        m_hat.append(flat(update.momentum_estimate or []))

    def zeta(first_step: int, last: int) -> np.ndarray:
        level = (last - first_step + 1).bit_length() - 1
        row = last - 1 if strategy is Tree else rows_before(last) + level
        return (1 - BETA) * sigma * clip / batch * source.draw(0, row, d)

    paper = algorithm_1(
        numpy_gradient(x, y, shape, order),
        first,
        steps_per_epoch=shape.steps_per_epoch,
        steps=shape.steps,
        alpha=1 - BETA,
        eta=ETA,
        noise=zeta,
        nodes="left" if strategy is Tree else "all",
        clip=clip_to(clip),
        batch_size=batch,
    )
    np.testing.assert_allclose(np.array(m_hat), paper.m_hat, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(np.array(path), paper.w, rtol=1e-10, atol=1e-10)


class TestReduced:
    leak = 0.3
    sigmas = (1.1, 0.6, 0.4, 0.5)
    """Noise multipliers of G up to 2n, G afterwards, Δ, r."""

    def made(self, shape: Shape, *, clip: float | None, rho: float, source: Any, store: Any = InMemory) -> Any:
        slow = Slow(small_model(), squared, clip, None if clip is None else rho * clip)
        d = sum(p.numel() for p in slow.parameters)
        n, scale = shape.steps_per_epoch, clip or 1.0
        early, late, delta, iterate = (sigma * scale for sigma in self.sigmas)
        release = Reduced(
            slow,
            source,
            Executor(Tree(shape.steps, BETA), source, d, stream=2),
            beta=BETA,
            leak=self.leak,
            steps_per_epoch=n,
            batch_size=shape.batch_size,
            scales=Scales(lambda z: early if z <= 2 * n else late, lambda z: delta, iterate),
            store=store([p.detach() for p in slow.parameters]),
        )
        return slow, release, d

    @pytest.mark.parametrize(
        ("examples", "batch", "epochs"),
        [(1, 1, 6), (2, 1, 5), (3, 1, 5), (5, 1, 5), (7, 2, 5), (8, 1, 4), (13, 1, 3), (20, 3, 3)],
    )
    @pytest.mark.parametrize("clip", [None, 0.4])
    def test_equals_algorithm_2_with_noise(self, examples: int, batch: int, epochs: int, clip: float | None) -> None:
        shape = Shape(examples, batch, epochs)
        order, (x, y), source = Fixed(shape), small_data(examples), TableSource(3)
        rho = 0.05
        slow, release, d = self.made(shape, clip=clip, rho=rho, source=source)
        first = flat(slow.parameters)
        path = train(release, NormalisedMomentum(ETA, 0.0), slow.parameters, x, y, order)
        n, scale = shape.steps_per_epoch, clip or 1.0

        def zeta(family: str, y_: int, z: int) -> np.ndarray:
            level = (z - y_ + 1).bit_length() - 1
            early, late, delta, iterate = self.sigmas
            if family == "r":
                used = level == level_of(z)
                return iterate * scale / batch * source.draw(2, z - 1, d) if used else np.zeros(d)
            sigma = delta if family == "Delta" else early if z <= 2 * n else late
            return sigma * scale / batch * source.draw(0 if family == "G" else 1, rows_before(z) + level, d)

        paper = algorithm_2(
            numpy_gradient(x, y, shape, order),
            first,
            steps_per_epoch=n,
            steps=shape.steps,
            alpha=1 - BETA,
            gamma=self.leak,
            eta=ETA,
            noise=zeta,
            clips=None if clip is None else Clips(clip_to(clip), clip_to(rho * clip), clip_to(rho * clip)),
            batch_size=batch,
        )
        np.testing.assert_allclose(np.array(path), paper.w, rtol=1e-8, atol=1e-9)

    @pytest.mark.parametrize(("examples", "epochs"), [(16, 6), (13, 4), (37, 3), (5, 1), (6, 2), (1, 4)])
    def test_memory_is_what_is_said(self, examples: int, epochs: int) -> None:
        shape = Shape(examples, 1, epochs)
        _, release, _ = self.made(shape, clip=0.4, rho=0.05, source=TableSource())
        most = 0
        for t in range(1, shape.steps + 1):
            release.ask_(t, [])
            most = max(most, len(release.store._kept) + len(release.store._free))
        assert most == waiting_vectors("sensitivity-reduced", examples, epochs)

    def test_a_step_costs_the_same_in_every_epoch(self) -> None:
        """Vectors read, written and drawn in one epoch: from the third to the fiftieth it is the same work."""
        shape = Shape(16, 1, 50)
        source = TableSource()
        _, release, _ = self.made(shape, clip=0.4, rho=0.05, source=source)
        work: list[int] = []

        def counted(original: Any) -> Any:
            def call(*arguments: Any) -> Any:
                work[-1] += 1
                return original(*arguments)

            return call

        release.store.get = counted(release.store.get)
        release.store.put = counted(release.store.put)
        source.fill_ = counted(source.fill_)  # type: ignore[method-assign]
        for t in range(1, shape.steps + 1):
            if (t - 1) % 16 == 0:
                work.append(0)
            release.ask_(t, [])
        assert max(work[2:]) == min(work[2:]) == max(work)
        assert max(work) <= 16 * 12 * 5  # O(log n) a step

    def test_kept_on_disk_the_bits_are_the_same(self, tmp_path: Any) -> None:
        shape = Shape(6, 1, 4)
        x, y = small_data(6)
        slow, release, _ = self.made(shape, clip=0.4, rho=0.05, source=TableSource())
        inside = train(release, NormalisedMomentum(ETA, 0.0), slow.parameters, x, y, Fixed(shape))
        slow, release, _ = self.made(
            shape, clip=0.4, rho=0.05, source=TableSource(), store=lambda like: OnDisk(like, tmp_path / "waiting")
        )
        outside = train(release, NormalisedMomentum(ETA, 0.0), slow.parameters, x, y, Fixed(shape))
        np.testing.assert_array_equal(np.array(inside), np.array(outside))


class TestLagged:
    def made(self, shape: Shape, *, clip: float | None, rho: float, leak: float, lag: int, fresh: Any) -> Any:
        slow = Slow(small_model(), squared, clip, None if clip is None else rho * clip)
        d = sum(p.numel() for p in slow.parameters)
        source = TableSource(7)
        release = Lagged(
            slow,
            Executor(Identity(shape.steps), source, d),
            lag=lag,
            leak=leak,
            fresh=fresh,
            noise_scale=lambda t: 0.3,
            batch_size=shape.batch_size,
            store=InMemory([p.detach() for p in slow.parameters]),
        )
        return slow, release, d, source

    def reference(
        self, x: Tensor, y: Tensor, shape: Shape, path: list[np.ndarray], *, clip: Any, rho: float, leak: float,
        lag: int, fresh: Any, source: TableSource, d: int
    ) -> list[np.ndarray]:  # fmt: skip
        """The stream u at the iterates of `path`, in a few lines."""
        gradient = numpy_gradient(x, y, shape, Fixed(shape))
        cut = (lambda level: lambda v: v) if clip is None else clip_to
        found: list[np.ndarray] = []
        for t in range(1, shape.steps + 1):
            place = (t - 1) % shape.steps_per_epoch
            here = gradient(path[t - 1], place)
            noise = 0.3 * source.draw(0, t - 1, d)
            if fresh(t):
                u = (sum(cut(clip)(g) for g in here) + noise) / shape.batch_size
            else:
                there = gradient(path[t - 1 - lag], place)
                parts = [
                    leak * cut(clip)(a) + (1 - leak) * cut(clip and rho * clip)(a - b)
                    for a, b in zip(here, there, strict=True)
                ]
                u = (sum(parts) + noise) / shape.batch_size + (1 - leak) * found[t - 1 - lag]
            found.append(u)
        return found

    @pytest.mark.parametrize("clip", [None, 0.3])
    @pytest.mark.parametrize("name", ["epoch-lag", "dp-srm", "dp-spider"])
    def test_equals_the_recursion(self, name: str, clip: float | None) -> None:
        shape = Shape(10, 3, 3)
        n = shape.steps_per_epoch
        settings: dict[str, Any] = {
            "epoch-lag": {"lag": n, "leak": 0.2, "fresh": lambda t: t <= n},
            "dp-srm": {"lag": 1, "leak": 0.2, "fresh": lambda t: t == 1},
            "dp-spider": {"lag": 1, "leak": 0.0, "fresh": lambda t: t % 3 == 1},
        }[name]
        x, y = small_data(10)
        slow, release, d, source = self.made(shape, clip=clip, rho=0.1, **settings)
        update, order = NormalisedMomentum(ETA, BETA), Fixed(shape)
        path, streams = [flat(slow.parameters)], []
        for t in range(1, shape.steps + 1):
            released = release.ask_(t, [piece_of(x, y, order.batch(t))])
            streams.append(flat(released))
            update.step_(slow.parameters, released)
            path.append(flat(slow.parameters))
        expected = self.reference(x, y, shape, path, clip=clip, rho=0.1, source=source, d=d, **settings)
        np.testing.assert_allclose(np.array(streams), np.array(expected), rtol=1e-10, atol=1e-11)

    def test_memory_is_what_is_said(self) -> None:
        shape = Shape(10, 3, 4)
        n = shape.steps_per_epoch
        _, release, _, _ = self.made(shape, clip=0.3, rho=0.1, leak=0.1, lag=n, fresh=lambda t: t <= n)
        for t in range(1, shape.steps + 1):
            release.ask_(t, [])
        held = len(release.store._kept) + len(release.store._free)
        assert held == waiting_vectors("epoch-lag", n, 4)

    def test_a_step_costs_the_same_in_every_epoch(self) -> None:
        """Vectors read, written and drawn, and gradients asked for: the same from the second epoch to the fiftieth."""
        shape = Shape(16, 1, 50)
        n = shape.steps_per_epoch
        slow, release, _, source = self.made(shape, clip=0.3, rho=0.1, leak=0.1, lag=n, fresh=lambda t: t <= n)
        x, y = small_data(16)
        work = dict.fromkeys(("get", "put", "gradient", "fill_"), 0)

        def counted(thing: Any, name: str) -> None:
            original = getattr(thing, name)

            def call(*arguments: Any) -> Any:
                work[name] += 1
                return original(*arguments)

            setattr(thing, name, call)

        counted(release.store, "get")
        counted(release.store, "put")
        counted(slow, "gradient")
        counted(source, "fill_")
        seen, steps = [], Fixed(shape)
        for t in range(1, shape.steps + 1):
            release.ask_(t, [piece_of(x, y, steps.batch(t))])
            if t % n == 0:
                seen.append(dict(work))
                work.update(dict.fromkeys(work, 0))
        assert all(each == seen[1] for each in seen[1:])
        assert seen[1] == {"get": 2 * n, "put": 2 * n, "gradient": 2 * n, "fill_": n}

    def test_without_noise_or_clips_the_lag_gives_the_plain_gradient_average(self) -> None:
        """u_t = (1-γ)^e g_t + …: with γ = 0 and the same order in every epoch it is the gradient itself."""
        shape = Shape(6, 2, 4)
        n = shape.steps_per_epoch
        x, y = small_data(6)
        slow, release, _, _ = self.made(shape, clip=None, rho=1, leak=0.0, lag=n, fresh=lambda t: t <= n)
        release.noise_scale = lambda t: 0.0
        update, order = NormalisedMomentum(ETA, BETA), Fixed(shape)
        gradient = numpy_gradient(x, y, shape, order)
        for t in range(1, shape.steps + 1):
            w = flat(slow.parameters)
            released = release.ask_(t, [piece_of(x, y, order.batch(t))])
            np.testing.assert_allclose(
                flat(released), gradient(w, (t - 1) % n).sum(0) / shape.batch_size, rtol=1e-9, atol=1e-11
            )
            update.step_(slow.parameters, released)
