"""How much noise reaches the workload: the root mean square over steps of one coordinate of A C⁺ z, at σ = 1.

In units of clip / batch_size; multiply by σ, or by a sensitivity to compare strategies at the same μ. Only `dense` is
materialised. What each costs at a constant step size: trees and `blt` O(log T) small products, the other Toeplitz forms
a power series of as many terms as it takes C⁻¹ to die out. With a schedule: trees and identity O(T); other Toeplitz
forms O(T²) time and O(T) memory up to T = 20,000, above that base rows are sampled evenly (`SAMPLED` strata), good to
about 1e-3 of the figure. These are figures of merit: no privacy rests on them.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.signal import lfilter

from momentree.errors import InputError
from momentree.strategy.base import Array, Strategy
from momentree.strategy.bisr import Bisr
from momentree.strategy.blt import Blt
from momentree.strategy.dense import Dense
from momentree.strategy.identity import Identity
from momentree.strategy.restarted import Restarted
from momentree.strategy.span import Span, concatenate, step_span
from momentree.strategy.toeplitz import Toeplitz
from momentree.strategy.tree import Tree
from momentree.strategy.tree_ls import TreeLS, weights
from momentree.strategy.workload import Workload, iterate_workload, momentum_workload

EXACT_STEPS = 20_000
SAMPLED = 256
CHUNK_LEVEL = 14
QUIET = 1e-15
"""Coefficients of C⁻¹ below this for two bands on end are followed by ever smaller ones, and add up to nothing."""
OUTLET = np.array([0.0, 1.0])
"""The workload's state is (m, o); o is measured."""


def rms_error(strategy: Strategy, workload: Workload) -> float:
    """√(mean over t of Var (A C⁺ z)_t), z of variance 1 a base row, one coordinate, units of clip / batch_size."""
    if strategy.steps != workload.steps:
        raise InputError(f"a strategy of {strategy.steps} steps cannot serve a workload of {workload.steps}")
    if not isinstance(strategy, Restarted):
        return math.sqrt(float(span_of(strategy, workload, 0, workload.steps).energy) / workload.steps)
    block, times, last = strategy.inner.steps, strategy.times, strategy.last_steps
    whole_blocks = times if last == block else times - 1
    total: Span | None = None
    if workload.invariant and whole_blocks > 0:
        total = span_of(strategy.inner, workload, 0, block).power(whole_blocks)
    for k in range(0 if total is None else whole_blocks, times):
        part = span_of(strategy.inner, workload, k * block, last if k == times - 1 else block)
        total = part if total is None else total.then(part)
    assert total is not None
    return math.sqrt(float(total.energy) / workload.steps)


def momentum_rmse(strategy: Strategy, momentum: float) -> float:
    """Noise on m̂ at σ = 1."""
    return rms_error(strategy, momentum_workload(strategy.steps, momentum))


def iterate_rmse(strategy: Strategy, momentum: float) -> float:
    """Noise on Σ_{s≤t} m̂_s at σ = 1."""
    return rms_error(strategy, iterate_workload(strategy.steps, momentum))


def span_of(strategy: Strategy, workload: Workload, start: int, length: int) -> Span:
    """The first `length` steps of a strategy that starts after `start` steps of the workload; state (m, o)."""
    if isinstance(strategy, Tree):
        return _tree(strategy, workload, start, length)
    if isinstance(strategy, Blt) and workload.invariant:
        return blt_span(strategy.scales, strategy.decays, workload, length)
    if isinstance(strategy, Identity) and not workload.invariant:
        return _tree(Tree(strategy.steps, 0.0), workload, start, length)  # the same stream
    if isinstance(strategy, Toeplitz):
        if workload.invariant:
            return _toeplitz(strategy, workload, length)
        return _scheduled(strategy.inverse_coefficients(length), workload, start, length)
    if isinstance(strategy, Dense):
        return _dense(strategy, workload, start, length)
    raise InputError(f"no error formula for a strategy of type {type(strategy).__name__}: give one of this package's")


def _steps_of(workload: Workload, start: int, length: int) -> tuple[Array, Array]:
    """F_t and G_t of (m, o)_t = F_t (m, o)_{t−1} + G_t g_t for the steps of a span; one of each if all are equal."""
    beta, (alpha, alone) = workload.momentum, workload.first_response
    which = slice(0, 1) if workload.invariant else slice(start, start + length)
    eta, retain = workload.etas[which], workload.retains[which]
    transition = np.zeros((len(eta), 2, 2))
    transition[:, 0, 0] = beta
    transition[:, 1, 0] = eta * (beta * beta if workload.nesterov else beta)
    transition[:, 1, 1] = retain
    return transition, np.stack([np.full(len(eta), alpha), eta * alone], axis=-1)


def _quiet(workload: Workload, start: int, length: int) -> Span:
    """The span of the workload alone, without noise."""
    transition, inlet = _steps_of(workload, start, length)
    steps = step_span(transition, np.zeros_like(inlet), OUTLET)
    if workload.invariant:
        return steps.take(0).power(length)
    result: Span | None = None
    while len(steps.energy) > 1:  # pairs, then pairs of pairs; an odd one out at the end is the latest of all
        if len(steps.energy) % 2:
            odd = steps.take(-1)
            result = odd if result is None else odd.then(result)
            steps = steps.take(slice(0, -1))
        steps = steps.take(slice(0, None, 2)).then(steps.take(slice(1, None, 2)))
    first = steps.take(0)
    return first if result is None else first.then(result)


def _with_noise(quiet: Span, covariance: Array, energy: float) -> Span:
    return Span(quiet.transition, covariance, quiet.gramian, np.asarray(energy))


def _toeplitz(strategy: Toeplitz, workload: Workload, length: int) -> Span:
    """One base row makes the series (m, o) = workload / c, shifted; Σ_j (T − j) o_j² in all."""
    noise = _until_quiet(strategy, length)
    known = len(noise)
    alpha, alone = workload.first_response
    beta, eta = workload.momentum, float(workload.step_sizes)
    m = lfilter([alpha], [1.0, -beta], noise)
    u = lfilter([alone, -alone * workload.zero], [1.0, -beta], noise) if workload.nesterov else m
    o = lfilter([eta], [1.0, -float(workload.retain)], u)
    responses = np.stack([m, o])
    covariance = responses @ responses.T
    energy = float(np.dot(o * o, np.arange(length, length - known, -1)))
    if known < length:  # nothing comes in any more: (m, o) moves on by itself, and its sum is a span's too
        transition = _steps_of(workload, 0, 1)[0][0]
        rest = step_span(transition, transition @ responses[:, -1], OUTLET).power(length - known)
        covariance, energy = covariance + rest.covariance, energy + float(rest.energy)
    return _with_noise(_quiet(workload, 0, length), covariance, energy)


def _until_quiet(strategy: Toeplitz, length: int) -> Array:
    """C⁻¹'s coefficients up to where they have died out, at most `length` of them."""
    if isinstance(strategy, Bisr):
        return strategy.inverse_coefficients(min(length, strategy.band))
    band = len(strategy.coefficients)
    known = min(length, 32 * band)
    while True:
        noise = strategy.inverse_coefficients(known)
        if known == length or np.max(np.abs(noise[-2 * band :])) < QUIET:
            return noise
        known = min(length, 4 * known)


def _scheduled(noise: Array, workload: Workload, start: int, length: int) -> Span:
    """Base row s makes o_t = r_t o_{t−1} + η_t u_{t−s}: for all rows, or evenly sampled ones that count for more."""
    alpha, alone = workload.first_response
    beta = workload.momentum
    m = lfilter([alpha], [1.0, -beta], noise)
    u = lfilter([alone, -alone * workload.zero], [1.0, -beta], noise)
    eta, retain = workload.etas[start : start + length], workload.retains[start : start + length]
    strata = length if length <= EXACT_STEPS else SAMPLED
    edges = np.linspace(0, length, strata + 1)
    rows = ((edges[:-1] + edges[1:]) / 2).astype(np.int64)
    weight = np.diff(edges)
    o, energy = np.zeros(strata), 0.0
    if strata < length and np.all(retain == retain[0]):  # few rows, long ones: row by row
        for k, s in enumerate(rows):
            path = lfilter([1.0], [1.0, -float(retain[0])], eta[s:] * u[: length - s])
            o[k], energy = path[-1], energy + float(weight[k] * np.dot(path, path))
    else:
        born = np.searchsorted(rows, np.arange(length), side="right")
        for t in range(length):
            alive = born[t]
            o[:alive] = retain[t] * o[:alive] + eta[t] * u[t - rows[:alive]]
            energy += float(np.dot(weight[:alive], o[:alive] ** 2))
    responses = np.stack([m[length - 1 - rows], o])
    return _with_noise(_quiet(workload, start, length), (responses * weight) @ responses.T, energy)


def _dense(strategy: Dense, workload: Workload, start: int, length: int) -> Span:
    part = Workload(
        length, workload.momentum, workload.etas[start : start + length], workload.retains[start : start + length],
        workload.nesterov, workload.dampened,
    )  # fmt: skip
    noise = Dense(strategy.entries[:length, :length]).decoder()
    o = part.apply(noise)
    m = lfilter([workload.gain], [1.0, -workload.momentum], noise, axis=0)[-1]
    responses = np.stack([m, o[-1]])
    return _with_noise(_quiet(workload, start, length), responses @ responses.T, float(np.sum(o * o)))


def blt_span(scales: Array, decays: Array, workload: Workload, length: int) -> Span:
    """`blt` under a workload of constant step size; scales and decays may have leading axes. State (m, o, u_1, …)."""
    transition, inlet = (part[0] for part in _steps_of(workload, 0, 1))
    buffers = scales.shape[-1]
    size = 2 + buffers
    phi = np.zeros((*scales.shape[:-1], size, size))
    enters = np.concatenate([inlet, np.ones(buffers)])  # what w_t adds to each state
    phi[..., :2, :2] = transition
    phi[..., :, 2:] = -enters[:, None] * scales[..., None, :]
    phi[..., np.arange(2, size), np.arange(2, size)] += decays
    outlet = np.eye(size)[1]
    inlets = np.broadcast_to(enters, (*scales.shape[:-1], size))
    return step_span(phi, inlets, outlet).power(length).restrict(2)


def _tree(strategy: Tree, workload: Workload, start: int, length: int) -> Span:
    """Trees: a node's span is its children's, and then its own estimate takes the place of theirs.

    State (m, o, N), N the noise on the decayed prefix; the stream is N_t − decay·N_{t−1}, so what changes N_t at the
    last step of a node changes the state by inlet = (G_t, 1) times as much.
    """
    top = length.bit_length()
    own, children = weights(top, strategy.decay)
    if not isinstance(strategy, TreeLS):
        own, children = [1.0] * (top + 1), [0.0] * (top + 1)
    pieces: dict[int, Span] = {}
    if workload.invariant:
        spans, inlet = _leaves(workload, strategy.decay, start, length)
        for k in range(top):
            if k > 0:
                spans = _parents(spans, spans, inlet, own[k], children[k])
            if length >> k & 1:
                pieces[k] = spans.take(0)
    else:
        chunk = 1 << CHUNK_LEVEL
        tops: list[Span] = []
        ends: list[Array] = []
        for first in range(0, length, chunk):
            size = min(chunk, length - first)
            spans, inlet = _leaves(workload, strategy.decay, start + first, size)
            for k in range(CHUNK_LEVEL + 1):
                if k > 0:
                    spans, inlet = _level(spans, inlet, own[k], children[k])
                if size >> k & 1 and size < chunk:
                    pieces[k] = spans.take(len(spans.energy) - 1)
                if len(spans.energy) < 2 and (size < chunk or k == CHUNK_LEVEL):
                    break
            if size == chunk:
                tops.append(spans)
                ends.append(inlet)
        if tops:
            spans, inlet = concatenate(tops), np.concatenate(ends)
            for k in range(CHUNK_LEVEL, top):
                if k > CHUNK_LEVEL:
                    spans, inlet = _level(spans, inlet, own[k], children[k])
                if length >> k & 1:
                    pieces[k] = spans.take(len(spans.energy) - 1)
    total: Span | None = None
    for k in sorted(pieces, reverse=True):
        total = pieces[k] if total is None else total.then(pieces[k])
    assert total is not None
    return total.restrict(2)


def _leaves(workload: Workload, decay: float, start: int, length: int) -> tuple[Span, Array]:
    transition, inlet = _steps_of(workload, start, length)
    phi = np.zeros((len(inlet), 3, 3))
    phi[:, :2, :2] = transition
    phi[:, 2, 2] = decay
    inlet = np.concatenate([inlet, np.ones((len(inlet), 1))], axis=1)
    return step_span(phi, inlet, np.eye(3)[1]), inlet


def _level(spans: Span, inlet: Array, own: float, children: float) -> tuple[Span, Array]:
    """The parents of a row of nodes; a last node without a right neighbour has none."""
    pairs = 2 * (len(spans.energy) // 2)
    left, right = spans.take(slice(0, pairs, 2)), spans.take(slice(1, pairs, 2))
    inlet = inlet[1:pairs:2]
    return _parents(left, right, inlet, own, children), inlet


def _parents(left: Span, right: Span, inlet: Array, own: float, children: float) -> Span:
    """P ← M P Mᵀ + a² E Eᵀ with M = I + (b − 1) E e_Nᵀ; only the last output changes, and κ with it."""
    both = left.then(right)
    change = np.broadcast_to(np.eye(3), (*inlet.shape, 3)).copy()
    change[..., :, 2] += (children - 1.0) * inlet
    outer = inlet[..., :, None] * inlet[..., None, :]
    covariance = change @ both.covariance @ np.swapaxes(change, -1, -2) + own**2 * outer
    energy = both.energy + covariance[..., 1, 1] - both.covariance[..., 1, 1]
    return Span(both.transition, covariance, both.gramian, energy)
