"""The dominating pair of random allocation: a fresh place of n in every epoch, neighbouring epochs meet.

Its likelihood ratio is a sum over n^E patterns, computed epoch by epoch: with v = Cᵀy/σ² and G = CᵀC/σ²,

    a_e(j) = (1/n) exp(v_{e,j} − G_jj/2) Σ_i a_{e−1}(i) exp(−G[(e−1)n + i, en + j]),    L = Σ_j a_E(j).

`mixtures` says what is drawn and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from momentree.errors import InputError
from momentree.privacy.mixtures import Array, Generator, choose, portions

COARSE = 96
"""Places are grouped, on the private side, where a ceiling would need a table larger than this cubed."""


@dataclass(frozen=True, eq=False)
class EpochBlock:
    """One epoch's columns of C/σ: the base rows they reach, their Gram matrix, and how they meet the epoch before.

    `meeting` is (first place of the epoch before that meets, columns of this epoch that are met, inner products), or
    None where the two epochs share no row.
    """

    rows: slice
    columns: Array
    meeting: tuple[int, int, Array] | None

    @cached_property
    def gram(self) -> Array:
        return np.asarray(self.columns.T @ self.columns)


@dataclass(frozen=True, eq=False)
class Allocation:
    """Random allocation: a fresh place of n in every epoch. Only neighbouring epochs may share rows of C."""

    blocks: Sequence[EpochBlock]
    rows: int
    coefficients: Array | None = None
    """c/σ, where C is Toeplitz: noise is then correlated by shifts instead of products."""

    @property
    def places(self) -> int:
        return int(self.blocks[0].columns.shape[1])

    def log_ratio(self, y: Array) -> Array:
        """ℓ from base rows y/σ (a row a draw), by the forward recursion over epochs."""
        return self._recursion([y[:, b.rows] @ b.columns for b in self.blocks])

    def _recursion(self, v: Sequence[Array] | Array) -> Array:
        """ℓ from v_e = C_eᵀy/σ²: `a_e(j) = exp(v_ej − G_jj/2) · (1/n) Σ_i a_{e−1}(i) exp(−⟨C_{e−1,i}, C_{e,j}⟩)`."""
        total = np.zeros(len(v[0]))
        before: Array | None = None
        for e, block in enumerate(self.blocks):
            a = v[e] - np.diag(block.gram) / 2
            top = a.max(axis=1, keepdims=True)
            a = np.exp(a - top)
            if before is not None and block.meeting is not None:
                first, met, inner = block.meeting
                a[:, :met] *= 1.0 + before[:, first:] @ np.expm1(-inner)
            heap = a.sum(axis=1)
            total += np.log(heap / self.places) + top[:, 0]
            before = a / heap[:, None]
        return total

    def _noise(self, generator: Generator, count: int) -> list[Array]:
        """C_eᵀζ for every epoch, ζ standard normal."""
        zeta = generator.standard_normal((count, self.rows))
        n, c = self.places, self.coefficients
        if c is None or 6 * len(c) > n:
            return [zeta[:, b.rows] @ b.columns for b in self.blocks]
        v = np.zeros((count, len(self.blocks) * n))
        for k, value in enumerate(c):
            v[:, : self.rows - k] += value * zeta[:, k:]
        return [np.ascontiguousarray(v[:, e * n : (e + 1) * n]) for e in range(len(self.blocks))]

    @cached_property
    def _mean(self) -> Array:
        """h̄ = C·E[u]/σ."""
        mean = np.zeros(self.rows)
        for block in self.blocks:
            mean[block.rows] += block.columns.mean(axis=1)
        return mean

    def averages(self) -> tuple[float, float]:
        square = 0.0
        for block in self.blocks:
            square += float(np.diag(block.gram).mean())
            if block.meeting is not None:
                square += 2 * float(block.meeting[2].sum()) / self.places**2
        return float(np.linalg.norm(self._mean)), square

    @cached_property
    def _mean_field(self) -> list[Array]:
        """⟨h̄, C_e,j⟩/‖h̄‖, an epoch an entry."""
        mean = self._mean
        return [mean[b.rows] @ b.columns / float(np.linalg.norm(mean)) for b in self.blocks]

    def along(self, generator: Generator, x: Array) -> Array:
        scale = sum(float(field.mean()) for field in self._mean_field)  # ‖h̄‖
        parts, low = [], 0
        for count in portions(len(x), self.rows):
            noise = self._noise(generator, count)
            shift = x[low : low + count] - np.sum([v.mean(axis=1) for v in noise], axis=0) / scale
            for v, field in zip(noise, self._mean_field, strict=True):
                v += shift[:, None] * field
            parts.append(self._recursion(noise))
            low += count
        return np.concatenate(parts)

    def replicas(self, generator: Generator, count: int, m: int) -> tuple[Array, Array]:
        parts = [self._replicas(generator, c, m) for c in portions(count, self.rows)]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def _replicas(self, generator: Generator, count: int, m: int) -> tuple[Array, Array]:
        epochs = len(self.blocks)
        field = np.zeros((epochs, count, self.places))
        self._take_part(field, generator.integers(self.places, size=(epochs, count)))
        weight = np.zeros(count)
        for _ in range(m - 1):
            chosen = np.empty((epochs, count), dtype=np.int64)
            for e in range(epochs):
                log_mean, chosen[e] = choose(generator, field[e])
                weight += log_mean
            self._take_part(field, chosen)
        for e, noise in enumerate(self._noise(generator, count)):
            field[e] += noise
        return self._recursion(field), weight

    def _take_part(self, field: Array, chosen: NDArray[np.int64]) -> None:
        """field += G u, for one pattern a draw."""
        for e, block in enumerate(self.blocks):
            field[e] += block.gram[chosen[e]]
            if block.meeting is None:
                continue
            first, met, inner = block.meeting
            padded = np.vstack([inner, np.zeros(met)])
            field[e][:, :met] += padded[np.where(chosen[e - 1] >= first, chosen[e - 1] - first, len(inner))]
            padded = np.vstack([inner.T, np.zeros(len(inner))])
            field[e - 1][:, first:] += padded[np.minimum(chosen[e], met)]

    def largest_norm(self) -> float:
        squares: Array = np.diag(self.blocks[0].gram)
        for block in self.blocks[1:]:
            reach = np.zeros((self.places, self.places))
            if block.meeting is not None:
                first, met, inner = block.meeting
                reach[first:, :met] = inner
            squares = (squares[:, None] + 2 * reach).max(axis=0) + np.diag(block.gram)
        return float(np.sqrt(squares.max()))

    def ceiling(self, m: int) -> float:
        return sum(self._largest_normaliser(i) for i in range(1, m))

    def _largest_normaliser(self, i: int) -> float:
        """An upper bound of log max_u Π_e (1/n) Σ_j exp(i (Gu)_ej): a chain over the places of three epochs in a row.

        With x, y, z ≥ 0 the fields of this epoch's place and of the two neighbours', where both y and z act,
        `e^(y+z) − 1 ≤ (e^y − 1) + (e^z − 1) + ½(e^y − 1)² + ½(e^z − 1)²` takes the sum apart.
        """
        n, last = self.places, len(self.blocks) - 1
        groups = np.unique(np.linspace(0, n, min(n, COARSE) + 1).astype(int))[:-1]
        size = len(groups)
        best: Array = np.zeros((size, size))  # over (place in the epoch before, place in this epoch)
        known: dict[tuple[int, int, int], Array] = {}  # the epochs in the middle are all alike
        for e, block in enumerate(self.blocks):
            following = self.blocks[e + 1].meeting if e < last else None
            alike = (id(block.gram), id(block.meeting), id(following))
            if e == last or alike not in known:
                own = np.exp(i * block.gram)  # (place, j)
                alone = own.mean(axis=1)
                back, ahead = np.zeros((n, n)), np.zeros((n, n))
                both = following is not None and block.meeting is not None and following[0] < block.meeting[1]
                if block.meeting is not None:
                    first, met, inner = block.meeting
                    back[first:] = _lifted(np.expm1(i * inner), both) @ own[:, :met].T / n
                if following is not None:
                    first, met, inner = following
                    ahead[:, :met] = own[:, first:] @ _lifted(np.expm1(i * inner), both) / n
                alone = np.maximum.reduceat(alone, groups)
                back, ahead = (_grouped(table, groups) for table in (back, ahead))
                if e == last:
                    return float((best + np.log(alone[None, :] + back)).max())
                known[alike] = np.log(alone[None, :, None] + back[:, :, None] + ahead[None, :, :])
            best = (best[:, :, None] + known[alike]).max(axis=0)
        raise AssertionError("an allocation has at least one epoch")


def _lifted(table: Array, both: bool) -> Array:
    return table + table**2 / 2 if both else table


def _grouped(table: Array, groups: NDArray[np.int64]) -> Array:
    return np.asarray(np.maximum.reduceat(np.maximum.reduceat(table, groups, axis=0), groups, axis=1))


def allocation(matrix: Array, steps_per_epoch: int, noise_multiplier: float) -> Allocation:
    """The mixture of random allocation for a materialised C (rows × T); T may end within an epoch."""
    n = steps_per_epoch
    epochs = -(-matrix.shape[1] // n)
    scaled = np.pad(matrix / noise_multiplier, ((0, 0), (0, epochs * n - matrix.shape[1])))
    reach = []
    for e in range(epochs):
        used = np.flatnonzero(np.any(scaled[:, e * n : (e + 1) * n] != 0, axis=1))
        reach.append(slice(int(used[0]), int(used[-1]) + 1))
    for e in range(2, epochs):
        if reach[e - 2].stop > reach[e].start:
            raise InputError(
                f"columns of epochs {e - 1} and {e + 1} share rows of C: only neighbouring epochs may; "
                f"take a band of at most {n}, or restart every epoch"
            )
    blocks = []
    for e, rows in enumerate(reach):
        columns = np.ascontiguousarray(scaled[rows, e * n : (e + 1) * n])
        meeting = None
        if e > 0:
            shared = slice(rows.start, max(rows.start, reach[e - 1].stop))
            inner = scaled[shared, (e - 1) * n : e * n].T @ scaled[shared, e * n : (e + 1) * n]
            if np.any(inner != 0):
                first = int(np.flatnonzero(np.any(inner != 0, axis=1))[0])
                met = int(np.flatnonzero(np.any(inner != 0, axis=0))[-1]) + 1
                meeting = (first, met, np.ascontiguousarray(inner[first:, :met]))
        blocks.append(EpochBlock(rows, columns, meeting))
    return Allocation(tuple(blocks), len(scaled))


def banded_allocation(
    coefficients: Array, steps_per_epoch: int, epochs: int, noise_multiplier: float, steps: int | None = None
) -> Allocation:
    """The same for a Toeplitz C with band up to n: the epochs but for the last one share one block."""
    c = np.trim_zeros(np.asarray(coefficients, dtype=np.float64), "b") / noise_multiplier
    n, p = steps_per_epoch, len(c)
    total = n * epochs if steps is None else steps
    if p > n and total > n:
        raise InputError(f"a band of {p} under random allocation with {n} steps an epoch: at most {n}")
    if total <= 2 * n:
        lower = np.zeros((total, total))
        for k, value in enumerate(c[:total]):
            lower[np.arange(k, total), np.arange(total - k)] = value
        return allocation(lower, n, 1.0)
    tall = np.zeros((n + p - 1, n))
    for k, value in enumerate(c):
        tall[np.arange(k, k + n), np.arange(n)] = value
    head = banded_allocation(c, n, 2, 1.0).blocks[1].meeting if p > 1 else None
    blocks = []
    for e in range(-(-total // n)):
        start, stop = e * n, min(total, e * n + n + p - 1)
        if stop - start == n + p - 1:
            blocks.append(EpochBlock(slice(start, stop), tall, head if e else None))
            continue
        cut = tall[: stop - start].copy()
        cut[:, max(0, total - start) :] = 0.0
        met = _meeting(tall, cut, n, p) if p > 1 else None
        blocks.append(EpochBlock(slice(start, stop), cut, met))
    shared = {id(b.columns): b for b in blocks}
    for block in blocks:  # one Gram matrix for all epochs alike
        if block is not shared[id(block.columns)]:
            block.__dict__["gram"] = shared[id(block.columns)].gram
    return Allocation(tuple(blocks), total, c)


def _meeting(tall: Array, cut: Array, n: int, p: int) -> tuple[int, int, Array] | None:
    """Where the epoch before spills into a (cut) epoch: places n−p+1 …, columns 0 … p−2."""
    rows = min(p - 1, len(cut))
    inner = tall[n : n + rows, n - p + 1 :].T @ cut[:rows, : p - 1]
    return (n - p + 1, p - 1, np.ascontiguousarray(inner)) if np.any(inner != 0) else None
