"""One place an epoch, any C: the worst case from the Gram matrix in absolute value.

Guarantee: `one_per_epoch` returns an upper bound of max Σ_{e,f} |⟨C_{p_e}, C_{p_f}⟩| over one step p_e in each epoch e,
and says whether it is attained. It is the exact sensitivity² where moreover the inner products of an attaining pattern
are not negative (all contributions equal), and an upper bound of it otherwise.

Few patterns are gone through one by one. Else the pairwise sum is split: for any numbers λ

    max_p Σ_e θ_e(p_e) + Σ_{e<f} θ_ef(p_e, p_f)
        ≤ Σ_e max_p [θ_e(p) + Σ_f λ_{ef→e}(p)] + Σ_{e<f} max_{p,q} [θ_ef(p, q) − λ_{ef→e}(p) − λ_{ef→f}(q)],

and coordinate descent (max-product linear programming, Globerson & Jaakkola 2007) makes the right side small. The
bound is evaluated from the final λ as it stands here, so it holds however well the descent did.
"""

from __future__ import annotations

import math

import numpy as np

from momentree.privacy.local_search import Pattern, climb, gram_column, starts
from momentree.strategy.base import Array

MOST_PATTERNS = 200_000
WORK = 3_000_000
"""Epochs times steps times rounds of descent."""


def one_per_epoch(gram: Array, n: int, rounds: int = 60) -> tuple[float, bool, Pattern]:
    """(upper bound of the maximum, whether it is attained, the best pattern known). `gram` may have any signs."""
    absolute = np.abs(gram)
    steps = len(absolute)
    epochs = [np.arange(low, min(low + n, steps)) for low in range(0, steps, n)]
    if sum(math.log(len(e)) for e in epochs) <= math.log(MOST_PATTERNS):
        return enumerate_patterns(absolute, epochs)
    column, diagonal = gram_column(absolute), np.diag(absolute).copy()
    value, pattern = max((climb(column, diagonal, n, s) for s in starts(steps, n, 12)), key=lambda pair: pair[0])
    bound, guess = descend(absolute, epochs, max(5, min(rounds, WORK // (len(epochs) * steps))), value)
    again, other = climb(column, diagonal, n, guess)
    if again > value:
        value, pattern = again, other
    return max(bound, value), value >= bound * (1 - 1e-10), pattern


def enumerate_patterns(absolute: Array, epochs: list[Pattern]) -> tuple[float, bool, Pattern]:
    """Every pattern, one epoch added at a time."""
    patterns = epochs[0][:, None]
    values = np.diag(absolute)[epochs[0]]
    for steps in epochs[1:]:
        links = absolute[np.ix_(steps, np.arange(len(absolute)))][:, patterns].sum(axis=2)  # step × pattern
        values = (values[None, :] + 2.0 * links + np.diag(absolute)[steps][:, None]).reshape(-1)
        grown = np.broadcast_to(patterns[None], (len(steps), *patterns.shape)).reshape(-1, patterns.shape[1])
        patterns = np.column_stack([grown, np.repeat(steps, len(patterns))])
    best = int(np.argmax(values))
    return float(values[best]), True, patterns[best].astype(np.int64)


def descend(absolute: Array, epochs: list[Pattern], rounds: int, known: float) -> tuple[float, Pattern]:
    """The split bound after some rounds of descent, and the pattern that its terms point at.

    A round visits every pair of epochs, as in a tournament: pairs that share no epoch at the same time. A short last
    epoch repeats its first place, which changes no maximum.
    """
    count, n = len(epochs), max(len(e) for e in epochs)
    steps = np.array([np.concatenate([e, np.full(n - len(e), e[0])]) for e in epochs])
    single = np.diag(absolute)[steps].copy()  # θ_e + Σ λ into e
    into = np.zeros((count, count, n))  # into[e, f]: λ of the pair (e, f) into e

    def theta(e: Pattern, f: Pattern) -> Array:
        return np.asarray(2.0 * absolute[steps[e][:, :, None], steps[f][:, None, :]])

    best = np.inf
    guess = single.argmax(axis=1)
    games = tournament(count)
    for turn in range(rounds):
        for e, f in games:
            rest_e, rest_f = single[e] - into[e, f], single[f] - into[f, e]
            link = theta(e, f)
            into[e, f] = 0.5 * ((link + rest_f[:, None, :]).max(axis=2) - rest_e)
            into[f, e] = 0.5 * ((link + rest_e[:, :, None]).max(axis=1) - rest_f)
            single[e], single[f] = rest_e + into[e, f], rest_f + into[f, e]
        if turn % 5 == 4 or turn == rounds - 1:
            slack = sum(
                float((theta(e, f) - into[e, f][:, :, None] - into[f, e][:, None, :]).max(axis=(1, 2)).sum())
                for e, f in games
            )
            bound = float(single.max(axis=1).sum()) + slack
            stuck = bound > best * (1 - 1e-6)
            if bound < best:
                best, guess = bound, single.argmax(axis=1)
            if stuck or best <= known * (1 + 1e-12):
                break
    return best, steps[np.arange(count), guess].astype(np.int64)


def tournament(count: int) -> list[tuple[Pattern, Pattern]]:
    """Every pair of `count` epochs once, in rounds in which no epoch meets two others (the circle method)."""
    players = list(range(count + count % 2))
    games = []
    for _ in range(len(players) - 1):
        half = len(players) // 2
        pairs = [(a, b) for a, b in zip(players[:half], players[: half - 1 : -1], strict=True) if max(a, b) < count]
        games.append((np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])))
        players = [players[0], players[-1], *players[1:-1]]
    return [(a, b) for a, b in games if len(a)]
